/* Runs: generations, and the cuts of them. */
#include "crash_run.h"

#define CRASH_MID_COMMIT_ROUNDS 3 /* of cuts in a commit that a generation ends in */

/* -- one state -------------------------------------------------------------------------------- */

struct crash_compared {
    struct crash_model *model;
    struct crash_report *report;
    uint64_t space_seed;
};

static void crash_look(void *context, qs_store *store, qs_channel *channel, struct crash_env *env)
{
    const struct crash_compared *with = context;

    crash_model_check(with->model, with->report, store, channel);
    if (with->space_seed != 0) {
        crash_check_space(with->model, with->report, store, channel, &env->env, with->space_seed);
    }
}

void crash_check_disk_as(struct crash_model *model, struct crash_report *report, qs_env *mem,
                         qs_options options, uint64_t space_seed)
{
    struct crash_compared with = {model, report, space_seed};
    const struct crash_looking looking = {.check = crash_look, .context = &with};

    crash_open_disk(report, mem, &options, &looking);
}

void crash_check_disk(struct crash_model *model, struct crash_report *report, qs_env *mem)
{
    crash_check_disk_as(model, report, mem, crash_options(), 0);
}

/* It may be opened with more memory or less, and go on with other sizes. */
static qs_options crash_reader_options(struct crash_run *run)
{
    qs_options options = run->store_options;

    if (run->life.options->pages) {
        options = crash_paging_options(qsi_splitmix_next(&run->life.random));
        options.segment_entries = run->store_options.segment_entries;
    }
    return options;
}

static void crash_check_cut(struct crash_run *run, enum qsi_cut_how how, const char *name)
{
    struct crash_life *life = &run->life;
    qs_env *mem = crash_life_cut(life, how);
    bool is_copied = run->model.is_checking; /* of the live store: its gets may have to write */
    uint64_t space_seed = 0;
    struct crash_model copy;

    life->report->cut = name;
    if (life->options->pages && crash_life_below(life, 4) == 0) {
        space_seed = qsi_splitmix_next(&life->random) | 1;
    }
    if (is_copied) {
        crash_model_copy(&copy, &run->model);
    }
    crash_check_disk_as(is_copied ? &copy : &run->model, life->report, mem,
                        crash_reader_options(run), space_seed);
    if (is_copied) {
        crash_model_fini(&copy);
    }
}

static void crash_check_cuts(struct crash_run *run)
{
    switch (crash_life_below(&run->life, 4)) {
    case 0:
        crash_check_cut(run, QSI_CUT_KEEP_ALL, "all kept");
        break;
    case 1:
        crash_check_cut(run, QSI_CUT_DROP_ALL, "all dropped");
        break;
    default:
        break;
    }
    for (uint32_t i = 0; i < run->life.options->random_cuts; i++) {
        crash_check_cut(run, QSI_CUT_RANDOM, "random");
    }
    run->life.report->cut = "alive";
}

/* -- the end of a generation ------------------------------------------------------------------ */

static void crash_end(struct crash_run *run)
{
    crash_life_end(&run->life, !run->work->is_over);
    crash_model_copy(&run->frozen, &run->model);
}

static bool crash_is_mid_commit(const struct crash_run *run)
{
    return run->end_sync != 0 && run->life.env.syncs_begun >= run->end_sync;
}

static void crash_on_step(void *context, uint64_t step)
{
    struct crash_run *run = context;
    struct crash_life *life = &run->life;

    if (life->has_ended) {
        return;
    }
    life->report->step = step;
    if (!run->model.is_checking && crash_is_mid_commit(run)) {
        for (int i = 0; i < CRASH_MID_COMMIT_ROUNDS; i++) {
            crash_check_cuts(run);
        }
        crash_end(run);
        return;
    }
    if (crash_life_wants_cuts(life)) {
        crash_check_cuts(run);
    }
    if (!run->model.is_checking && life->end_step != 0 && step >= life->end_step) {
        crash_end(run);
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
    if (work->pages && !work->is_over && !run->life.has_ended && !work->has_faults &&
        crash_life_below(&run->life, 2) == 0) {
        run->life.env.unread_percent = 0;
        crash_check_empty(work);
        run->life.env.unread_percent = run->life.options->unread_percent;
    }
    if (!work->is_over && crash_life_below(&run->life, 3) == 0) {
        crash_close_store(work);
    }
    if (!run->life.has_ended) {
        crash_end(run);
    }
}

static void crash_do_work(struct crash_run *run, struct crash_work *work)
{
    /* Some do very little: much can go wrong around the first commit of a session. */
    uint32_t ops = crash_life_below(&run->life, 4) == 0 ? 3 : run->life.options->ops;

    if (run->life.options->has_faults) {
        crash_life_arm_fault(&run->life, ops);
    }
    if (run->life.options->end_syncs != 0 && run->life.generation > 0) { /* the first one sets up */
        run->end_sync = run->life.env.syncs_begun + 1 +
                        crash_life_below(&run->life, run->life.options->end_syncs);
    }
    crash_set_up(work);
    crash_work_run(work, 1 + crash_life_below(&run->life, ops));
}

static void crash_generation(struct crash_run *run)
{
    struct crash_work work = {
        .env = &run->life.env,
        .model = &run->model,
        .report = run->life.report,
        .random = qsi_splitmix_next(&run->life.random),
        .has_faults = run->life.options->has_faults,
        .pages = run->life.options->pages,
        .options = crash_reader_options(run),
    };

    run->work = &work;
    if (crash_open_store(&work) && crash_adopt(&work)) {
        crash_do_work(run, &work);
    }
    crash_finish(run, &work);
    work.is_over = true; /* what is left of the process goes without a trace */
    crash_close_store(&work);
    crash_life_next(&run->life);
    crash_model_fini(&run->model);
    run->model = run->frozen;
    run->frozen = (struct crash_model){0};
}

/* -- a run ------------------------------------------------------------------------------------ */

void crash_run(const struct crash_run_options *options, struct crash_report *report, uint64_t seed)
{
    struct crash_run run = {.store_options =
                                options->pages ? crash_paging_options(seed) : crash_options()};
    struct crash_life *life = &run.life;

    crash_model_init(&run.model);
    crash_life_init(life, options, report, seed, (enum crash_bug)options->bug, crash_on_step, &run);
    for (; life->generation < options->generations; life->generation++) {
        crash_life_choose_end(life);
        run.end_sync = 0;
        crash_generation(&run);
    }
    crash_check_cut(&run, QSI_CUT_DROP_ALL, "at the end");
    crash_model_fini(&run.model);
    crash_life_fini(life);
}
