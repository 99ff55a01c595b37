/* A stream against an array: appending, flushing, dropping, trimming, checkpoints, reopening and
 * reading in random order; power cuts before every step that touches the disk; calls and
 * allocations that fail.
 *
 * A message is known by its offset (qs_test_records.h), and the array has its time, or that there
 * is none.  The seed is printed and is the first argument. */
#include "stream_fixture.h"

#define OFFSETS_MAX 60000u
#define NOBODY 0u /* in place of a time: the offset was skipped */

/* ---- the array ---- */

struct model {
    uint64_t times[OFFSETS_MAX];
    uint64_t first, next, last_us;
};

/* Every row of [batch] is what the array says. */
static void check_batch(const struct model *model, const struct qsi_stream_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        uint64_t offset = batch->first_offset + i;
        struct qsi_messages view;
        uint32_t row;
        qsi_messages_view(&view, qsi_stream_batch_record(batch, i, &row));
        QS_CHECK(offset < model->next && model->times[offset] != NOBODY);
        qs_test_check_row(&view, row, &kind, FLAGS, 0, (uint32_t)offset);
        QS_CHECK(qsi_stream_batch_time(batch, i) == model->times[offset]);
    }
}

static uint64_t next_there(const struct model *model, uint64_t offset)
{
    while (offset < model->next && model->times[offset] == NOBODY) {
        offset++;
    }
    return offset;
}

/* Reads rows from offset on, about as many, and compares. */
static void check_read(struct world *world, const struct model *model, uint64_t offset,
                       uint64_t count)
{
    uint64_t end = offset + count;

    offset = next_there(model, offset < model->first ? model->first : offset);
    while (offset < model->next && offset < end) {
        struct qsi_stream_view view;
        struct qsi_stream_batch batch;
        qs_status status;
        QS_CHECK_OK(qsi_stream_view_take(&view, &world->stream, offset, 1000, UINT64_MAX));
        QS_CHECK(view.first == model->first && view.next == model->next);
        do {
            status = qsi_stream_read(&view, offset, NULL, NULL, &batch, QS_ERROR);
            if (status == QS_OK) {
                QS_CHECK(batch.first_offset == offset && batch.count > 0);
                check_batch(model, &batch);
                offset = next_there(model, offset + batch.count);
            }
            qsi_stream_batch_fini(&batch);
        } while (status == QS_OK && offset < end);
        QS_CHECK(status == QS_OK || status == QS_EEMPTY);
        qsi_stream_view_fini(&view);
    }
}

static bool is_key(void *context, struct qsi_slice exchange, struct qsi_slice key)
{
    char text[QS_TEST_NAME_BYTES];

    (void)exchange;
    return qsi_slice_compare(key, qs_test_key_text(*(uint32_t *)context, text)) == 0;
}

/* What a filter finds in the files is what the array has. */
static void check_filter(struct world *world, const struct model *model, uint32_t key)
{
    uint64_t offset = model->first, found = 0, expected = 0;
    uint64_t files_end = world->stream.container.flushed_seq;
    struct qsi_stream_view view;
    struct qsi_stream_batch batch;

    for (uint64_t i = model->first; i < files_end; i++) {
        expected += model->times[i] != NOBODY && qs_test_key(&kind, FLAGS, (uint32_t)i) == key;
    }
    QS_CHECK_OK(qsi_stream_view_take(&view, &world->stream, 0, 0, 0));
    while (qsi_stream_read(&view, offset, is_key, &key, &batch, QS_ERROR) == QS_OK) {
        for (uint32_t i = 0; i < batch.count; i++) {
            uint32_t code = qsi_messages_row_route(&batch.block.messages, batch.row + i);
            bool wanted = (batch.wanted[code / 64] >> code % 64 & 1) != 0;
            QS_CHECK(wanted ==
                     (qs_test_key(&kind, FLAGS, (uint32_t)batch.first_offset + i) == key));
            found += wanted;
        }
        offset = batch.first_offset + batch.count;
        qsi_stream_batch_fini(&batch);
    }
    qsi_stream_view_fini(&view);
    QS_CHECK(found == expected);
}

