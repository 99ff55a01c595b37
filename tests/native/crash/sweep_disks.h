/* The disks that the operations of the fault sweep start on. */
#ifndef SWEEP_DISKS_H
#define SWEEP_DISKS_H

#include "sweep_operations.h"

struct disk {
    qs_env *mem;
    struct crash_model model;
};

static struct disk disks[ON_OPEN_STORE]; /* by enum start */

static inline void fill(struct crash_work *work)
{
    crash_set_up(work);
    crash_bind(work, queue_of(work, 0));
    crash_bind(work, queue_of(work, 1));
    for (int i = 0; i < 6; i++) {
        crash_publish(work, CRASH_PLAIN_CHANNEL, queue_of(work, i % 3), i % 2 == 0 ? 100 : 2000,
                      true);
    }
    crash_publish_batch(work, CRASH_PLAIN_CHANNEL, 12);
    crash_fan_out(work, CRASH_PLAIN_CHANNEL, 500);
    crash_work_sync(work);
    get_all(work);
    ack_one(work);
    crash_publish(work, CRASH_PLAIN_CHANNEL, queue_of(work, 0), 100, true);
    crash_tx(work, false);
}

static inline qs_options paged_options(void)
{
    qs_options options = crash_options();

    options.memory_budget = 64 << 10;
    options.segment_entries = 16;
    options.embed_below = 2500;
    options.checkpoint_bytes = 0;
    return options;
}

/* Embedded and stored bodies, alone and in several queues; a checkpoint; and some of everything
 * behind it. */
static inline void fill_paged(struct crash_work *work)
{
    crash_set_up(work);
    crash_bind(work, queue_of(work, 1));
    crash_bind(work, queue_of(work, 2));
    crash_publish_rows(work, CRASH_PLAIN_CHANNEL, queue_of(work, 0), 60, 2200);
    for (int i = 0; i < 12; i++) {
        crash_fan_out(work, CRASH_PLAIN_CHANNEL, i % 2 == 0 ? 100 : 4000);
    }
    crash_work_checkpoint(work);
    crash_publish_rows(work, CRASH_PLAIN_CHANNEL, queue_of(work, 0), 20, 2200);
    crash_fan_out(work, CRASH_PLAIN_CHANNEL, 4000);
    crash_work_sync(work);
    for (int i = 0; i < 6; i++) {
        crash_get(work, queue_of(work, 0), CRASH_PLAIN_CHANNEL, QS_NO_ACK);
        crash_get(work, queue_of(work, 1), CRASH_PLAIN_CHANNEL, i % 2 == 0 ? QS_NO_ACK : 0);
    }
    crash_work_sync(work);
}

/* The process is gone: what it had out is ready again, what was transient is not. */
static inline void note_death(struct crash_model *model)
{
    crash_model_close(model);
    for (int i = 0; i < CRASH_QUEUES; i++) {
        for (uint32_t k = 0; k < model->queues[i].count; k++) {
            model->queues[i].copies[k].was_delivered = true;
        }
    }
}

static inline void make_disk(struct disk *disk, bool is_filled, bool is_closed, bool is_paged)
{
    struct crash_report report = {.told_max = 10, .cut = "preparing"};
    struct crash_env env;
    struct crash_work work = {.env = &env, .model = &disk->model, .report = &report, .random = 3};

    if (is_paged) {
        work.options = paged_options();
    }
    disk->mem = qsi_env_mem_create(1);
    crash_model_init(&disk->model);
    crash_env_init(&env, disk->mem, CRASH_NO_BUG);
    if (is_filled) {
        QS_CHECK(crash_open_store(&work));
        if (is_paged) {
            fill_paged(&work);
        } else {
            fill(&work);
        }
        QS_CHECK(!work.is_over);
        if (!is_closed) {
            env.is_dead = work.is_over = true;
        }
        crash_close_store(&work);
        if (is_paged && !is_closed) {
            note_death(&disk->model);
        }
    }
    QS_CHECK(report.violations == 0);
}

#endif
