/* Reading block files beside reading the same bytes, in one run and on one file system.
 *
 *   raw     pread of the file's bytes, block by block, into one buffer
 *   reader  qsi_block_reader_read of each block into one chunk: checked, not copied
 *   cache   qsi_block_cache_read of each block, as readers of streams do
 *
 * They take turns, on a file that the kernel has in memory (warm: the thread's own time, the least
 * of some turns) and on one that it has not (cold: elapsed time, their median).  Rows have 100
 * bytes on average; with "rows" their bodies are of 20 bytes, so that what is done for a row shows.
 *
 * usage: bench_blocks DIR [rounds [MiB [rows]]]; prints one JSON object a line for each round. */
#define _GNU_SOURCE
#include "block_build.h"
#include "block_cache.h"
#include "block_read.h"
#include "block_write.h"
#include "messages_write.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OWNER 1u
#define ROWS 4096u /* of a record that was published */
#define TURNS 5u   /* in a round */

static const uint8_t uuid[16] = "bench_blocks";

static double seconds(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void check(qs_status status, const qs_error *error, const char *what)
{
    if (status != QS_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, qs_status_name(status), error->text);
        exit(1);
    }
}

static void need(bool holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

struct bench {
    qs_dir *dir;
    char path[4096]; /* of the directory */
    struct qsi_block_dir *blocks;
    struct qsi_block_file file;
    struct qsi_block_entry *entries;
    uint32_t bytes_max; /* of a block */
    uint64_t bytes;     /* of all of them */
    struct qsi_block_cache *cache;
    int fd;
};

/* ---- the file ---- */

/* A record of ROWS rows with two routes and bodies of half to one and a half times body_bytes. */
static uint8_t *make_record(uint32_t body_bytes)
{
    static const uint32_t destination = 0;
    struct qsi_messages_layout layout = {.row_count = ROWS,
                                         .route_count = 2,
                                         .destination_count = 1,
                                         .routes_bytes = 2 * qsi_route_bytes(6, 2, 1),
                                         .properties_bytes = 0,
                                         .bodies_bytes = (uint64_t)ROWS * 2 * body_bytes};
    static uint32_t codes[ROWS];
    qs_error error = {0};
    uint64_t at = 0;
    uint32_t end = 0;
    uint8_t *record;

    check(qsi_messages_layout(&layout, &error), &error, "layout");
    record = calloc(1, layout.record_bytes);
    need(record != NULL, "record");
    qsi_messages_begin(record, &layout);
    qsi_messages_put_time(record, 1);
    qsi_messages_put_destination(record, 0, OWNER, 0, ROWS);
    for (uint32_t route = 0; route < 2; route++) {
        qsi_messages_put_route(record, &layout, route, &at, QSI_SLICE_LITERAL("events"),
                               qsi_slice_make(route == 0 ? "eu" : "us", 2), &destination, 1);
    }
    for (uint32_t row = 0; row < ROWS; row++) {
        codes[row] = row % 7 == 0;
        qsi_put_u32(qsi_messages_body_offsets_place(record, &layout) + 4 * (size_t)row, end);
        end += body_bytes / 2 + row * 2654435761u % (body_bytes + 1);
    }
    qsi_put_u32(qsi_messages_body_offsets_place(record, &layout) + 4 * (size_t)ROWS, end);
    for (uint32_t i = 0; i < end; i++) {
        qsi_messages_bodies_place(record, &layout)[i] = (uint8_t)(i * 31 + (i >> 8));
    }
    qsi_messages_put_row_routes(record, &layout, codes);
    return record;
}

static void put_block(struct bench *bench, struct qsi_block_writer *writer,
                      struct qsi_block_builder *builder, uint64_t *offset_io)
{
    uint32_t i = bench->file.block_count;
    struct qsi_built_block block;
    qs_error error = {0};

    check(qsi_block_builder_finish(builder, OWNER, *offset_io, &block, &error), &error, "finish");
    bench->entries = realloc(bench->entries, (i + 1) * sizeof *bench->entries);
    need(bench->entries != NULL, "entries");
    check(qsi_block_writer_put(writer, &block, &bench->entries[i], &error), &error, "put");
    *offset_io += block.rows;
    bench->bytes += block.bytes;
    bench->bytes_max = block.bytes > bench->bytes_max ? block.bytes : bench->bytes_max;
    qsi_chunk_unref(block.chunk);
}

static void make_file(struct bench *bench, uint64_t bytes, uint32_t body_bytes)
{
    struct qsi_block_build_options options = {0};
    struct qsi_block_builder *builder = qsi_block_builder_create(&options);
    uint8_t *record = make_record(body_bytes);
    struct qsi_block_writer *writer;
    uint64_t offset = 0, time_us = 1;
    qs_error error = {0};

    need(builder != NULL, "builder");
    bench->file = (struct qsi_block_file){.owner = OWNER};
    check(qsi_block_writer_begin(&writer, bench->blocks, &bench->file, false, &error), &error,
          "begin");
    while (bench->file.end < bytes) {
        uint32_t first = 0, taken = 1;
        for (time_us++; first < ROWS; first += taken) {
            struct qsi_row_stretch stretch = {record, first, ROWS - first};
            check(qsi_block_builder_add(builder, &stretch, time_us, &taken, &error), &error, "add");
            if (taken < stretch.count) {
                put_block(bench, writer, builder, &offset);
            }
        }
    }
    qsi_block_writer_close(writer);
    check(qsi_block_file_sync(bench->blocks, &bench->file, &error), &error, "sync");
    qsi_block_builder_destroy(builder);
    free(record);
}

static void open_bench(struct bench *bench, const char *dir, uint64_t bytes, uint32_t body_bytes)
{
    struct qsi_block_cache_options options = {0};
    qs_env *env = qs_env_posix();
    char path[QSI_BLOCK_PATH_BYTES], whole[8192];
    qs_error error = {0};
    bool created;

    *bench = (struct bench){.fd = -1};
    snprintf(bench->path, sizeof bench->path, "%s/blocks.%d", dir, (int)getpid());
    check(env->dir_open_root(env, bench->path, true, &bench->dir, &created, &error), &error, "dir");
    check(qsi_block_dir_open(&bench->blocks, env, bench->dir, uuid, "blocks", "str", &error),
          &error, "blocks");
    check(qsi_block_cache_create(&bench->cache, bench->blocks, &options, &error), &error, "cache");
    make_file(bench, bytes, body_bytes);
    qsi_block_file_path(path, bench->blocks, &bench->file);
    snprintf(whole, sizeof whole, "%s%s", bench->path, strchr(path, '/'));
    bench->fd = open(whole, O_RDONLY);
    need(bench->fd >= 0, whole);
}

static void close_bench(struct bench *bench)
{
    qs_error error = {0};

    close(bench->fd);
    qsi_block_cache_destroy(bench->cache);
    check(qsi_block_file_remove(bench->blocks, &bench->file, &error), &error, "remove");
    qsi_block_dir_close(bench->blocks);
    qs_env_posix()->dir_close(qs_env_posix(), bench->dir);
    free(bench->entries);
    need(rmdir(bench->path) == 0, bench->path);
}

/* ---- reading ---- */

static void read_raw(struct bench *bench)
{
    uint8_t *data = malloc(bench->bytes_max);

    for (uint32_t i = 0; i < bench->file.block_count; i++) {
        const struct qsi_block_entry *entry = &bench->entries[i];
        need(pread(bench->fd, data, entry->bytes, (off_t)entry->at) == (ssize_t)entry->bytes,
             "pread");
    }
    free(data);
}

static void read_reader(struct bench *bench)
{
    struct qsi_chunk *chunk = qsi_chunk_create(qsi_block_chunk_bytes(bench->bytes_max));
    struct qsi_block_reader *reader;
    qs_error error = {0};

    need(chunk != NULL, "chunk");
    check(qsi_block_reader_open(&reader, bench->blocks, &bench->file, &error), &error, "open");
    for (uint32_t i = 0; i < bench->file.block_count; i++) {
        struct qsi_block_view view;
        check(qsi_block_reader_read(reader, &bench->entries[i], chunk, &view, &error), &error,
              "read");
        chunk = view.chunk; /* and the view's reference with it */
    }
    qsi_block_reader_close(reader);
    qsi_chunk_unref(chunk);
}

/* The file is larger than the cache, so nothing that an earlier pass read is found. */
static void read_cache(struct bench *bench)
{
    qs_error error = {0};

    for (uint32_t i = 0; i < bench->file.block_count; i++) {
        struct qsi_block_view view;
        check(qsi_block_cache_read(bench->cache, &bench->file, &bench->entries[i], &view, &error),
              &error, "read");
        qsi_block_view_fini(&view);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

typedef void way(struct bench *bench);
static way *const ways[] = {read_raw, read_reader, read_cache};
#define WAYS (sizeof ways / sizeof ways[0])

/* Bytes in a second of each way. */
static void run_turns(struct bench *bench, bool is_cold, double rates_out[WAYS])
{
    clockid_t clock = is_cold ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    double times[WAYS][TURNS];

    for (uint32_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t i = 0; i < WAYS; i++) {
            double began;
            if (is_cold) {
                need(posix_fadvise(bench->fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "fadvise");
            }
            began = seconds(clock);
            ways[i](bench);
            times[i][turn] = seconds(clock) - began;
        }
    }
    for (uint32_t i = 0; i < WAYS; i++) {
        qsort(times[i], TURNS, sizeof times[i][0], compare);
        rates_out[i] = (double)bench->bytes / times[i][is_cold ? TURNS / 2 : 0];
    }
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : ".";
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    uint64_t bytes = (uint64_t)(argc > 3 ? atoi(argv[3]) : 256) << 20;
    uint32_t body_bytes = argc > 4 && strcmp(argv[4], "rows") == 0 ? 20 : 100;
    double warm[WAYS], cold[WAYS];
    struct bench bench;

    open_bench(&bench, dir, bytes, body_bytes);
    read_raw(&bench);
    for (int round = 0; round < rounds; round++) {
        run_turns(&bench, false, warm);
        run_turns(&bench, true, cold);
        printf("{\"round\": %d, \"blocks\": %u, \"block_bytes\": %u, "
               "\"warm_raw_bytes_per_s\": %.0f, \"warm_reader_of_raw\": %.2f, "
               "\"warm_cache_of_raw\": %.2f, \"cold_raw_bytes_per_s\": %.0f, "
               "\"cold_reader_of_raw\": %.2f, \"cold_cache_of_raw\": %.2f}\n",
               round, bench.file.block_count, bench.bytes_max, warm[0], warm[1] / warm[0],
               warm[2] / warm[0], cold[0], cold[1] / cold[0], cold[2] / cold[0]);
        fflush(stdout);
    }
    close_bench(&bench);
    return 0;
}