static void check_seek(struct world *world, const struct model *model, uint64_t time_us)
{
    uint64_t expected = next_there(model, model->first), offset;
    struct qsi_stream_seek seek;

    while (expected < model->next && model->times[expected] < time_us) {
        expected = next_there(model, expected + 1);
    }
    QS_CHECK_OK(qsi_stream_seek_begin(&seek, &world->stream, time_us));
    QS_CHECK_OK(qsi_stream_seek_run(&seek, QS_ERROR));
    offset = next_there(model, seek.offset);
    qsi_stream_seek_end(&seek);
    QS_CHECK(offset == expected);
}

static void check_all(struct world *world, const struct model *model)
{
    QS_CHECK(world->stream.first == model->first);
    QS_CHECK(world->stream.container.next_seq == model->next);
    check_read(world, model, 0, UINT32_MAX);
}

/* ---- appending ---- */

static uint64_t note(struct model *model, uint64_t time_us)
{
    model->last_us = time_us > model->last_us ? time_us : model->last_us;
    model->times[model->next] = model->last_us;
    return model->next++;
}

static void append_batch(struct world *world, struct model *model, uint32_t count, uint64_t time_us,
                         bool by_rows)
{
    struct qsi_container *container = &world->stream.container;
    uint64_t first = container->next_seq;
    struct qsi_chunk *chunk =
        qs_test_record_chunk(&kind, FLAGS, (uint32_t)first, count, ID, first, time_us);
    uint32_t *rows = by_rows ? qsi_alloc(count * sizeof *rows) : NULL;
    struct qsi_run *run;

    for (uint32_t row = 0; by_rows && row < count; row++) {
        rows[row] = row;
    }
    QS_CHECK_OK(qsi_container_reserve(container, 1, count, true));
    QS_CHECK_OK(qsi_run_create(&run, chunk, 0, count, rows, true));
    run->ram_bytes = chunk->used;
    QS_CHECK(qsi_container_append(container, run) == first);
    qsi_chunk_unref(chunk);
    for (uint32_t row = 0; model != NULL && row < count; row++) {
        note(model, time_us);
    }
}

/* One by one, with records that share a chunk; the clock may go back. */
static void append_singles(struct world *world, struct model *model, uint32_t count,
                           uint64_t *random)
{
    struct qsi_container *container = &world->stream.container;
    uint64_t times[100], first = container->next_seq;
    size_t places[101];
    struct qsi_buf records = {0};
    struct qsi_chunk *chunk;

    for (uint32_t i = 0; i < count; i++) {
        times[i] = model->last_us + qsi_splitmix_below(random, 30) - 10;
        places[i] = qs_test_append_record(&records, &kind, FLAGS, (uint32_t)(first + i), 1, ID,
                                          first + i, times[i]);
    }
    places[count] = records.bytes;
    chunk = qsi_chunk_create(records.bytes);
    memcpy(chunk->data, records.data, records.bytes);
    chunk->used = records.bytes;
    qsi_buf_fini(&records);
    for (uint32_t i = 0; i < count; i++) {
        QS_CHECK_OK(qsi_container_reserve_one(container, chunk, true));
        QS_CHECK(qsi_container_append_one(container, chunk, (uint32_t)places[i],
                                          (uint32_t)(places[i + 1] - places[i]), true,
                                          false) == first + i);
        note(model, times[i]);
    }
    qsi_chunk_unref(chunk);
}

/* ---- jobs ---- */

/* What a checkpoint would write. */
struct checkpoint {
    struct qsi_buf records; /* the state, then what is carried */
    struct model *model;    /* as it was at the cut; NULL: there is no checkpoint yet */
};

static void checkpoint_fini(struct checkpoint *checkpoint)
{
    qsi_buf_fini(&checkpoint->records);
    free(checkpoint->model);
    memset(checkpoint, 0, sizeof *checkpoint);
}

static qs_status run_jobs(struct qsi_snapshot *snapshot, qs_status status, qs_error *error)
{
    for (int step = 0; step < QSI_SNAPSHOT_STEPS; step++) {
        for (uint32_t i = 0; i < qsi_snapshot_job_count(snapshot, (enum qsi_snapshot_step)step);
             i++) {
            struct qsi_job **job = qsi_snapshot_job(snapshot, (enum qsi_snapshot_step)step, i);
            if (status == QS_OK) {
                status = qsi_job_run(*job, error);
            }
            qsi_job_end(*job, status == QS_OK);
        }
    }
    return status;
}

