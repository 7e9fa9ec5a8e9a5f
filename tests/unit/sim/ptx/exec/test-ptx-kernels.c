/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that nvcc made of tests/kernels, without and with optimisation, against the CPU. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "tests/support/sim/ptx/ptx_fixture.h"
#include "tests/support/suite.h"

static const char *const numeric[] = { PTX_DIR "/numeric.O0.ptx", PTX_DIR "/numeric.O3.ptx",
                                       PTX_DIR "/numeric.fast.ptx" };
static const char *const language[] = { PTX_DIR "/language.O0.ptx", PTX_DIR "/language.O3.ptx",
                                        PTX_DIR "/language.G.ptx" };

static void near(double got, double want, double relative, double absolute, const char *what,
                 int i) {
    if (fabs(got - want) > absolute + relative * fabs(want) || isnan(got) != isnan(want))
        ck_abort_msg("%s[%d] is %.9g, not %.9g", what, i, got, want);
}

/* Something that looks like measured data. */
static float sample(int i, int k) {
    return (float)((i * 7919 + k * 104729) % 20011) / 1000 - 10;
}

static uint64_t floats(struct ptx_fixture *fixture, int n, int k) {
    uint64_t address = ptx_fixture_alloc(fixture, (uint64_t)n * 4);
    float *host = ptx_fixture_host(fixture, address);

    for (int i = 0; i < n; i++)
        host[i] = sample(i, k);
    return address;
}

#define EACH_BUILD(paths)                                                                          \
    struct ptx_fixture fixture;                                                                    \
    for (size_t build = 0; build < ELEMENTSOF(paths); build++)                                     \
        for (int once = (ptx_fixture_init_file(&fixture, paths[build]), 1); once;                  \
             once = (ptx_fixture_done(&fixture), 0))

START_TEST(elementwise_kernels_agree_with_the_cpu) {
    EACH_BUILD(numeric) {
        int n = 1000, quarter = n / 4;
        float rate = 0.1f, decay = 0.01f;
        uint64_t a = floats(&fixture, n, 1), b = floats(&fixture, n, 2), c = floats(&fixture, n, 3);
        float *host = ptx_fixture_host(&fixture, c);

        ptx_fixture_run(&fixture, "add", 4, 256, 0, PTX_PARAMS(&a, &b, &c, &n));
        for (int i = 0; i < n; i++)
            near(host[i], sample(i, 1) + sample(i, 2), 1e-6, 1e-6, "add", i);
        ptx_fixture_run(&fixture, "relu4", 2, 128, 0, PTX_PARAMS(&a, &c, &quarter));
        for (int i = 0; i < n; i++)
            near(host[i], fmaxf(sample(i, 1), 0), 0, 0, "relu", i);
        ptx_fixture_run(&fixture, "sgd", 4, 256, 0, PTX_PARAMS(&c, &b, &rate, &decay, &n));
        for (int i = 0; i < n; i++) {
            float w = fmaxf(sample(i, 1), 0);

            near(host[i], w - rate * (sample(i, 2) + decay * w), 1e-5, 1e-6, "sgd", i);
        }
    }
}
END_TEST

START_TEST(tiled_matmul_agrees_with_the_cpu) {
    EACH_BUILD(numeric) {
        int n = 48;
        uint64_t a = floats(&fixture, n * n, 1), b = floats(&fixture, n * n, 2);
        uint64_t c = floats(&fixture, n * n, 3);
        struct ptx_result result;
        float *host = ptx_fixture_host(&fixture, c);

        ptx_fixture_launch(&fixture, "matmul", (uint32_t[]){ 3, 3, 1 }, (uint32_t[]){ 16, 16, 1 },
                           0, PTX_PARAMS(&a, &b, &c, &n), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_NONE);
        for (int i = 0; i < n * n; i++) {
            double sum = 0;

            for (int k = 0; k < n; k++)
                sum += (double)sample(i / n * n + k, 1) * sample(k * n + i % n, 2);
            near(host[i], sum, 1e-4, 1e-3, "matmul", i);
        }
    }
}
END_TEST

