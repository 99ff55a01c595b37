/* MANIFEST, names and headers of journal files: round trips, and all damage refused. */
#include "qstore/codec.h"

#include "env_test.h"
#include "file.h"
#include "journal_file.h"
#include "le.h"
#include "manifest.h"
#include "qs_test_dirs.h"
#include "qs_test_faults.h"

static qs_env *env;
static qs_dir *root;

static void open_root(void)
{
    env = qsi_env_mem_create(1);
    root = qs_test_make_root(env, "store");
}

static void close_root(void)
{
    env->dir_close(env, root);
    qsi_env_mem_destroy(env);
}

static void run_between(void (*test)(void))
{
    open_root();
    test();
    close_root();
}
#define ROOT_TEST(name) QS_TEST_BY(run_between, name, (void))

static void fill(struct qsi_manifest *manifest, uint32_t sessions)
{
    memset(manifest, 0, sizeof *manifest);
    memcpy(manifest->uuid, "0123456789abcdef", QSI_UUID_BYTES);
    manifest->segment_entries = 16384;
    manifest->clean = sessions % 2 == 0;
    manifest->failed = sessions % 3 == 0;
    manifest->end_lsn = UINT64_C(1) << 50;
    if (sessions > 1) {
        manifest->checkpoint_number = (UINT64_C(1) << 40) + sessions;
        manifest->checkpoint_lsn = (UINT64_C(1) << 50) - sessions;
        manifest->checkpoint_bytes = (UINT64_C(1) << 33) + sessions;
        manifest->checkpoint_crc = 0xfedcba98;
    }
    for (uint32_t i = 0; i < sessions; i++) {
        struct qsi_session session = {UINT64_C(0xabcdef0123456789) * (i + 1), 1000 * i, i + 1,
                                      i % 2 == 1};

        QS_CHECK_OK(qsi_manifest_add_session(manifest, &session));
        manifest->session_number = 1000 + i;
    }
}

static void check_equal(const struct qsi_manifest *a, const struct qsi_manifest *b)
{
    QS_CHECK(memcmp(a->uuid, b->uuid, QSI_UUID_BYTES) == 0);
    QS_CHECK(a->segment_entries == b->segment_entries && a->clean == b->clean &&
             a->failed == b->failed && a->end_lsn == b->end_lsn &&
             a->session_number == b->session_number && a->session_count == b->session_count);
    QS_CHECK(a->checkpoint_number == b->checkpoint_number &&
             a->checkpoint_lsn == b->checkpoint_lsn && a->checkpoint_bytes == b->checkpoint_bytes &&
             a->checkpoint_crc == b->checkpoint_crc);
    for (uint32_t i = 0; i < a->session_count; i++) {
        QS_CHECK(a->sessions[i].salt == b->sessions[i].salt &&
                 a->sessions[i].base_lsn == b->sessions[i].base_lsn &&
                 a->sessions[i].first_file == b->sessions[i].first_file &&
                 a->sessions[i].after_crash == b->sessions[i].after_crash);
    }
}

ROOT_TEST(test_manifest_round_trips)
{
    static const uint32_t counts[] = {0, 1, 2, 3, 6, 500};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct qsi_manifest written, read;

        fill(&written, counts[i]);
        QS_CHECK_OK(qsi_manifest_store(&written, env, root, QS_ERROR));
        QS_CHECK_OK(qsi_manifest_load(&read, env, root, QS_ERROR));
        check_equal(&written, &read);
        QS_CHECK(qsi_manifest_is_ended(&read) == (written.clean || written.failed));
        qsi_manifest_fini(&written);
        qsi_manifest_fini(&read);
        qsi_manifest_fini(&read);
    }
}

ROOT_TEST(test_a_missing_manifest_is_told_apart)
{
    struct qsi_manifest manifest;

    QS_CHECK_STATUS(QS_ENOENT, qsi_manifest_load(&manifest, env, root, QS_ERROR));
    QS_CHECK(manifest.sessions == NULL);
}

