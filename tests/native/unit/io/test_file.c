/* Durable file operations: transfers through an environment that does half of everything, and whole
 * files. */
#include "file_fixture.h"

#define PART_COUNT 3000

static qs_file *create_empty(const char *name)
{
    qs_file *file;

    QS_CHECK_OK(qsi_file_create(env, root, name, 0, QSI_FILL_ZEROS, &file, QS_ERROR));
    return file;
}

/* -- transfers -------------------------------------------------------------------------------- */

/* Parts of 0 to 6 bytes, and what they make together. */
static uint8_t bytes_of_parts[PART_COUNT * 6];
static qs_part many_parts[PART_COUNT];

static size_t make_parts(size_t part_count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < part_count; i++) {
        many_parts[i] = (qs_part){.data = bytes_of_parts + bytes, .bytes = i * 5 % 7};
        bytes += many_parts[i].bytes;
    }
    for (size_t i = 0; i < bytes; i++) {
        bytes_of_parts[i] = (uint8_t)(i % 253);
    }
    return bytes;
}

static void write_and_check(size_t part_count)
{
    static uint8_t content[sizeof bytes_of_parts + 100];
    static qs_part before[PART_COUNT];
    size_t bytes = make_parts(part_count);
    qs_file *file = create_empty("a");
    size_t count;

    memcpy(before, many_parts, sizeof before);
    QS_CHECK_OK(qsi_file_write(env, file, many_parts, part_count, 50, QS_ERROR));
    QS_CHECK(memcmp(before, many_parts, sizeof before) == 0); /* they belong to the caller */
    QS_CHECK_OK(qsi_file_read(env, file, content, sizeof content, 50, &count, QS_ERROR));
    QS_CHECK(count == bytes && memcmp(content, bytes_of_parts, bytes) == 0);
    env->close(env, file);
    QS_CHECK_OK(env->remove(env, root, "a", QS_ERROR));
}

static const size_t part_counts[] = {0, 1, 2, 3, 64, 65, 66, 1000, 1024, 1025, PART_COUNT};

FILE_TEST(test_all_parts_are_written_whatever_the_device_takes_at_once)
{
    const enum qsi_fault_how ways[] = {QSI_FAULT_SHORT, QSI_FAULT_EINTR};

    for (size_t i = 0; i < COUNT_OF(part_counts); i++) {
        qsi_env_fault_arm(env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
        write_and_check(part_counts[i]);
        for (size_t way = 0; way < COUNT_OF(ways); way++) {
            qsi_env_fault_arm(env, QSI_FAULT_WRITE, ways[way], 1, true);
            write_and_check(part_counts[i]);
            qsi_env_fault_arm(env, QSI_FAULT_READ, ways[way], 1, true);
            write_and_check(part_counts[i]);
        }
    }
}

FILE_TEST(test_thousand_parts_are_one_write)
{
    qs_file *file = create_empty("a");

    make_parts(1000);
    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_EIO, 0, false);
    QS_CHECK_OK(qsi_file_write(env, file, many_parts, 1000, 0, QS_ERROR));
    QS_CHECK(qsi_env_fault_calls(env) == 1);
    QS_CHECK_OK(qsi_file_write(env, file, many_parts, 0, 0, QS_ERROR));
    QS_CHECK(qsi_env_fault_calls(env) == 1);
    env->close(env, file);
}

/* What begin_sync was told of: stretches behind each other. */
static uint64_t begun_from, begun_to, begun_count;

static void note_begin_sync(qs_env *any, qs_file *file, uint64_t offset, uint64_t bytes)
{
    (void)any;
    (void)file;
    begun_from = begun_count == 0 ? offset : begun_from;
    QS_CHECK(bytes > 0 && (begun_count == 0 || offset == begun_to));
    begun_to = offset + bytes;
    begun_count++;
}

