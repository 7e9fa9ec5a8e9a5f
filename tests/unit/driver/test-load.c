/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

#include "driver/cublas.h"
#include "driver/cuda.h"
#include "driver/driver.h"
#include "driver/nvml.h"
#include "tests/support/driver/fake_driver.h"
#include "tests/support/suite.h"

#define ck_assert_has(text, part)                                                                  \
    ck_assert_msg(strstr(text, part) != NULL, "\"%s\" is not in \"%s\"", part, text)

START_TEST(choices_have_three_names) {
    enum driver_choice choice;

    for (enum driver_choice c = DRIVER_AUTO; c <= DRIVER_SIM; c++) {
        ck_assert_int_eq(driver_choice_parse(&choice, driver_choice_name(c)), 0);
        ck_assert_int_eq(choice, c);
    }
    ck_assert_int_eq(driver_choice_parse(&choice, "Nvidia"), -EINVAL);
    ck_assert_int_eq(driver_choice_parse(&choice, ""), -EINVAL);
}
END_TEST

START_TEST(auto_is_the_simulator_only_where_a_box_is_named) {
    struct driver_options options;

    unsetenv("GPUSIM_BOX");
    unsetenv("ALLOT_SIM_DIR");
    options = driver_options_read(DRIVER_AUTO);
    ck_assert_int_eq(driver_resolve(&options), DRIVER_NVIDIA);
    ck_assert_ptr_null(options.sim_dir);
    setenv("GPUSIM_BOX", "", 1);
    setenv("ALLOT_SIM_DIR", "/x", 1);
    options = driver_options_read(DRIVER_AUTO);
    ck_assert_int_eq(driver_resolve(&options), DRIVER_NVIDIA);
    ck_assert_str_eq(options.sim_dir, "/x");
    setenv("GPUSIM_BOX", "/run/box", 1);
    options = driver_options_read(DRIVER_AUTO);
    ck_assert_int_eq(driver_resolve(&options), DRIVER_SIM);
    options = driver_options_read(DRIVER_NVIDIA);
    ck_assert_int_eq(driver_resolve(&options), DRIVER_NVIDIA);
}
END_TEST

START_TEST(a_library_that_is_not_there_says_what_brings_it) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct allot_error err;
    struct nvml *nvml;

    fake_driver_init(&fake_driver, NULL);
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), -ELIBACC);
    ck_assert_has(err.text, "NVML cannot be loaded");
    ck_assert_has(err.text, "libnvidia-ml1");
}
END_TEST

START_TEST(the_simulator_is_no_substitute_for_the_real_driver) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct allot_error err;
    struct nvml *nvml;
    struct cuda *cuda;

    fake_driver_init(&fake_driver, "nvml", "sim", "cuda", "sim", NULL);
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), -ELIBBAD);
    ck_assert_has(err.text, "is the simulator's, but the real driver was requested");
    ck_assert_int_eq(cuda_open(&cuda, &fake_driver.options, &err), -ELIBBAD);
    fake_driver.options.choice = DRIVER_AUTO;
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), -ELIBBAD);
    ck_assert_uint_eq(fake_driver_lever(&fake_driver, "nvml")->n_init, 0);
}
END_TEST

START_TEST(the_simulator_is_taken_from_the_folder_given) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    cleanup(nvml_closep) struct nvml *nvml = NULL;
    cleanup(cuda_closep) struct cuda *cuda = NULL;
    struct allot_error err;

    fake_driver_init(&fake_driver, "nvml", "sim", "cuda", "sim", NULL);
    fake_driver.options = (struct driver_options){
        .choice = DRIVER_AUTO,
        .has_box = true,
        .sim_dir = fake_driver.dir,
    };
    ck_assert_msg(nvml_open(&nvml, &fake_driver.options, &err) == 0, "%s", err.text);
    ck_assert(nvml_is_simulated(nvml));
    ck_assert_int_eq(strncmp(nvml_path(nvml), fake_driver.dir, strlen(fake_driver.dir)), 0);
    ck_assert_msg(cuda_open(&cuda, &fake_driver.options, &err) == 0, "%s", err.text);
    ck_assert(cuda->object.is_simulated);
}
END_TEST

