/* Block files: what is written is read back, what a crash left between blocks is in nobody's way,
 * and times are exact to the row. */
#include "block_made.h"
#include "qs_test_faults.h"

static void check_look_up(const struct made *made)
{
    uint32_t count = made->file.block_count;

    for (uint64_t offset = made->entries[0].first_offset; offset < made->next; offset++) {
        uint32_t i = qsi_block_entries_find(made->entries, count, offset);
        QS_CHECK(i < count && made->entries[i].first_offset <= offset &&
                 offset < made->entries[i].first_offset + made->entries[i].rows);
    }
    QS_CHECK(qsi_block_entries_find(made->entries, count, made->next) == count);
    for (uint64_t time_us = test_time(made->entries[0].first_offset) - 5;
         time_us < test_time(made->next) + 5; time_us++) {
        uint32_t expected = 0;
        while (expected + 1 < count && made->entries[expected + 1].first_time_us < time_us) {
            expected++;
        }
        QS_CHECK(qsi_block_entries_find_time(made->entries, count, time_us) == expected);
    }
}

QS_SEED_TEST(test_round_trip)
{
    for (uint64_t n = 0; n < 20; n++) {
        uint64_t random = seed + n;
        struct made made = {.file = {.owner = OWNER, .number = 100}, .next = 100};
        struct fixture fixture;

        start(&fixture, qsi_env_mem_create(1));
        for (uint32_t i = 0; i < 5; i++) {
            QS_CHECK_OK(
                add_blocks(&fixture, &made, 1 + (uint32_t)(n % 6), i % 2 == 0, &random, QS_ERROR));
            check_file(&fixture, &made);
        }
        check_look_up(&made);
        QS_CHECK_OK(qsi_block_file_sync(fixture.blocks, &made.file, QS_ERROR));
        QS_CHECK_OK(seal(&fixture, &made, QS_ERROR));
        check_file(&fixture, &made);
        QS_CHECK_OK(qsi_block_file_find(fixture.blocks, &made.file, QS_ERROR));
        QS_CHECK_OK(qsi_block_file_remove(fixture.blocks, &made.file, QS_ERROR));
        QS_CHECK_OK(qsi_block_file_remove(fixture.blocks, &made.file, QS_ERROR));
        QS_CHECK_STATUS(QS_ECORRUPT, qsi_block_file_find(fixture.blocks, &made.file, QS_ERROR));
        stop(&fixture);
        qsi_env_mem_destroy(fixture.env);
    }
}

static uint32_t dir_syncs;
static qs_status (*inner_dir_sync)(qs_env *env, qs_dir *dir, qs_error *error);

static qs_status count_dir_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    dir_syncs += 1;
    return inner_dir_sync(env, dir, error);
}

BLOCKS_TEST(test_directory_was_synced_again_without_a_new_name)
{
    uint64_t random = 1;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct made second = {.file = {.owner = OWNER, .number = 1000}, .next = 1000};

    inner_dir_sync = fixture->env->dir_sync;
    fixture->env->dir_sync = count_dir_sync;
    QS_CHECK_OK(add_blocks(fixture, &made, 1, true, &random, QS_ERROR));
    for (int i = 0; i < 3; i++) {
        QS_CHECK_OK(qsi_block_dir_sync(fixture->blocks, QS_ERROR));
    }
    QS_CHECK(dir_syncs == 1);
    QS_CHECK_OK(add_blocks(fixture, &made, 1, true, &random, QS_ERROR));
    QS_CHECK_OK(qsi_block_dir_sync(fixture->blocks, QS_ERROR));
    QS_CHECK(dir_syncs == 1); /* the file was there */
    QS_CHECK_OK(add_blocks(fixture, &second, 1, true, &random, QS_ERROR));
    QS_CHECK_OK(qsi_block_dir_sync(fixture->blocks, QS_ERROR));
    QS_CHECK(dir_syncs == 2);
}