/* Replaces *checkpoint if it goes well; then removes the files that were dead at the cut. */
static qs_status make_checkpoint(struct world *world, const struct model *model,
                                 uint64_t carried_max, bool forgets_sync,
                                 struct checkpoint *checkpoint, qs_error *error)
{
    struct qsi_carried carried = {.bytes_max = carried_max};
    struct checkpoint made = {.model = malloc(sizeof *made.model)};
    struct qsi_buf dead = world->shared.dead;
    struct qsi_snapshot *snapshot;
    uint32_t count = 0;
    qs_status status;

    *made.model = *model;
    world->shared.dead = (struct qsi_buf){0};
    status = qsi_container_snapshot(&world->stream.container, &carried, &snapshot);
    if (snapshot != NULL) {
        status = run_jobs(snapshot, status, error);
        for (uint32_t i = 0; status == QS_OK && !forgets_sync && i < snapshot->file_count; i++) {
            status = qsi_snapshot_sync(snapshot, i, true, error);
        }
        if (status == QS_OK) {
            status = qsi_snapshot_encode(snapshot, &made.records, &count);
        }
        if (status == QS_OK) {
            QS_CHECK_OK(qsi_buf_append(&made.records, carried.records.data, carried.records.bytes));
        }
        qsi_snapshot_end(snapshot, status == QS_OK);
    }
    qsi_buf_fini(&carried.records);
    if (status != QS_OK) {
        checkpoint_fini(&made);
        QS_CHECK_OK(qsi_buf_append(&dead, world->shared.dead.data, world->shared.dead.bytes));
        qsi_buf_fini(&world->shared.dead);
        world->shared.dead = dead;
        return status;
    }
    checkpoint_fini(checkpoint);
    *checkpoint = made;
    for (size_t i = 0; i < dead.bytes / sizeof(struct qsi_block_file); i++) {
        const struct qsi_block_file *file =
            (const struct qsi_block_file *)(const void *)dead.data + i;
        qsi_block_cache_forget(world->shared.cache, file);
        (void)!qsi_block_file_remove(world->shared.blocks, file, NULL);
    }
    qsi_buf_fini(&dead);
    return QS_OK;
}

/* What the stream was at the checkpoint. */
static void restore(struct world *world, const struct checkpoint *checkpoint)
{
    struct qsi_container *container = &world->stream.container;
    const uint8_t *at = checkpoint->records.data;
    const uint8_t *end = at + checkpoint->records.bytes;
    uint64_t next_seq = 0;

    QS_CHECK_OK(qsi_container_restore(container, at, &next_seq, QS_ERROR));
    for (at += qsi_record_length(at); at < end; at += qsi_record_length(at)) {
        struct qsi_chunk *chunk = qsi_chunk_create(qsi_record_length(at));
        struct qsi_messages view;
        struct qsi_run *run;
        memcpy(chunk->data, at, qsi_record_length(at));
        chunk->used = qsi_record_length(at);
        QS_CHECK_OK(qsi_messages_check(at, QS_ERROR));
        qsi_messages_view(&view, at);
        QS_CHECK_OK(qsi_container_skip_to(container, qsi_messages_destination_seq(&view, 0)));
        QS_CHECK_OK(qsi_container_reserve(container, 1, view.row_count, true));
        QS_CHECK_OK(qsi_run_create(&run, chunk, 0, view.row_count, NULL, true));
        run->ram_bytes = chunk->used;
        QS_CHECK(qsi_container_append(container, run) == qsi_messages_destination_seq(&view, 0));
        qsi_chunk_unref(chunk);
    }
    QS_CHECK_OK(qsi_container_skip_to(container, next_seq));
}

/* ---- the random test ---- */