START_TEST(a_real_driver_is_no_substitute_for_the_simulator) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct allot_error err;
    struct nvml *nvml;

    fake_driver_init(&fake_driver, "nvml", "full", NULL);
    fake_driver.options.choice = DRIVER_SIM;
    fake_driver.options.sim_dir = fake_driver.dir;
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), -ELIBBAD);
    ck_assert_has(err.text, "does not belong to the simulator");
    fake_driver.options.sim_dir = "/nonexistent";
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), -ENOENT);
    ck_assert_has(err.text, "no simulator at /nonexistent/libnvidia-ml.so.1");
}
END_TEST

START_TEST(a_library_without_a_needed_symbol_is_refused) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct allot_error err;
    struct nvml *nvml;

    fake_driver_init(&fake_driver, "nvml", "broken", NULL);
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), -ELIBBAD);
    ck_assert_has(err.text, "lacks nvmlShutdown and others: it is too old for Allot");
    ck_assert_uint_eq(fake_driver_lever(&fake_driver, "nvml")->n_init, 0);
}
END_TEST

START_TEST(an_old_driver_does_all_it_can) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    cleanup(nvml_closep) struct nvml *nvml = NULL;
    cleanup(cuda_closep) struct cuda *cuda = NULL;
    cleanup(cublas_closep) struct cublas *cublas = NULL;
    struct allot_error err;
    CUdeviceptr pointer;

    fake_driver_init(&fake_driver, "nvml", "bare", "cuda", "bare", "cublas", "bare", NULL);
    ck_assert_msg(nvml_open(&nvml, &fake_driver.options, &err) == 0, "%s", err.text);
    ck_assert_msg(cuda_open(&cuda, &fake_driver.options, &err) == 0, "%s", err.text);
    ck_assert_int_eq(cuda_mem_alloc(cuda, &err, &pointer, 1), 0);
    ck_assert(!cuda_can(cuda, CUDA_CALL_mem_alloc_async));
    ck_assert(cuda_can(cuda, CUDA_CALL_mem_alloc));
    ck_assert_int_eq(cuda_mem_alloc_async(cuda, &err, &pointer, 1, NULL), -EOPNOTSUPP);
    ck_assert_str_eq(err.text, "cuMemAllocAsync on CUDA device 1 (Fake 1): not supported by this "
                               "driver, needs at least CUDA 11.2");
    ck_assert_msg(cublas_open(&cublas, cuda, &fake_driver.options, &err) == 0, "%s", err.text);
    ck_assert_int_eq(cublas_set_workspace(cublas, &err, NULL, NULL, 0), -EOPNOTSUPP);
    ck_assert_str_eq(err.text, "cublasSetWorkspace_v2 on CUDA device 1 (Fake 1): not supported by "
                               "this driver, needs at least the cuBLAS of CUDA 11.0");
}
END_TEST

START_TEST(opening_twice_is_opening_once) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct nvml *a, *b;
    struct fake *lever;

    fake_driver_init(&fake_driver, "nvml", "full", NULL);
    lever = fake_driver_lever(&fake_driver, "nvml");
    ck_assert_int_eq(nvml_open(&a, &fake_driver.options, NULL), 0);
    ck_assert_int_eq(nvml_open(&b, &fake_driver.options, NULL), 0);
    ck_assert_ptr_eq(a, b);
    ck_assert_uint_eq(lever->n_init, 1);
    nvml_close(a);
    ck_assert_uint_eq(lever->n_done, 0);
    nvml_close(b);
    ck_assert_uint_eq(lever->n_done, 1);
    ck_assert_int_eq(nvml_open(&a, &fake_driver.options, NULL), 0);
    ck_assert_uint_eq(lever->n_init, 2);
    nvml_close(a);
    nvml_close(NULL);
}
END_TEST

