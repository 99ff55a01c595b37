/* Runs: generations, and the cuts of them. */
#include "crash_run.h"

#define CRASH_MID_COMMIT_ROUNDS 3 /* of cuts in a commit that a generation ends in */
#define CRASH_STATES_A_CLOSE 5    /* of so many, one is closed in order and opened again first */

static uint32_t crash_run_below(struct crash_run *run, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&run->random, limit);
}

/* -- one state -------------------------------------------------------------------------------- */

void crash_check_disk_as(struct crash_model *model, struct crash_report *report, qs_env *mem,
                         qs_options options, uint64_t space_seed)
{
    struct crash_env env;
    qs_store *store = NULL;
    qs_channel *channel = NULL;
    qs_status status;

    crash_env_init(&env, mem, CRASH_NO_BUG);
    report->states++;
    status = qs_store_open(&store, CRASH_PATH, &options, &env.env, QS_ERROR);
    if (status == QS_OK && report->states % CRASH_STATES_A_CLOSE == 0) {
        QS_CHECK_OK(qs_store_close(store, QS_ERROR));
        status = qs_store_open(&store, CRASH_PATH, &options, &env.env, QS_ERROR);
    }
    if (status == QS_OK) {
        QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
        crash_model_check(model, report, store, channel);
        if (space_seed != 0) {
            crash_check_space(model, report, store, channel, &env.env, space_seed);
        }
        env.is_dead = true; /* closing in order would only cost time */
        qs_channel_close(channel);
        qs_store_close(store, NULL);
    } else {
        crash_violation(report, "open: %s: %s", qs_status_name(status), qs_test_error.text);
    }
    qsi_env_mem_destroy(mem);
}

void crash_check_disk(struct crash_model *model, struct crash_report *report, qs_env *mem)
{
    crash_check_disk_as(model, report, mem, crash_options(), 0);
}

/* It may be opened with more memory or less, and go on with other sizes. */
static qs_options crash_reader_options(struct crash_run *run)
{
    qs_options options = run->store_options;

    if (run->options->pages) {
        options = crash_paging_options(qsi_splitmix_next(&run->random));
        options.segment_entries = run->store_options.segment_entries;
    }
    return options;
}

static void crash_check_cut(struct crash_run *run, enum qsi_cut_how how, const char *name)
{
    qs_env *mem = qsi_env_sim_cut(run->sim, how, qsi_splitmix_next(&run->random));
    uint64_t space_seed = 0;

    run->report->cut = name;
    if (run->options->pages && crash_run_below(run, 4) == 0) {
        space_seed = qsi_splitmix_next(&run->random) | 1;
    }
    if (run->model.is_checking) { /* of the live store: its gets may have to write */
        struct crash_model model;

        crash_model_copy(&model, &run->model);
        crash_check_disk_as(&model, run->report, mem, crash_reader_options(run), space_seed);
        crash_model_fini(&model);
    } else {
        crash_check_disk_as(&run->model, run->report, mem, crash_reader_options(run), space_seed);
    }
}

static void crash_check_cuts(struct crash_run *run)
{
    switch (crash_run_below(run, 4)) {
    case 0:
        crash_check_cut(run, QSI_CUT_KEEP_ALL, "all kept");
        break;
    case 1:
        crash_check_cut(run, QSI_CUT_DROP_ALL, "all dropped");
        break;
    default:
        break;
    }
    for (uint32_t i = 0; i < run->options->random_cuts; i++) {
        crash_check_cut(run, QSI_CUT_RANDOM, "random");
    }
    run->report->cut = "alive";
}

/* -- the end of a generation ------------------------------------------------------------------ */

static qs_env *crash_final_cut(struct crash_run *run)
{
    static const enum qsi_cut_how hows[] = {QSI_CUT_RANDOM, QSI_CUT_RANDOM, QSI_CUT_RANDOM,
                                            QSI_CUT_KEEP_ALL, QSI_CUT_DROP_ALL};
    qs_env *mem =
        qsi_env_sim_cut(run->sim, hows[crash_run_below(run, 5)], qsi_splitmix_next(&run->random));

    return mem;
}

