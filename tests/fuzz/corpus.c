/* SPDX-License-Identifier: Apache-2.0 */
/* Corpus: runs a fuzz target over each file of the folders given, where there is no libFuzzer. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "tests/fuzz/fuzz.h"

/* A copy of exactly the file's size, so that a read past its end is seen by the sanitizer. */
static int run_file(int dir, const char *name) {
    cleanup(closep) int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    cleanup(freep) uint8_t *data = NULL;
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    data = malloc((size_t)st.st_size ? (size_t)st.st_size : 1);
    if (!data)
        return -ENOMEM;
    n = read(fd, data, (size_t)st.st_size);
    if (n != st.st_size)
        return -EIO;
    fprintf(stderr, "%s\n", name);
    LLVMFuzzerTestOneInput(data, (size_t)n);
    return 0;
}

static void closedirp(DIR **dir) {
    if (*dir)
        closedir(*dir);
}

int main(int argc, char **argv) {
    unsigned n_files = 0;

    for (int i = 1; i < argc; i++) {
        cleanup(closedirp) DIR *dir = opendir(argv[i]);
        struct dirent *entry;

        if (!dir) {
            fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
            return EXIT_FAILURE;
        }
        while ((entry = readdir(dir))) {
            int r;

            if (entry->d_name[0] == '.')
                continue;
            r = run_file(dirfd(dir), entry->d_name);
            if (r < 0) {
                fprintf(stderr, "%s/%s: %s\n", argv[i], entry->d_name, strerror(-r));
                return EXIT_FAILURE;
            }
            n_files++;
        }
    }
    printf("%u inputs\n", n_files);
    return n_files ? EXIT_SUCCESS : EXIT_FAILURE; /* an empty corpus tests nothing */
}