static void trim(struct world *world, struct model *model, uint64_t now_us)
{
    uint64_t first = qsi_stream_trim_offset(&world->stream, now_us);
    const struct qsi_stream_limits *limits = &world->stream.limits;
    uint64_t bytes = qsi_stream_bytes(&world->stream);

    QS_CHECK(first >= model->first && first <= world->stream.container.flushed_seq);
    if (first > model->first && limits->max_bytes == 0 && limits->max_messages == 0) {
        QS_CHECK(model->times[next_there(model, model->first)] < now_us - limits->max_age_us);
    }
    QS_CHECK_OK(qsi_stream_trim_to(&world->stream, first));
    if (first > model->first) {
        model->first = first;
        QS_CHECK(qsi_stream_bytes(&world->stream) < bytes);
        if (limits->max_bytes > 0 && limits->max_age_us == 0 && limits->max_messages == 0) {
            QS_CHECK(qsi_stream_bytes(&world->stream) >= limits->max_bytes);
        }
        if (limits->max_messages > 0 && limits->max_bytes == 0 && limits->max_age_us == 0) {
            QS_CHECK(model->next - first >= limits->max_messages);
        }
    }
}

/* The process ends and the next one opens the store: what came after the checkpoint is appended
 * again, as the journal has it. */
static void reopen(struct world *world, struct model *model, const struct checkpoint *checkpoint)
{
    struct qsi_stream_limits limits = world->stream.limits;
    qs_env *env = world->env;
    uint64_t first = model->first;

    if (checkpoint->model == NULL) {
        return;
    }
    stop(world);
    start(world, env, &limits);
    restore(world, checkpoint);
    check_all(world, checkpoint->model);
    while (world->stream.container.next_seq < model->next) {
        uint64_t offset = next_there(model, world->stream.container.next_seq);
        uint32_t count = 0;
        QS_CHECK_OK(qsi_container_skip_to(&world->stream.container, offset));
        while (offset + count < model->next && count < 100 &&
               model->times[offset + count] == model->times[offset]) {
            count++;
        }
        if (count > 0) {
            append_batch(world, NULL, count, model->times[offset], false);
        }
    }
    QS_CHECK_OK(qsi_stream_trim_to(&world->stream, first < world->stream.container.flushed_seq
                                                       ? first
                                                       : world->stream.container.flushed_seq));
    model->first = world->stream.first;
}

static void do_random_step(struct world *world, struct model *model, struct checkpoint *checkpoint,
                           uint64_t *random)
{
    switch (qsi_splitmix_below(random, 14)) {
    case 0:
    case 1:
    case 2:
        append_batch(world, model, 1 + (uint32_t)qsi_splitmix_below(random, 300),
                     model->last_us + qsi_splitmix_below(random, 2000) - 500,
                     qsi_splitmix_below(random, 2) == 0);
        return;
    case 3:
    case 4:
        append_singles(world, model, 1 + (uint32_t)qsi_splitmix_below(random, 100), random);
        return;
    case 5:
        QS_CHECK_OK(flush(world, UINT64_MAX, QS_ERROR));
        QS_CHECK(qsi_container_is_flushed(&world->stream.container));
        return;
    case 6:
        QS_CHECK_OK(flush(world, qsi_splitmix_below(random, 300000) + 1, QS_ERROR));
        return;
    case 7:
        (void)qsi_container_drop_content(&world->stream.container, 0,
                                         qsi_splitmix_below(random, 1000000));
        return;
    case 8:
        trim(world, model, model->last_us);
        return;
    case 9:
        QS_CHECK_OK(make_checkpoint(world, model, qsi_splitmix_below(random, 2) * 200000, false,
                                    checkpoint, QS_ERROR));
        return;
    case 10:
        if (qsi_splitmix_below(random, 4) == 0) {
            reopen(world, model, checkpoint);
        }
        return;
    case 11:
        check_seek(world, model,
                   model->last_us - qsi_splitmix_below(random, model->last_us) % 40000 + 5);
        return;
    case 12:
        if (model->next % 4 == 0) { /* what a lost range of the journal leaves */
            uint64_t to = model->next + 1 + qsi_splitmix_below(random, 20);
            QS_CHECK_OK(qsi_container_skip_to(&world->stream.container, to));
            while (model->next < to) {
                model->times[model->next++] = NOBODY;
            }
        }
        check_filter(world, model, (uint32_t)qsi_splitmix_below(random, kind.key_count));
        return;
    default:
        check_read(world, model, qsi_splitmix_below(random, model->next + 1), 700);
    }
}

