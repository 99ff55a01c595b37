/* Runs of it, with their cuts. */
#include "crash_removals.h"

/* -- runs ------------------------------------------------------------------------------------- */

static uint32_t removal_below(struct removal_run *run, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&run->random, limit);
}

/* It may be opened with more memory or less. */
static qs_options removal_reader_options(struct removal_run *run)
{
    qs_options options = run->store_options;

    if (run->options->pages) {
        options = crash_paging_options(qsi_splitmix_next(&run->random));
        options.segment_entries = run->store_options.segment_entries;
    }
    return options;
}

static void removal_check_disk(struct removal_run *run, qs_env *mem, const char *cut)
{
    qs_options options = removal_reader_options(run);
    struct crash_env env;
    qs_store *store = NULL;
    qs_channel *channel = NULL;
    qs_status status;

    run->report->cut = cut;
    run->report->states++;
    crash_env_init(&env, mem, CRASH_NO_BUG);
    status = qs_store_open(&store, CRASH_PATH, &options, &env.env, QS_ERROR);
    if (status == QS_OK) {
        QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
        removal_check_store(&run->model, run->report, store, channel, &env, &run->found);
        env.is_dead = true;
        qs_channel_close(channel);
        qs_store_close(store, NULL);
    } else {
        crash_violation(run->report, "open: %s: %s", qs_status_name(status), qs_test_error.text);
    }
    qsi_env_mem_destroy(mem);
    run->report->cut = "alive";
}

void removal_check_cut(struct removal_run *run, enum qsi_cut_how how, const char *name)
{
    qs_env *mem = qsi_env_sim_cut(run->sim, how, qsi_splitmix_next(&run->random));

    removal_check_disk(run, mem, name);
}

static void removal_end(struct removal_run *run)
{
    run->has_ended = run->env.is_dead = true;
    run->frozen = run->model;
    if (run->ends_in_power_cut) {
        run->next_disk = qsi_env_sim_cut(run->sim, QSI_CUT_RANDOM, qsi_splitmix_next(&run->random));
    }
}

static void removal_on_step(void *context, uint64_t step)
{
    struct removal_run *run = context;

    if (run->has_ended) {
        return;
    }
    run->report->step = step;
    if (removal_below(run, 100) < run->options->cut_percent) {
        switch (removal_below(run, 4)) {
        case 0:
            removal_check_cut(run, QSI_CUT_KEEP_ALL, "all kept");
            break;
        case 1:
            removal_check_cut(run, QSI_CUT_DROP_ALL, "all dropped");
            break;
        default:
            removal_check_cut(run, QSI_CUT_RANDOM, "random");
            break;
        }
    }
    if (run->end_step != 0 && step >= run->end_step) {
        removal_end(run);
    }
}

/* What recovery shows is compared and is the truth from here on. */
static void removal_begin(struct removal_run *run)
{
    struct removal_work *work = &run->work;
    struct removal_found *found = malloc(sizeof *found); /* cuts have the other one */
    qs_channel *channel = NULL;

    QS_CHECK(found != NULL);
    if (crash_open_store(&work->base) &&
        crash_done(&work->base, qs_channel_open(&channel, work->base.store, QS_ERROR), "open")) {
        removal_check_store(&run->model, run->report, work->base.store, channel, &run->env, found);
        if (!run->has_ended) {
            removal_adopt(&run->model, found);
            run->model.durable_lsn = qs_store_durable_lsn(work->base.store);
        }
        qs_channel_close(channel);
    }
    free(found);
    work->base.is_over = work->base.is_over || run->has_ended;
}

static void removal_generation(struct removal_run *run)
{
    struct removal_work *work = &run->work;
    uint32_t ops = 1 + removal_below(run, run->options->ops);
    bool is_cut_off = run->options->end_steps != 0 && removal_below(run, 4) > 0;

    *work = (struct removal_work){
        .base = {.env = &run->env,
                 .model = &run->shell,
                 .report = run->report,
                 .random = qsi_splitmix_next(&run->random),
                 .options = removal_reader_options(run)},
        .model = &run->model,
        .sim = run->sim,
    };
    run->has_ended = false;
    run->ends_in_power_cut = removal_below(run, 3) > 0;
    run->end_step =
        is_cut_off ? qsi_env_sim_steps(run->sim) + 1 + removal_below(run, run->options->end_steps)
                   : 0;
    removal_begin(run);
    if (!work->base.is_over) {
        removal_set_up(work);
    }
    for (uint32_t i = 0;
         i < ops && !work->base.is_over && run->model.count < REMOVAL_MESSAGES_MAX - 64; i++) {
        removal_plant(work);
        removal_work_once(work);
    }
    run->moved += work->base.store != NULL ? work->base.store->stats.dead_lettered : 0;
    if (!run->has_ended) {
        removal_end(run);
    }
    work->base.is_over = true; /* what is left of the process goes without a trace */
    crash_close_store(&work->base);
    run->env.is_dead = false;
}

static void removal_next_disk(struct removal_run *run)
{
    run->model = run->frozen;
    if (run->next_disk != NULL) {
        qsi_env_sim_destroy(run->sim);
        run->sim = qsi_env_sim_from_mem(run->next_disk, qsi_splitmix_next(&run->random));
        run->next_disk = NULL;
        run->env.inner = run->sim;
        qsi_env_sim_on_step(run->sim, removal_on_step, run);
    }
}

uint64_t removal_run(const struct removal_options *options, struct crash_report *report,
                     uint64_t seed)
{
    struct removal_run *run = calloc(1, sizeof *run);
    uint64_t moved;

    QS_CHECK(run != NULL);
    run->options = options;
    run->report = report;
    run->random = seed;
    run->store_options = options->pages ? crash_paging_options(seed) : crash_options();
    report->seed = seed;
    report->cut = "alive";
    crash_model_init(&run->shell);
    run->sim = qsi_env_sim_create(seed);
    crash_env_init(&run->env, run->sim, options->bug);
    qsi_env_sim_on_step(run->sim, removal_on_step, run);
    for (uint32_t i = 0; i < options->generations; i++) {
        removal_generation(run);
        removal_next_disk(run);
    }
    removal_check_cut(run, QSI_CUT_DROP_ALL, "at the end");
    moved = run->moved;
    crash_model_fini(&run->shell);
    qsi_env_sim_destroy(run->sim);
    free(run);
    return moved;
}
