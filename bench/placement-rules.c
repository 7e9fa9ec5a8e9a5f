/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement: modelled steps by the dynamic placer on the simulated box that GPUSIM_BOX names,
 * against what people do by hand (bench/placement-compare.h). Times are modelled, not measured on
 * GPUs. A rule that does not fit into memory shows as "memory".
 *
 *     placement-rules [NAME…]
 *
 * tries the graphs of these names, or all. The last line is for scripts: how many graphs, the
 * largest time relative to the best rule's, the sum of errors of expected times and the largest,
 * and the sum of logarithms of the best rule's time relative to the placer's.
 */
#include <allot/config.h>
#include <allot/log.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/placement-compare.h"
#include "bench/placement-graphs.h"

enum { BUDGET = 300000 };

/* Steps within so much of each other take as long. */
#define SAME 1.001

/* What is told of all graphs of a box. */
struct summary {
    unsigned n;
    double ratio;
    double off, worst_off;
    double gain;
};

static void print_time(double usec, int width) {
    if (isnan(usec))
        printf(" %*s", width, "-");
    else if (isinf(usec))
        printf(" %*s", width, "memory");
    else
        printf(" %*.1f", width, usec);
}

static int compare(unsigned i, const struct placement_box *box, struct summary *summary) {
    struct placement_comparison made;
    struct allot_error err = { 0 };
    double off;

    if (placement_compare(&made, i, box, &err) < 0) {
        fprintf(stderr, "placement: %s: %s\n", placement_graph_name(i), err.text);
        return -1;
    }
    off = (made.usec - made.expected_usec) / made.expected_usec;
    printf("%-14s", placement_graph_name(i));
    print_time(made.usec, 10);
    printf(" %10.1f %+5.1f%% %5s", made.expected_usec, 100 * off,
           made.is_split ? "split" : "whole");
    for (unsigned k = 0; k < PLACEMENT_RULES; k++)
        print_time(made.rule_usec[k], 14);
    printf(" %9.3fx%s\n", made.best_usec / made.usec,
           made.usec > made.best_usec * SAME ? "  A RULE WINS" : "");
    fflush(stdout);
    summary->n++;
    summary->ratio = fmax(summary->ratio, made.usec / made.best_usec);
    summary->gain += isinf(made.best_usec) ? 0 : log(made.best_usec / made.usec);
    summary->off += fabs(off);
    summary->worst_off = fmax(summary->worst_off, fabs(off));
    return 0;
}

static bool is_wanted(unsigned i, int argc, char **argv) {
    for (int k = 1; k < argc; k++)
        if (strcmp(argv[k], placement_graph_name(i)) == 0)
            return true;
    return argc < 2;
}

static void keep_quiet(void *userdata, enum allot_log_level level, const char *text) {
}

int main(int argc, char **argv) {
    const struct placement_box box = { (int)allot_devices(NULL, 0) - 1, BUDGET };
    struct summary summary = { 0 };

    if (box.n_gpus < 1) {
        fprintf(stderr, "placement: there is no GPU; ./run bench placement makes boxes\n");
        return 1;
    }
    allot_log_set(keep_quiet, NULL);
    printf("%-14s %10s %10s %6s %5s", "modelled us", "dynamic", "expected", "off", "form");
    for (unsigned k = 0; k < PLACEMENT_RULES; k++)
        printf(" %14s", placement_rule_name(k));
    printf(" %10s\n", "best rule");
    fflush(stdout);
    for (unsigned i = 0; i < PLACEMENT_GRAPHS; i++)
        if (is_wanted(i, argc, argv) && compare(i, &box, &summary) < 0)
            return 1;
    if (summary.n > 0)
        printf("summary %u %.4f %.4f %.4f %.4f\n", summary.n, summary.ratio, summary.off,
               summary.worst_off, summary.gain);
    return 0;
}
