/* A stream against an array: appending, flushing, dropping, trimming, checkpoints, reopening and
 * reading in random order; power cuts before every step that touches the disk.
 *
 * The seed is printed and is the first argument. */
#include "stream_model.h"

/* ---- the array ---- */

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

/* ---- appending ---- */

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
    QS_CHECK_OK(qsi_container_trim_to(&world->stream.container, first));
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

QS_SEED_TEST(test_random)
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
        QS_TEST_FREED struct model *model = calloc(1, sizeof *model);
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
    QS_TEST_FREED struct model *model = calloc(1, sizeof *model);
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
    return cuts;
}

QS_SEED_TEST(test_power_cut_before_every_step)
{
    struct cuts cuts = run_cuts(seed, false);

    QS_CHECK(cuts.count > 200 && cuts.damaged == 0);
}

/* That the test above sees something. */
QS_SEED_TEST(test_planted_block_that_is_not_synced_before_the_checkpoint_is_seen)
{
    struct cuts cuts = run_cuts(seed, true);

    QS_CHECK(cuts.damaged > 0);
}
