/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allotd: arguments, limits of the process, and the exit status. Everything else is the manager's.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/server/server.h"
#include "driver/driver.h"

/* As sysexits.h has it; RestartPreventExitStatus= of the unit names it. */
#define EXIT_USAGE  2
#define EXIT_CONFIG 78

enum {
    OPT_CONFIG = 256,
    OPT_SOCKET,
    OPT_STATE_DIR,
    OPT_DB,
    OPT_DRIVER,
    OPT_HAND,
    OPT_READER,
    OPT_CHECK,
    OPT_LOG_LEVEL,
    OPT_VERSION,
};

static const struct option options[] = {
    { "config", required_argument, NULL, OPT_CONFIG },
    { "socket", required_argument, NULL, OPT_SOCKET },
    { "state-dir", required_argument, NULL, OPT_STATE_DIR },
    { "db", required_argument, NULL, OPT_DB },
    { "driver", required_argument, NULL, OPT_DRIVER },
    { "hand", required_argument, NULL, OPT_HAND },
    { "reader", required_argument, NULL, OPT_READER },
    { "check-config", no_argument, NULL, OPT_CHECK },
    { "log-level", required_argument, NULL, OPT_LOG_LEVEL },
    { "help", no_argument, NULL, 'h' },
    { "version", no_argument, NULL, OPT_VERSION },
    { 0 },
};

static const char help[] =
    "usage: allotd [OPTION…]\n"
    "\n"
    "Shares the GPUs of this box among people and jobs. Stays in the foreground.\n"
    "\n"
    "  --config FILE      " CONFIG_FILE " and its drop-ins in FILE.d/\n"
    "  --socket PATH      where clients find it (" MANAGER_SOCKET ")\n"
    "  --state-dir DIR    leases, kept over restarts (" MANAGER_STATE_DIR ")\n"
    "  --db FILE          accounts (" MANAGER_DB ")\n"
    "  --driver WHICH     auto, nvidia or sim (auto: sim where GPUSIM_BOX is set)\n"
    "  --hand SOCKET      connect to allot-hand there, do not start one\n"
    "  --reader SOCKET    likewise to allot-reader\n"
    "  --check-config     say what is wrong with the configuration, and end\n"
    "  --log-level LEVEL  err, warning, notice, info or debug (info)\n"
    "  -h, --help\n"
    "  --version\n"
    "\n"
    "An ordinary user gives every path and has a private box. Exit status: 0 ended\n"
    "as asked, 1 cannot go on, 2 wrong arguments, 78 wrong configuration.\n";

static int complain_usage(const char *what, const char *about) {
    fprintf(stderr, "allotd: %s%s\nallotd --help lists the options\n", what, about);
    return EXIT_USAGE;
}

/* Two descriptors for each client, as many clients as the system lets us have. */
static size_t raise_files(void) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 1024;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur > 1 << 20 ? 1 << 20 : (size_t)limit.rlim_cur;
}

/*
 * systemd does not try again after a wrong configuration: the administrator sees the mistake in the
 * unit's status, and the waiting clients are told. After any other failure it tries again, and the
 * clients go on waiting.
 */
static int give_up(int r, const struct allot_error *err) {
    char reason[sizeof(err->text) + 96];

    log_line(LOG_ERR, NULL, "%s", err->text);
    if (r != -EINVAL) {
        log_status("cannot start: %s", err->text);
        return EXIT_FAILURE;
    }
    log_status("wrong configuration: %s", err->text);
    snprintf(reason, sizeof(reason), "allotd cannot run, because its configuration is wrong: %s",
             err->text);
    server_refuse_waiting(reason);
    return EXIT_CONFIG;
}

int main(int argc, char **argv) {
    struct manager_options given = {
        .config = CONFIG_FILE,
        .socket = MANAGER_SOCKET,
        .state_dir = MANAGER_STATE_DIR,
        .db = MANAGER_DB,
        .driver = DRIVER_AUTO,
    };
    struct allot_error err = { 0 };
    struct manager *manager;
    bool check = false;
    int level = LOG_INFO, c, r;

    opterr = 0; /* one message is enough: ours */
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) >= 0)
        switch (c) {
        case OPT_CONFIG:
            given.config = optarg;
            break;
        case OPT_SOCKET:
            given.socket = optarg;
            break;
        case OPT_STATE_DIR:
            given.state_dir = optarg;
            break;
        case OPT_DB:
            given.db = optarg;
            break;
        case OPT_DRIVER:
            if (driver_choice_parse(&given.driver, optarg) < 0)
                return complain_usage("--driver must be auto, nvidia or sim, not ", optarg);
            break;
        case OPT_HAND:
            given.hand = optarg;
            break;
        case OPT_READER:
            given.reader = optarg;
            break;
        case OPT_CHECK:
            check = true;
            break;
        case OPT_LOG_LEVEL:
            if (log_level_parse(&level, optarg) < 0)
                return complain_usage(
                    "--log-level must be err, warning, notice, info or debug, not ", optarg);
            break;
        case 'h':
            fputs(help, stdout);
            return EXIT_SUCCESS;
        case OPT_VERSION:
            puts("allotd " ALLOT_VERSION);
            return EXIT_SUCCESS;
        case ':':
            return complain_usage("an argument is missing after ", argv[optind - 1]);
        default:
            return complain_usage("no such option: ", argv[optind - 1]);
        }
    if (optind < argc)
        return complain_usage("unexpected argument: ", argv[optind]);
    if (check)
        return config_check_main(given.config);

    log_open(level);
    umask(0022);
    signal(SIGPIPE, SIG_IGN); /* a client that is gone is an error of its own connection */
    given.max_files = raise_files();
    r = manager_new(&manager, &given, &err);
    if (r < 0)
        return give_up(r, &err);
    r = manager_run(manager, &err);
    if (r < 0)
        log_line(LOG_ERR, NULL, "%s", err.text);
    manager_free(manager);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
