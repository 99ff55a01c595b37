/* Every operation of the fault sweep: what it starts on, and what an error of it tells. */
#ifndef SWEEP_OPERATIONS_H
#define SWEEP_OPERATIONS_H

#include "sweep_paging.h"

/* What an error tells. */
enum promise {
    NOTHING_HAPPENED,
    MAY_HAVE_HAPPENED, /* it was on its way to the disk */
};

enum start {
    ON_NOTHING,
    ON_CLOSED_STORE,
    ON_CRASHED_STORE,
    ON_CLOSED_PAGED_STORE,  /* a small memory, a checkpoint, most of it in segments */
    ON_CRASHED_PAGED_STORE, /* with a journal behind the checkpoint */
    ON_OPEN_STORE,
    ON_OPEN_PAGED_STORE,
};

struct operation {
    const char *name;
    enum start start;
    enum promise promise;
    void (*prepare)(struct crash_work *work); /* NULL: nothing */
    void (*run)(struct crash_work *work);
};

static const struct operation operations[] = {
    {"create", ON_NOTHING, NOTHING_HAPPENED, NULL, open_store},
    {"open", ON_CLOSED_STORE, NOTHING_HAPPENED, NULL, open_store},
    {"recover", ON_CRASHED_STORE, NOTHING_HAPPENED, NULL, open_store},
    {"close", ON_OPEN_STORE, MAY_HAVE_HAPPENED, publish_both, close_store},
    {"declare a queue", ON_OPEN_STORE, MAY_HAVE_HAPPENED, delete_fourth, declare},
    {"declare a transient queue", ON_OPEN_STORE, MAY_HAVE_HAPPENED, delete_transient,
     declare_transient},
    {"bind", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, bind_third},
    {"unbind", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, unbind_first},
    {"exchange", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, exchange_life},
    {"bind an exchange", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, lead},
    {"unbind an exchange", ON_OPEN_STORE, MAY_HAVE_HAPPENED, lead, lead},
    {"exchanges that go together", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, exchange_cascade},
    {"publish through exchanges", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, lead_and_publish},
    {"publish embedded", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_small},
    {"publish stored", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_large},
    {"publish transient", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_transient},
    {"publish to many", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_to_many},
    {"publish mandatory", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_mandatory},
    {"publish a batch", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_batch},
    {"publish until files roll", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, publish_until_files_roll},
    {"publish and wait for confirms", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, publish_and_wait},
    {"sync", ON_OPEN_STORE, MAY_HAVE_HAPPENED, publish_both, crash_work_sync},
    {"wait durable", ON_OPEN_STORE, MAY_HAVE_HAPPENED, publish_both, wait_durable},
    {"get", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, get_all},
    {"get without ack", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, get_all_without_ack},
    {"get a batch", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, get_batch},
    {"consume", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, consume},
    {"ack", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, ack_one},
    {"ack many", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, ack_many},
    {"ack and sync", ON_OPEN_STORE, MAY_HAVE_HAPPENED, get_all, ack_and_sync},
    {"reject", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, reject},
    {"requeue", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, requeue},
    {"requeue all", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, requeue_all},
    {"purge", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, purge},
    {"delete a queue", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, delete_full_queue},
    {"commit", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, commit_transaction},
    {"roll back", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, roll_back_transaction},
    {"channel", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, open_new_channel},
    {"connection", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, connection_life},
    {"declare with priorities", ON_OPEN_STORE, MAY_HAVE_HAPPENED, delete_priorities,
     declare_priorities},
    {"publish with priorities", ON_OPEN_STORE, NOTHING_HAPPENED, new_priorities,
     publish_to_priorities},
    {"publish a batch with priorities", ON_OPEN_STORE, NOTHING_HAPPENED, new_priorities,
     publish_batch_to_priorities},
    {"get with priorities", ON_OPEN_STORE, NOTHING_HAPPENED, publish_to_priorities,
     get_all_priorities},
    {"purge with priorities", ON_OPEN_STORE, MAY_HAVE_HAPPENED, publish_to_priorities,
     purge_priorities},
    {"delete with priorities", ON_OPEN_STORE, MAY_HAVE_HAPPENED, publish_to_priorities,
     delete_priorities},
    {"look around", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, look_around},
    {"checkpoint", ON_OPEN_STORE, NOTHING_HAPPENED, publish_both, crash_work_checkpoint},
    {"open behind a checkpoint", ON_CLOSED_PAGED_STORE, NOTHING_HAPPENED, NULL, open_store},
    {"recover behind a checkpoint", ON_CRASHED_PAGED_STORE, NOTHING_HAPPENED, NULL, open_store},
    {"close, paged", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, publish_both, close_store},
    {"checkpoint, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, publish_and_page,
     crash_work_checkpoint},
    {"publish and page", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, publish_and_page},
    {"publish a batch and page", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL,
     publish_batch_and_page},
    {"checkpoint with priorities, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL,
     checkpoint_priorities},
    {"get with priorities, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, publish_to_priorities,
     get_all_priorities},
    {"get, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, get_all},
    {"get without ack, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, get_all_without_ack},
    {"get a batch, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, get_batch},
    {"consume, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, consume},
    {"ack and checkpoint, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, take_most, ack_paged},
    {"requeue, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, take_most, requeue_all},
    {"settle, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, settle_most},
    {"compact", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, settle_most_and_checkpoint, compact},
    {"compact and checkpoint", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, settle_most_and_checkpoint,
     compact_and_checkpoint},
    {"purge, paged", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, NULL, purge},
    {"delete, paged", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, NULL, delete_full_queue},
    {"set lazy", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, NULL, set_lazy},
    {"set lazy and publish", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, NULL, publish_to_lazy},
    {"set default", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, set_lazy, set_default},
    {"commit, paged", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, NULL, commit_transaction},
};
#define OPERATION_COUNT (sizeof operations / sizeof operations[0])

#endif
