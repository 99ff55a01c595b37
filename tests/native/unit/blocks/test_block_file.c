/* Block files: what is written is read back, damage of any byte is found, what a crash left between
 * blocks is in nobody's way, and readers share what one of them read. */
#include "block_fixture.h"

#define BLOCKS_MAX 40u

/* A file as its owner knows it, and what its blocks should hold. */
struct made {
    struct qsi_block_file file;
    struct qsi_block_entry entries[BLOCKS_MAX];
    uint64_t next;
};

static qs_status add_blocks(struct fixture *fixture, struct made *made, uint32_t count,
                            bool page_aligned, uint64_t *random, qs_error *error)
{
    struct qsi_block_writer *writer;
    qs_status status;

    QS_TRY(qsi_block_writer_begin(&writer, fixture->blocks, &made->file, page_aligned, error));
    for (status = QS_OK; status == QS_OK && count > 0; count--) {
        uint32_t rows = 1 + (uint32_t)qsi_splitmix_below(random, 60);
        struct qsi_built_block block;
        status = build(made->next, rows, &block, error);
        if (status == QS_OK) {
            status =
                qsi_block_writer_put(writer, &block, &made->entries[made->file.block_count], error);
            qsi_chunk_unref(block.chunk);
        }
        made->next += status == QS_OK ? rows : 0;
    }
    qsi_block_writer_close(writer);
    return status;
}

static qs_status seal(struct fixture *fixture, struct made *made, qs_error *error)
{
    struct qsi_block_writer *writer;
    qs_status status;

    QS_TRY(qsi_block_writer_begin(&writer, fixture->blocks, &made->file, false, error));
    status = qsi_block_writer_seal(writer, made->entries, test_time(made->next - 1), error);
    qsi_block_writer_close(writer);
    return status;
}

static void check_file(struct fixture *fixture, const struct made *made)
{
    struct qsi_block_reader *reader;
    struct qsi_block_entry *entries;

    QS_CHECK_OK(qsi_block_reader_open(&reader, fixture->blocks, &made->file, QS_ERROR));
    QS_CHECK_OK(qsi_block_reader_read_index(reader, &entries, QS_ERROR));
    QS_CHECK(memcmp(entries, made->entries, made->file.block_count * sizeof *entries) == 0);
    for (uint32_t i = 0; i < made->file.block_count; i++) {
        struct qsi_block_view view;
        struct qsi_block_dictionary dictionary;
        QS_CHECK_OK(qsi_block_reader_read(reader, &entries[i], NULL, &view, QS_ERROR));
        check_view(&view, entries[i].first_offset, entries[i].rows);
        QS_CHECK_OK(qsi_block_reader_read_dictionary(reader, &entries[i], &dictionary, QS_ERROR));
        QS_CHECK(dictionary.messages.route_count == view.messages.route_count);
        for (uint32_t route = 0; route < dictionary.messages.route_count; route++) {
            QS_CHECK(qsi_slice_compare(qsi_messages_route(&dictionary.messages, route).key,
                                       qsi_messages_route(&view.messages, route).key) == 0);
        }
        qsi_block_dictionary_fini(&dictionary);
        qsi_block_view_fini(&view);
    }
    qsi_free(entries);
    qsi_block_reader_close(reader);
}

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

static void test_round_trip(uint64_t seed)
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

static void test_next_block_shares_no_page_with_a_named_one(void)
{
    uint64_t random = 1;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct fixture fixture;
    uint64_t end;

    start(&fixture, qsi_env_mem_create(1));
    QS_CHECK_OK(add_blocks(&fixture, &made, 1, true, &random, QS_ERROR));
    QS_CHECK(made.entries[0].at == QSI_BLOCK_FILE_HEADER_BYTES);
    end = made.file.end;
    QS_CHECK_OK(add_blocks(&fixture, &made, 2, true, &random, QS_ERROR));
    QS_CHECK(made.entries[1].at % QSI_BLOCK_PAGE == 0 && made.entries[1].at >= end);
    QS_CHECK(made.entries[2].at < made.entries[1].at + 2 * QSI_BLOCK_PAGE + made.entries[1].bytes);
    QS_CHECK(made.entries[2].at % QSI_BLOCK_UNIT == 0);
    stop(&fixture);
    qsi_env_mem_destroy(fixture.env);
}

/* A session wrote blocks that no checkpoint named and crashed; the next one writes others at the
 * same places, and a checkpoint leaves a gap in which a whole block of the old ones stands. */
