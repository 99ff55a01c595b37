/* Messages that leave their queues by themselves, while the n-th environment call fails, in
 * every way, or the n-th allocation, for n = 1, 2, ... until nothing fails any more.
 *
 * What must hold each time: nothing is lost and nothing is there twice (crash_removals.h),
 * behind the fault, after a power cut and after a close; the store goes on, or has failed and
 * says so; no crash and no leak.
 *
 * Arguments: seed, a part of the names of the operations to try. */
#include "crash_removals.h"
#include "fault_trial.h"

struct operation {
    const char *name;
    bool pages; /* little memory, small segments: what leaves is on the disk */
    void (*prepare)(struct removal_work *work);
    void (*run)(struct removal_work *work);
};

static void publish(struct removal_work *work, enum removal_queue queue, uint32_t count,
                    uint32_t bytes)
{
    while (count-- > 0 && !work->base.is_over) {
        uint64_t id = removal_new(work, queue, bytes, true, 0);
        qs_receipt receipt = {0};
        if (crash_done(&work->base,
                       removal_publish_as(work, CRASH_CONFIRM_CHANNEL, id, 0, &receipt),
                       "publish")) {
            removal_published(work, id, &receipt);
        }
    }
}

static void take(struct removal_work *work, enum removal_queue queue, uint32_t count)
{
    while (count-- > 0 && !work->base.is_over) {
        removal_get(work, CRASH_PLAIN_CHANNEL, queue);
    }
}

static void settle_all(struct removal_work *work, enum removal_verb verb)
{
    if (!work->base.is_over && work->out_count > 0) {
        removal_settle(work, work->outs[work->out_count - 1], true, verb);
    }
}

/* What expires does so when somebody comes for it; without memory it may be given out. */
static void come_for(struct removal_work *work, enum removal_queue queue)
{
    qs_message message = {0};
    qs_status status;

    if (work->base.is_over) {
        return;
    }
    status = qs_channel_get(work->base.channels[CRASH_PLAIN_CHANNEL],
                            text(removal_kinds[queue].name), 0, &message, QS_ERROR);
    if (status != QS_EEMPTY) {
        crash_done(&work->base, status, "get");
        qs_message_release(&message);
    }
}

/* ---- the operations ---- */

static void take_some(struct removal_work *work)
{
    publish(work, REMOVAL_LEAST, 3, 100);
    publish(work, REMOVAL_BYTES, 2, 700); /* two targets */
    publish(work, REMOVAL_LEAST, 2, 3000);
    crash_work_sync(&work->base);
    take(work, REMOVAL_LEAST, 5);
    take(work, REMOVAL_BYTES, 2);
}

static void reject(struct removal_work *work)
{
    settle_all(work, REMOVAL_REJECT);
}

static void publish_too_many(struct removal_work *work)
{
    publish(work, REMOVAL_LENGTH, 9, 100);
    publish(work, REMOVAL_BYTES, 4, 900);
}

static void fill_up(struct removal_work *work)
{
    publish(work, REMOVAL_OVERFLOW, 4, 100);
    publish(work, REMOVAL_REFUSE, 4, 100);
}

static void publish_what_is_refused(struct removal_work *work)
{
    publish(work, REMOVAL_OVERFLOW, 3, 100);
    publish(work, REMOVAL_REFUSE, 3, 3000);
}

static void publish_batch_that_is_refused(struct removal_work *work)
{
    removal_publish_batch(work, REMOVAL_OVERFLOW, 5);
    if (!work->base.is_over) {
        removal_publish_batch(work, REMOVAL_REFUSE, 5);
    }
}

static void let_time_pass(struct removal_work *work)
{
    publish(work, REMOVAL_TTL, 6, 100);
    publish(work, REMOVAL_TTL, 2, 3000);
    publish(work, REMOVAL_GONE, 5, 100);
    qsi_env_sim_advance(work->sim, UINT64_C(3500000000));
}

static void expire(struct removal_work *work)
{
    come_for(work, REMOVAL_TTL);
    come_for(work, REMOVAL_GONE);
}

static void page_and_let_time_pass(struct removal_work *work)
{
    publish(work, REMOVAL_TTL, 60, 900);
    publish(work, REMOVAL_GONE, 60, 900);
    crash_work_checkpoint(&work->base);
    qsi_env_sim_advance(work->sim, UINT64_C(3500000000));
}

static void take_twice(struct removal_work *work)
{
    publish(work, REMOVAL_LIMIT, 4, 100);
    take(work, REMOVAL_LIMIT, 4);
    settle_all(work, REMOVAL_REQUEUE);
    take(work, REMOVAL_LIMIT, 4);
}

static void requeue(struct removal_work *work)
{
    settle_all(work, REMOVAL_REQUEUE);
}

static void fill_for_transaction(struct removal_work *work)
{
    publish(work, REMOVAL_LEAST, 8, 100);
    publish(work, REMOVAL_BYTES, 2, 700);
    publish(work, REMOVAL_LENGTH, 5, 100);
    crash_work_sync(&work->base);
}

static void commit(struct removal_work *work)
{
    removal_work_tx(work);
}

static void close_store(struct removal_work *work)
{
    work->out_count = 0;
    crash_close_store(&work->base);
}

static void close_and_let_time_pass(struct removal_work *work)
{
    let_time_pass(work);
    publish(work, REMOVAL_LENGTH, 6, 100);
    publish(work, REMOVAL_BYTES, 3, 800);
    close_store(work);
    qsi_env_sim_advance(work->sim, UINT64_C(3500000000));
}

