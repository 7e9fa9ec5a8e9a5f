/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/enforce/tiers.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "daemon/log.h"
#include "daemon/manager.h"

#define LOCK_RETRY_USEC (UINT64_C(30) * 1000 * 1000)
#define PROBES_MAX      5 /* attempts to try the tiers */

static void on_probed(void *userdata, int r, const struct hand_answer *answer,
                      const struct allot_error *err) {
    struct manager *manager = userdata;

    if (r < 0) {
        log_line(LOG_WARNING, &(struct log_about){ .message = LOG_TIER },
                 "the tiers of enforcement could not be tried: %s", err->text);
        /*
         * The hand may have been replaced meanwhile. Do not repeat for ever a probe that breaks
         * hands.
         */
        if (++manager->tiers.n_probes_failed < PROBES_MAX)
            manager->tiers.is_probing = false;
        return;
    }
    manager->tiers.probes = answer->probes;
    manager->tiers.has_probes = true;
    for (unsigned tier = 1; tier < ELEMENTSOF(answer->probes.tiers); tier++)
        if (tier != 3 && tier != 4)
            log_line(LOG_INFO, &(struct log_about){ .message = LOG_TIER }, "tier %u is %s: %s",
                     tier, answer->probes.tiers[tier].proven ? "proven" : "absent",
                     answer->probes.tiers[tier].detail);
}

static void on_locked(void *userdata, int r, const struct hand_answer *answer,
                      const struct allot_error *err) {
    struct manager *manager = userdata;
    bool wanted = manager->config->is_locked;

    manager->tiers.is_locked = wanted && r == 0;
    snprintf(manager->tiers.lock_trouble, sizeof(manager->tiers.lock_trouble), "%s",
             r < 0 ? err->text : "");
    if (r < 0)
        log_line(LOG_WARNING, &(struct log_about){ .message = LOG_TIER },
                 wanted ? "sessions are not locked out of the GPUs: %s"
                        : "the GPUs could not be opened to sessions again: %s",
                 err->text);
    else if (wanted)
        log_line(LOG_NOTICE, &(struct log_about){ .message = LOG_TIER },
                 "locked: the GPUs are open to leases only");
}

void tiers_lock(struct manager *manager) {
    manager->tiers.lock_usec = manager_now(manager).usec;
    /* Before the first sample the hand does not know what there is to lock: ask it then. */
    if (manager->tiers.is_probing)
        hand_lock(manager->hand, manager->config->is_locked, on_locked, manager);
}

void tiers_sampled(struct manager *manager, struct moment now) {
    if (!manager->tiers.has_probes && !manager->tiers.is_probing) {
        manager->tiers.is_probing = true;
        hand_probe(manager->hand, on_probed, manager);
        tiers_lock(manager);
    }
    /* systemd may have been too busy to answer. */
    if (manager->tiers.lock_trouble[0] && now.usec - manager->tiers.lock_usec >= LOCK_RETRY_USEC)
        tiers_lock(manager);
}