BLOCKS_TEST(test_next_block_shares_no_page_with_a_named_one)
{
    uint64_t random = 1;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    uint64_t end;

    QS_CHECK_OK(add_blocks(fixture, &made, 1, true, &random, QS_ERROR));
    QS_CHECK(made.entries[0].at == QSI_BLOCK_FILE_HEADER_BYTES);
    end = made.file.end;
    QS_CHECK_OK(add_blocks(fixture, &made, 2, true, &random, QS_ERROR));
    QS_CHECK(made.entries[1].at % QSI_BLOCK_PAGE == 0 && made.entries[1].at >= end);
    QS_CHECK(made.entries[2].at < made.entries[1].at + 2 * QSI_BLOCK_PAGE + made.entries[1].bytes);
    QS_CHECK(made.entries[2].at % QSI_BLOCK_UNIT == 0);
}

/* A session wrote blocks that no checkpoint named and crashed; the next one writes others at the
 * same places, and a checkpoint leaves a gap in which a whole block of the old ones stands. */
BLOCKS_TEST(test_block_of_an_earlier_life_is_not_taken_for_one_of_the_file)
{
    uint64_t random = 1;
    struct made made = {.file = {.owner = OWNER, .number = 0}}, old;

    QS_CHECK_OK(add_blocks(fixture, &made, 2, false, &random, QS_ERROR));
    old = made;
    QS_CHECK_OK(add_blocks(fixture, &old, 6, true, &random, QS_ERROR)); /* lost by the crash */
    random = 99;
    QS_CHECK_OK(add_blocks(fixture, &made, 1, true, &random, QS_ERROR));
    QS_CHECK_OK(add_blocks(fixture, &made, 2, true, &random, QS_ERROR));
    check_file(fixture, &made);
}

/* ---- times ---- */

QS_SEED_TEST(test_times_are_exact_to_the_row)
{
    uint64_t random = seed;

    for (uint32_t n = 0; n < 60; n++) {
        struct qsi_block_build_options options = {0};
        struct qsi_block_builder *builder = qsi_block_builder_create(&options);
        uint32_t rows = 1 + (uint32_t)qsi_splitmix_below(&random, 300);
        uint32_t change = 1 + (uint32_t)qsi_splitmix_below(&random, 8);
        struct qsi_chunk *chunk =
            qs_test_record_chunk(&test_kind, QS_TEST_PER_ROW, 0, rows, OWNER, 0, 0);
        struct made made = {.file = {.owner = OWNER, .number = 0}};
        struct qsi_block_writer *writer;
        struct qsi_block_reader *reader;
        struct qsi_built_block block;
        struct qsi_block_view view;
        struct fixture fixture;
        uint64_t times[300], time_us = 5000;

        start(&fixture, qsi_env_mem_create(1));
        for (uint32_t row = 0; row < rows; row++) {
            uint32_t taken;
            time_us +=
                qsi_splitmix_below(&random, change) == 0 ? qsi_splitmix_below(&random, 1000000) : 0;
            times[row] = time_us;
            QS_CHECK_OK(qsi_block_builder_add(builder,
                                              &(struct qsi_row_stretch){chunk->data, row, 1},
                                              time_us, &taken, QS_ERROR));
            QS_CHECK(taken == 1);
        }
        QS_CHECK_OK(qsi_block_builder_finish(builder, OWNER, 0, &block, QS_ERROR));
        QS_CHECK_OK(qsi_block_writer_begin(&writer, fixture.blocks, &made.file, false, QS_ERROR));
        QS_CHECK_OK(qsi_block_writer_put(writer, &block, &made.entries[0], QS_ERROR));
        qsi_block_writer_close(writer);
        QS_CHECK_OK(qsi_block_reader_open(&reader, fixture.blocks, &made.file, QS_ERROR));
        QS_CHECK_OK(qsi_block_reader_read(reader, &made.entries[0], NULL, &view, QS_ERROR));
        for (uint32_t row = 0; row < rows; row++) {
            uint32_t first = row;
            int64_t filled[2];
            qsi_block_view_times(&view, row, row + 1 < rows ? 2 : 1, filled);
            QS_CHECK((uint64_t)filled[0] == times[row]);
            while (first > 0 && times[first - 1] == times[row]) {
                first--;
            }
            QS_CHECK(qsi_block_view_row_at(&view, times[row]) == first);
            while (first < rows && times[first] <= times[row]) {
                first++;
            }
            QS_CHECK(qsi_block_view_row_at(&view, times[row] + 1) == first);
        }
        QS_CHECK(qsi_block_view_row_at(&view, 0) == 0);
        qsi_block_view_fini(&view);
        qsi_block_reader_close(reader);
        qsi_chunk_unref(block.chunk);
        qsi_chunk_unref(chunk);
        qsi_block_builder_destroy(builder);
        stop(&fixture);
        qsi_env_mem_destroy(fixture.env);
    }
}

