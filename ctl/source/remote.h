/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Remote: other hosts, asked through their own gpuctl over ssh.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "ctl/gpuctl.h"
#include "wire/snapshot.h"

/* Replace this process by gpuctl on ctl->host, with argv without -H. `first` as in struct
 * option_parser. */
int remote_exec(const struct gpuctl *ctl, int argc, char **argv, int first);

#define REMOTE_HOSTS_MAX 128

struct remote_host {
    char name[256];            /* [USER@]HOST[:PORT] */
    struct snapshot *snapshot; /* NULL: it did not answer */
    bool is_managed;           /* else from its driver alone */
    uint64_t at_usec;          /* its own CLOCK_REALTIME */
    struct allot_error
        trouble; /* why there is no snapshot, or why it is not managed; code 0: all is well */
};

/* Hosts from a list with commas. -EINVAL: what is no name of a host; -E2BIG: too many. */
int remote_hosts_parse(const char *text, struct remote_host *ret, size_t *ret_n);
/*
 * Ask all of them at once for what `gpuctl status` shows; `words` are more options for it and end
 * with NULL. A host that does not answer in 20 s, or with an error, has its `trouble`. -ENOMEM.
 */
int remote_gather(const struct gpuctl *ctl, const char *const *words, struct remote_host *hosts,
                  size_t n);
void remote_hosts_done(struct remote_host *hosts, size_t n);