static qs_status load_bytes(const uint8_t *data, size_t bytes)
{
    struct qsi_manifest manifest;
    qs_status status;

    QS_CHECK_OK(qsi_file_replace(env, root, "MANIFEST", data, bytes, QS_ERROR));
    status = qsi_manifest_load(&manifest, env, root, QS_ERROR);
    QS_CHECK(status == QS_OK || manifest.sessions == NULL);
    qsi_manifest_fini(&manifest);
    return status;
}

static void reseal(uint8_t *data, size_t bytes)
{
    qsi_put_u32(data + bytes - 4, qs_crc32c(0, data, bytes - 4));
}

ROOT_TEST(test_every_damage_is_refused)
{
    struct qsi_manifest manifest;
    uint8_t *data = NULL, *longer;
    size_t bytes = 0;

    fill(&manifest, 3);
    QS_CHECK_OK(qsi_manifest_store(&manifest, env, root, QS_ERROR));
    QS_CHECK_OK(qsi_file_load(env, root, "MANIFEST", 10000, &data, &bytes, QS_ERROR));
    QS_CHECK(load_bytes(data, bytes) == QS_OK);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        QS_CHECK(load_bytes(data, bytes) == QS_ECORRUPT);
        QS_CHECK(strcmp(QS_ERROR->path, "MANIFEST") == 0);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t shorter = 0; shorter < bytes; shorter++) {
        QS_CHECK(load_bytes(data, shorter) == QS_ECORRUPT);
        if (shorter > 60) { /* with a checksum that is right, too */
            QS_TEST_FREED uint8_t *cut = malloc(shorter);

            QS_CHECK(cut != NULL);
            memcpy(cut, data, shorter);
            reseal(cut, shorter);
            QS_CHECK(load_bytes(cut, shorter) == QS_ECORRUPT);
        }
    }
    longer = calloc(1, bytes + 24);
    QS_CHECK(longer != NULL);
    memcpy(longer, data, bytes - 4);
    reseal(longer, bytes + 24);
    QS_CHECK(load_bytes(longer, bytes + 24) == QS_ECORRUPT);
    free(longer);
    for (int i = 0; i < 2; i++) { /* of a later version: not damage */
        uint32_t good = qsi_get_u32(data + 8 + 4 * i);

        qsi_put_u32(data + 8 + 4 * i, good + 1);
        reseal(data, bytes);
        QS_CHECK(load_bytes(data, bytes) == QS_EVERSION);
        qsi_put_u32(data + 8 + 4 * i, good);
    }
    /* aligned columns, streams, what is written directly or adopted: older builds, which misread
     * them, refuse the store */
    QS_CHECK(qsi_get_u32(data + 12) == 15);
    qsi_put_u32(data + 12, 0); /* before there were any */
    reseal(data, bytes);
    QS_CHECK(load_bytes(data, bytes) == QS_OK);
    qsi_put_u32(data + 16, 99); /* features that may be ignored */
    reseal(data, bytes);
    QS_CHECK(load_bytes(data, bytes) == QS_OK);
    qsi_put_u32(data + 52, 0); /* no session */
    reseal(data, bytes);
    QS_CHECK(load_bytes(data, bytes) == QS_ECORRUPT);
    qsi_put_u32(data + 52, UINT32_MAX);
    reseal(data, bytes);
    QS_CHECK(load_bytes(data, bytes) == QS_ECORRUPT);
    free(data);
    qsi_manifest_fini(&manifest);
}

static qs_status load_changed(const struct qsi_manifest *manifest)
{
    struct qsi_manifest read;
    qs_status status;

    QS_CHECK_OK(qsi_manifest_store(manifest, env, root, QS_ERROR));
    status = qsi_manifest_load(&read, env, root, QS_ERROR);
    QS_CHECK(status == QS_OK ||
             (strcmp(QS_ERROR->path, "MANIFEST") == 0 && QS_ERROR->offset == 64));
    qsi_manifest_fini(&read);
    return status;
}

