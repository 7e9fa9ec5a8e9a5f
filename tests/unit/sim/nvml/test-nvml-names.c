/* SPDX-License-Identifier: Apache-2.0 */
/* The names that the simulated libnvidia-ml.so.1 exports. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "tests/support/sim/nvml/nvml_library.h"
#include "tests/support/suite.h"

static const char *const names[] = {
#define X(name) #name,
#include "sim/nvml/names.def"
#undef X
};

static bool is_listed(const char *name) {
    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

START_TEST(exactly_the_listed_names_and_the_marker_are_exported) {
    FILE *nm = popen("nm -D --defined-only " SIM_NVML, "r");
    char line[256], name[200];
    unsigned n = 0;

    ck_assert_ptr_nonnull(nm);
    while (fgets(line, sizeof(line), nm)) {
        ck_assert_int_eq(sscanf(line, "%*s %*s %199[^@\n ]", name), 1);
        if (strcmp(name, "gpusimMarker"))
            ck_assert_msg(is_listed(name), "%s is exported and not in sim/nvml/names.def", name);
        n++;
    }
    ck_assert_int_eq(pclose(nm), 0);
    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        nvml_library_symbol(names[i]);
    ck_assert_uint_eq(n, ELEMENTSOF(names) + 1);
    ck_assert_ptr_nonnull(strstr(nvml_library_symbol("gpusimMarker"), "gpusim"));
}
END_TEST

START_TEST(every_function_of_nvml_h_is_listed) {
    FILE *header = fopen(NVML_HEADER, "r");
    char line[4096], name[200];
    unsigned n = 0;

    ck_assert_msg(header != NULL, "%s cannot be opened", NVML_HEADER);
    while (fgets(line, sizeof(line), header)) {
        const char *p = strstr(line, "DECLDIR nvml");

        if (!p || sscanf(p, "DECLDIR %199[A-Za-z0-9_]", name) != 1 ||
            p[strlen("DECLDIR ") + strlen(name)] != '(')
            continue;
        ck_assert_msg(is_listed(name), "%s is in nvml.h and not in sim/nvml/names.def", name);
        n++;
    }
    fclose(header);
    ck_assert_uint_gt(n, 400);
}
END_TEST

SUITE("nvml-names", exactly_the_listed_names_and_the_marker_are_exported,
      every_function_of_nvml_h_is_listed)