static void test_random(uint64_t seed)
{
    const struct qsi_stream_limits limits[] = {
        {.segment_bytes = 300000},
        {.segment_bytes = 200000, .max_bytes = 900000},
        {.segment_bytes = 200000, .max_age_us = 15000},
        {.segment_bytes = 100000, .max_messages = 900},
        {.segment_bytes = 1500000},
    };

    for (uint32_t n = 0; n < sizeof limits / sizeof limits[0]; n++) {
        uint64_t random = seed * 100 + n;
        struct model *model = calloc(1, sizeof *model);
        struct checkpoint checkpoint = {0};
        struct world world;

        model->last_us = 1000000;
        start(&world, qsi_env_mem_create(1), &limits[n]);
        append_batch(&world, model, 1, model->last_us, false);
        for (uint32_t step = 0; step < 400 && model->next + 400 < OFFSETS_MAX; step++) {
            do_random_step(&world, model, &checkpoint, &random);
            qsi_stream_check(&world.stream);
        }
        check_all(&world, model);
        QS_CHECK_OK(make_checkpoint(&world, model, 0, false, &checkpoint, QS_ERROR));
        (void)qsi_container_drop_content(&world.stream.container, 0, UINT64_MAX);
        QS_CHECK(world.stream.container.ram_bytes == 0 && world.stream.container.ram_count == 0);
        check_all(&world, model);
        reopen(&world, model, &checkpoint);
        check_all(&world, model);
        qsi_container_abandon(&world.stream.container);
        QS_CHECK(world.shared.dead.bytes > 0 && qsi_stream_bytes(&world.stream) == 0);
        checkpoint_fini(&checkpoint);
        stop(&world);
        qsi_env_mem_destroy(world.env);
        free(model);
    }
}

/* ---- power cuts ---- */

struct cuts {
    qs_env *env;
    const struct checkpoint *checkpoint; /* the one that is durable */
    const struct qsi_stream_limits *limits;
    uint64_t count, damaged;
};

/* Reads all of it; counts what cannot be read in place of ending the test. */
static bool is_whole(struct world *world, const struct model *model)
{
    uint64_t offset = model->first;
    bool whole = true;

    while (whole && offset < world->stream.container.flushed_seq) {
        struct qsi_stream_view view;
        struct qsi_stream_batch batch;
        QS_CHECK_OK(qsi_stream_view_take(&view, &world->stream, offset, 0, 0));
        whole = qsi_stream_read(&view, offset, NULL, NULL, &batch, QS_ERROR) == QS_OK;
        offset = batch.first_offset + batch.count;
        if (whole) {
            check_batch(model, &batch);
        }
        qsi_stream_batch_fini(&batch);
        qsi_stream_view_fini(&view);
    }
    return whole;
}

static void cut(void *context, uint64_t step)
{
    struct cuts *cuts = context;

    for (uint64_t how = 0; how < 3 && cuts->checkpoint->model != NULL; how++) {
        struct world world;
        qs_env *mem = qsi_env_sim_cut(cuts->env, how == 0 ? QSI_CUT_DROP_ALL : QSI_CUT_RANDOM,
                                      step * 10 + how);
        start(&world, mem, cuts->limits);
        restore(&world, cuts->checkpoint);
        cuts->damaged += is_whole(&world, cuts->checkpoint->model) ? 0 : 1;
        cuts->count += 1;
        stop(&world);
        qsi_env_mem_destroy(mem);
    }
}

static struct cuts run_cuts(uint64_t seed, bool forgets_sync)
{
    const struct qsi_stream_limits limits = {.segment_bytes = 120000, .max_bytes = 300000};
    struct model *model = calloc(1, sizeof *model);
    struct checkpoint checkpoint = {0};
    struct world world;
    struct cuts cuts = {
        .env = qsi_env_sim_create(seed), .checkpoint = &checkpoint, .limits = &limits};

    model->last_us = 1000000;
    start(&world, cuts.env, &limits);
    qsi_env_sim_on_step(cuts.env, cut, &cuts);
    for (uint32_t round = 0; round < 24; round++) {
        append_batch(&world, model, 20 + round * 3, model->last_us + 10, false);
        QS_CHECK_OK(flush(&world, UINT64_MAX, QS_ERROR)); /* shares no page with what is named */
        append_batch(&world, model, 5, model->last_us, false);
        if (round % 2 == 0) {
            QS_CHECK_OK(make_checkpoint(&world, model, round % 4 == 0 ? 100000 : 0, forgets_sync,
                                        &checkpoint, QS_ERROR));
        }
        trim(&world, model, model->last_us);
        (void)qsi_container_drop_content(&world.stream.container, 0, UINT64_MAX);
        check_all(&world, model);
    }
    qsi_env_sim_on_step(cuts.env, NULL, NULL);
    checkpoint_fini(&checkpoint);
    stop(&world);
    qsi_env_sim_destroy(cuts.env);
    free(model);
    return cuts;
}

