/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Message check: whether a message of the private wire makes sense in every field.
 *
 * Each end takes the other for hostile: a program that has taken over allotd must not get more from
 * the hand than the hand offers, and the reader has NVIDIA's libraries in it. So each end checks a
 * message here, as bytes, before it looks at it: counts are within their arrays, enums and bools
 * have one of their values, texts end, numbers that become names of files are small.
 *
 * Pure.
 */
#include <stdbool.h>
#include <stddef.h>

#include "daemon/hand/wire.h"

/* In a helper: `size` bytes are a question for this one of the two. */
bool message_check_question(const union hand_message *message, size_t size, enum hand_role role);

/*
 * In allotd: `size` bytes are something that a helper says; `asked` is the kind of the question
 * that is open, 0 if none is. Texts that people read are made safe to show.
 */
bool message_check_reply(union hand_message *message, size_t size, uint32_t asked);