ROOT_TEST(test_a_checkpoint_outside_the_journal_is_refused)
{
    struct qsi_manifest manifest;

    fill(&manifest, 2);
    manifest.sessions[0].base_lsn = 500; /* the other one begins at 1000 */
    manifest.end_lsn = 2000;
    manifest.failed = false;
    for (int clean = 0; clean < 2; clean++) {
        manifest.clean = clean != 0;
        manifest.checkpoint_number = 1;
        manifest.checkpoint_lsn = 500;
        QS_CHECK(load_changed(&manifest) == QS_OK);
        manifest.checkpoint_lsn = 499;
        QS_CHECK(load_changed(&manifest) == QS_ECORRUPT);
        manifest.checkpoint_lsn = 2000;
        QS_CHECK(load_changed(&manifest) == QS_OK);
        manifest.checkpoint_lsn = 2001; /* the end is not known before it is written down */
        QS_CHECK(load_changed(&manifest) == (clean != 0 ? QS_ECORRUPT : QS_OK));
        manifest.checkpoint_number = 0;
        QS_CHECK(load_changed(&manifest) == QS_OK);
        manifest.checkpoint_lsn = UINT64_MAX - 7;
        QS_CHECK(load_changed(&manifest) == QS_ECORRUPT);
    }
    qsi_manifest_fini(&manifest);
}

ROOT_TEST(test_beginning_at_a_later_place_leaves_one_session)
{
    static const uint32_t counts[] = {1, 2, 500};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct qsi_session start = {77, 1000 * counts[i], 600, false};
        struct qsi_manifest manifest, read;

        fill(&manifest, counts[i]);
        qsi_manifest_begin_at(&manifest, &start);
        QS_CHECK(manifest.session_count == 1);
        QS_CHECK(manifest.sessions[0].salt == 77 && manifest.sessions[0].first_file == 600);
        QS_CHECK_OK(qsi_manifest_store(&manifest, env, root, QS_ERROR));
        QS_CHECK_OK(qsi_manifest_load(&read, env, root, QS_ERROR));
        check_equal(&manifest, &read);
        QS_CHECK_OK(qsi_manifest_add_session(&manifest, &start)); /* and it can grow again */
        QS_CHECK(manifest.session_count == 2);
        qsi_manifest_fini(&manifest);
        qsi_manifest_fini(&read);
    }
}

/* Any call failing leaves the old manifest or the new one. */
QS_FAULT_TEST(test_storing_is_atomic)
{
    for (struct qs_test_sweep sweep = {.how = how}; qs_test_sweep_on(&sweep);) {
        struct qsi_manifest old, new, read;
        qs_env *faulty = qs_test_sweep_env(&sweep);
        qs_dir *dir = qs_test_make_root(faulty, "store");
        qs_status status;

        fill(&old, 2);
        fill(&new, 5);
        QS_CHECK_OK(qsi_manifest_store(&old, faulty, dir, QS_ERROR));
        qs_test_sweep_calls(&sweep, faulty);
        status = qsi_manifest_store(&new, faulty, dir, QS_ERROR);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(sweep.has_failed || status == QS_OK);
        QS_CHECK_OK(qsi_manifest_load(&read, faulty, dir, QS_ERROR));
        check_equal(&read,
                    read.session_count == old.session_count && status != QS_OK ? &old : &new);
        qsi_manifest_fini(&old);
        qsi_manifest_fini(&new);
        qsi_manifest_fini(&read);
        faulty->dir_close(faulty, dir);
    }
}

ROOT_TEST(test_loading_may_fail_for_want_of_memory)
{
    struct qsi_manifest manifest;

    fill(&manifest, 3);
    QS_CHECK_OK(qsi_manifest_store(&manifest, env, root, QS_ERROR));
    qsi_manifest_fini(&manifest);
    for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
        qs_status status;

        qs_test_sweep_allocations(&sweep);
        status = qsi_manifest_load(&manifest, env, root, QS_ERROR);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_ENOMEM : QS_OK));
        QS_CHECK(status == QS_OK || manifest.sessions == NULL);
        qsi_manifest_fini(&manifest);
    }
}