static void test_block_of_an_earlier_life_is_not_taken_for_one_of_the_file(void)
{
    uint64_t random = 1;
    struct made made = {.file = {.owner = OWNER, .number = 0}}, old;
    struct fixture fixture;

    start(&fixture, qsi_env_mem_create(1));
    QS_CHECK_OK(add_blocks(&fixture, &made, 2, false, &random, QS_ERROR));
    old = made;
    QS_CHECK_OK(add_blocks(&fixture, &old, 6, true, &random, QS_ERROR)); /* lost by the crash */
    random = 99;
    QS_CHECK_OK(add_blocks(&fixture, &made, 1, true, &random, QS_ERROR));
    QS_CHECK_OK(add_blocks(&fixture, &made, 2, true, &random, QS_ERROR));
    check_file(&fixture, &made);
    stop(&fixture);
    qsi_env_mem_destroy(fixture.env);
}

/* ---- damage ---- */

static void ignore_block(void *context, const struct qsi_block_entry *entry, const qs_error *error)
{
    (void)entry;
    *(uint32_t *)context += error != NULL ? 1 : 0;
}

/* Whatever is read of a damaged file is right, or refused.  Returns whether anything was
 * refused. */
static bool read_damaged(struct fixture *fixture, const struct made *made)
{
    struct qsi_block_reader *reader;
    struct qsi_block_entry *entries = NULL;
    qs_error error = {.status = QS_OK};
    bool refused = false;
    qs_status status = qsi_block_reader_open(&reader, fixture->blocks, &made->file, &error);

    if (status != QS_OK) {
        QS_CHECK(status == QS_ECORRUPT || status == QS_EVERSION);
        return true;
    }
    status = qsi_block_reader_read_index(reader, &entries, &error);
    if (status != QS_OK) {
        QS_CHECK(status == QS_ECORRUPT || status == QS_EVERSION);
        refused = true;
    } else {
        QS_CHECK(memcmp(entries, made->entries, made->file.block_count * sizeof *entries) == 0);
    }
    for (uint32_t i = 0; i < made->file.block_count; i++) {
        struct qsi_block_view view;
        struct qsi_block_dictionary dictionary;
        status = qsi_block_reader_read(reader, &made->entries[i], NULL, &view, &error);
        if (status == QS_OK) {
            check_view(&view, made->entries[i].first_offset, made->entries[i].rows);
        } else {
            QS_CHECK(status == QS_ECORRUPT || status == QS_EVERSION);
            refused = true;
        }
        qsi_block_view_fini(&view);
        status = qsi_block_reader_read_dictionary(reader, &made->entries[i], &dictionary, &error);
        QS_CHECK(status == QS_OK || status == QS_ECORRUPT || status == QS_EVERSION);
        qsi_block_dictionary_fini(&dictionary);
    }
    qsi_free(entries);
    qsi_block_reader_close(reader);
    return refused;
}

static qs_file *open_raw(struct fixture *fixture, const struct made *made)
{
    char name[QSI_BLOCK_NAME_BYTES];
    qs_file *handle;

    qsi_block_name(name, &made->file, "str");
    QS_CHECK_OK(
        fixture->env->open(fixture->env, fixture->dir, name, QS_OPEN_WRITE, &handle, QS_ERROR));
    return handle;
}

static void put_byte(struct fixture *fixture, qs_file *handle, uint64_t at, uint8_t byte)
{
    qs_part part = {&byte, 1};
    size_t written;

    QS_CHECK_OK(fixture->env->write(fixture->env, handle, &part, 1, at, &written, QS_ERROR));
}

static uint8_t get_byte(struct fixture *fixture, qs_file *handle, uint64_t at)
{
    uint8_t byte = 0;
    size_t read;

    QS_CHECK_OK(fixture->env->read(fixture->env, handle, &byte, 1, at, &read, QS_ERROR));
    return byte;
}

/* Does the byte stand for something?  Padding does not. */
static bool is_covered(const struct made *made, uint64_t at)
{
    if (at < QSI_BLOCK_FILE_HEADER_BYTES || (made->file.sealed && at >= made->file.last_at)) {
        return true;
    }
    for (uint32_t i = 0; i < made->file.block_count; i++) {
        if (at >= made->entries[i].at && at < made->entries[i].at + made->entries[i].bytes) {
            return true;
        }
    }
    return false;
}

