/* Runs over streams: generations, and the cuts of them. */
#include "crash_log.h"
#include "crash_work.h"

struct run {
    struct crash_life life;
    struct log_model model;
    const struct log_work *work; /* of this generation */
};

/* ---- cuts ---- */

static void check_store(void *context, qs_store *store, qs_channel *channel, struct crash_env *env)
{
    struct run *run = context;

    (void)env;
    log_check(&run->model, run->life.report, store, channel, NULL);
}

static void check_cut(struct run *run, enum qsi_cut_how how, const char *name)
{
    struct crash_life *life = &run->life;
    qs_env *mem = crash_life_cut(life, how);
    qs_options options = log_options(qsi_splitmix_next(&life->random));
    const struct crash_looking looking = {.check = check_store,
                                          .context = run,
                                          .closing_drops = true,
                                          .wall_shift_us = life->env.wall_shift_us};

    life->report->cut = name;
    crash_open_disk(life->report, mem, &options, &looking);
    life->report->cut = "alive";
}

static void check_cuts(struct run *run)
{
    uint32_t simple = crash_life_below(&run->life, 4);

    if (simple < 2) {
        check_cut(run, simple == 0 ? QSI_CUT_KEEP_ALL : QSI_CUT_DROP_ALL,
                  simple == 0 ? "all kept" : "all dropped");
    }
    for (uint32_t i = 0; i < run->life.options->random_cuts; i++) {
        check_cut(run, QSI_CUT_RANDOM, "random");
    }
}

static void at_step(void *context, uint64_t step)
{
    struct run *run = context;
    struct crash_life *life = &run->life;

    if (life->has_ended) {
        return;
    }
    life->report->step = step;
    if (crash_life_wants_cuts(life)) {
        check_cuts(run);
    }
    if (life->end_step != 0 && step >= life->end_step) {
        crash_life_end(life, !run->work->is_over);
    }
}

/* ---- a generation ---- */

/* What recovery shows is compared, and is the truth from here on. */
static bool adopt(struct run *run, struct log_work *work)
{
    uint64_t violations = run->life.report->violations;
    qs_channel *channel = NULL;

    if (!log_done(work, qs_channel_open(&channel, work->store, QS_ERROR), "open channel")) {
        return false;
    }
    log_check(&run->model, run->life.report, work->store, channel, &run->life.env);
    qs_channel_close(channel);
    if (run->life.env.is_dead) { /* what it was told after its death is nobody's business */
        run->life.report->violations = violations;
    }
    return !run->life.env.is_dead;
}

static void work_on(struct run *run, struct log_work *work)
{
    uint32_t ops = 1 + crash_life_below(&run->life, run->life.options->ops);

    if (run->life.options->has_faults) {
        crash_life_arm_fault(&run->life, run->life.options->ops);
    }
    log_set_up(work);
    for (uint32_t i = 0; i < ops && !work->is_over && run->model.last + 100 < LOG_OPS_MAX; i++) {
        log_work_once(work);
    }
}

static void live(struct run *run)
{
    struct log_work work = {
        .env = &run->life.env,
        .model = &run->model,
        .report = run->life.report,
        .random = qsi_splitmix_next(&run->life.random),
        .bug = (enum log_bug)run->life.options->bug,
        .has_faults = run->life.options->has_faults,
        .options = log_options(qsi_splitmix_next(&run->life.random)),
    };

    run->work = &work;
    if (log_open_store(&work) && adopt(run, &work)) {
        work_on(run, &work);
    }
    if (!work.is_over && crash_life_below(&run->life, 3) == 0) {
        (void)log_model_begin(&run->model);
        log_close_store(&work);
    }
    if (!run->life.has_ended) {
        crash_life_end(&run->life, !work.is_over);
    }
    work.is_over = true; /* what is left of the process goes without a trace */
    log_close_store(&work);
    crash_life_next(&run->life);
}

static enum crash_bug env_bug(uint32_t bug)
{
    return bug == LOG_BLOCK_NOT_SYNCED ? CRASH_NO_STREAM_SYNC
           : bug == LOG_SYNC_SWALLOWED ? CRASH_STREAM_SYNC_SWALLOWED
           : bug == LOG_NAME_NOT_SYNCED || bug == LOG_WRITTEN_NAME_NOT_SYNCED
               ? CRASH_NO_STREAM_DIR_SYNC
               : CRASH_NO_BUG;
}

void log_run(const struct crash_run_options *options, struct crash_report *report, uint64_t seed)
{
    struct run run;
    struct crash_life *life = &run.life;

    log_model_init(&run.model);
    crash_life_init(life, options, report, seed, env_bug(options->bug), at_step, &run);
    for (; life->generation < options->generations; life->generation++) {
        crash_life_choose_end(life);
        live(&run);
    }
    check_cut(&run, QSI_CUT_DROP_ALL, "at the end");
    log_model_fini(&run.model);
    crash_life_fini(life);
}
