/* Lives on one disk, their ends, and the disks that are left. */
#include "crash_life.h"

#include "crash_work.h"

#include <time.h>

#define CAUGHT_STATES 100000 /* within which a bug must show */
#define STATES_A_CLOSE 5     /* of so many, one is closed in order and opened again first */

uint32_t crash_life_below(struct crash_life *life, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&life->random, limit);
}

void crash_life_init(struct crash_life *life, const struct crash_run_options *options,
                     struct crash_report *report, uint64_t seed, enum crash_bug bug,
                     void (*on_step)(void *run, uint64_t step), void *run)
{
    *life = (struct crash_life){
        .options = options, .report = report, .random = seed, .on_step = on_step, .run = run};
    report->seed = seed;
    report->cut = "alive";
    life->sim = qsi_env_sim_create(seed);
    life->fault = qsi_env_fault_create(life->sim);
    crash_env_init(&life->env, life->fault, bug);
    life->env.unread_percent = options->unread_percent;
    life->env.unread_random = seed;
    qsi_env_sim_on_step(life->sim, on_step, run);
}

void crash_life_fini(struct crash_life *life)
{
    qsi_env_fault_destroy(life->fault);
    qsi_env_sim_destroy(life->sim);
}

bool crash_life_wants_cuts(struct crash_life *life)
{
    return crash_life_below(life, 100) < life->options->cut_percent;
}

void crash_life_choose_end(struct crash_life *life)
{
    const struct crash_run_options *options = life->options;
    bool is_last = life->generation + 1 == options->generations;

    life->has_ended = false;
    life->ends_in_power_cut = options->end_syncs != 0 || crash_life_below(life, 3) > 0;
    life->end_step = 0;
    if (!is_last && options->end_steps != 0 && crash_life_below(life, 4) > 0) {
        life->end_step =
            qsi_env_sim_steps(life->sim) + 1 + crash_life_below(life, options->end_steps);
    }
}

void crash_life_arm_fault(struct crash_life *life, uint32_t ops)
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
    uint32_t chosen = crash_life_below(life, sizeof faults / sizeof faults[0]);

    qsi_env_fault_arm(life->fault, faults[chosen].kind, faults[chosen].how,
                      1 + crash_life_below(life, 2 * ops), false);
}

void crash_life_end(struct crash_life *life, bool is_at_work)
{
    static const enum qsi_cut_how hows[] = {QSI_CUT_RANDOM, QSI_CUT_RANDOM, QSI_CUT_RANDOM,
                                            QSI_CUT_KEEP_ALL, QSI_CUT_DROP_ALL};

    /* A process that is killed between a failed sync and writing that down leaves a page cache that
     * lies, and nobody who could know: only a power cut, which takes the page cache, helps then. */
    if (qsi_env_fault_fired(life->fault) && is_at_work) {
        life->ends_in_power_cut = true;
    }
    life->has_ended = true;
    life->env.is_dead = true;
    if (life->ends_in_power_cut) {
        uint64_t seed = qsi_splitmix_next(&life->random);

        life->next_disk = qsi_env_sim_cut(life->sim, hows[crash_life_below(life, 5)], seed);
    }
}

