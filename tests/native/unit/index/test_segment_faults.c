/* Index segments while calls and allocations fail and power goes.
 *
 * Method: one scenario crosses every operation and notes what it has and what of it is durable.
 * It is run with the n-th call of the environment or of the allocator failing, n = 1, 2, ...
 * until it passes: each time what the scenario has must read back, and the step that failed must
 * succeed when it is repeated.  And it is run with power cuts before each of its steps: what was
 * durable must read back from what is left. */
#include "index_fixture.h"
#include "qs_test_cuts.h"
#include "qs_test_faults.h"

#define ENTRIES 512u /* four pages of slots */

struct run {
    struct fixture fixture;
    struct model *model; /* what there is */
    uint64_t live[ENTRIES / 64];
    uint64_t seen[ENTRIES / 64];
    uint64_t state_settled[ENTRIES / 64]; /* as written to model->file.state_area */
    uint32_t step;                        /* the next one */
    /* as a checkpoint would say */
    bool is_durable;
    struct qsi_segment_file durable;
    uint64_t durable_live[ENTRIES / 64];
    uint64_t durable_settled[ENTRIES / 64];
    struct qsi_segment_file old; /* of the generation before, to be removed */
};

static void run_init(struct run *run, struct model *model)
{
    uint64_t random = 7;

    memset(run, 0, sizeof *run);
    run->model = model;
    model_init(model, ENTRIES, 1, 5);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        uint64_t r = qsi_splitmix_next(&random);

        model->messages[i] =
            (struct message){.kind = r % 8 == 0   ? NOTHING
                                     : r % 8 == 1 ? STORED
                                                  : EMBEDDED,
                             .seed = (uint32_t)r,
                             .body_bytes = i == 300 ? 1200000 : (uint32_t)(r >> 32) % 300,
                             .exchange = 1,
                             .key = (uint8_t)(r >> 61)};
    }
}

static qs_status write_range(struct run *run, uint32_t from, uint32_t to, qs_error *error)
{
    qs_status status = try_write(&run->fixture, run->model, from, to, true, error);

    for (uint32_t i = from; status == QS_OK && i < to; i++) {
        if (run->model->messages[i].kind != NOTHING) {
            set_bit(run->live, i);
        }
    }
    return status;
}

/* Some more are settled, every third and so on. */
static void settle(struct run *run, uint32_t step)
{
    for (uint32_t i = 0; i < ENTRIES; i += step) {
        clear_bit(run->live, i);
        set_bit(run->seen, i + 1);
    }
}

static void settled_of(const struct run *run, uint64_t *settled)
{
    for (uint32_t i = 0; i < ENTRIES / 64; i++) {
        settled[i] = ~run->live[i];
    }
}

static qs_status write_state(struct run *run, qs_error *error)
{
    uint64_t settled[ENTRIES / 64];
    struct qsi_segment_state state = {settled, run->seen, NULL, NULL, NULL, NULL, 0};
    uint8_t durable_area = run->is_durable ? run->durable.state_area : 0;

    settled_of(run, settled);
    QS_TRY(qsi_segment_write_state(run->fixture.index, &run->model->file, durable_area, &state,
                                   error));
    memcpy(run->state_settled, settled, sizeof settled);
    return QS_OK;
}

static qs_status sync_all(struct run *run, qs_error *error)
{
    QS_TRY(qsi_segment_sync(run->fixture.index, &run->model->file, error));
    QS_TRY(qsi_index_sync(run->fixture.index, error));
    run->is_durable = true;
    run->durable = run->model->file;
    memcpy(run->durable_live, run->live, sizeof run->live);
    memcpy(run->durable_settled, run->state_settled, sizeof run->state_settled);
    return QS_OK;
}

static qs_status load_all(struct run *run, uint64_t bytes_max, qs_error *error)
{
    struct qsi_segment_load load = {
        .from = 0, .to = ENTRIES, .wanted = run->live, .bytes_max = bytes_max};

    do {
        QS_TRY(qsi_segment_load(run->fixture.index, &run->model->file, &load, error));
        check_load(run->model, &load, false);
        load_fini(&load);
        load.from = load.first + load.count;
    } while (load.chunk != NULL);
    return QS_OK;
}

static qs_status read_state(struct run *run, qs_error *error)
{
    uint64_t bits[2 * ENTRIES / 64];
    struct qsi_segment_state state = {bits, bits + ENTRIES / 64, NULL, NULL, NULL, NULL, 0};
    uint32_t has;

    QS_TRY(qsi_segment_read_state(run->fixture.index, &run->model->file, &state, &has, error));
    QS_CHECK(memcmp(bits, run->state_settled, sizeof run->state_settled) == 0 && !has);
    return QS_OK;
}

static qs_status rewrite(struct run *run, qs_error *error)
{
    uint64_t settled[ENTRIES / 64];
    struct qsi_segment_state state = {settled, run->seen, NULL, NULL, NULL, NULL, 0};
    struct qsi_segment_file to;

    settled_of(run, settled);
    QS_TRY(
        qsi_segment_rewrite(run->fixture.index, &run->model->file, run->live, &state, &to, error));
    run->old = run->model->file;
    run->model->file = to;
    memcpy(run->state_settled, settled, sizeof settled);
    return QS_OK;
}

