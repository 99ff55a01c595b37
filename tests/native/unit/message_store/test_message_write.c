/* Bodies that somebody changes while they are written: before each write of the disk a hook changes
 * the caller's memory.  What was written must be whole, whatever it says. */
#include "qstore/codec.h"

#include "messages_fixture.h"

#define BODY_BYTES_MAX (3u << 20)
#define PIECE_BYTES (256u << 10) /* of csrc/message_store/message_write.c */

static uint8_t body[BODY_BYTES_MAX];
static qs_env *inner_env;
static bool is_hostile;
static uint64_t write_count;

/* Another thread's work, at the worst moment. */
static qs_status change_and_write(qs_env *env, qs_file *file, const qs_part *parts,
                                  size_t part_count, uint64_t offset, size_t *written_out,
                                  qs_error *error)
{
    (void)env;
    write_count += 1;
    for (size_t i = 0; is_hostile && i < sizeof body; i += 97) {
        body[i] = (uint8_t)(body[i] + 1 + write_count);
    }
    return inner_env->write(inner_env, file, parts, part_count, offset, written_out, error);
}

static qs_env make_env(void)
{
    qs_env env;

    inner_env = qsi_env_mem_create(1);
    env = *inner_env;
    env.write = change_and_write;
    return env;
}

static qs_status write_body(struct fixture *fixture, uint32_t envelope_bytes, uint32_t body_bytes,
                            bool is_constant, struct qsi_body_ref *ref_out)
{
    static const uint8_t envelope[ENVELOPE_BYTES];
    const qs_part parts[2] = {{envelope, envelope_bytes}, {body, body_bytes}};
    struct qsi_place place;
    qs_status status;

    QS_CHECK_OK(
        qsi_message_store_reserve(fixture->messages, envelope_bytes, body_bytes, &place, QS_ERROR));
    status = (is_constant ? qsi_message_store_write_constant : qsi_message_store_write)(
        fixture->messages, &place, parts, 2, ref_out, QS_ERROR);
    if (status == QS_OK) {
        qsi_message_store_mark(fixture->messages, &place);
    } else {
        qsi_message_store_abandon(fixture->messages, &place);
    }
    return status;
}

static qs_status read_body(struct fixture *fixture, const struct qsi_body_ref *ref, uint8_t *data)
{
    return qsi_message_store_read(fixture->messages, ref, data, QS_ERROR);
}

static const uint32_t sizes[] = {
    1,
    4096,
    PIECE_BYTES - QSI_BODY_HEADER_BYTES - ENVELOPE_BYTES - 1,
    PIECE_BYTES - QSI_BODY_HEADER_BYTES - ENVELOPE_BYTES,
    PIECE_BYTES - QSI_BODY_HEADER_BYTES - ENVELOPE_BYTES + 1,
    PIECE_BYTES,
    2 * PIECE_BYTES - QSI_BODY_HEADER_BYTES - ENVELOPE_BYTES,
    2 * PIECE_BYTES + 12345,
    BODY_BYTES_MAX,
};

static void test_body_that_changes_while_it_is_written_is_whole(struct fixture *fixture)
{
    static uint8_t data[BODY_BYTES_MAX + 4096];
    struct qsi_body_ref ref;

    is_hostile = true;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        QS_CHECK_OK(write_body(fixture, ENVELOPE_BYTES, sizes[i], false, &ref));
        QS_CHECK_OK(read_body(fixture, &ref, data));
    }
    /* The hook does its work: to say that nobody changes a body is to promise it. */
    QS_CHECK_OK(write_body(fixture, ENVELOPE_BYTES, 4096, true, &ref));
    QS_CHECK(read_body(fixture, &ref, data) == QS_ECORRUPT);
    is_hostile = false;
}

static void test_both_ways_of_writing_write_the_same_bytes(struct fixture *fixture)
{
    static uint8_t copied[BODY_BYTES_MAX + 4096], constant[BODY_BYTES_MAX + 4096];
    struct qsi_body_ref ref;

    for (size_t i = 0; i < sizeof body; i++) {
        body[i] = (uint8_t)(i * 7 >> i % 3);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t bytes = ENVELOPE_BYTES + sizes[i];

        QS_CHECK_OK(write_body(fixture, ENVELOPE_BYTES, sizes[i], false, &ref));
        QS_CHECK_OK(read_body(fixture, &ref, copied));
        QS_CHECK_OK(write_body(fixture, ENVELOPE_BYTES, sizes[i], true, &ref));
        QS_CHECK_OK(read_body(fixture, &ref, constant));
        QS_CHECK(memcmp(copied + QSI_BODY_HEADER_BYTES, constant + QSI_BODY_HEADER_BYTES, bytes) ==
                 0);
        QS_CHECK(memcmp(copied + QSI_BODY_HEADER_BYTES + ENVELOPE_BYTES, body, sizes[i]) == 0);
    }
}

/* Empty parts at the very end of a piece. */
static void test_record_without_an_envelope_or_a_body_is_written(struct fixture *fixture)
{
    static uint8_t data[PIECE_BYTES + 4096];
    struct qsi_body_ref ref;

    QS_CHECK_OK(write_body(fixture, 0, PIECE_BYTES - QSI_BODY_HEADER_BYTES, false, &ref));
    QS_CHECK_OK(read_body(fixture, &ref, data));
    QS_CHECK_OK(write_body(fixture, ENVELOPE_BYTES, 0, false, &ref));
    QS_CHECK_OK(read_body(fixture, &ref, data));
}

static void
test_write_without_memory_for_the_copy_leaves_the_store_as_it_is(struct fixture *fixture)
{
    const qs_part part = {body, PIECE_BYTES};
    struct qs_test_alloc state;
    struct qsi_place place;
    struct qsi_body_ref ref;
    uint64_t writes;

    QS_CHECK_OK(qsi_message_store_reserve(fixture->messages, 0, PIECE_BYTES, &place, QS_ERROR));
    writes = write_count;
    qs_test_alloc_install(&state);
    qs_test_alloc_arm(&state, 1, true);
    QS_CHECK(qsi_message_store_write(fixture->messages, &place, &part, 1, &ref, QS_ERROR) ==
             QS_ENOMEM);
    qs_allocator_set(NULL);
    QS_CHECK(writes == write_count);
    qsi_message_store_abandon(fixture->messages, &place);
    QS_CHECK_OK(write_body(fixture, ENVELOPE_BYTES, PIECE_BYTES, false, &ref));
}

int main(void)
{
    struct fixture fixture = {0};
    qs_env env = make_env();

    start(&fixture, &env);
    test_body_that_changes_while_it_is_written_is_whole(&fixture);
    test_both_ways_of_writing_write_the_same_bytes(&fixture);
    test_record_without_an_envelope_or_a_body_is_written(&fixture);
    test_write_without_memory_for_the_copy_leaves_the_store_as_it_is(&fixture);
    stop(&fixture);
    qsi_env_mem_destroy(inner_env);
    return 0;
}