static void open_store(struct removal_work *work)
{
    if (crash_open_store(&work->base)) {
        expire(work);
    }
}

static const struct operation operations[] = {
    {"reject", false, take_some, reject},
    {"drop the oldest", false, NULL, publish_too_many},
    {"refuse", false, fill_up, publish_what_is_refused},
    {"refuse rows", false, fill_up, publish_batch_that_is_refused},
    {"expire", false, let_time_pass, expire},
    {"expire, paged", true, page_and_let_time_pass, expire},
    {"deliver too often", false, take_twice, requeue},
    {"commit rejects", false, fill_for_transaction, commit},
    {"close with messages delivered too often", false, take_twice, close_store},
    {"open when time has passed", false, close_and_let_time_pass, open_store},
    {"reject, paged", true, take_some, reject},
};

/* ---- one trial ---- */

struct trial {
    struct fault_trial base;
    const struct operation *operation;
    qs_env *disk; /* that each trial begins with a copy of */
    struct removal_run run;
};

static qs_options options_of(const struct operation *operation)
{
    qs_options options = crash_options();

    if (operation->pages) {
        options.memory_budget = 64 << 10;
        options.segment_entries = 16;
        options.checkpoint_bytes = 0;
    }
    return options;
}

static void begin(struct trial *trial)
{
    static const struct crash_run_options options = {.generations = 1};
    struct removal_run *run = &trial->run;
    qs_env *mem = qsi_env_mem_clone(trial->disk, 2);

    memset(run, 0, sizeof *run);
    run->life.options = &options;
    run->life.report = trial->base.report;
    run->store_options = options_of(trial->operation);
    crash_model_init(&run->shell);
    run->life.sim = qsi_env_sim_from_mem(mem, 2);
    fault_begin(&trial->base, run->life.sim);
    crash_env_init(&run->life.env, trial->base.faulty, CRASH_NO_BUG);
    run->work = (struct removal_work){
        .base = {.env = &run->life.env,
                 .model = &run->shell,
                 .report = trial->base.report,
                 .random = 7,
                 .options = run->store_options},
        .model = &run->model,
        .sim = run->life.sim,
    };
    QS_CHECK(crash_open_store(&run->work.base));
    if (trial->operation->prepare != NULL) {
        trial->operation->prepare(&run->work);
    }
    QS_CHECK(!run->work.base.is_over);
}

/* The part that faults may hit. */
static void run_operation(struct trial *trial)
{
    struct crash_work *work = &trial->run.work.base;

    work->has_faults = true;
    fault_arm(&trial->base);
    trial->operation->run(&trial->run.work);
    fault_disarm(&trial->base);
    if (work->is_over && !trial->base.has_fired) {
        fault_tell(&trial->base, "failed without a fault");
    }
}

/* It goes on, or has failed. */
static void check_alive(struct trial *trial)
{
    struct removal_work *work = &trial->run.work;

    if (work->base.store != NULL && qs_store_sync(work->base.store, NULL) != QS_OK &&
        !removal_has_failed(work)) {
        fault_tell(&trial->base, "the store is of no use, and has not failed");
    }
}

static void check_cuts(struct trial *trial, const char *name)
{
    removal_check_cut(&trial->run, QSI_CUT_KEEP_ALL, name);
    removal_check_cut(&trial->run, trial->base.n % 2 == 0 ? QSI_CUT_DROP_ALL : QSI_CUT_RANDOM,
                      name);
}

static void try_once(struct fault_trial *base)
{
    struct trial *trial = (struct trial *)base;
    struct removal_run *run = &trial->run;

    begin(trial);
    run_operation(trial);
    check_cuts(trial, "behind the fault");
    check_alive(trial);
    run->life.env.is_dead = base->n % 2 != 0;
    run->work.base.is_over = true; /* it may close in failure */
    crash_close_store(&run->work.base);
    check_cuts(trial, "after the end");
    crash_model_fini(&run->shell);
}

/* All queues are declared. */
static qs_env *make_disk(struct trial *trial)
{
    struct removal_run *run = &trial->run;
    qs_env *disk;

    trial->disk = qsi_env_mem_create(1);
    begin(trial);
    removal_set_up(&run->work);
    crash_close_store(&run->work.base);
    QS_CHECK(!run->work.base.is_over);
    disk = qsi_env_sim_cut(run->life.sim, QSI_CUT_KEEP_ALL, 1);
    crash_model_fini(&run->shell);
    fault_end(&trial->base);
    qsi_env_mem_destroy(trial->disk);
    return disk;
}

static uint64_t sweep_operation(struct trial *trial, const struct operation *operation)
{
    const struct operation nothing = {"declare", operation->pages, NULL, NULL};
    uint64_t faults;

    trial->operation = &nothing;
    trial->disk = make_disk(trial);
    trial->operation = operation;
    trial->base.name = operation->name;
    faults = fault_sweep(&trial->base, try_once);
    qsi_env_mem_destroy(trial->disk);
    return faults;
}

int main(int argc, char **argv)
{
    struct crash_report report = {.told_max = 40};
    QS_TEST_FREED struct trial *trial = calloc(1, sizeof *trial);
    uint64_t faults = 0;

    (void)qs_test_seed(argc, argv);
    QS_CHECK(trial != NULL);
    qs_test_alloc_install(&fault_alloc);
    trial->base = (struct fault_trial){.step = 1, .report = &report};
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        if (fault_wanted(argc, argv, operations[i].name)) {
            faults += sweep_operation(trial, &operations[i]);
        }
    }
    fault_conclude(&report, faults);
    return 0;
}