START_TEST(softmax_and_sums_agree_with_the_cpu) {
    EACH_BUILD(numeric) {
        int n = 300, rows = 5, total = n * rows;
        uint64_t a = floats(&fixture, total, 1), c = floats(&fixture, total, 2);
        uint64_t sum = ptx_fixture_alloc(&fixture, 4);
        float *host = ptx_fixture_host(&fixture, c);
        double want = 0;

        ptx_fixture_run(&fixture, "softmax", (uint32_t)rows, 128, 512, PTX_PARAMS(&a, &c, &n));
        for (int row = 0; row < rows; row++) {
            double top = -1e30, all = 0;

            for (int i = 0; i < n; i++)
                top = fmax(top, sample(row * n + i, 1));
            for (int i = 0; i < n; i++)
                all += exp(sample(row * n + i, 1) - top);
            for (int i = 0; i < n; i++)
                near(host[row * n + i], exp(sample(row * n + i, 1) - top) / all, 1e-4, 1e-9,
                     "softmax", row * n + i);
        }
        ptx_fixture_run(&fixture, "reduce", 3, 256, 0, PTX_PARAMS(&a, &sum, &total));
        for (int i = 0; i < total; i++)
            want += sample(i, 1);
        near(*(float *)ptx_fixture_host(&fixture, sum), want, 1e-4, 1e-2, "reduce", 0);
    }
}
END_TEST

START_TEST(histogram_counts_every_byte) {
    EACH_BUILD(numeric) {
        int n = 10000;
        uint64_t in = ptx_fixture_alloc(&fixture, (uint64_t)n),
                 out = ptx_fixture_alloc(&fixture, 1024);
        unsigned char *bytes = ptx_fixture_host(&fixture, in);
        unsigned *got = ptx_fixture_host(&fixture, out), want[256] = { 0 };

        for (int i = 0; i < n; i++)
            want[bytes[i] = (unsigned char)((unsigned)(i * i) * 31 + (unsigned)i / 7)]++;
        ptx_fixture_run(&fixture, "histogram", 7, 96, 0, PTX_PARAMS(&in, &out, &n));
        ck_assert_mem_eq(got, want, sizeof(want));
    }
}
END_TEST

START_TEST(libdevice_functions_agree_with_libm) {
    EACH_BUILD(numeric) {
        int n = 500;
        bool fast = build == 2;
        double loose = fast ? 2e-3 : 4e-6, absolute = fast ? 2e-3 : 1e-6;
        uint64_t in = floats(&fixture, n, 1), out = floats(&fixture, 12 * n, 2);
        uint64_t din = ptx_fixture_alloc(&fixture, (uint64_t)n * 8);
        uint64_t dout = ptx_fixture_alloc(&fixture, (uint64_t)n * 48);
        float *got = ptx_fixture_host(&fixture, out);
        double *dhost = ptx_fixture_host(&fixture, din), *dgot = ptx_fixture_host(&fixture, dout);

        ptx_fixture_run(&fixture, "functions", 4, 128, 0, PTX_PARAMS(&in, &out, &n));
        for (int i = 0; i < n; i++) {
            double x = sample(i, 1), y = fabs(x);
            const double want[] = {
                sin(x),         cos(x),       exp(x),          log((float)y + 0.5f),
                tanh(x),        pow(y, 1.7f), sqrt(y),         erf(x),
                atan2(x, 0.7f), x / 3.7f,     1 / sqrt(y + 1), cbrt(x)
            };

            for (int k = 0; k < 12; k++)
                near(got[k * n + i], want[k], loose, absolute, "function", k * 1000 + i);
        }
        for (int i = 0; i < n; i++)
            dhost[i] = sample(i, 3);
        ptx_fixture_run(&fixture, "functions_double", 4, 128, 0, PTX_PARAMS(&din, &dout, &n));
        for (int i = 0; i < n; i++) {
            double x = dhost[i], y = fabs(x);
            const double want[] = { sin(x), exp(x), log(y + 0.5), x / 3.7, sqrt(y), pow(y, 1.7) };

            for (int k = 0; k < 6; k++)
                near(dgot[k * n + i], want[k], 1e-14, 1e-15, "double function", k * 1000 + i);
        }
    }
}
END_TEST