START_TEST(a_failed_opening_is_tried_anew) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    cleanup(nvml_closep) struct nvml *nvml = NULL;
    struct allot_error err;
    struct fake *lever;

    fake_driver_init(&fake_driver, "nvml", "full", NULL);
    lever = fake_driver_lever(&fake_driver, "nvml");
    lever->init_code = 4;
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), -EPERM);
    lever->init_code = 0;
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, &err), 0);
}
END_TEST

struct racer {
    pthread_t thread;
    pthread_barrier_t *start;
    const struct driver_options *options;
    struct nvml *nvml;
    struct cuda *cuda;
    unsigned count;
    int r;
};

static void *race(void *argument) {
    struct racer *racer = argument;
    struct cublas *cublas = NULL;

    pthread_barrier_wait(racer->start);
    racer->r = nvml_open(&racer->nvml, racer->options, NULL);
    if (racer->r == 0)
        racer->r = cuda_open(&racer->cuda, racer->options, NULL);
    if (racer->r == 0)
        racer->r = cublas_open(&cublas, racer->cuda, racer->options, NULL);
    if (racer->r == 0)
        racer->r = nvml_device_count(racer->nvml, &racer->count, NULL);
    cublas_close(cublas);
    return NULL;
}

START_TEST(threads_that_open_at_once_get_the_same_object) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct racer racers[16];
    pthread_barrier_t start;

    fake_driver_init(&fake_driver, "nvml", "full", "cuda", "full", "cublas", "full", NULL);
    fake_driver_lever(&fake_driver, "nvml")->init_usec = 20000;
    fake_driver_lever(&fake_driver, "cuda")->init_usec = 20000;
    pthread_barrier_init(&start, NULL, ELEMENTSOF(racers));
    for (size_t i = 0; i < ELEMENTSOF(racers); i++) {
        racers[i] = (struct racer){ .start = &start, .options = &fake_driver.options };
        ck_assert_int_eq(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < ELEMENTSOF(racers); i++) {
        pthread_join(racers[i].thread, NULL);
        ck_assert_int_eq(racers[i].r, 0);
        ck_assert_uint_eq(racers[i].count, 2);
        ck_assert_ptr_eq(racers[i].nvml, racers[0].nvml);
        ck_assert_ptr_eq(racers[i].cuda, racers[0].cuda);
    }
    ck_assert_uint_eq(fake_driver_lever(&fake_driver, "nvml")->n_init, 1);
    ck_assert_uint_eq(fake_driver_lever(&fake_driver, "cuda")->n_init, 1);
    for (size_t i = 0; i < ELEMENTSOF(racers); i++) {
        nvml_close(racers[i].nvml);
        cuda_close(racers[i].cuda);
    }
    ck_assert_uint_eq(fake_driver_lever(&fake_driver, "nvml")->n_done, 1);
    pthread_barrier_destroy(&start);
}
END_TEST

/* Ends the child: what it saw wrong is its status. */
static void in_child(struct fake_driver *fake_driver, struct nvml *nvml, struct cuda *cuda) {
    struct allot_error err = { 0 };
    struct nvml *again;
    struct cuda *cuda_again;
    CUdeviceptr pointer;
    unsigned n;

    if (nvml_device_count(nvml, &n, &err) != -ESTALE || !strstr(err.text, "before fork()"))
        _exit(1);
    if (cuda_mem_alloc(cuda, &err, &pointer, 1) != -ESTALE || !strstr(err.text, "before fork()"))
        _exit(2);
    nvml_close(nvml); /* not the child's: nothing happens */
    if (fake_driver_lever(fake_driver, "nvml")->n_done != 0)
        _exit(3);
    if (nvml_open(&again, &fake_driver->options, &err) != 0 || again == nvml ||
        nvml_device_count(again, &n, &err) != 0 || n != 2)
        _exit(4);
    nvml_close(again);
    if (cuda_open(&cuda_again, &fake_driver->options, &err) != -ESTALE ||
        !strstr(err.text, "cannot be used in a process forked"))
        _exit(5);
    _exit(0);
}

