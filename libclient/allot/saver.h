/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_SAVER_H
#define ALLOT_SAVER_H
/*
 * Checkpoints: the variables of a session in a file, and back. The format is safetensors, which
 * other programs read and write too; a tensor has the name of its variable.
 *
 *     allot_save(session, NULL, 0, "model.safetensors", &err);
 *     allot_restore(session, NULL, 0, "model.safetensors", &err);
 *
 * Any thread that keeps others from building the graph meanwhile. Runs may be under way: what is
 * saved are then values that some of them have written and others not. Functions return 0 or
 * -errno, with a sentence in `err` (NULL: not wanted):
 *
 *     -ENODATA   a variable that is to be saved has no value
 *     -EBADMSG   this is no such file, or it is damaged
 *     -ENOENT    no such file, or no tensor in it for a variable
 *     -EINVAL    type or shape of a tensor are not the variable's, or `variables` are none, or
 *                have one of them twice
 *     others     what the file system, or a device, said
 */
#include "session.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Write `n` variables (0: all of the graph) to a file. It is there whole, or it is as it was: it is
 * written under another name beside it, and renamed when it is on the disk.
 */
int allot_save(struct allot_session *session, const struct allot_output *variables, size_t n,
               const char *path, struct allot_error *err);
/*
 * Give `n` variables (0: all of the graph) the values of a file. Everything is checked before the
 * first of them is changed. What else the file has is left alone.
 */
int allot_restore(struct allot_session *session, const struct allot_output *variables, size_t n,
                  const char *path, struct allot_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