START_TEST(black_scholes_agrees_with_the_cpu) {
    EACH_BUILD(numeric) {
        int n = 200;
        uint64_t s = floats(&fixture, n, 1), x = floats(&fixture, n, 2), c = floats(&fixture, n, 3);
        uint64_t p = floats(&fixture, n, 4);
        float *price = ptx_fixture_host(&fixture, s), *strike = ptx_fixture_host(&fixture, x);
        float *call = ptx_fixture_host(&fixture, c), *put = ptx_fixture_host(&fixture, p);

        for (int i = 0; i < n; i++) {
            price[i] = price[i] + 20;
            strike[i] = strike[i] + 20;
        }
        ptx_fixture_run(&fixture, "black_scholes", 2, 128, 0, PTX_PARAMS(&s, &x, &c, &p, &n));
        for (int i = 0; i < n; i++) {
            double d1 =
                (log((double)price[i] / strike[i]) + (0.02 + 0.045) * 1.5) / (0.3 * sqrt(1.5));
            double d2 = d1 - 0.3 * sqrt(1.5), k = strike[i] * exp(-0.03);
            double n1 = erfc(-d1 / sqrt(2)) / 2, n2 = erfc(-d2 / sqrt(2)) / 2;

            near(call[i], price[i] * n1 - k * n2, 1e-4, 2e-4, "call", i);
            near(put[i], k * (1 - n2) - price[i] * (1 - n1), 1e-4, 2e-4, "put", i);
        }
    }
}
END_TEST

START_TEST(functions_call_functions_and_themselves) {
    EACH_BUILD(language) {
        uint64_t f = ptx_fixture_alloc(&fixture, 256), g = ptx_fixture_alloc(&fixture, 512);
        int *got = ptx_fixture_host(&fixture, f);
        long long *got_g = ptx_fixture_host(&fixture, g);

        ptx_fixture_run(&fixture, "recursion", 1, 64, 0, PTX_PARAMS(&f, &g));
        for (int i = 0; i < 64; i++) {
            int factorial = 1, a = 0, b = 1;

            for (int k = 2; k <= i % 13; k++)
                factorial *= k;
            for (int k = 0; k < i % 11; k++) {
                int next = a + b;

                a = b;
                b = next;
            }
            ck_assert_int_eq(got[i], factorial);
            ck_assert_int_eq(got_g[i], a);
        }
        ptx_fixture_run(&fixture, "pointers", 1, 64, 0, PTX_PARAMS(&f));
        for (int i = 0; i < 64; i++)
            ck_assert_int_eq(got[i], i % 3 == 0 ? 2 * i : i % 3 == 1 ? i * i : -i);
    }
}
END_TEST

START_TEST(variables_and_structs_are_where_they_should_be) {
    static const int primes[] = { 2, 3, 5, 7, 11, 13, 17, 19 };
    static const char *const words[] = { "zero", "one", "two" };
    struct record {
        char tag;
        double weight;
        int values[5];
        short last;
    } record = { 3, 0.5, { 10, 20, 30, 40, 50 }, -7 };

    EACH_BUILD(language) {
        uint64_t out = ptx_fixture_alloc(&fixture, 256), reals = ptx_fixture_alloc(&fixture, 512);
        int *got = ptx_fixture_host(&fixture, out), index = 4;
        double *real = ptx_fixture_host(&fixture, reals);

        ptx_fixture_run(&fixture, "variables", 1, 64, 0, PTX_PARAMS(&out));
        for (int i = 0; i < 64; i++)
            ck_assert_int_eq(got[i], primes[i & 7] * 1000 + words[i % 3][i % 3]);
        ck_assert_int_eq(
            *(int *)ptx_fixture_host(&fixture, ptx_fixture_variable(&fixture, "counter")), 64);
        ptx_fixture_run(&fixture, "records", 1, 64, 0, PTX_PARAMS(&record, &index, &reals));
        for (int i = 0; i < 64; i++) {
            struct record copy = record;

            copy.values[i % 5] += index;
            ck_assert(real[i] == copy.weight + copy.values[(i + index) % 5] + copy.tag + copy.last);
        }
    }
}
END_TEST

