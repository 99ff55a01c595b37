/* Space comes back: what a store gives up when its messages are settled, and what it must not.
 *
 * Of a store whose messages are all out on one channel, some queues are acked and the others
 * requeued; then checkpoints and compaction do what they can, and what was requeued must still
 * be there with its bytes: a file that went too early shows.  Then the rest is acked, and no
 * segment file and no message file may be left: a reference that leaked shows. */
#ifndef CRASH_SPACE_H
#define CRASH_SPACE_H

#include "crash_work.h"

struct crash_space {
    struct crash_model *model;
    struct crash_report *report;
    qs_store *store;
    qs_channel *channel;
    qs_env *env;
};

/* REQUIRES that crash_model_check was the last to look at the store, and found nothing wrong. */
void crash_check_space(struct crash_model *model, struct crash_report *report, qs_store *store,
                       qs_channel *channel, qs_env *env, uint64_t seed);
void crash_check_empty(struct crash_work *work);

#endif