static void test_every_flipped_bit_is_found(bool sealed)
{
    uint64_t random = 3;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct fixture fixture;
    qs_file *handle;
    uint32_t found = 0;

    start(&fixture, qsi_env_mem_create(1));
    QS_CHECK_OK(add_blocks(&fixture, &made, 2, false, &random, QS_ERROR));
    QS_CHECK_OK(add_blocks(&fixture, &made, 1, true, &random, QS_ERROR));
    if (sealed) {
        QS_CHECK_OK(seal(&fixture, &made, QS_ERROR));
    }
    handle = open_raw(&fixture, &made);
    for (uint64_t at = 0; at < made.file.end; at++) {
        uint8_t byte = get_byte(&fixture, handle, at);
        uint8_t bit = (uint8_t)(1u << at % 8);
        put_byte(&fixture, handle, at, byte ^ bit);
        QS_CHECK(read_damaged(&fixture, &made) == is_covered(&made, at));
        put_byte(&fixture, handle, at, byte);
        found += is_covered(&made, at);
    }
    QS_CHECK(found > 4096);
    fixture.env->close(fixture.env, handle);
    check_file(&fixture, &made);
    QS_CHECK_OK(
        qsi_block_file_check(fixture.blocks, &made.file, ignore_block, &(uint32_t){0}, QS_ERROR));
    stop(&fixture);
    qsi_env_mem_destroy(fixture.env);
}

static void test_every_truncation_is_found(bool sealed)
{
    uint64_t random = 3;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct fixture fixture;
    qs_file *handle;

    start(&fixture, qsi_env_mem_create(1));
    QS_CHECK_OK(add_blocks(&fixture, &made, 3, false, &random, QS_ERROR));
    if (sealed) {
        QS_CHECK_OK(seal(&fixture, &made, QS_ERROR));
    }
    handle = open_raw(&fixture, &made);
    for (uint64_t end = made.file.end; end-- > 0;) {
        QS_CHECK_OK(fixture.env->truncate(fixture.env, handle, end, QS_ERROR));
        QS_CHECK(read_damaged(&fixture, &made));
    }
    fixture.env->close(fixture.env, handle);
    stop(&fixture);
    qsi_env_mem_destroy(fixture.env);
}

/* A block of another place, of another file and of another owner, each whole. */
static void test_whole_block_in_a_wrong_place_is_refused(void)
{
    uint64_t random = 3;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct made other = {.file = {.owner = OWNER, .number = 9}};
    struct fixture fixture;
    struct qsi_block_entry wrong;
    uint8_t bytes[9000];
    size_t moved;
    qs_file *from, *to;
    qs_part part = {bytes, 0};

    start(&fixture, qsi_env_mem_create(1));
    QS_CHECK_OK(add_blocks(&fixture, &made, 2, false, &random, QS_ERROR));
    random = 3;
    QS_CHECK_OK(add_blocks(&fixture, &other, 2, false, &random, QS_ERROR));
    QS_CHECK(other.entries[0].bytes == made.entries[0].bytes && other.entries[0].bytes <= 9000);
    from = open_raw(&fixture, &other);
    to = open_raw(&fixture, &made);
    part.bytes = other.entries[0].bytes;
    QS_CHECK_OK(fixture.env->read(fixture.env, from, bytes, part.bytes, other.entries[0].at, &moved,
                                  QS_ERROR));
    QS_CHECK_OK(
        fixture.env->write(fixture.env, to, &part, 1, made.entries[0].at, &moved, QS_ERROR));
    QS_CHECK(read_damaged(&fixture, &made));
    fixture.env->close(fixture.env, from);
    fixture.env->close(fixture.env, to);
    wrong = other.entries[1];
    wrong.at = other.entries[0].at;
    {
        struct qsi_block_reader *reader;
        struct qsi_block_view view;
        QS_CHECK_OK(qsi_block_reader_open(&reader, fixture.blocks, &other.file, QS_ERROR));
        QS_CHECK_STATUS(QS_ECORRUPT, qsi_block_reader_read(reader, &wrong, NULL, &view, QS_ERROR));
        wrong.at = UINT64_MAX - 10;
        QS_CHECK_STATUS(QS_ECORRUPT, qsi_block_reader_read(reader, &wrong, NULL, &view, QS_ERROR));
        qsi_block_reader_close(reader);
    }
    stop(&fixture);
    qsi_env_mem_destroy(fixture.env);
}

/* ---- times ---- */

