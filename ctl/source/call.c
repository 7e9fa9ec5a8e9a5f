/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/source/call.h"

#include <errno.h>

/* Time limit of an administrator's call: a drain waits until the hand has closed its handles. */
#define CALL_USEC (60 * UINT64_C(1000000))
/* Time limit of a call that only reads. */
#define LOOK_USEC (5 * UINT64_C(1000000))

int call_complain(int r, const struct failure *failure, const struct allot_error *err) {
    int status;

    switch (failure ? failure->code : FAILURE_NONE) {
    case FAILURE_NONE:
        status = r == -EACCES || r == -EPERM ? EXIT_REFUSED
                 : r == -ENOMEM              ? EXIT_FAILED
                                             : EXIT_NO_DAEMON;
        break;
    case FAILURE_DENIED:
    case FAILURE_DRAINING:
    case FAILURE_BUSY:
    case FAILURE_PERMISSION_DENIED:
        status = EXIT_REFUSED;
        break;
    case FAILURE_NO_MEMORY:
    case FAILURE_TIMEOUT:
    case FAILURE_DEADLOCK:
        status = EXIT_WAITING;
        break;
    case FAILURE_NO_DEVICE:
    case FAILURE_NOT_FOUND:
        status = EXIT_NOT_FOUND;
        break;
    default:
        status = EXIT_FAILED;
    }
    return gpuctl_complain(status, "%s", err->text);
}

int call_connect(struct client **ret, const struct gpuctl *ctl) {
    cleanup(client_freep) struct client *client = NULL;
    struct allot_error err = {};
    int r;

    r = client_new(&client, ctl->socket, &err);
    if (r == 0)
        r = client_connect(client, &err);
    if (r < 0)
        return call_complain(r, NULL, &err);
    *ret = TAKE(client);
    return EXIT_OK;
}

int call_make(struct client *client, enum wire_method method, const void *parameters,
              union wire_reply *ret) {
    struct failure failure = {};
    struct allot_error err = {};
    int r;

    r = client_call(client, method, parameters,
                    method == WIRE_METHOD_GET_BOX ? LOOK_USEC : CALL_USEC, ret, &failure, &err);
    return r < 0 ? call_complain(r, &failure, &err) : EXIT_OK;
}
