/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "ctl/gpuctl.h"
#include "wire/client.h"

static int run(struct gpuctl *ctl, int argc, char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    cleanup(freep) char *answer = NULL;
    struct allot_error err = {};
    union wire_reply reply;
    struct option_parser options;
    int r;

    option_parser_init(&options, ctl, &verb_version, argc, argv);
    if (option_parser_next(&options) < 0)
        return options.status;
    if (options.first < argc)
        return gpuctl_complain_usage(&verb_version, "unexpected argument \"%s\"",
                                     argv[options.first]);
    printf("gpuctl %s\n", ALLOT_VERSION);
    r = client_new(&client, ctl->socket, &err);
    if (r == 0)
        r = client_connect(client, &err);
    if (r == 0)
        r = client_call(client, WIRE_METHOD_GET_BOX, NULL, 5000000, &reply, NULL, &err);
    if (r == 0)
        r = asprintf(&answer, "allotd %s, driver %s (%s)", reply.get_box.box->version,
                     reply.get_box.box->driver_version ? reply.get_box.box->driver_version : "N/A",
                     reply.get_box.box->driver);
    else
        r = asprintf(&answer, "allotd: %s", err.text);
    if (r < 0)
        return gpuctl_complain(EXIT_FAILED, "out of memory");
    term_paragraph(&ctl->term, STYLE_PLAIN, 0, answer);
    return EXIT_OK;
}

const struct verb verb_version = {
    .name = "version",
    .operands = "",
    .summary = "the versions of gpuctl and of the running allotd",
    .word = WORD_NONE,
    .run = run,
};