START_TEST(after_fork_nvml_is_opened_anew_and_cuda_is_refused) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    struct nvml *nvml;
    struct cuda *cuda;
    int status;
    unsigned n;
    pid_t pid;

    fake_driver_init(&fake_driver, "nvml", "full", "cuda", "full", NULL);
    ck_assert_int_eq(nvml_open(&nvml, &fake_driver.options, NULL), 0);
    ck_assert_int_eq(cuda_open(&cuda, &fake_driver.options, NULL), 0);
    pid = fork();
    if (pid == 0)
        in_child(&fake_driver, nvml, cuda);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %#x",
                  status);
    ck_assert_int_eq(nvml_device_count(nvml, &n, NULL), 0); /* the parent noticed nothing */
    nvml_close(nvml);
    cuda_close(cuda);
}
END_TEST

static void *open_slowly(void *argument) {
    struct nvml *nvml = NULL;

    nvml_open(&nvml, argument, NULL);
    nvml_close(nvml);
    return NULL;
}

START_TEST(a_fork_in_the_middle_of_an_opening_does_not_wedge_the_child) {
    cleanup(fake_driver_done) struct fake_driver fake_driver;
    cleanup(nvml_closep) struct nvml *first = NULL;
    struct fake *lever;
    pthread_t thread;
    int status;
    pid_t pid;

    fake_driver_init(&fake_driver, "nvml", "full", NULL);
    lever = fake_driver_lever(&fake_driver, "nvml");
    ck_assert_int_eq(nvml_open(&first, &fake_driver.options, NULL), 0);
    nvml_close(TAKE(first));
    lever->init_usec = 300000;
    ck_assert_int_eq(pthread_create(&thread, NULL, open_slowly, &fake_driver.options), 0);
    usleep(100000); /* it is inside init(), with the lock */
    pid = fork();
    if (pid == 0) {
        struct nvml *nvml;

        alarm(10);
        lever->init_usec = 0;
        _exit(nvml_open(&nvml, &fake_driver.options, NULL) == 0 ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %#x",
                  status);
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_lost_driver_is_distinguished_from_a_failed_call) {
    static const int gone[] = { -ENODEV, -ENXIO,  -ENOTRECOVERABLE, -ELIBBAD,
                                -EACCES, -ESTALE, -ENOTCONN };
    static const int here[] = { 0, -EOPNOTSUPP, -EPERM, -ENOENT, -ENODATA, -EAGAIN, -EIO, -EINVAL };

    for (size_t i = 0; i < ELEMENTSOF(gone); i++)
        ck_assert(driver_is_gone(gone[i]));
    for (size_t i = 0; i < ELEMENTSOF(here); i++)
        ck_assert(!driver_is_gone(here[i]));
}
END_TEST

SUITE("load", choices_have_three_names, auto_is_the_simulator_only_where_a_box_is_named,
      a_library_that_is_not_there_says_what_brings_it,
      the_simulator_is_no_substitute_for_the_real_driver,
      the_simulator_is_taken_from_the_folder_given,
      a_real_driver_is_no_substitute_for_the_simulator,
      a_library_without_a_needed_symbol_is_refused, an_old_driver_does_all_it_can,
      opening_twice_is_opening_once, a_failed_opening_is_tried_anew,
      threads_that_open_at_once_get_the_same_object,
      after_fork_nvml_is_opened_anew_and_cuda_is_refused,
      a_fork_in_the_middle_of_an_opening_does_not_wedge_the_child,
      a_lost_driver_is_distinguished_from_a_failed_call)