START_TEST(local_arrays_sort) {
    EACH_BUILD(language) {
        uint64_t data = ptx_fixture_alloc(&fixture, 64 * 64);
        int *got = ptx_fixture_host(&fixture, data), n = 16;

        for (int i = 0; i < 1024; i++)
            got[i] = (i * 7919) % 1000 - 500;
        ptx_fixture_run(&fixture, "sort", 1, 64, 0, PTX_PARAMS(&data, &n));
        for (int i = 0; i < 1024; i++)
            ck_assert(i % 16 == 0 || got[i - 1] <= got[i]);
    }
}
END_TEST

static int diverged(int x) {
    int sum = 0;

    for (int k = 0; k < x; k++) {
        if (k % 3 == 0)
            continue;
        for (int m = 0; m < k % 5; m++) {
            if ((x + m) % 7 == 6)
                break;
            sum += m * k;
        }
        if (sum > 5000)
            break;
    }
    switch (x % 11) {
    case 0:
        return sum + 1;
    case 1:
        return (sum ^ 0x55) - 7;
    case 2:
        return sum - 7;
    case 3:
        return sum * 3;
    case 4:
        return -1;
    case 5:
        return sum << 2;
    case 6:
        return sum | 1024;
    case 7:
        return -sum;
    default:
        return sum + x;
    }
}

START_TEST(lanes_that_go_different_ways_come_back) {
    EACH_BUILD(language) {
        int n = 777;
        uint64_t in = ptx_fixture_alloc(&fixture, (uint64_t)n * 4),
                 out = ptx_fixture_alloc(&fixture, (uint64_t)n * 4);
        int *host = ptx_fixture_host(&fixture, in), *got = ptx_fixture_host(&fixture, out);

        for (int i = 0; i < n; i++)
            host[i] = (i * 37) % 97;
        ptx_fixture_run(&fixture, "diverge", 7, 128, 0, PTX_PARAMS(&in, &out, &n));
        for (int i = 0; i < n; i++)
            ck_assert_int_eq(got[i], diverged(host[i]));
    }
}
END_TEST

START_TEST(warps_vote_and_shuffle) {
    EACH_BUILD(language) {
        uint64_t out = ptx_fixture_alloc(&fixture, 640 * 4);
        int *got = ptx_fixture_host(&fixture, out), v[32];
        unsigned even = 0;

        ptx_fixture_run(&fixture, "warps", 1, 64, 0, PTX_PARAMS(&out));
        for (int i = 0; i < 32; i++) {
            v[i] = i % 2 ? i + i * (i - 1) / 2 : 1000 + i;
            even |= (unsigned)(v[i] % 2 == 0) << i;
        }
        for (int t = 0; t < 64; t++) {
            int i = t % 32;
            unsigned same = 0;

            for (int k = 0; k < 32; k++)
                same |= (unsigned)(k / 5 == i / 5) << k;
            ck_assert_int_eq(got[t], v[i]);
            ck_assert_uint_eq((unsigned)got[64 + t], even);
            ck_assert_int_eq(got[128 + t], 3);
            ck_assert_uint_eq((unsigned)got[192 + t], same);
            ck_assert_int_eq(got[256 + t], v[(i + 5) % 32]);
            ck_assert_int_eq(got[320 + t], v[i < 3 ? i : i - 3]);
            ck_assert_int_eq(got[384 + t], v[i ^ 9]);
            ck_assert_int_eq(got[448 + t], v[i % 8 < 6 ? i + 2 : i]);
            if (i < 20)
                ck_assert_int_eq(got[512 + t], v[i / 2]);
            ck_assert_int_eq(got[576 + t], 1);
        }
    }
}
END_TEST