static void crash_end(struct crash_run *run)
{
    /* A process that is killed between a failed sync and writing that down leaves a page cache that
     * lies, and nobody who could know: only a power cut, which takes the page cache, helps then. */
    if (qsi_env_fault_fired(run->fault) && !run->work->is_over) {
        run->ends_in_power_cut = true;
    }
    run->has_ended = true;
    run->env.is_dead = true;
    crash_model_copy(&run->frozen, &run->model);
    if (run->ends_in_power_cut) {
        run->next_disk = crash_final_cut(run);
    }
}

static bool crash_is_mid_commit(const struct crash_run *run)
{
    return run->end_sync != 0 && run->env.syncs_begun >= run->end_sync;
}

static void crash_on_step(void *context, uint64_t step)
{
    struct crash_run *run = context;

    if (run->has_ended) {
        return;
    }
    run->report->step = step;
    if (run->model.is_checking) {
        if (crash_run_below(run, 100) < run->options->cut_percent) {
            crash_check_cuts(run);
        }
    } else if (crash_is_mid_commit(run)) {
        for (int i = 0; i < CRASH_MID_COMMIT_ROUNDS; i++) {
            crash_check_cuts(run);
        }
        crash_end(run);
    } else {
        if (crash_run_below(run, 100) < run->options->cut_percent) {
            crash_check_cuts(run);
        }
        if (run->end_step != 0 && step >= run->end_step) {
            crash_end(run);
        }
    }
}

/* The disk and the model that the next generation begins with. */
static void crash_next_disk(struct crash_run *run)
{
    crash_model_fini(&run->model);
    run->model = run->frozen;
    run->frozen = (struct crash_model){0};
    if (run->next_disk != NULL) {
        qsi_env_fault_destroy(run->fault);
        qsi_env_sim_destroy(run->sim);
        run->sim = qsi_env_sim_from_mem(run->next_disk, qsi_splitmix_next(&run->random));
        run->fault = qsi_env_fault_create(run->sim);
        run->next_disk = NULL;
        qsi_env_sim_on_step(run->sim, crash_on_step, run);
    }
}

/* -- one generation --------------------------------------------------------------------------- */

/* What recovery shows is compared and is the truth from here on. */
static bool crash_adopt(struct crash_work *work)
{
    qs_channel *channel = NULL;

    if (!crash_done(work, qs_channel_open(&channel, work->store, QS_ERROR), "open channel")) {
        return false;
    }
    crash_model_check(work->model, work->report, work->store, channel);
    crash_model_adopt(work->model, work->store);
    qs_channel_close(channel);
    return !work->env->is_dead;
}

/* In order, now and then: a store that was closed is a crash state as well. */
static void crash_finish(struct crash_run *run, struct crash_work *work)
{
    if (work->pages && !work->is_over && !run->has_ended && !work->has_faults &&
        crash_run_below(run, 2) == 0) {
        run->env.unread_percent = 0;
        crash_check_empty(work);
        run->env.unread_percent = run->options->unread_percent;
    }
    if (!work->is_over && crash_run_below(run, 3) == 0) {
        crash_close_store(work);
    }
    if (!run->has_ended) {
        crash_end(run);
    }
}

/* Where the generation is cut off; most of the last ones do all of their work. */
static void crash_choose_end(struct crash_run *run)
{
    bool is_last = run->generation + 1 == run->options->generations;

    run->has_ended = false;
    run->ends_in_power_cut = run->options->end_syncs != 0 || crash_run_below(run, 3) > 0;
    run->end_step = run->end_sync = 0;
    if (!is_last && run->options->end_steps != 0 && crash_run_below(run, 4) > 0) {
        run->end_step =
            qsi_env_sim_steps(run->sim) + 1 + crash_run_below(run, run->options->end_steps);
    }
}

/* A failed sync loses what it was for, as it does on Linux: calls still see it, the disk never
 * will. */