static bool keep_this(void *context, const struct qsi_segment_file *file)
{
    struct run *run = context;

    return file->generation == run->model->file.generation;
}

static void visit_nothing(void *context, uint32_t slot, const struct qsi_body_ref *ref)
{
    (void)context;
    (void)slot;
    (void)ref;
}

#define STEP_COUNT 22u

static qs_status do_step(struct run *run, uint32_t step, qs_error *error)
{
    struct qsi_index *index = run->fixture.index;
    uint64_t removed;

    switch (step) {
    case 0:
        return write_range(run, 0, 128, error);
    case 1:
        return sync_all(run, error);
    case 2:
        return write_range(run, 128, 256, error);
    case 3:
        settle(run, 3);
        return write_state(run, error);
    case 4:
        return sync_all(run, error);
    case 5:
        settle(run, 4);
        return write_state(run, error);
    case 6:
        return write_state(run, error);
    case 7:
        return load_all(run, 2000, error);
    case 8:
        return sync_all(run, error);
    case 9:
        return write_range(run, 256, 500, error);
    case 10:
        settle(run, 5);
        return write_state(run, error);
    case 11:
        return load_all(run, UINT64_MAX, error);
    case 12:
        return read_state(run, error);
    case 13:
        return sync_all(run, error);
    case 14:
        return rewrite(run, error);
    case 15:
        return sync_all(run, error);
    case 16:
        return qsi_segment_remove(index, &run->old, error);
    case 17:
        settle(run, 7);
        return rewrite(run, error);
    case 18:
        return sync_all(run, error);
    case 19:
        return qsi_index_remove_others(index, keep_this, run, &removed, error);
    case 20:
        QS_TRY(qsi_segment_check(index, &run->model->file, NULL, error));
        return qsi_segment_read_refs(index, &run->model->file, run->live, visit_nothing, NULL,
                                     error);
    case 21:
        QS_TRY(read_state(run, error));
        return load_all(run, 100000, error);
    }
    return QS_OK;
}

static qs_status go_on(struct run *run, qs_error *error)
{
    while (run->step < STEP_COUNT) {
        QS_TRY(do_step(run, run->step, error));
        run->step++;
    }
    return QS_OK;
}

static void check_run(struct run *run)
{
    if (run->model->file.heap_end != 0) {
        QS_CHECK_OK(load_all(run, 50000, QS_ERROR));
    }
}

/* ---- calls that fail ---- */

static bool is_expected(qs_status status)
{
    return status == QS_EIO || status == QS_ESTORE_FULL || status == QS_ENOSPC ||
           status == QS_EINTR || status == QS_ECORRUPT; /* what is there could not be read */
}

QS_FAULT_TEST(test_step_whose_call_fails_can_be_repeated)
{
    static struct model model;

    for (struct qs_test_sweep sweep = {.how = how}; qs_test_sweep_on(&sweep);) {
        qs_env *env = qs_test_sweep_env(&sweep);
        qs_error error = {.status = QS_OK};
        struct run run;
        qs_status status;

        run_init(&run, &model);
        start(&run.fixture, env, ENTRIES);
        qs_test_sweep_calls(&sweep, env);
        status = go_on(&run, &error);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || (is_expected(status) && error.status == status));
        QS_CHECK(status != QS_ESTORE_FULL || how == QSI_FAULT_ENOSPC);
        /* Only a sync takes an interruption for a failure. */
        QS_CHECK(how != QSI_FAULT_SHORT || status == QS_OK);
        if (status != QS_OK) {
            check_run(&run);
            QS_CHECK_OK(go_on(&run, QS_ERROR));
        }
        check_run(&run);
        stop(&run.fixture);
    }
}

QS_TEST(test_full_disk_leaves_nothing_behind)
{
    static struct model model;
    qs_env *mem = qsi_env_mem_create(1);
    qs_env *env = qsi_env_fault_create(mem);
    struct qsi_segment_file to = {.queue_id = 99};
    struct run run;
    qs_error error;

    run_init(&run, &model);
    start(&run.fixture, env, ENTRIES);
    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_ENOSPC, 2, true);
    QS_CHECK(write_range(&run, 0, 128, &error) == QS_ESTORE_FULL);
    QS_CHECK(error.status == QS_ESTORE_FULL &&
             strstr(error.text, "index/0000000000000001-") != NULL);
    QS_CHECK(model.file.heap_end == 0 && !exists(&run.fixture, &model.file));
    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_ENOSPC, 0, false);
    QS_CHECK_OK(write_range(&run, 0, 128, QS_ERROR));
    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_ENOSPC, 3, true);
    QS_CHECK(qsi_segment_rewrite(run.fixture.index, &model.file, run.live, NULL, &to, &error) ==
             QS_ESTORE_FULL);
    QS_CHECK(to.queue_id == 99);
    to = model.file;
    to.generation = 1;
    QS_CHECK(!exists(&run.fixture, &to));
    check_run(&run);
    stop(&run.fixture);
    qsi_env_fault_destroy(env);
    qsi_env_mem_destroy(mem);
}

