/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Job marks: what the environment of a process says of the lease that it runs under.
 *
 * ALLOT_LEASE has the number of the lease, ALLOT_TOKEN its token where it has one; children inherit
 * both. The user who runs a process writes its environment, so marks prove nothing beyond what that
 * user has. Plain values; any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/sha256.h"
#include "daemon/enforce/process.h"

struct job_marks {
    bool has_lease, has_token;
    uint64_t lease;
    uint8_t token[SHA256_SIZE]; /* its digest */
};

/*
 * Read the environment of process `pid`, a name in the folder /proc that `proc` is open on. It is
 * read to the end, because a mark may be in any part of it; each byte counts against `budget`,
 * which may run out. -ESRCH: the process ended meanwhile, or must be read again. -EACCES: not for
 * us.
 */
int job_marks_read(struct job_marks *ret, int proc, const char *pid, size_t *budget);

/*
 * The same, if the process belongs to user `uid`, and which process it is: 1. 0: it is another
 * user's or a zombie, which holds nothing and forks no more. -ESRCH: another process took its
 * number meanwhile, too.
 */
int job_marks_of_user(struct job_marks *ret, struct process_id *ret_process, int proc,
                      const char *pid, uid_t uid, size_t *budget);