FILE_TEST(test_stream_writes_all_and_has_the_device_begin_before_its_end)
{
    enum { BYTES = 3 << 20, FIRST = 100, SECOND = 2000000, OFFSET = 4096 };
    const enum qsi_fault_how ways[] = {QSI_FAULT_SHORT, QSI_FAULT_EINTR};
    qs_env noting = *env;
    uint8_t *bytes = qsi_alloc(BYTES), *content = qsi_alloc(BYTES);
    const qs_part parts[] = {{bytes, FIRST},
                             {bytes + FIRST, 0},
                             {bytes + FIRST, SECOND},
                             {bytes + FIRST + SECOND, BYTES - FIRST - SECOND}};
    size_t count;

    QS_CHECK(bytes != NULL && content != NULL);
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)(i % 251);
    }
    noting.begin_sync = note_begin_sync;
    for (size_t way = 0; way <= COUNT_OF(ways); way++) {
        qs_file *file = create_empty("a");
        if (way < COUNT_OF(ways)) {
            qsi_env_fault_arm(env, QSI_FAULT_WRITE, ways[way], 1, true);
        } else {
            qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_EIO, 0, false);
        }
        begun_count = 0;
        QS_CHECK_OK(qsi_file_stream(&noting, file, parts, COUNT_OF(parts), OFFSET, QS_ERROR));
        QS_CHECK(begun_from == OFFSET && begun_to < OFFSET + BYTES && begun_count >= 5);
        QS_CHECK_OK(qsi_file_read(env, file, content, BYTES, OFFSET, &count, QS_ERROR));
        QS_CHECK(count == BYTES && memcmp(content, bytes, BYTES) == 0);
        env->close(env, file);
        QS_CHECK_OK(env->remove(env, root, "a", QS_ERROR));
    }
    qsi_free(bytes);
    qsi_free(content);
}

static qs_status take_nothing(qs_env *any, qs_file *file, const qs_part *parts, size_t part_count,
                              uint64_t offset, size_t *written_out, qs_error *error)
{
    (void)any;
    (void)file;
    (void)parts;
    (void)part_count;
    (void)offset;
    (void)error;
    *written_out = 0;
    return QS_OK;
}

FILE_TEST(test_device_that_takes_nothing_is_an_error_and_no_endless_loop)
{
    qs_env stuck = {.version = QS_ENV_VERSION, .write = take_nothing};
    qs_part part = {"x", 1};

    QS_CHECK_STATUS(QS_EIO, qsi_file_write(&stuck, NULL, &part, 1, 0, QS_ERROR));
}

FILE_TEST(test_read_stops_at_the_end)
{
    qs_file *file = create_empty("a");
    qs_part part = {"data", 4};
    char text[10];
    size_t count;

    QS_CHECK_OK(qsi_file_write(env, file, &part, 1, 0, QS_ERROR));
    QS_CHECK_OK(qsi_file_read(env, file, text, sizeof text, 1, &count, QS_ERROR));
    QS_CHECK(count == 3 && memcmp(text, "ata", 3) == 0);
    QS_CHECK_OK(qsi_file_read(env, file, text, sizeof text, 100, &count, QS_ERROR));
    QS_CHECK(count == 0);
    qsi_env_fault_arm(env, QSI_FAULT_READ, QSI_FAULT_EIO, 1, false);
    QS_CHECK_STATUS(QS_EIO, qsi_file_read(env, file, text, 4, 0, &count, QS_ERROR));
    QS_CHECK(count == 0);
    env->close(env, file);
}

FILE_TEST(test_write_that_fails_half_way_is_reported)
{
    qs_file *file = create_empty("a");
    qs_part part = {"data", 4};

    qsi_env_fault_arm(env, QSI_FAULT_WRITE, QSI_FAULT_SHORT_EIO, 1, false);
    QS_CHECK_STATUS(QS_EIO, qsi_file_write(env, file, &part, 1, 0, QS_ERROR));
    env->close(env, file);
}

FILE_TEST(test_failed_sync_is_not_repeated)
{
    qs_file *file = create_empty("a");

    qsi_env_fault_arm(env, QSI_FAULT_SYNC, QSI_FAULT_EINTR, 1, false);
    QS_CHECK_STATUS(QS_EIO, qsi_file_sync(env, file, QS_ERROR));
    QS_CHECK(qsi_env_fault_calls(env) == 1);
    qsi_env_fault_arm(env, QSI_FAULT_DIR_SYNC, QSI_FAULT_EINTR, 1, false);
    QS_CHECK_STATUS(QS_EIO, qsi_dir_sync(env, root, QS_ERROR));
    QS_CHECK(qsi_env_fault_calls(env) == 1);
    env->close(env, file);
}

FILE_TEST(test_interrupted_allocation_is_repeated)
{
    qs_file *file = create_empty("a");
    uint64_t bytes;

    qsi_env_fault_arm(env, QSI_FAULT_ALLOCATE, QSI_FAULT_EINTR, 1, false);
    QS_CHECK_OK(qsi_file_allocate(env, file, 100, QS_ERROR));
    QS_CHECK_OK(env->size(env, file, &bytes, QS_ERROR));
    QS_CHECK(bytes == 100);
    env->close(env, file);
}

/* -- whole files ------------------------------------------------------------------------------ */

