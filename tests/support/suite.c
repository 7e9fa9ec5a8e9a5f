/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/suite.h"

#include <stdlib.h>

int suite_run(const char *name, const TTest *const *tests, size_t n, double timeout_seconds) {
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    SRunner *runner;
    int failed;

    /* No test depends on what an earlier one left in the home of whoever runs it. */
    setenv("ALLOT_CACHE_DIR", "", 1);
    tcase_set_timeout(tcase, timeout_seconds);
    for (size_t i = 0; i < n; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
