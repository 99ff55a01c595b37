/* Damage to block files: that of any byte is found, and a block in a wrong place is refused. */
#include "block_made.h"

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

QS_BOOL_TEST(test_every_flipped_bit_is_found, sealed)
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

QS_BOOL_TEST(test_every_truncation_is_found, sealed)
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
BLOCKS_TEST(test_whole_block_in_a_wrong_place_is_refused)
{
    uint64_t random = 3;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct made other = {.file = {.owner = OWNER, .number = 9}};
    struct qsi_block_entry wrong;
    uint8_t bytes[9000];
    size_t moved;
    qs_file *from, *to;
    qs_part part = {bytes, 0};

    QS_CHECK_OK(add_blocks(fixture, &made, 2, false, &random, QS_ERROR));
    random = 3;
    QS_CHECK_OK(add_blocks(fixture, &other, 2, false, &random, QS_ERROR));
    QS_CHECK(other.entries[0].bytes == made.entries[0].bytes && other.entries[0].bytes <= 9000);
    from = open_raw(fixture, &other);
    to = open_raw(fixture, &made);
    part.bytes = other.entries[0].bytes;
    QS_CHECK_OK(fixture->env->read(fixture->env, from, bytes, part.bytes, other.entries[0].at,
                                   &moved, QS_ERROR));
    QS_CHECK_OK(
        fixture->env->write(fixture->env, to, &part, 1, made.entries[0].at, &moved, QS_ERROR));
    QS_CHECK(read_damaged(fixture, &made));
    fixture->env->close(fixture->env, from);
    fixture->env->close(fixture->env, to);
    wrong = other.entries[1];
    wrong.at = other.entries[0].at;
    {
        struct qsi_block_reader *reader;
        struct qsi_block_view view;
        QS_CHECK_OK(qsi_block_reader_open(&reader, fixture->blocks, &other.file, QS_ERROR));
        QS_CHECK_STATUS(QS_ECORRUPT, qsi_block_reader_read(reader, &wrong, NULL, &view, QS_ERROR));
        wrong.at = UINT64_MAX - 10;
        QS_CHECK_STATUS(QS_ECORRUPT, qsi_block_reader_read(reader, &wrong, NULL, &view, QS_ERROR));
        qsi_block_reader_close(reader);
    }
}