/* 32 bits of microseconds are 71 minutes: a row that is later begins the next block. */
QS_TEST(test_block_ends_before_its_times_do_not_fit)
{
    struct qsi_block_build_options options = {0};
    struct qsi_block_builder *builder = qsi_block_builder_create(&options);
    struct qsi_chunk *chunk = qs_test_record_chunk(&test_kind, 0, 0, 3, OWNER, 0, 0);
    struct qsi_built_block block;
    uint32_t taken;

    QS_CHECK_OK(qsi_block_builder_add(builder, &(struct qsi_row_stretch){chunk->data, 0, 1}, 10,
                                      &taken, QS_ERROR));
    QS_CHECK_OK(qsi_block_builder_add(builder, &(struct qsi_row_stretch){chunk->data, 1, 1},
                                      10 + (uint64_t)UINT32_MAX, &taken, QS_ERROR));
    QS_CHECK(taken == 1);
    QS_CHECK_OK(qsi_block_builder_add(builder, &(struct qsi_row_stretch){chunk->data, 2, 1},
                                      11 + (uint64_t)UINT32_MAX, &taken, QS_ERROR));
    QS_CHECK(taken == 0 && qsi_block_builder_rows(builder) == 2);
    QS_CHECK_OK(qsi_block_builder_finish(builder, OWNER, 0, &block, QS_ERROR));
    QS_CHECK(block.last_time_us - block.first_time_us == UINT32_MAX);
    qsi_chunk_unref(block.chunk);
    qsi_chunk_unref(chunk);
    qsi_block_builder_destroy(builder);
}

/* ---- calls that fail ---- */

/* The n-th call fails: what was there before stays readable, and going on writes over what the
 * failure left. */
QS_FAULT_TEST(test_write_that_fails_can_be_repeated)
{
    for (struct qs_test_sweep sweep = {.how = how}; qs_test_sweep_on(&sweep);) {
        qs_env *env = qs_test_sweep_env(&sweep);
        struct made made = {.file = {.owner = OWNER, .number = 0}};
        struct fixture fixture;
        uint32_t step = 0;

        start(&fixture, env);
        qs_test_sweep_calls(&sweep, env);
        while (step < 5) {
            uint64_t random = step;
            uint32_t before = made.file.block_count;
            qs_status status = step < 4
                                   ? add_blocks(&fixture, &made, 1, step == 2, &random, QS_ERROR)
                                   : seal(&fixture, &made, QS_ERROR);
            if (status == QS_OK) {
                step++;
                continue;
            }
            QS_CHECK(status == QS_EIO || status == QS_ESTORE_FULL || status == QS_ECORRUPT);
            QS_CHECK(made.file.block_count == before && !made.file.sealed);
            qs_test_sweep_rest(&sweep);
            if (made.file.block_count > 0) {
                check_file(&fixture, &made);
            }
        }
        qs_test_sweep_rest(&sweep);
        check_file(&fixture, &made);
        stop(&fixture);
    }
}

/* ---- names ---- */

QS_TEST(test_names)
{
    struct qsi_block_file file = {.owner = 0xabc, .number = 0x123456789abcdef0}, parsed;
    char name[QSI_BLOCK_NAME_BYTES];

    qsi_block_name(name, &file, "str");
    QS_CHECK(strcmp(name, "0000000000000abc-123456789abcdef0.str") == 0);
    QS_CHECK(qsi_block_name_parse(&parsed, name, "str"));
    QS_CHECK(parsed.owner == file.owner && parsed.number == file.number && parsed.end == 0);
    QS_CHECK(!qsi_block_name_parse(&parsed, name, "qbk"));
    QS_CHECK(!qsi_block_name_parse(&parsed, "0000000000000abc-123456789abcdef0.str~", "str"));
    QS_CHECK(!qsi_block_name_parse(&parsed, "0000000000000ABC-123456789abcdef0.str", "str"));
    QS_CHECK(!qsi_block_name_parse(&parsed, "abc-0.str", "str"));
    QS_CHECK(!qsi_block_name_parse(&parsed, "", "str"));
}
