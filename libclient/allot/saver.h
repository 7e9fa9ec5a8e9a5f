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
 * Any thread may call these functions while no other thread builds the graph. Runs may be under
 * way: the file then has values that some of them have written already and others not yet.
 * Functions return 0 or -errno, with a message in `err` (NULL: not wanted):
 *
 *     -ENODATA   a variable to be saved has no value
 *     -EBADMSG   not a safetensors file, or damaged
 *     -ENOENT    no such file, or no tensor in it for a variable
 *     -EINVAL    a tensor's type or shape differs from the variable's; or `variables` has an output
 *                that is not a variable, or has the same one twice
 *     -ENOTRECOVERABLE  a GPU is lost (session.h)
 *     others     the error of the file system or of a device
 */
#include "session.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Write `n` variables (0: all of the graph) to a file. The file is either written completely or
 * left as it was: the data goes to another file beside it, which is renamed when it is on the disk.
 */
int allot_save(struct allot_session *session, const struct allot_output *variables, size_t n,
               const char *path, struct allot_error *err);
/*
 * Give `n` variables (0: all of the graph) the values of a file. The call checks everything before
 * it changes the first variable. It ignores other tensors of the file.
 */
int allot_restore(struct allot_session *session, const struct allot_output *variables, size_t n,
                  const char *path, struct allot_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
