/* Runs of it, with their cuts. */
#include "crash_removals.h"

/* -- runs ------------------------------------------------------------------------------------- */

/* It may be opened with more memory or less. */
static qs_options removal_reader_options(struct removal_run *run)
{
    qs_options options = run->store_options;

    if (run->life.options->pages) {
        options = crash_paging_options(qsi_splitmix_next(&run->life.random));
        options.segment_entries = run->store_options.segment_entries;
    }
    return options;
}

static void removal_look(void *context, qs_store *store, qs_channel *channel, struct crash_env *env)
{
    struct removal_run *run = context;

    removal_check_store(&run->model, run->life.report, store, channel, env, &run->found);
}

void removal_check_cut(struct removal_run *run, enum qsi_cut_how how, const char *name)
{
    qs_env *mem = crash_life_cut(&run->life, how);
    qs_options options = removal_reader_options(run);
    const struct crash_looking looking = {.check = removal_look, .context = run};

    run->life.report->cut = name;
    crash_open_disk(run->life.report, mem, &options, &looking);
    run->life.report->cut = "alive";
}

static void removal_end(struct removal_run *run)
{
    crash_life_end(&run->life, true);
    run->frozen = run->model;
}

static void removal_on_step(void *context, uint64_t step)
{
    static const enum qsi_cut_how hows[] = {QSI_CUT_KEEP_ALL, QSI_CUT_DROP_ALL, QSI_CUT_RANDOM,
                                            QSI_CUT_RANDOM};
    static const char *const names[] = {"all kept", "all dropped", "random", "random"};
    struct removal_run *run = context;
    struct crash_life *life = &run->life;

    if (life->has_ended) {
        return;
    }
    life->report->step = step;
    if (crash_life_wants_cuts(life)) {
        uint32_t which = crash_life_below(life, 4);

        removal_check_cut(run, hows[which], names[which]);
    }
    if (life->end_step != 0 && step >= life->end_step) {
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
        removal_check_store(&run->model, run->life.report, work->base.store, channel,
                            &run->life.env, found);
        if (!run->life.has_ended) {
            removal_adopt(&run->model, found);
            run->model.durable_lsn = qs_store_durable_lsn(work->base.store);
        }
        qs_channel_close(channel);
    }
    free(found);
    work->base.is_over = work->base.is_over || run->life.has_ended;
}

static void removal_generation(struct removal_run *run)
{
    struct removal_work *work = &run->work;
    uint32_t ops = 1 + crash_life_below(&run->life, run->life.options->ops);

    *work = (struct removal_work){
        .base = {.env = &run->life.env,
                 .model = &run->shell,
                 .report = run->life.report,
                 .random = qsi_splitmix_next(&run->life.random),
                 .options = removal_reader_options(run)},
        .model = &run->model,
        .sim = run->life.sim,
    };
    removal_begin(run);
    if (!work->base.is_over) {
        removal_set_up(work);
    }
    for (uint32_t i = 0;
         i < ops && !work->base.is_over && run->model.count < REMOVAL_MESSAGES_MAX - 64; i++) {
        removal_plant(work);
        removal_work_once(work);
    }
    if (work->base.store != NULL) {
        run->life.report->dead_letters += work->base.store->stats.dead_lettered;
    }
    if (!run->life.has_ended) {
        removal_end(run);
    }
    work->base.is_over = true; /* what is left of the process goes without a trace */
    crash_close_store(&work->base);
    crash_life_next(&run->life);
    run->model = run->frozen;
}

void removal_run(const struct crash_run_options *options, struct crash_report *report,
                 uint64_t seed)
{
    struct removal_run *run = calloc(1, sizeof *run);
    struct crash_life *life;

    QS_CHECK(run != NULL);
    life = &run->life;
    run->store_options = options->pages ? crash_paging_options(seed) : crash_options();
    crash_model_init(&run->shell);
    crash_life_init(life, options, report, seed, (enum crash_bug)options->bug, removal_on_step,
                    run);
    for (; life->generation < options->generations; life->generation++) {
        crash_life_choose_end(life);
        removal_generation(run);
    }
    removal_check_cut(run, QSI_CUT_DROP_ALL, "at the end");
    crash_model_fini(&run->shell);
    crash_life_fini(life);
    free(run);
}