static void crash_arm_fault(struct crash_run *run, uint32_t ops)
{
    static const struct {
        enum qsi_fault_kind kind;
        enum qsi_fault_how how;
    } faults[] = {
        {QSI_FAULT_SYNC, QSI_FAULT_SYNC_LOST}, {QSI_FAULT_SYNC, QSI_FAULT_SYNC_LOST},
        {QSI_FAULT_SYNC, QSI_FAULT_SYNC_LOST}, {QSI_FAULT_DIR_SYNC, QSI_FAULT_EIO},
        {QSI_FAULT_WRITE, QSI_FAULT_EIO},      {QSI_FAULT_WRITE, QSI_FAULT_SHORT_EIO},
        {QSI_FAULT_WRITE, QSI_FAULT_ENOSPC},   {QSI_FAULT_ALLOCATE, QSI_FAULT_ENOSPC},
    };
    uint32_t chosen = crash_run_below(run, sizeof faults / sizeof faults[0]);

    qsi_env_fault_arm(run->fault, faults[chosen].kind, faults[chosen].how,
                      1 + crash_run_below(run, 2 * ops), false);
}

static void crash_do_work(struct crash_run *run, struct crash_work *work)
{
    /* Some do very little: much can go wrong around the first commit of a session. */
    uint32_t ops = crash_run_below(run, 4) == 0 ? 3 : run->options->ops;

    if (run->options->has_faults) {
        crash_arm_fault(run, ops);
    }
    if (run->options->end_syncs != 0 && run->generation > 0) { /* the first one sets up */
        run->end_sync = run->env.syncs_begun + 1 + crash_run_below(run, run->options->end_syncs);
    }
    crash_set_up(work);
    crash_work_run(work, 1 + crash_run_below(run, ops));
}

static void crash_generation(struct crash_run *run)
{
    struct crash_work work = {
        .env = &run->env,
        .model = &run->model,
        .report = run->report,
        .random = qsi_splitmix_next(&run->random),
        .has_faults = run->options->has_faults,
        .pages = run->options->pages,
        .options = crash_reader_options(run),
    };

    run->work = &work;
    if (crash_open_store(&work) && crash_adopt(&work)) {
        crash_do_work(run, &work);
    }
    crash_finish(run, &work);
    /* What is left of the process goes without a trace. */
    work.is_over = true;
    crash_close_store(&work);
    qsi_env_fault_arm(run->fault, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    run->env.is_dead = false;
}

/* -- a run ------------------------------------------------------------------------------------ */

static void crash_run_init(struct crash_run *run, const struct crash_run_options *options,
                           struct crash_report *report, uint64_t seed)
{
    *run = (struct crash_run){.options = options, .report = report, .random = seed};
    run->store_options = options->pages ? crash_paging_options(seed) : crash_options();
    report->seed = seed;
    report->cut = "alive";
    crash_model_init(&run->model);
    run->sim = qsi_env_sim_create(seed);
    run->fault = qsi_env_fault_create(run->sim);
    crash_env_init(&run->env, run->fault, options->bug);
    run->env.unread_percent = options->unread_percent;
    run->env.unread_random = seed;
    qsi_env_sim_on_step(run->sim, crash_on_step, run);
}

void crash_run(const struct crash_run_options *options, struct crash_report *report, uint64_t seed)
{
    struct crash_run run;

    crash_run_init(&run, options, report, seed);
    for (; run.generation < options->generations; run.generation++) {
        crash_choose_end(&run);
        crash_generation(&run);
        crash_next_disk(&run);
        run.env.inner = run.fault;
    }
    crash_check_cut(&run, QSI_CUT_DROP_ALL, "at the end");
    crash_model_fini(&run.model);
    qsi_env_fault_destroy(run.fault);
    qsi_env_sim_destroy(run.sim);
}

/* -- what all tests of this kind share -------------------------------------------------------- */

double crash_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

uint64_t crash_state_count(int argc, char **argv, uint64_t count)
{
    const char *sweeps = getenv("QS_SWEEPS");

    if (sweeps != NULL && strcmp(sweeps, "short") == 0) {
        count /= 16;
    }
#ifdef __SANITIZE_ADDRESS__
    count /= 20;
#endif
    return argc > 2 ? strtoull(argv[2], NULL, 0) : count;
}

void crash_run_many(const struct crash_run_options *options, struct crash_report *report,
                    uint64_t seed, uint64_t state_count, bool stops_at_violation)
{
    while (report->states < state_count && !(stops_at_violation && report->violations > 0)) {
        crash_run(options, report, seed++);
    }
}