START_TEST(threads_that_wait_for_threads_get_there) {
    EACH_BUILD(language) {
        uint64_t lock = ptx_fixture_alloc(&fixture, 4), value = ptx_fixture_alloc(&fixture, 4);
        uint64_t arrived = ptx_fixture_alloc(&fixture, 4),
                 out = ptx_fixture_alloc(&fixture, 24 * 64 * 4);
        int *host = ptx_fixture_host(&fixture, value), *got = ptx_fixture_host(&fixture, out);

        ptx_fixture_run(&fixture, "locks", 3, 64, 0, PTX_PARAMS(&lock, &value));
        ck_assert_int_eq(*host, 192);
        ptx_fixture_run(&fixture, "locks_in_calls", 2, 64, 0, PTX_PARAMS(&lock, &value));
        ck_assert_int_eq(*host, 192 + 128);
        fixture.defaults.cooperative = true;
        ptx_fixture_run(&fixture, "grid_barrier", 24, 64, 0, PTX_PARAMS(&arrived, &out));
        for (int i = 0; i < 24 * 64; i++)
            ck_assert_int_eq(got[i], 24);
    }
}
END_TEST

START_TEST(the_last_block_sees_what_all_wrote) {
    EACH_BUILD(language) {
        int n = 5000, want = 0;
        uint64_t in = ptx_fixture_alloc(&fixture, (uint64_t)n * 4),
                 part = ptx_fixture_alloc(&fixture, 64);
        uint64_t out = ptx_fixture_alloc(&fixture, 4);
        int *host = ptx_fixture_host(&fixture, in);

        for (int i = 0; i < n; i++)
            want += host[i] = i * 3 - 700;
        for (int round = 0; round < 3; round++) {
            *(int *)ptx_fixture_host(&fixture, out) = 0;
            ptx_fixture_run(&fixture, "last_block", 16, 96, 0, PTX_PARAMS(&in, &part, &out, &n));
            ck_assert_int_eq(*(int *)ptx_fixture_host(&fixture, out), want);
        }
    }
}
END_TEST

START_TEST(atomics_lose_nothing) {
    EACH_BUILD(language) {
        const int n = 16 * 128;
        uint64_t i = ptx_fixture_alloc(&fixture, 16), u = ptx_fixture_alloc(&fixture, 20);
        uint64_t l = ptx_fixture_alloc(&fixture, 16), f = ptx_fixture_alloc(&fixture, 4);
        uint64_t d = ptx_fixture_alloc(&fixture, 8);
        int *gi = ptx_fixture_host(&fixture, i);
        unsigned *gu = ptx_fixture_host(&fixture, u), x = 0;
        unsigned long long *gl = ptx_fixture_host(&fixture, l);

        gu[0] = ~0u;
        gu[4] = 50;
        ptx_fixture_run(&fixture, "atomics", 16, 128, 0, PTX_PARAMS(&i, &u, &l, &f, &d));
        for (int t = 0; t < n; t++)
            x ^= (unsigned)t;
        ck_assert_int_eq(gi[0], n * (n - 1) / 2);
        ck_assert_int_eq(gi[1], -n * (n - 1) / 2);
        ck_assert_int_eq(gi[2], -(n - 1));
        ck_assert_int_eq(gi[3], n - 1);
        ck_assert_uint_eq(gu[0], 0);
        ck_assert_uint_eq(gu[1], 0x7fffffff);
        ck_assert_uint_eq(gu[2], x);
        ck_assert_uint_eq(gu[3], (unsigned)n % 10);
        ck_assert_uint_eq(gu[4], (50 + 101 * 30 - (unsigned)n) % 101);
        ck_assert(gl[0] == (unsigned long long)n * (n - 1) / 2 << 33);
        ck_assert(gl[1] == (unsigned long long)(n - 1) << 40);
        ck_assert(*(float *)ptx_fixture_host(&fixture, f) == n * 0.5f);
        ck_assert(*(double *)ptx_fixture_host(&fixture, d) == n * 0.25);
    }
}
END_TEST

