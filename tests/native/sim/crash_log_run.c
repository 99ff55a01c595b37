/* Runs over streams: generations, and the cuts of them. */
#include "crash_log.h"
#include "crash_work.h"

struct run {
    const struct log_run_options *options;
    struct crash_report *report;
    uint64_t random;
    uint32_t generation;
    qs_env *sim;
    qs_env *fault;        /* around sim */
    struct crash_env env; /* around fault */
    struct log_model model;
    const struct log_work *work; /* of this generation */
    uint64_t end_step;           /* at which the generation ends; 0: when its work is done */
    bool has_ended;
    bool ends_in_power_cut;
    qs_env *next_disk; /* after a power cut */
};

static uint32_t below(struct run *run, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&run->random, limit);
}

/* ---- cuts ---- */

static void check_cut(struct run *run, enum qsi_cut_how how, const char *name)
{
    qs_env *mem = qsi_env_sim_cut(run->sim, how, qsi_splitmix_next(&run->random));
    qs_options options = log_options(qsi_splitmix_next(&run->random));
    struct crash_env env;
    qs_channel *channel = NULL;
    qs_store *store = NULL;
    qs_status status;

    run->report->cut = name;
    run->report->states++;
    crash_env_init(&env, mem, CRASH_NO_BUG);
    env.wall_shift_us = run->env.wall_shift_us;
    status = qs_store_open(&store, CRASH_PATH, &options, &env.env, QS_ERROR);
    if (status == QS_OK) {
        QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
        log_check(&run->model, run->report, store, channel, NULL);
        env.is_dead = true; /* closing in order would only cost time */
        qs_channel_close(channel);
        qs_store_close(store, NULL);
    } else {
        crash_violation(run->report, "open: %s: %s", qs_status_name(status), qs_test_error.text);
    }
    qsi_env_mem_destroy(mem);
    run->report->cut = "alive";
}

static void check_cuts(struct run *run)
{
    uint32_t simple = below(run, 4);

    if (simple < 2) {
        check_cut(run, simple == 0 ? QSI_CUT_KEEP_ALL : QSI_CUT_DROP_ALL,
                  simple == 0 ? "all kept" : "all dropped");
    }
    for (uint32_t i = 0; i < run->options->random_cuts; i++) {
        check_cut(run, QSI_CUT_RANDOM, "random");
    }
}

/* ---- the end of a generation ---- */

static void end_generation(struct run *run)
{
    static const enum qsi_cut_how hows[] = {QSI_CUT_RANDOM, QSI_CUT_RANDOM, QSI_CUT_RANDOM,
                                            QSI_CUT_KEEP_ALL, QSI_CUT_DROP_ALL};

    /* As in crash_run.c: a page cache that lies, and nobody who could know. */
    if (qsi_env_fault_fired(run->fault) && !run->work->is_over) {
        run->ends_in_power_cut = true;
    }
    run->has_ended = true;
    run->env.is_dead = true;
    if (run->ends_in_power_cut) {
        run->next_disk =
            qsi_env_sim_cut(run->sim, hows[below(run, 5)], qsi_splitmix_next(&run->random));
    }
}

static void at_step(void *context, uint64_t step)
{
    struct run *run = context;

    if (run->has_ended) {
        return;
    }
    run->report->step = step;
    if (below(run, 100) < run->options->cut_percent) {
        check_cuts(run);
    }
    if (run->end_step != 0 && step >= run->end_step) {
        end_generation(run);
    }
}

static void take_next_disk(struct run *run)
{
    if (run->next_disk == NULL) {
        return;
    }
    qsi_env_fault_destroy(run->fault);
    qsi_env_sim_destroy(run->sim);
    run->sim = qsi_env_sim_from_mem(run->next_disk, qsi_splitmix_next(&run->random));
    run->fault = qsi_env_fault_create(run->sim);
    run->next_disk = NULL;
    run->env.inner = run->fault;
    qsi_env_sim_on_step(run->sim, at_step, run);
}

/* ---- a generation ---- */

static void choose_end(struct run *run)
{
    bool is_last = run->generation + 1 == run->options->generations;

    run->has_ended = false;
    run->ends_in_power_cut = below(run, 3) > 0;
    run->end_step = 0;
    if (!is_last && run->options->end_steps != 0 && below(run, 4) > 0) {
        run->end_step = qsi_env_sim_steps(run->sim) + 1 + below(run, run->options->end_steps);
    }
}

