/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is device code as a program hands it to the simulated driver: PTX, a fat binary, what
 * the linker packed. It is refused, or gives texts that end with a NUL; what is packed again reads
 * as the same.
 */
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/core/driver.h"
#include "sim/cuda/module/image.h"
#include "sim/cuda/module/jit.h"
#include "tests/fuzz/fuzz.h"

/* What image.c wants of the rest of the driver, which is no library to link. */
int driver_cuda_version(void) {
    return 13000;
}

void jit_error(struct jit *jit, const char *format, ...) {
    (void)jit;
    fuzz_check(format && *format);
}

static void check_pack(const struct image *image) {
    struct image again = { 0 };
    cleanup(freep) void *packed = NULL;
    size_t bytes = 0;

    packed = image_pack(image, &bytes);
    fuzz_check(packed && image_read(&again, NULL, packed, bytes, NULL, NULL) == CUDA_SUCCESS);
    fuzz_check(again.n_inputs == image->n_inputs);
    for (size_t i = 0; i < again.n_inputs; i++)
        fuzz_check(again.inputs[i].n == image->inputs[i].n &&
                   !strcmp(again.inputs[i].text, image->inputs[i].text));
    image_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint32_t wrapper =
        0x466243b1u; /* holds a pointer, which only its program can make */
    cleanup(freep) char *code = malloc(size ? size : 1);
    struct image image = { 0 };

    fuzz_check(code);
    memcpy(code, data, size);
    if (size == 0 || (size >= sizeof(wrapper) && !memcmp(code, &wrapper, sizeof(wrapper))))
        return 0;
    if (image_read(&image, "fuzz", code, size, NULL, NULL) == CUDA_SUCCESS) {
        for (size_t i = 0; i < image.n_inputs; i++)
            fuzz_check(strlen(image.inputs[i].text) == image.inputs[i].n && *image.inputs[i].name);
        check_pack(&image);
    }
    image_done(&image);
    return 0;
}