static int stacked(int n, int depth) {
    return depth * n * (n - 1) / 2 + (depth ? stacked(n % 5 + 1, depth - 1) : 0);
}

START_TEST(memory_on_the_stack_is_each_threads_own) {
    EACH_BUILD(language) {
        uint64_t out = ptx_fixture_alloc(&fixture, 100 * 4);
        int *got = ptx_fixture_host(&fixture, out);

        ptx_fixture_run(&fixture, "stacks", 1, 100, 0, PTX_PARAMS(&out));
        for (int t = 0; t < 100; t++)
            ck_assert_int_eq(got[t], stacked(t % 9 + 1, t % 4) + t % 9 + 1 + 1);
    }
}
END_TEST

START_TEST(wide_integers_and_bytes_agree_with_the_cpu) {
    EACH_BUILD(language) {
        int n = 300;
        uint64_t in = ptx_fixture_alloc(&fixture, (uint64_t)n * 24);
        uint64_t out = ptx_fixture_alloc(&fixture, (uint64_t)n * 40);
        unsigned long long *x = ptx_fixture_host(&fixture, in),
                           *got = ptx_fixture_host(&fixture, out);

        for (unsigned i = 0; i < 3U * (unsigned)n; i++)
            x[i] = (i + 1) * 0x9e3779b97f4a7c15 >> (i % 3 == 2 ? i % 61 : i % 13 * 4) | 1;
        ptx_fixture_run(&fixture, "wide", 3, 128, 0, PTX_PARAMS(&in, &out, &n));
        for (int i = 0; i < n; i++) {
            unsigned __int128 a = (unsigned __int128)x[3 * i] << 64 | x[3 * i + 1];
            unsigned __int128 q = a / x[3 * i + 2];
            unsigned u = (unsigned)x[3 * i], v = (unsigned)x[3 * i + 1], apart = 0, sum = 0,
                     sum2 = 0;

            for (int k = 0; k < 32; k += 8) {
                int d = abs((int)(u >> k & 255) - (int)(v >> k & 255));

                apart |= (unsigned)d << k;
                sum += (unsigned)d;
            }
            for (int k = 0; k < 32; k += 16)
                sum2 += (unsigned)abs((int)(u >> k & 0xffff) - (int)(v >> k & 0xffff));
            ck_assert_uint_eq(got[5 * i], (unsigned long long)(q >> 64));
            ck_assert_uint_eq(got[5 * i + 1], (unsigned long long)q);
            ck_assert_uint_eq(got[5 * i + 2],
                              (unsigned long long)((__int128)a % (long long)x[3 * i + 2]));
            ck_assert_uint_eq(got[5 * i + 3], apart);
            ck_assert_uint_eq(got[5 * i + 4], (unsigned long long)sum << 32 | sum2);
        }
    }
}
END_TEST

