/* SPDX-License-Identifier: Apache-2.0 */
/* An input is one text, tried as a bus id and as a UUID; what is written must read the same again.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup(freep) char *text = strndup((const char *)data, size);
    char bus[PCI_ID_TEXT_SIZE], uuid[GPUID_TEXT_SIZE];
    struct pci_id pci, pci_back;
    struct gpuid id, id_back;

    fuzz_check(text);
    if (pci_id_parse(&pci, text) == 0) {
        for (enum pci_id_form form = PCI_ID_NVML; form <= PCI_ID_SYSFS; form++) {
            fuzz_check(pci_id_parse(&pci_back, pci_id_format(&pci, form, bus)) == 0);
            if (form == PCI_ID_NVML_LEGACY) {
                fuzz_check(strlen(bus) < 16);
                pci_back.domain = pci.domain;
            }
            fuzz_check(pci_id_compare(&pci, &pci_back) == 0);
        }
    }
    if (gpuid_parse(&id, text) == 0) {
        fuzz_check(gpuid_parse(&id_back, gpuid_format(&id, uuid)) == 0);
        fuzz_check(gpuid_equal(&id, &id_back));
    }
    return 0;
}