static void test_power_cut_before_every_step(uint64_t seed)
{
    struct cuts cuts = run_cuts(seed, false);

    QS_CHECK(cuts.count > 200 && cuts.damaged == 0);
}

/* That the test above sees something. */
static void test_planted_block_that_is_not_synced_before_the_checkpoint_is_seen(uint64_t seed)
{
    struct cuts cuts = run_cuts(seed, true);

    QS_CHECK(cuts.damaged > 0);
}

/* ---- calls and allocations that fail ---- */

static bool one_faulty_run(enum qsi_fault_how how, uint64_t n, bool of_memory)
{
    const struct qsi_stream_limits limits = {.segment_bytes = 120000};
    struct model *model = calloc(1, sizeof *model);
    struct checkpoint checkpoint = {0};
    qs_env *mem = qsi_env_mem_create(n);
    qs_env *env = qsi_env_fault_create(mem);
    struct qs_test_alloc alloc;
    bool fired = false;
    struct world world;

    model->last_us = 1000000;
    start(&world, env, &limits);
    for (uint32_t round = 0; round < 6; round++) {
        append_batch(&world, model, 40 + round, model->last_us + 10, false);
        if (of_memory) {
            qs_test_alloc_install(&alloc);
            qs_test_alloc_arm(&alloc, round == 4 ? n : 0, false);
        } else {
            qsi_env_fault_arm(env, QSI_FAULT_ANY, how, round == 4 ? n : 0, false);
        }
        for (uint32_t part = 0; part < 2; part++) {
            qs_status status =
                part == 0 ? flush(&world, UINT64_MAX, QS_ERROR)
                          : make_checkpoint(&world, model, 0, false, &checkpoint, QS_ERROR);
            QS_CHECK(status == QS_OK || status == QS_EIO || status == QS_ESTORE_FULL ||
                     status == QS_ENOSPC || status == QS_ECORRUPT || status == QS_ENOMEM);
            if (part == 0 && status == QS_OK) {
                QS_CHECK(qsi_container_is_flushed(&world.stream.container));
            }
        }
        if (of_memory) {
            fired = fired || alloc.has_failed;
            qs_allocator_set(NULL);
        } else {
            fired = fired || (round == 4 && qsi_env_fault_fired(env));
            qsi_env_fault_arm(env, QSI_FAULT_ANY, how, 0, false);
        }
        check_all(&world, model);
    }
    QS_CHECK_OK(flush(&world, UINT64_MAX, QS_ERROR));
    (void)qsi_container_drop_content(&world.stream.container, 0, UINT64_MAX);
    check_all(&world, model);
    QS_CHECK_OK(make_checkpoint(&world, model, 0, false, &checkpoint, QS_ERROR));
    reopen(&world, model, &checkpoint);
    check_all(&world, model);
    checkpoint_fini(&checkpoint);
    stop(&world);
    qsi_env_fault_destroy(env);
    qsi_env_mem_destroy(mem);
    free(model);
    return fired;
}

static void test_every_call_fails_once(enum qsi_fault_how how)
{
    uint64_t n = 1;

    while (one_faulty_run(how, n, false)) {
        n++;
    }
    QS_CHECK(n > 5);
}

static void test_every_allocation_fails_once(void)
{
    uint64_t n = 1;

    while (one_faulty_run(QSI_FAULT_EIO, n, true)) {
        n++;
    }
    QS_CHECK(n > 10);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    test_random(seed);
    test_power_cut_before_every_step(seed);
    test_planted_block_that_is_not_synced_before_the_checkpoint_is_seen(seed);
    test_every_call_fails_once(QSI_FAULT_EIO);
    test_every_call_fails_once(QSI_FAULT_ENOSPC);
    test_every_call_fails_once(QSI_FAULT_SHORT);
    test_every_allocation_fails_once();
    return 0;
}