static void test_times_are_exact_to_the_row(uint64_t seed)
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
            QS_CHECK(qsi_block_view_time(&view, row) == times[row]);
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
static void test_block_ends_before_its_times_do_not_fit(void)
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
static void test_write_that_fails_can_be_repeated(enum qsi_fault_how how)
{
    bool fired = true;

    for (uint64_t n = 1; fired; n++) {
        qs_env *mem = qsi_env_mem_create(n);
        qs_env *env = qsi_env_fault_create(mem);
        struct made made = {.file = {.owner = OWNER, .number = 0}};
        struct fixture fixture;
        qs_status status = QS_OK;
        uint32_t step = 0;

        start(&fixture, env);
        qsi_env_fault_arm(env, QSI_FAULT_ANY, how, n, false);
        while (step < 5) {
            uint64_t random = step;
            uint32_t before = made.file.block_count;
            status = step < 4 ? add_blocks(&fixture, &made, 1, step == 2, &random, QS_ERROR)
                              : seal(&fixture, &made, QS_ERROR);
            if (status == QS_OK) {
                step++;
                continue;
            }
            QS_CHECK(status == QS_EIO || status == QS_ESTORE_FULL || status == QS_ECORRUPT);
            QS_CHECK(made.file.block_count == before && !made.file.sealed);
            qsi_env_fault_arm(env, QSI_FAULT_ANY, how, 0, false);
            if (made.file.block_count > 0) {
                check_file(&fixture, &made);
            }
            qsi_env_fault_arm(env, QSI_FAULT_ANY, how, 0, false);
        }
        fired = qsi_env_fault_fired(env) || status != QS_OK || qsi_env_fault_calls(env) >= n;
        qsi_env_fault_arm(env, QSI_FAULT_ANY, how, 0, false);
        check_file(&fixture, &made);
        stop(&fixture);
        qsi_env_fault_destroy(env);
        qsi_env_mem_destroy(mem);
        if (n > 200) {
            break;
        }
    }
}

/* ---- names ---- */

static void test_names(void)
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

/* ---- the cache ---- */

static void test_cache(void)
{
    uint64_t random = 3;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct qsi_budget *budget = qsi_budget_create();
    struct qsi_block_cache_options options = {
        .bytes_max = 20000, .handle_max = 1, .budget = budget};
    struct qsi_block_cache_counts counts;
    struct qsi_block_cache *cache;
    struct fixture fixture;
    struct qsi_block_view held;

    start(&fixture, qsi_env_mem_create(1));
    QS_CHECK_OK(add_blocks(&fixture, &made, 30, false, &random, QS_ERROR));
    QS_CHECK_OK(qsi_block_cache_create(&cache, fixture.blocks, &options, QS_ERROR));
    for (uint32_t pass = 0; pass < 3; pass++) {
        struct qsi_block_index *index;
        QS_CHECK_OK(qsi_block_cache_read_index(cache, &made.file, &index, QS_ERROR));
        QS_CHECK(index->count == 30);
        for (uint32_t i = 0; i < 30; i++) {
            struct qsi_block_view view, again;
            struct qsi_block_dictionary dictionary;
            QS_CHECK_OK(
                qsi_block_cache_read(cache, &made.file, &index->entries[i], &view, QS_ERROR));
            check_view(&view, made.entries[i].first_offset, made.entries[i].rows);
            QS_CHECK_OK(
                qsi_block_cache_read(cache, &made.file, &index->entries[i], &again, QS_ERROR));
            QS_CHECK(again.chunk == view.chunk);
            QS_CHECK_OK(qsi_block_cache_read_dictionary(cache, &made.file, &index->entries[29 - i],
                                                        &dictionary, QS_ERROR));
            QS_CHECK(dictionary.first_offset == made.entries[29 - i].first_offset);
            qsi_block_dictionary_fini(&dictionary);
            qsi_block_view_fini(&again);
            qsi_block_view_fini(&view);
        }
        qsi_block_index_unref(index);
    }
    qsi_block_cache_counts(cache, &counts);
    QS_CHECK(counts.hits >= 90 && counts.misses >= 30 && counts.bytes <= 20000);
    QS_CHECK(qsi_budget_bytes(budget) > 0);
    /* A block that is held stays what it is, whatever is read behind it. */
    QS_CHECK_OK(qsi_block_cache_read(cache, &made.file, &made.entries[0], &held, QS_ERROR));
    for (uint32_t i = 1; i < 30; i++) {
        struct qsi_block_view view;
        QS_CHECK_OK(qsi_block_cache_read(cache, &made.file, &made.entries[i], &view, QS_ERROR));
        qsi_block_view_fini(&view);
    }
    check_view(&held, made.entries[0].first_offset, made.entries[0].rows);
    qsi_block_cache_forget(cache, &made.file);
    QS_CHECK_OK(qsi_block_file_remove(fixture.blocks, &made.file, QS_ERROR));
    {
        struct qsi_block_view view;
        QS_CHECK_STATUS(QS_ECORRUPT,
                        qsi_block_cache_read(cache, &made.file, &made.entries[0], &view, QS_ERROR));
    }
    qsi_block_cache_destroy(cache);
    check_view(&held, made.entries[0].first_offset, made.entries[0].rows);
    qsi_block_view_fini(&held);
    QS_CHECK(qsi_budget_bytes(budget) == 0);
    qsi_budget_unref(budget);
    stop(&fixture);
    qsi_env_mem_destroy(fixture.env);
}