static void arm_fault(struct run *run)
{
    static const struct {
        enum qsi_fault_kind kind;
        enum qsi_fault_how how;
    } faults[] = {
        {QSI_FAULT_SYNC, QSI_FAULT_SYNC_LOST},  {QSI_FAULT_SYNC, QSI_FAULT_SYNC_LOST},
        {QSI_FAULT_DIR_SYNC, QSI_FAULT_EIO},    {QSI_FAULT_WRITE, QSI_FAULT_EIO},
        {QSI_FAULT_WRITE, QSI_FAULT_SHORT_EIO}, {QSI_FAULT_WRITE, QSI_FAULT_ENOSPC},
        {QSI_FAULT_ALLOCATE, QSI_FAULT_ENOSPC}, {QSI_FAULT_OPEN, QSI_FAULT_EMFILE},
    };
    uint32_t chosen = below(run, sizeof faults / sizeof faults[0]);

    qsi_env_fault_arm(run->fault, faults[chosen].kind, faults[chosen].how,
                      1 + below(run, 2 * run->options->ops), false);
}

/* What recovery shows is compared, and is the truth from here on. */
static bool adopt(struct run *run, struct log_work *work)
{
    uint64_t violations = run->report->violations;
    qs_channel *channel = NULL;

    if (!log_done(work, qs_channel_open(&channel, work->store, QS_ERROR), "open channel")) {
        return false;
    }
    log_check(&run->model, run->report, work->store, channel, &run->env);
    qs_channel_close(channel);
    if (run->env.is_dead) { /* what it was told after its death is nobody's business */
        run->report->violations = violations;
    }
    return !run->env.is_dead;
}

static void work_on(struct run *run, struct log_work *work)
{
    uint32_t ops = 1 + below(run, run->options->ops);

    if (run->options->has_faults) {
        arm_fault(run);
    }
    log_set_up(work);
    for (uint32_t i = 0; i < ops && !work->is_over && run->model.last + 100 < LOG_OPS_MAX; i++) {
        log_work_once(work);
    }
}

static void live(struct run *run)
{
    struct log_work work = {
        .env = &run->env,
        .model = &run->model,
        .report = run->report,
        .random = qsi_splitmix_next(&run->random),
        .bug = run->options->bug,
        .has_faults = run->options->has_faults,
        .options = log_options(qsi_splitmix_next(&run->random)),
    };

    run->work = &work;
    if (log_open_store(&work) && adopt(run, &work)) {
        work_on(run, &work);
    }
    if (!work.is_over && below(run, 3) == 0) {
        (void)log_model_begin(&run->model);
        log_close_store(&work);
    }
    if (!run->has_ended) {
        end_generation(run);
    }
    work.is_over = true; /* what is left of the process goes without a trace */
    log_close_store(&work);
    qsi_env_fault_arm(run->fault, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    run->env.is_dead = false;
}

static enum crash_bug env_bug(enum log_bug bug)
{
    return bug == LOG_BLOCK_NOT_SYNCED ? CRASH_NO_STREAM_SYNC
           : bug == LOG_SYNC_SWALLOWED ? CRASH_STREAM_SYNC_SWALLOWED
           : bug == LOG_NAME_NOT_SYNCED || bug == LOG_WRITTEN_NAME_NOT_SYNCED
               ? CRASH_NO_STREAM_DIR_SYNC
               : CRASH_NO_BUG;
}

void log_run(const struct log_run_options *options, struct crash_report *report, uint64_t seed)
{
    struct run run = {.options = options, .report = report, .random = seed};

    report->seed = seed;
    report->cut = "alive";
    log_model_init(&run.model);
    run.sim = qsi_env_sim_create(seed);
    run.fault = qsi_env_fault_create(run.sim);
    crash_env_init(&run.env, run.fault, env_bug(options->bug));
    run.env.unread_percent = options->unread_percent;
    run.env.unread_random = seed;
    qsi_env_sim_on_step(run.sim, at_step, &run);
    for (; run.generation < options->generations; run.generation++) {
        choose_end(&run);
        live(&run);
        take_next_disk(&run);
    }
    check_cut(&run, QSI_CUT_DROP_ALL, "at the end");
    log_model_fini(&run.model);
    qsi_env_fault_destroy(run.fault);
    qsi_env_sim_destroy(run.sim);
}