FILE_TEST(test_created_file_is_durable_zeros)
{
    const size_t sizes[] = {0, 1, 65536, 65537, (1u << 20) + 1, 3u << 20};

    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        qs_file *file;
        qs_file *second;
        qs_env *disk;

        QS_CHECK_OK(qsi_file_create(env, root, "a", sizes[i],
                                    i % 2 == 0 ? QSI_FILL_ZEROS : QSI_FILL_RESERVE, &file,
                                    QS_ERROR));
        QS_CHECK_STATUS(QS_EEXIST,
                        qsi_file_create(env, root, "a", 1, QSI_FILL_ZEROS, &second, QS_ERROR));
        QS_CHECK(second == NULL);
        disk = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, seed);
        QS_CHECK(has_zeros(disk, "a", sizes[i]));
        qsi_env_mem_destroy(disk);
        env->close(env, file);
        QS_CHECK_OK(env->remove(env, root, "a", QS_ERROR));
        QS_CHECK_OK(qsi_dir_sync(env, root, QS_ERROR));
    }
}

FILE_TEST(test_replace_makes_and_replaces)
{
    QS_CHECK_OK(qsi_file_replace(env, root, "cfg", "old", 3, QS_ERROR));
    QS_CHECK(has_text(sim, "cfg", "old"));
    env->close(env, create_empty("cfg.tmp")); /* what a crash left */
    QS_CHECK_OK(qsi_file_replace(env, root, "cfg", "newer", 5, QS_ERROR));
    QS_CHECK(has_text(sim, "cfg", "newer") && !has_name(sim, "cfg.tmp"));
    QS_CHECK_OK(qsi_file_replace(env, root, "cfg", NULL, 0, QS_ERROR));
    QS_CHECK(has_text(sim, "cfg", ""));
}

FILE_TEST(test_replace_refuses_a_name_without_room_for_its_suffix)
{
    char name[QS_NAME_BYTES_MAX + 1] = {0};

    memset(name, 'n', QS_NAME_BYTES_MAX - 3);
    QS_CHECK_STATUS(QS_EINVAL, qsi_file_replace(env, root, name, "x", 1, QS_ERROR));
    QS_CHECK(!has_name(sim, name));
}

FILE_TEST(test_load_refuses_what_is_too_large)
{
    uint8_t *data;
    size_t bytes;

    QS_CHECK_OK(qsi_file_replace(env, root, "cfg", "12345", 5, QS_ERROR));
    QS_CHECK_OK(qsi_file_load(env, root, "cfg", 5, &data, &bytes, QS_ERROR));
    QS_CHECK(bytes == 5 && memcmp(data, "12345", 5) == 0);
    qsi_free(data);
    QS_CHECK_STATUS(QS_ECORRUPT, qsi_file_load(env, root, "cfg", 4, &data, &bytes, QS_ERROR));
    QS_CHECK(data == NULL && QS_ERROR->offset == 4 && strcmp(QS_ERROR->path, "cfg") == 0);
    QS_CHECK_STATUS(QS_ENOENT, qsi_file_load(env, root, "no", 4, &data, &bytes, QS_ERROR));
}

static bool has_directory(qs_env *disk, const char *name)
{
    qs_dir *top;
    qs_dir *dir;
    bool created;
    qs_status status;

    QS_CHECK_OK(disk->dir_open_root(disk, "/r", false, &top, &created, QS_ERROR));
    status = disk->dir_open(disk, top, name, false, &dir, &created, QS_ERROR);
    QS_CHECK(status == QS_OK || status == QS_ENOENT);
    disk->dir_close(disk, dir);
    disk->dir_close(disk, top);
    return status == QS_OK;
}

FILE_TEST(test_directory_is_durable_once_it_is_open)
{
    qs_env *disk;
    qs_dir *dir;

    qsi_env_fault_arm(env, QSI_FAULT_DIR_SYNC, QSI_FAULT_EIO, 0, false);
    QS_CHECK_OK(qsi_dir_open(env, root, "q", &dir, QS_ERROR));
    QS_CHECK(qsi_env_fault_calls(env) == 1);
    env->dir_close(env, dir);
    disk = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, seed);
    QS_CHECK(has_directory(disk, "q"));
    qsi_env_mem_destroy(disk);
    QS_CHECK_OK(qsi_dir_open(env, root, "q", &dir, QS_ERROR));
    QS_CHECK(qsi_env_fault_calls(env) == 1); /* it was there already */
    env->dir_close(env, dir);
    qsi_env_fault_arm(env, QSI_FAULT_DIR_SYNC, QSI_FAULT_EIO, 1, false);
    QS_CHECK_STATUS(QS_EIO, qsi_dir_open(env, root, "r", &dir, QS_ERROR));
    QS_CHECK(dir == NULL);
}