/* A writer that failed must not write slots of bodies that may be missing. */
QS_TEST(test_writer_that_failed_fails_to_the_end)
{
    static struct model model;
    qs_env *mem = qsi_env_mem_create(1);
    qs_env *env = qsi_env_fault_create(mem);
    struct qsi_segment_writer *writer;
    struct run run;
    struct message large = {.kind = EMBEDDED, .body_bytes = 1500000};
    struct message reference = {.kind = STORED};

    run_init(&run, &model);
    start(&run.fixture, env, ENTRIES);
    QS_CHECK_OK(qsi_segment_writer_begin(&writer, run.fixture.index, &model.file, false, QS_ERROR));
    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_EIO, 1, false);
    QS_CHECK_STATUS(QS_EIO, try_put(writer, 0, &large, QS_ERROR));
    QS_CHECK_STATUS(QS_EIO, try_put(writer, 1, &large, QS_ERROR));
    QS_CHECK_STATUS(QS_EIO, try_put(writer, 1, &reference, QS_ERROR));
    QS_CHECK_STATUS(QS_EIO, qsi_segment_writer_end(writer, QS_ERROR));
    QS_CHECK(model.file.heap_end == 0 && !exists(&run.fixture, &model.file));
    QS_CHECK_OK(go_on(&run, QS_ERROR));
    stop(&run.fixture);
    qsi_env_fault_destroy(env);
    qsi_env_mem_destroy(mem);
}

QS_BOOL_TEST(test_every_failed_allocation_is_reported_and_leaks_nothing, is_sticky)
{
    static struct model model;

    for (struct qs_test_sweep sweep = {.has_own_memory = true, .is_sticky = is_sticky, .thins = 64};
         qs_test_sweep_on(&sweep);) {
        qs_env *env = qsi_env_mem_create(1);
        struct run run;
        qs_status status;

        run_init(&run, &model);
        qs_test_sweep_allocations(&sweep);
        status = try_start(&run.fixture, env, ENTRIES, QS_ERROR);
        if (status == QS_OK) {
            status = go_on(&run, QS_ERROR);
            qs_test_sweep_rest(&sweep);
            check_run(&run);
            QS_CHECK_OK(go_on(&run, QS_ERROR));
            stop(&run.fixture);
        }
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        qsi_env_mem_destroy(env);
    }
}

/* ---- power cuts ---- */

static uint64_t durable_cuts; /* behind a first checkpoint */

/* What a checkpoint said is there, whole, whatever was being done. */
static void check_cut(void *run, qs_env *disk)
{
    struct run after = *(const struct run *)run;
    static struct model model;

    if (after.is_durable) {
        model = *after.model;
        model.file = after.durable;
        after.model = &model;
        memcpy(after.live, after.durable_live, sizeof after.live);
        memcpy(after.state_settled, after.durable_settled, sizeof after.state_settled);
        start(&after.fixture, disk, ENTRIES);
        QS_CHECK_OK(load_all(&after, 1 << 20, QS_ERROR));
        QS_CHECK_OK(read_state(&after, QS_ERROR));
        QS_CHECK_OK(qsi_segment_check(after.fixture.index, &after.durable, after.live, QS_ERROR));
        stop(&after.fixture);
        durable_cuts++;
    }
}

QS_SEED_TEST(test_power_cut_at_any_step_leaves_what_a_checkpoint_names)
{
    static struct model model;
    qs_env *sim = qsi_env_sim_create(seed);
    struct run run;
    struct qs_test_cuts cuts = {sim, check_cut, &run, seed, .by_chance = 8};

    run_init(&run, &model);
    start(&run.fixture, sim, ENTRIES);
    qs_test_cuts_begin(&cuts);
    QS_CHECK_OK(go_on(&run, QS_ERROR));
    qs_test_cuts_end(&cuts);
    qs_test_cuts_take(&cuts, 1000);
    QS_CHECK(durable_cuts > 200);
    check_run(&run);
    stop(&run.fixture);
    qsi_env_sim_destroy(sim);
}

/* Without the sync it may well be gone: the cuts above do cut. */
QS_TEST(test_unsynced_segment_is_found_missing)
{
    static struct model model;
    qs_env *sim = qsi_env_sim_create(1);
    qs_env *disk;
    struct run run;
    struct fixture after;

    run_init(&run, &model);
    start(&run.fixture, sim, ENTRIES);
    QS_CHECK_OK(do_step(&run, 0, QS_ERROR));
    QS_CHECK_OK(do_step(&run, 1, QS_ERROR));
    QS_CHECK_OK(do_step(&run, 2, QS_ERROR));
    disk = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, 1);
    start(&after, disk, ENTRIES);
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_segment_check(after.index, &model.file, NULL, QS_ERROR));
    QS_CHECK_OK(qsi_segment_check(after.index, &run.durable, run.durable_live, QS_ERROR));
    stop(&after);
    qsi_env_mem_destroy(disk);
    stop(&run.fixture);
    qsi_env_sim_destroy(sim);
}