/* ---- names and headers of journal files ---- */

QS_TEST(test_names_of_journal_files)
{
    static const char *const foreign[] = {
        "",     "1.jnl",          "000000001.jnl",  "00000000001.jnl", "0000000001.jnl.bak",
        "x",    "0000000001.JNL", "000000000a.jnl", "0000000000.jnl",  "4294967295.jnl",
        ".jnl", "-000000001.jnl", " 000000001.jnl", "9999999999.jnl",  "0000000001jnl.",
    };
    static const uint32_t numbers[] = {1, 9, 10, 123456789, UINT32_MAX - 1};
    char name[QSI_JOURNAL_NAME_BYTES];
    uint32_t number;

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        qsi_journal_name(name, numbers[i]);
        QS_CHECK(strlen(name) == 14 && qsi_journal_number(name, &number) && number == numbers[i]);
    }
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (qsi_journal_number(foreign[i], &number)) {
            fprintf(stderr, "'%s' passes as %u\n", foreign[i], number);
            QS_CHECK(!"foreign name");
        }
    }
}

QS_TEST(test_headers_of_journal_files)
{
    struct qsi_journal_header header = {
        .number = 7, .salt = 11, .next_salt = 12, .base_lsn = 13, .index = 2, .session = 3};
    struct qsi_journal_header read;
    uint8_t page[QSI_JOURNAL_FIELD_BYTES], uuid[QSI_UUID_BYTES];

    memcpy(header.uuid, "0123456789abcdef", QSI_UUID_BYTES);
    memcpy(uuid, header.uuid, sizeof uuid);
    qsi_journal_header_encode(page, &header);
    QS_CHECK(qsi_journal_header_decode(&read, page, uuid, 7, 11));
    QS_CHECK(read.number == 7 && read.salt == 11 && read.next_salt == 12 && read.base_lsn == 13 &&
             read.index == 2 && read.session == 3);
    QS_CHECK(qsi_journal_header_salt(page) == 11);
    QS_CHECK(!qsi_journal_header_decode(&read, page, uuid, 8, 11));
    QS_CHECK(!qsi_journal_header_decode(&read, page, uuid, 7, 12));
    uuid[3] ^= 1;
    QS_CHECK(!qsi_journal_header_decode(&read, page, uuid, 7, 11));
    uuid[3] ^= 1;
    for (int bit = 0; bit < 8 * QSI_JOURNAL_FIELD_BYTES; bit++) {
        page[bit / 8] ^= (uint8_t)(1u << bit % 8);
        QS_CHECK(!qsi_journal_header_decode(&read, page, uuid, 7, 11));
        page[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    memset(page, 0, sizeof page);
    QS_CHECK(!qsi_journal_header_decode(&read, page, uuid, 0, 0));
}

QS_TEST(test_marks_of_journal_files)
{
    uint8_t mark[QSI_JOURNAL_MARK_BYTES];

    qsi_journal_mark_encode(mark, 11, 12345);
    QS_CHECK(qsi_journal_mark_decode(mark, 11) == 12345 && qsi_journal_mark_decode(mark, 12) == 0);
    for (int bit = 0; bit < 8 * QSI_JOURNAL_MARK_BYTES; bit++) {
        mark[bit / 8] ^= (uint8_t)(1u << bit % 8);
        QS_CHECK(qsi_journal_mark_decode(mark, 11) == 0);
        mark[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    QS_CHECK(qsi_journal_mark_at(0) != qsi_journal_mark_at(1));
    QS_CHECK(qsi_journal_mark_at(1) < QSI_JOURNAL_HEADER_BYTES);
    QS_CHECK(qsi_journal_mark_at(2) == qsi_journal_mark_at(0));
}