START_TEST(integers_agree_with_the_cpu) {
    EACH_BUILD(language) {
        int n = 256;
        uint64_t a = ptx_fixture_alloc(&fixture, (uint64_t)n * 8),
                 b = ptx_fixture_alloc(&fixture, (uint64_t)n * 8);
        uint64_t out = ptx_fixture_alloc(&fixture, (uint64_t)n * 96);
        long long *x = ptx_fixture_host(&fixture, a), *y = ptx_fixture_host(&fixture, b);
        long long *got = ptx_fixture_host(&fixture, out);

        for (int i = 0; i < n; i++) {
            x[i] = (long long)((unsigned long long)i * 0x9e3779b97f4a7c15 >> (i % 5 * 12));
            y[i] = (long long)((unsigned long long)(i + 3) * 0xc2b2ae3d27d4eb4f >> (i % 7 * 9));
            if (i % 3 == 0)
                y[i] = -y[i];
        }
        ptx_fixture_run(&fixture, "integers", 2, 128, 0, PTX_PARAMS(&a, &b, &out, &n));
        for (int i = 0; i < n; i++) {
            unsigned long long p = (unsigned long long)x[i], q = (unsigned long long)y[i];

            ck_assert_int_eq(got[i], (long long)(p + q));
            ck_assert_int_eq(got[n + i], (long long)(p * q));
            ck_assert_int_eq(got[2 * n + i], y[i] ? x[i] / y[i] : 0);
            ck_assert_int_eq(got[3 * n + i], y[i] ? x[i] % y[i] : 0);
            ck_assert_int_eq(got[4 * n + i], (long long)(((__int128)x[i] * y[i]) >> 64));
            ck_assert_int_eq(got[5 * n + i], (long long)(p << (q & 63) ^ p >> (q & 31)));
            ck_assert_int_eq(got[6 * n + i], __builtin_popcountll(p) +
                                                 (p ? __builtin_clzll(p) : 64) * 100 +
                                                 __builtin_ffsll(x[i]) * 10000);
            ck_assert_int_eq(got[7 * n + i],
                             (int)((unsigned)p * (unsigned)q) + (short)x[i] % ((short)y[i] | 1));
            ck_assert_int_eq(got[9 * n + i], (long long)(((unsigned __int128)p * q) >> 32));
            ck_assert_int_eq(got[10 * n + i], (unsigned)p / ((unsigned)q | 1) + (unsigned char)p +
                                                  (unsigned)(signed char)q);
            ck_assert_int_eq(got[11 * n + i], (long long)(double)x[i] +
                                                  (long long)(float)(int)y[i] +
                                                  (unsigned)(float)(unsigned short)p);
        }
    }
}
END_TEST

static float half(unsigned h) {
    int e = (int)(h >> 10 & 31);
    float m = (float)(h & 1023), r = e ? ldexpf(m + 1024, e - 25) : ldexpf(m, -24);

    return h & 0x8000 ? -r : r;
}

START_TEST(halves_agree_with_the_cpu) {
    EACH_BUILD(language) {
        int n = 200;
        uint64_t a = ptx_fixture_alloc(&fixture, 800), b = ptx_fixture_alloc(&fixture, 800);
        uint64_t out = ptx_fixture_alloc(&fixture, 4000), f = floats(&fixture, n, 1),
                 g = floats(&fixture, n, 2);
        uint16_t *x = ptx_fixture_host(&fixture, a), *y = ptx_fixture_host(&fixture, b);
        uint16_t *got = ptx_fixture_host(&fixture, out);
        float *bf = ptx_fixture_host(&fixture, g);

        for (int i = 0; i < 2 * n; i++) {
            x[i] = (uint16_t)(0x3000 + (i * 911) % 0x1800 + (i % 3 == 0 ? 0x8000 : 0));
            y[i] = (uint16_t)(0x3400 + (i * 577) % 0x1400);
        }
        ptx_fixture_run(&fixture, "halves", 2, 128, 0, PTX_PARAMS(&a, &b, &out, &n));
        for (int i = 0; i < 2 * n; i++) {
            near(half(got[i]), half(x[i]) + half(y[i]), 5e-4, 3e-5, "hadd", i);
            near(half(got[2 * n + i]), half(x[i]) * half(y[i]), 5e-4, 3e-8, "hmul", i);
            near(half(got[4 * n + i]), half(x[i]) * half(y[i]) + half(x[i]), 5e-4, 3e-8, "hfma", i);
            near(half(got[6 * n + i]), i % 2 ? half(y[i]) - 1 : half(x[i]) * 3, 5e-4, 3e-5, "cvt",
                 i);
            near(half(got[8 * n + i]), half(x[i & ~1]) < half(y[i & ~1]) ? half(x[i]) : half(y[i]),
                 0, 0, "hlt", i);
        }
        ptx_fixture_run(&fixture, "bfloats", 2, 128, 0, PTX_PARAMS(&f, &g, &n));
        for (int i = 0; i < n; i++)
            near(bf[i], sample(i, 1) + 1.5, 4e-3, 3e-2, "bf16", i);
    }
}
END_TEST