/* Large bodies make such blocks: four of 100 MB that stayed would keep a store out of memory. */
static void test_blocks_that_are_larger_than_the_cache_do_not_stay(void)
{
    uint64_t random = 4;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct qsi_budget *budget = qsi_budget_create();
    struct qsi_block_cache_options options = {.bytes_max = 64, .budget = budget};
    struct qsi_block_cache *cache;
    struct fixture fixture;

    start(&fixture, qsi_env_mem_create(1));
    QS_CHECK_OK(add_blocks(&fixture, &made, 10, false, &random, QS_ERROR));
    QS_CHECK_OK(qsi_block_cache_create(&cache, fixture.blocks, &options, QS_ERROR));
    for (uint32_t i = 0; i < 10; i++) {
        struct qsi_block_view view;
        QS_CHECK_OK(qsi_block_cache_read(cache, &made.file, &made.entries[i], &view, QS_ERROR));
        QS_CHECK(qsi_budget_bytes(budget) > 0);
        qsi_block_view_fini(&view);
    }
    /* The last one goes when the next is put beside it. */
    QS_CHECK(qsi_budget_bytes(budget) < 2 * made.entries[9].bytes + 4096);
    qsi_block_cache_destroy(cache);
    QS_CHECK(qsi_budget_bytes(budget) == 0);
    qsi_budget_unref(budget);
    stop(&fixture);
}

static void read_cached(struct qsi_block_cache *cache, const struct made *made, uint32_t i)
{
    struct qsi_block_view view;

    QS_CHECK_OK(qsi_block_cache_read(cache, &made->file, &made->entries[i], &view, QS_ERROR));
    check_view(&view, made->entries[i].first_offset, made->entries[i].rows);
    qsi_block_view_fini(&view);
}

static void test_reader_that_is_alone_leaves_blocks_that_others_share(void)
{
    uint64_t random = 5;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct qsi_block_cache_options options = {0};
    struct qsi_block_cache_counts before, after;
    struct qsi_block_cache *cache;
    struct fixture fixture;

    start(&fixture, qsi_env_mem_create(1));
    QS_CHECK_OK(add_blocks(&fixture, &made, 30, false, &random, QS_ERROR));
    options.bytes_max = made.file.end / 2;
    QS_CHECK_OK(qsi_block_cache_create(&cache, fixture.blocks, &options, QS_ERROR));
    for (uint32_t i = 0; i < 6; i++) {
        read_cached(cache, &made, i / 2);
    }
    for (uint32_t i = 3; i < 30; i++) {
        read_cached(cache, &made, i);
    }
    qsi_block_cache_counts(cache, &before);
    QS_CHECK(before.hits == 3 && before.misses == 30);
    for (uint32_t i = 0; i < 3; i++) {
        read_cached(cache, &made, i);
    }
    qsi_block_cache_counts(cache, &after);
    QS_CHECK(after.hits == before.hits + 3 && after.misses == before.misses);
    qsi_block_cache_destroy(cache);
    stop(&fixture);
    qsi_env_mem_destroy(fixture.env);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    test_names();
    test_round_trip(seed);
    test_next_block_shares_no_page_with_a_named_one();
    test_block_of_an_earlier_life_is_not_taken_for_one_of_the_file();
    test_every_flipped_bit_is_found(false);
    test_every_flipped_bit_is_found(true);
    test_every_truncation_is_found(false);
    test_every_truncation_is_found(true);
    test_whole_block_in_a_wrong_place_is_refused();
    test_times_are_exact_to_the_row(seed);
    test_block_ends_before_its_times_do_not_fit();
    test_write_that_fails_can_be_repeated(QSI_FAULT_EIO);
    test_write_that_fails_can_be_repeated(QSI_FAULT_ENOSPC);
    test_write_that_fails_can_be_repeated(QSI_FAULT_SHORT);
    test_write_that_fails_can_be_repeated(QSI_FAULT_SHORT_EIO);
    test_cache();
    test_blocks_that_are_larger_than_the_cache_do_not_stay();
    test_reader_that_is_alone_leaves_blocks_that_others_share();
    return 0;
}