void crash_life_next(struct crash_life *life)
{
    qsi_env_fault_arm(life->fault, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    life->env.is_dead = false;
    if (life->next_disk != NULL) {
        crash_life_fini(life);
        life->sim = qsi_env_sim_from_mem(life->next_disk, qsi_splitmix_next(&life->random));
        life->fault = qsi_env_fault_create(life->sim);
        life->env.inner = life->fault;
        life->next_disk = NULL;
        qsi_env_sim_on_step(life->sim, life->on_step, life->run);
    }
}

qs_env *crash_life_cut(struct crash_life *life, enum qsi_cut_how how)
{
    return qsi_env_sim_cut(life->sim, how, qsi_splitmix_next(&life->random));
}

void crash_open_disk(struct crash_report *report, qs_env *mem, const qs_options *options,
                     const struct crash_looking *looking)
{
    struct crash_env env;
    qs_channel *channel = NULL;
    qs_store *store = NULL;
    qs_status status;

    report->states++;
    crash_env_init(&env, mem, CRASH_NO_BUG);
    env.wall_shift_us = looking->wall_shift_us;
    status = qs_store_open(&store, CRASH_PATH, options, &env.env, QS_ERROR);
    if (status == QS_OK && !looking->closing_drops && report->states % STATES_A_CLOSE == 0) {
        QS_CHECK_OK(qs_store_close(store, QS_ERROR));
        status = qs_store_open(&store, CRASH_PATH, options, &env.env, QS_ERROR);
    }
    if (status == QS_OK) {
        QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
        looking->check(looking->context, store, channel, &env);
        env.is_dead = true; /* closing in order would only cost time */
        qs_channel_close(channel);
        qs_store_close(store, NULL);
    } else {
        crash_violation(report, "open: %s: %s", qs_status_name(status), qs_test_error.text);
    }
    qsi_env_mem_destroy(mem);
}

/* -- what the tests do with runs -------------------------------------------------------------- */

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

struct crash_report crash_run_kinds(int argc, char **argv, crash_runner *run,
                                    const struct crash_kind *kinds, size_t kind_count,
                                    uint64_t states)
{
    uint64_t seed = qs_test_seed(argc, argv);
    uint64_t state_count = crash_state_count(argc, argv, states);
    struct crash_report all = {0};

    for (size_t i = 0; i < kind_count; i++) {
        struct crash_report report = {.told_max = 10};
        uint64_t wanted = argc > 3 ? state_count : state_count * kinds[i].percent / 100;
        double began = crash_seconds();

        if (argc > 3 && i != strtoull(argv[3], NULL, 0)) {
            continue;
        }
        for (uint64_t n = seed; report.states < wanted; n++) {
            run(&kinds[i].options, &report, n);
        }
        all.states += report.states;
        all.violations += report.violations;
        all.dead_letters += report.dead_letters;
        printf("%s: %" PRIu64 " states, %" PRIu64 " violations, %.0f states/s\n", kinds[i].name,
               report.states, report.violations, (double)report.states / (crash_seconds() - began));
        fflush(stdout);
    }
    printf("%" PRIu64 " crash states, %" PRIu64 " violations\n", all.states, all.violations);
    QS_CHECK(all.violations == 0);
    return all;
}

static void run_mix(const struct crash_mix *mix, uint32_t bug, bool has_faults,
                    struct crash_report *report, uint64_t seed, uint64_t state_count)
{
    while (report->states < state_count && report->violations == 0) {
        struct crash_run_options options = mix->options[seed % mix->count];

        options.bug = bug;
        options.has_faults = has_faults;
        mix->run(&options, report, seed++);
    }
}

void crash_must_be_caught(const struct crash_mix *mix, const char *name, uint32_t bug,
                          bool has_faults, uint64_t seed)
{
    struct crash_report report = {.told_max = 1};

    run_mix(mix, bug, has_faults, &report, seed, CAUGHT_STATES);
    printf("%s: %s after %" PRIu64 " states\n", name,
           report.violations > 0 ? "caught" : "NOT CAUGHT", report.states);
    fflush(stdout);
    QS_CHECK(report.violations > 0);
}

void crash_must_be_clean(const struct crash_mix *mix, bool has_faults, uint64_t seed,
                         uint64_t states)
{
    struct crash_report report = {.told_max = 10};

    run_mix(mix, CRASH_NO_BUG, has_faults, &report, seed, states);
    printf("no bug%s: %" PRIu64 " states, %" PRIu64 " violations\n",
           has_faults ? ", failing calls" : "", report.states, report.violations);
    QS_CHECK(report.violations == 0);
}