START_TEST(kernels_print_and_assert_and_allocate) {
    EACH_BUILD(language) {
        int n = 2, enough = 32;
        uint64_t out = ptx_fixture_alloc(&fixture, 128);
        struct ptx_result result;

        ptx_fixture_run(&fixture, "print", 1, 32, 0, PTX_PARAMS(&n));
        ck_assert_str_eq(fixture.printed, "thread 0 of 32:  0.00 first a 1099511627776 %\n"
                                          "thread 1 of 32:  1.50 more b 2199023255552 %\n");
        ptx_fixture_run(&fixture, "check", 1, 32, 0, PTX_PARAMS(&enough));
        fixture.n_printed = 0;
        ptx_fixture_launch(&fixture, "check", (uint32_t[]){ 1, 1, 1 }, (uint32_t[]){ 32, 1, 1 }, 0,
                           PTX_PARAMS(&n), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_ASSERT);
        ck_assert_ptr_nonnull(
            strstr(fixture.printed, "thread: [2,0,0] Assertion `threadIdx.x < n`"));
        ptx_fixture_run(&fixture, "heap", 1, 32, 0, PTX_PARAMS(&out)); /* without a heap: NULL */
        ck_assert_int_eq(*(int *)ptx_fixture_host(&fixture, out), -1);
    }
}
END_TEST

START_TEST(barriers_with_names_and_votes) {
    EACH_BUILD(language) {
        uint64_t out = ptx_fixture_alloc(&fixture, 768 * 4);
        int *got = ptx_fixture_host(&fixture, out);

        ptx_fixture_run(&fixture, "named_barriers", 1, 64, 0, PTX_PARAMS(&out));
        for (int i = 0; i < 128; i++)
            ck_assert_int_eq(got[i], i / 32 * 100 + 31 - i % 32);
        ptx_fixture_run(&fixture, "block_votes", 1, 100, 0, PTX_PARAMS(&out));
        for (int i = 0; i < 100; i++) {
            ck_assert_int_eq(got[i], 34);
            ck_assert_int_eq(got[256 + i], 0);
            ck_assert_int_eq(got[512 + i] != 0, 1);
        }
    }
}
END_TEST

START_TEST(functions_take_arguments_without_names) {
    EACH_BUILD(language) {
        uint64_t out = ptx_fixture_alloc(&fixture, 3 * 8);
        const double *got = ptx_fixture_host(&fixture, out);
        int x = 40;

        ptx_fixture_run(&fixture, "variadic", 1, 1, 0, PTX_PARAMS(&out, &x));
        ck_assert_double_eq(got[0], 40 + 2.5 + 1099511627776. + 0 + 1.25);
        ck_assert_double_eq(got[1], 43 + 3 * (4 + 3 + 2 + 1));
        ck_assert_double_eq(got[2], 0);
    }
}
END_TEST

SUITE_TIMEOUT("ptx-kernels", 60, elementwise_kernels_agree_with_the_cpu,
              tiled_matmul_agrees_with_the_cpu, softmax_and_sums_agree_with_the_cpu,
              histogram_counts_every_byte, libdevice_functions_agree_with_libm,
              black_scholes_agrees_with_the_cpu, functions_call_functions_and_themselves,
              variables_and_structs_are_where_they_should_be, local_arrays_sort,
              lanes_that_go_different_ways_come_back, warps_vote_and_shuffle,
              threads_that_wait_for_threads_get_there, the_last_block_sees_what_all_wrote,
              atomics_lose_nothing, integers_agree_with_the_cpu,
              wide_integers_and_bytes_agree_with_the_cpu, memory_on_the_stack_is_each_threads_own,
              halves_agree_with_the_cpu, kernels_print_and_assert_and_allocate,
              barriers_with_names_and_votes, functions_take_arguments_without_names)
