/* Backlogs that do not fit in memory: what they cost in memory, on disk and in time.
 *
 *   raw       the same bytes by pwrite, 1 MiB and one fdatasync at a time, and read back; nothing else
 *   backlog   publishes a backlog, is killed, opens again, drains it from the disk
 *   fanout    1 KiB to 10 queues beside the same messages to one
 *   churn     publishes and consumes through a store whose backlog stays near zero
 *   sparse    consumes all but one message in every 16384
 *   pause     publish + confirm with checkpoints going on and without, interleaved
 *   recovery  open time over journal size, and over the backlog behind a checkpoint
 *
 * usage: bench_paging DIR [--quick] [--messages N] [WORK...]; no WORK: all of them.
 *
 * Prints one JSON object a line for each measurement.  Everything that holds a store is a process of its own.  Memory is that
 * process's resident set over what it had with an empty store open and its batch made; the peak is the kernel's (VmHWM).  Disk use
 * is what files occupy (st_blocks).  Reads are called cold after the kernel was asked to forget the store's files (fadvise). */
#define _GNU_SOURCE
#include "qstore/qstore.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define BUDGET (64 * MIB)
#define SLOT_BYTES 32u      /* of a message in the index */
#define PROPERTIES_BYTES 3u /* the delivery mode, which a batch has by itself */
#define SEGMENT_ENTRIES 16384u
#define RAW_STEP MIB
#define RAW_BYTES_MAX (2 * GIB)
#define TENTHS 10u
#define FAN 10u
#define PAUSE_ROUNDS 4u
#define PAUSE_WAITS 4000u
#define STEADY_SECONDS 20

struct setup {
    const char *dir;
    char path[4000];
    uint64_t messages;
    bool quick;
};

static const qs_slice queue_name = {"q", 1};
static const qs_slice persistent = {"\x10\x00\x02", PROPERTIES_BYTES};
static const qs_slice nothing;

/* ---- tools ---- */

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void die(const char *what)
{
    perror(what);
    _exit(1);
}

static void check(qs_status status, const qs_error *error, const char *what)
{
    if (status != QS_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, qs_status_name(status), error->text);
        _exit(1);
    }
}

/* One line of JSON: begin, any number of figures, end. */
static void line_begin(const char *work, const char *phase)
{
    printf("{\"work\": \"%s\", \"phase\": \"%s\"", work, phase);
}

static void figure(const char *key, double value)
{
    printf(", \"%s\": %.6g", key, value);
}

static void count(const char *key, uint64_t value)
{
    printf(", \"%s\": %" PRIu64, key, value);
}

static void line_end(void)
{
    printf("}\n");
    fflush(stdout);
}

static uint64_t proc_number(const char *path, const char *key)
{
    char line[256];
    uint64_t value = 0;
    FILE *file = fopen(path, "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            value = strtoull(line + strlen(key), NULL, 10);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return value;
}

static uint64_t rss_bytes(void)
{
    return proc_number("/proc/self/status", "VmRSS:") << 10;
}

static uint64_t peak_rss_bytes(void)
{
    return proc_number("/proc/self/status", "VmHWM:") << 10;
}

static uint64_t read_bytes(void)
{
    return proc_number("/proc/self/io", "read_bytes:");
}

/* ftw has no place for a context; walks are made by one thread of a process at a time. */
static uint64_t walked_bytes;

static int add_blocks(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)path;
    (void)where;
    walked_bytes += type == FTW_F ? (uint64_t)status->st_blocks * 512 : 0;
    return 0;
}

static uint64_t disk_bytes(const char *path)
{
    walked_bytes = 0;
    /* A file may go while it is looked at: what is left is right all the same. */
    (void)!nftw(path, add_blocks, 16, FTW_PHYS);
    return walked_bytes;
}

static uint64_t journal_disk_bytes(const char *path)
{
    char journal[4096];

    snprintf(journal, sizeof journal, "%s/journal", path);
    return disk_bytes(journal);
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

static void remove_store(const struct setup *setup)
{
    (void)!nftw(setup->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int forget_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    int fd = type == FTW_F ? open(path, O_RDONLY) : -1;

    (void)status;
    (void)where;
    if (fd >= 0) {
        fsync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return 0;
}

static void forget_pages(const char *path)
{
    (void)!nftw(path, forget_one, 16, FTW_PHYS);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(double *values, size_t number, double q)
{
    size_t at = (size_t)((double)number * q);

    qsort(values, number, sizeof *values, compare);
    return values[at < number ? at : number - 1];
}

/* Runs work in a process of its own. */
static void in_child(const struct setup *setup, void (*work)(const struct setup *))
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        work(setup);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        die("child");
    }
    if (status != 0) {
        fprintf(stderr, "a measurement failed (status %d)\n", status);
        exit(1);
    }
}

/* The same for work that ends in wait_to_be_killed: its process is killed there. */
static int ready_pipe[2];

static void in_child_killed(const struct setup *setup, void (*work)(const struct setup *))
{
    pid_t child;
    char byte;

    if (pipe(ready_pipe) != 0) {
        die("pipe");
    }
    child = fork();
    if (child == 0) {
        close(ready_pipe[0]);
        work(setup);
        _exit(1);
    }
    close(ready_pipe[1]);
    if (child < 0 || read(ready_pipe[0], &byte, 1) != 1) {
        fprintf(stderr, "a measurement failed\n");
        exit(1);
    }
    close(ready_pipe[0]);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void wait_to_be_killed(void)
{
    if (write(ready_pipe[1], "", 1) != 1) {
        die("pipe");
    }
    for (;;) {
        pause();
    }
}

/* ---- a store, and a batch for it ---- */

struct bench {
    qs_store *store;
    qs_channel *channel;
};

static void set_options(qs_options *options)
{
    qs_options_default(options);
    options->memory_budget = BUDGET;
}

static void open_with(struct bench *bench, const struct setup *setup, const qs_options *options)
{
    qs_error error = {0};
    qs_declare_ok ok;

    check(qs_store_open(&bench->store, setup->path, options, NULL, &error), &error, "open");
    check(qs_channel_open(&bench->channel, bench->store, &error), &error, "channel");
    check(qs_channel_queue_declare(bench->channel, queue_name, QS_DURABLE, nothing, &ok, &error),
          &error, "declare");
    check(qs_channel_confirm_select(bench->channel, &error), &error, "confirm");
}

static void open_bench(struct bench *bench, const struct setup *setup)
{
    qs_options options;

    set_options(&options);
    open_with(bench, setup, &options);
}

static void close_bench(struct bench *bench)
{
    qs_error error = {0};

    qs_channel_close(bench->channel);
    check(qs_store_close(bench->store, &error), &error, "close");
}

static void checkpoint(struct bench *bench)
{
    qs_error error = {0};

    check(qs_store_checkpoint(bench->store, &error), &error, "checkpoint");
}

static void wait_all(struct bench *bench)
{
    qs_error error = {0};
    bool nacked = false;

    check(qs_channel_wait_confirms(bench->channel, QS_FOREVER, &nacked, &error), &error, "wait");
    if (nacked) {
        fprintf(stderr, "nacked\n");
        _exit(1);
    }
}

struct rows {
    uint64_t count;
    uint32_t body_bytes;
    int32_t *offsets;
    char *bodies;
    const void *body_buffers[3], *struct_buffers[1];
    struct ArrowSchema body_schema, schema, *schema_children[1];
    struct ArrowArray body, array, *children[1];
    const struct ArrowArray *arrays[1];
    qs_batch batch;
};

static void keep_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static void keep_array(struct ArrowArray *array)
{
    array->release = NULL;
}

/* A batch that points into itself: rows stays where it is. */
static void make_rows(struct rows *rows, uint64_t number, uint32_t body_bytes)
{
    *rows = (struct rows){.count = number, .body_bytes = body_bytes};
    rows->offsets = malloc((number + 1) * sizeof *rows->offsets);
    rows->bodies = malloc(number * body_bytes);
    if (rows->offsets == NULL || rows->bodies == NULL) {
        die("rows");
    }
    memset(rows->bodies, 'x', number * body_bytes);
    for (uint64_t i = 0; i <= number; i++) {
        rows->offsets[i] = (int32_t)(i * body_bytes);
    }
    rows->body_buffers[1] = rows->offsets;
    rows->body_buffers[2] = rows->bodies;
    rows->schema_children[0] = &rows->body_schema;
    rows->children[0] = &rows->body;
    rows->arrays[0] = &rows->array;
    rows->body_schema = (struct ArrowSchema){.format = "z", .name = "body", .release = keep_schema};
    rows->schema = (struct ArrowSchema){.format = "+s",
                                        .name = "",
                                        .n_children = 1,
                                        .children = rows->schema_children,
                                        .release = keep_schema};
    rows->body = (struct ArrowArray){.length = (int64_t)number,
                                     .n_buffers = 3,
                                     .buffers = rows->body_buffers,
                                     .release = keep_array};
    rows->array = (struct ArrowArray){.length = (int64_t)number,
                                      .n_buffers = 1,
                                      .buffers = rows->struct_buffers,
                                      .n_children = 1,
                                      .children = rows->children,
                                      .release = keep_array};
    rows->batch = (qs_batch){.schema = &rows->schema,
                             .arrays = rows->arrays,
                             .array_count = 1,
                             .body_column = "body",
                             .routing_key = queue_name};
}

/* Publishes number messages, the last batch shorter than the others. */
static void publish(struct bench *bench, struct rows *rows, uint64_t number)
{
    qs_error error = {0};
    qs_receipt receipt;
    int64_t length = (int64_t)(number < rows->count ? number : rows->count);

    for (; number > 0; number -= (uint64_t)length) {
        length = number < (uint64_t)length ? (int64_t)number : length;
        rows->array.length = rows->body.length = length;
        check(qs_channel_publish_batch(bench->channel, &rows->batch, &receipt, &error), &error,
              "publish_batch");
    }
    rows->array.length = rows->body.length = (int64_t)rows->count;
}

static uint64_t last_tag(const struct ArrowSchema *schema, const struct ArrowArray *array)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        const struct ArrowArray *column = array->children[i];
        if (strcmp(schema->children[i]->name, "delivery_tag") == 0) {
            const uint64_t *tags = column->buffers[1];
            return tags[column->offset + column->length - 1];
        }
    }
    fprintf(stderr, "no delivery_tag\n");
    _exit(1);
}

/* Receives up to most messages and acknowledges them; how many there were. */
static uint64_t take(qs_channel *channel, uint64_t most)
{
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_error error = {0};
    uint64_t got;

    check(
        qs_channel_get_batch(channel, queue_name, most, UINT64_MAX, 0, 0, &schema, &array, &error),
        &error, "get_batch");
    got = (uint64_t)array.length;
    if (got > 0) {
        check(qs_channel_ack(channel, last_tag(&schema, &array), QS_MULTIPLE, &error), &error,
              "ack");
    }
    array.release(&array);
    schema.release(&schema);
    return got;
}

static void figures_of_stats(struct bench *bench)
{
    qs_stats stats;

    qs_store_stats(bench->store, &stats);
    count("ram_bytes", stats.ram_bytes);
    count("checkpoints", stats.checkpoints);
    count("segments_written", stats.segments_written);
    count("bytes_journalled", stats.bytes_journalled);
    count("bytes_checkpointed", stats.bytes_checkpointed);
    count("messages_paged_out", stats.messages_paged_out);
    count("messages_paged_in", stats.messages_paged_in);
}

static void figures_of_memory(uint64_t idle)
{
    count("rss_idle", idle);
    count("rss_over_idle", rss_bytes() > idle ? rss_bytes() - idle : 0);
    count("peak_rss_over_idle", peak_rss_bytes() - idle);
}

static void figures_of_disk(const char *path, const char *prefix, uint64_t bodies,
                            uint64_t messages)
{
    uint64_t disk = disk_bytes(path), journal = journal_disk_bytes(path);
    uint64_t whole = bodies + messages * (PROPERTIES_BYTES + SLOT_BYTES);
    char key[100];

    snprintf(key, sizeof key, "%sdisk_bytes", prefix);
    count(key, disk);
    snprintf(key, sizeof key, "%sdisk_bytes_journal", prefix);
    count(key, journal);
    if (bodies > 0) {
        snprintf(key, sizeof key, "%sdisk_over_bodies", prefix);
        figure(key, (double)disk / (double)bodies);
        snprintf(key, sizeof key, "%sdisk_over_live", prefix);
        figure(key, (double)disk / (double)whole);
        snprintf(key, sizeof key, "%sdisk_without_journal_over_live", prefix);
        figure(key, (double)(disk - journal) / (double)whole);
    }
}

/* ---- raw ---- */

static int raw_file(const struct setup *setup, uint64_t bytes, const char *data)
{
    int fd;

    fd = open(setup->path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    for (uint64_t at = 0; at < bytes; at += RAW_STEP) {
        if (fd < 0 || pwrite(fd, data, RAW_STEP, (off_t)at) != (ssize_t)RAW_STEP) {
            die(setup->path);
        }
    }
    fsync(fd);
    return fd;
}

static void raw_work(const struct setup *setup, uint64_t messages, uint32_t body_bytes)
{
    uint64_t bytes = messages * body_bytes;
    char *data = calloc(1, RAW_STEP);
    double began, writing, reading;
    int fd;

    bytes = (bytes < RAW_BYTES_MAX ? bytes : RAW_BYTES_MAX) / RAW_STEP * RAW_STEP;
    fd = raw_file(setup, bytes, data);
    memset(data, 'x', RAW_STEP);
    began = seconds();
    for (uint64_t at = 0; at < bytes; at += RAW_STEP) {
        if (pwrite(fd, data, RAW_STEP, (off_t)at) != (ssize_t)RAW_STEP || fdatasync(fd) != 0) {
            die("raw");
        }
    }
    writing = seconds() - began;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    began = seconds();
    for (uint64_t at = 0; at < bytes; at += RAW_STEP) {
        if (pread(fd, data, RAW_STEP, (off_t)at) != (ssize_t)RAW_STEP) {
            die("raw");
        }
    }
    reading = seconds() - began;
    line_begin("raw", "");
    count("bytes", bytes);
    count("body_bytes", body_bytes);
    figure("write_bytes_per_s", (double)bytes / writing);
    figure("write_messages_per_s", (double)bytes / writing / body_bytes);
    figure("read_bytes_per_s", (double)bytes / reading);
    figure("read_messages_per_s", (double)bytes / reading / body_bytes);
    line_end();
    close(fd);
    free(data);
    unlink(setup->path);
}

/* ---- backlog ---- */

static uint32_t backlog_body; /* of the backlog at hand */
static uint64_t backlog_messages, backlog_rows;

static void fill_backlog(const struct setup *setup)
{
    static double ends[TENTHS];
    struct bench bench;
    struct rows rows;
    uint64_t bodies = backlog_messages * backlog_body, idle;
    double began, all;

    make_rows(&rows, backlog_rows, backlog_body);
    open_bench(&bench, setup);
    usleep(300000); /* files are made ahead behind the scenes */
    idle = rss_bytes();
    began = seconds();
    for (uint32_t i = 0; i < TENTHS; i++) {
        publish(&bench, &rows, backlog_messages / TENTHS);
        ends[i] = seconds();
    }
    wait_all(&bench);
    all = seconds() - began;
    line_begin("backlog", "publish");
    count("messages", backlog_messages);
    count("body_bytes", backlog_body);
    figure("seconds", all);
    figure("messages_per_s", (double)backlog_messages / all);
    figure("bytes_per_s", (double)bodies / all);
    printf(", \"tenths_messages_per_s\": [");
    for (uint32_t i = 0; i < TENTHS; i++) {
        printf("%s%.0f", i > 0 ? ", " : "",
               (double)(backlog_messages / TENTHS) / (ends[i] - (i > 0 ? ends[i - 1] : began)));
    }
    printf("]");
    figure("last_of_first_tenth", (ends[0] - began) / (ends[TENTHS - 1] - ends[TENTHS - 2]));
    figures_of_memory(idle);
    figures_of_disk(setup->path, "", bodies, backlog_messages);
    figures_of_stats(&bench);
    line_end();
    wait_to_be_killed();
}

/* Opens and is gone again: nothing of what was opened is written. */
static void open_backlog(const struct setup *setup)
{
    struct bench bench;
    uint64_t idle = rss_bytes(), had_read = read_bytes();
    qs_stats stats;
    double began = seconds();

    open_bench(&bench, setup);
    began = seconds() - began;
    qs_store_stats(bench.store, &stats);
    line_begin("backlog", "open");
    count("body_bytes", backlog_body);
    figure("seconds", began);
    count("read_bytes", read_bytes() - had_read);
    count("recovered_messages", stats.recovered_messages);
    count("recovered_bytes", stats.recovered_bytes);
    figures_of_memory(idle);
    line_end();
    wait_to_be_killed();
}

static void drain_backlog(const struct setup *setup)
{
    struct bench bench;
    uint64_t idle = rss_bytes(), bodies = backlog_messages * backlog_body, got = 0, more;
    uint64_t had_read = read_bytes();
    double began = seconds(), opening;

    open_bench(&bench, setup);
    opening = seconds() - began;
    began = seconds();
    checkpoint(&bench);
    line_begin("backlog", "checkpoint");
    count("body_bytes", backlog_body);
    figure("cold_open_seconds", opening);
    figure("seconds", seconds() - began);
    figures_of_disk(setup->path, "", bodies, backlog_messages);
    line_end();
    forget_pages(setup->path);
    had_read = read_bytes();
    began = seconds();
    while ((more = take(bench.channel, backlog_rows)) > 0) {
        got += more;
    }
    began = seconds() - began;
    if (got != backlog_messages) {
        fprintf(stderr, "%" PRIu64 " messages came back of %" PRIu64 "\n", got, backlog_messages);
        _exit(1);
    }
    line_begin("backlog", "drain");
    count("body_bytes", backlog_body);
    figure("seconds", began);
    figure("messages_per_s", (double)got / began);
    figure("bytes_per_s", (double)bodies / began);
    count("read_bytes", read_bytes() - had_read);
    figures_of_memory(idle);
    figures_of_disk(setup->path, "", 0, 0);
    began = seconds();
    checkpoint(&bench);
    figure("checkpoint_seconds", seconds() - began);
    figures_of_disk(setup->path, "after_", 0, 0);
    figures_of_stats(&bench);
    line_end();
    close_bench(&bench);
}

static void backlog_of(const struct setup *setup, uint64_t messages, uint32_t body, uint64_t rows)
{
    backlog_messages = messages / TENTHS * TENTHS;
    backlog_body = body;
    backlog_rows = rows;
    raw_work(setup, backlog_messages, body);
    in_child_killed(setup, fill_backlog);
    in_child_killed(setup, open_backlog);
    forget_pages(setup->path);
    in_child(setup, drain_backlog);
    remove_store(setup);
}

static void backlog(const struct setup *setup)
{
    backlog_of(setup, setup->messages, 100, 10000);
}

static void backlog_large(const struct setup *setup)
{
    /* A batch of 10,000 such bodies would be larger than the budget. */
    backlog_of(setup, setup->messages / 20, 8192, 1000);
}

/* ---- fanout ---- */

static uint32_t fan; /* queues, of the measurement at hand */

static void fan_out(const struct setup *setup)
{
    uint64_t messages = setup->quick ? 100000 : 400000, before, bodies = messages * 1024;
    char name[16];
    struct bench bench;
    struct rows rows;
    qs_error error = {0};
    qs_declare_ok ok;
    qs_stats stats;
    double began;

    make_rows(&rows, 10000, 1024);
    open_bench(&bench, setup);
    check(qs_channel_exchange_declare(bench.channel, (qs_slice){"f", 1}, (qs_slice){"fanout", 6},
                                      QS_DURABLE, nothing, &error),
          &error, "exchange");
    for (uint32_t i = 0; i < fan; i++) {
        qs_slice queue = {name, (size_t)snprintf(name, sizeof name, "q%" PRIu32, i)};
        check(qs_channel_queue_declare(bench.channel, queue, QS_DURABLE, nothing, &ok, &error),
              &error, "declare");
        check(qs_channel_queue_bind(bench.channel, queue, (qs_slice){"f", 1}, nothing, nothing,
                                    &error),
              &error, "bind");
    }
    rows.batch.exchange = (qs_slice){"f", 1};
    rows.batch.routing_key = nothing;
    qs_store_stats(bench.store, &stats);
    before = stats.bytes_journalled;
    began = seconds();
    publish(&bench, &rows, messages);
    wait_all(&bench);
    began = seconds() - began;
    qs_store_stats(bench.store, &stats);
    line_begin("fanout", fan > 1 ? "many" : "one");
    count("queues", fan);
    count("messages", messages);
    figure("messages_per_s", (double)messages / began);
    figure("journalled_over_bodies", (double)(stats.bytes_journalled - before) / (double)bodies);
    began = seconds();
    checkpoint(&bench);
    figure("checkpoint_seconds", seconds() - began);
    figures_of_disk(setup->path, "", bodies, messages);
    figures_of_stats(&bench);
    line_end();
    close_bench(&bench);
}

static void fanout(const struct setup *setup)
{
    for (fan = 1; fan <= FAN; fan += FAN - 1) {
        in_child(setup, fan_out);
        remove_store(setup);
    }
}

/* ---- churn ---- */

static void churn_work(const struct setup *setup)
{
    uint64_t bytes = setup->quick ? 2 * GIB : 50 * GIB, batches, idle;
    uint64_t most = 0, least = UINT64_MAX;
    struct bench bench;
    struct rows rows;
    double began;

    make_rows(&rows, 10000, 1024);
    batches = bytes / (rows.count * rows.body_bytes);
    open_bench(&bench, setup);
    usleep(300000);
    idle = rss_bytes();
    began = seconds();
    for (uint64_t i = 0; i < batches; i++) {
        publish(&bench, &rows, rows.count);
        while (take(bench.channel, rows.count) > 0) {
        }
        if (i >= batches / 10 && i % 16 == 0) {
            uint64_t disk = disk_bytes(setup->path);
            most = disk > most ? disk : most;
            least = disk < least ? disk : least;
        }
    }
    wait_all(&bench);
    began = seconds() - began;
    line_begin("churn", "");
    count("bytes", bytes);
    figure("messages_per_s", (double)(batches * rows.count) / began);
    figure("bytes_per_s", (double)bytes / began);
    count("disk_bytes_least", least);
    count("disk_bytes_most", most);
    figures_of_memory(idle);
    figures_of_disk(setup->path, "", 0, 0);
    figures_of_stats(&bench);
    line_end();
    close_bench(&bench);
}

static void churn(const struct setup *setup)
{
    raw_work(setup, setup->quick ? 2 * MIB : 50 * MIB, 1024);
    in_child(setup, churn_work);
    remove_store(setup);
}

/* ---- sparse ---- */

/* Compaction goes on behind the scenes: waits until disk use has stayed the same for a second. */
static double wait_until_steady(const char *path)
{
    double began = seconds(), changed = began;
    uint64_t last = disk_bytes(path);

    while (seconds() - changed < 1 && seconds() - began < STEADY_SECONDS) {
        uint64_t now;
        usleep(100000);
        now = disk_bytes(path);
        if (now != last) {
            last = now;
            changed = seconds();
        }
    }
    return changed - began;
}

static uint64_t keep_one_each(struct bench *bench, qs_channel *keeper, uint64_t messages)
{
    qs_error error = {0};
    uint64_t kept = 0, left = messages;

    while (left > 0) {
        uint64_t span = left < SEGMENT_ENTRIES ? left : SEGMENT_ENTRIES, settled = 0;
        qs_message message = {0};
        check(qs_channel_get(keeper, queue_name, 0, &message, &error), &error, "get");
        qs_message_release(&message);
        kept += 1;
        while (settled < span - 1) {
            settled += take(bench->channel, span - 1 - settled);
        }
        left -= span;
    }
    return kept;
}

static void sparse_work(const struct setup *setup)
{
    uint64_t messages = setup->messages / 2, kept, idle;
    qs_channel *keeper;
    qs_error error = {0};
    struct bench bench;
    struct rows rows;
    double began, compacting;

    make_rows(&rows, 10000, 100);
    open_bench(&bench, setup);
    idle = rss_bytes();
    publish(&bench, &rows, messages);
    wait_all(&bench);
    checkpoint(&bench);
    check(qs_channel_open(&keeper, bench.store, &error), &error, "channel");
    began = seconds();
    kept = keep_one_each(&bench, keeper, messages);
    began = seconds() - began;
    checkpoint(&bench);
    compacting = wait_until_steady(setup->path);
    checkpoint(&bench); /* what was rewritten meanwhile counts from here on */
    line_begin("sparse", "unacked");
    count("messages", messages);
    count("kept", kept);
    figure("consume_messages_per_s", (double)messages / began);
    figure("compacting_seconds", compacting);
    figures_of_memory(idle);
    figures_of_disk(setup->path, "", kept * rows.body_bytes, kept);
    figure("disk_without_journal_per_kept",
           (double)(disk_bytes(setup->path) - journal_disk_bytes(setup->path)) / (double)kept);
    line_end();
    qs_channel_close(keeper);
    checkpoint(&bench);
    wait_until_steady(setup->path);
    line_begin("sparse", "requeued");
    count("came_back", take(bench.channel, messages));
    checkpoint(&bench);
    figures_of_memory(idle);
    figures_of_disk(setup->path, "", 0, 0);
    figures_of_stats(&bench);
    line_end();
    close_bench(&bench);
}

static void sparse(const struct setup *setup)
{
    in_child(setup, sparse_work);
    remove_store(setup);
}

/* ---- pause ---- */

struct checkpoints {
    qs_store *store;
    atomic_bool stop;
    uint64_t made;
    double longest;
};

static void *make_checkpoints(void *argument)
{
    struct checkpoints *checkpoints = argument;
    qs_error error = {0};

    while (!atomic_load(&checkpoints->stop)) {
        double began = seconds();
        check(qs_store_checkpoint(checkpoints->store, &error), &error, "checkpoint");
        began = seconds() - began;
        checkpoints->longest = began > checkpoints->longest ? began : checkpoints->longest;
        checkpoints->made += 1;
    }
    return NULL;
}

static void measure_waits(struct bench *bench, double *times)
{
    static char body[100];
    qs_error error = {0};
    qs_receipt receipt;

    for (uint32_t i = 0; i < PAUSE_WAITS; i++) {
        double began = seconds();
        check(qs_channel_publish(bench->channel, nothing, queue_name, persistent,
                                 (qs_slice){body, sizeof body}, 0, &receipt, &error),
              &error, "publish");
        wait_all(bench);
        times[i] = seconds() - began;
    }
}

static void figures_of_waits(const char *prefix, double *times, size_t number)
{
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"max", 1}};
    char key[64];

    for (size_t i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "%s%s_us", prefix, quantiles[i].name);
        figure(key, quantile(times, number, quantiles[i].q) * 1e6);
    }
}

static void pause_work(const struct setup *setup)
{
    static double calm[PAUSE_ROUNDS * PAUSE_WAITS], busy[PAUSE_ROUNDS * PAUSE_WAITS];
    struct checkpoints checkpoints = {0};
    struct bench bench;
    struct rows rows;
    qs_options options;

    make_rows(&rows, 10000, 100);
    set_options(&options);
    options.checkpoint_bytes = 0; /* only when asked for */
    options.checkpoint_interval_ms = 0;
    open_with(&bench, setup, &options);
    publish(&bench, &rows, 1000000);
    wait_all(&bench);
    checkpoint(&bench);
    usleep(500000);
    checkpoints.store = bench.store;
    for (uint32_t round = 0; round < PAUSE_ROUNDS; round++) {
        pthread_t thread;
        measure_waits(&bench, &calm[round * PAUSE_WAITS]);
        atomic_store(&checkpoints.stop, false);
        if (pthread_create(&thread, NULL, make_checkpoints, &checkpoints) != 0) {
            die("thread");
        }
        measure_waits(&bench, &busy[round * PAUSE_WAITS]);
        atomic_store(&checkpoints.stop, true);
        pthread_join(thread, NULL);
    }
    line_begin("pause", "");
    count("waits", PAUSE_ROUNDS * PAUSE_WAITS);
    count("checkpoints", checkpoints.made);
    figure("checkpoint_longest_seconds", checkpoints.longest);
    figures_of_waits("calm_", calm, PAUSE_ROUNDS * PAUSE_WAITS);
    figures_of_waits("busy_", busy, PAUSE_ROUNDS * PAUSE_WAITS);
    figure("p50_ratio", quantile(busy, PAUSE_ROUNDS * PAUSE_WAITS, 0.5) /
                            quantile(calm, PAUSE_ROUNDS * PAUSE_WAITS, 0.5));
    figure("p99_ratio", quantile(busy, PAUSE_ROUNDS * PAUSE_WAITS, 0.99) /
                            quantile(calm, PAUSE_ROUNDS * PAUSE_WAITS, 0.99));
    line_end();
    close_bench(&bench);
}

static void pause_bench(const struct setup *setup)
{
    in_child(setup, pause_work);
    remove_store(setup);
}

/* ---- recovery ---- */

static uint64_t recovery_messages;
static bool recovery_checkpoint;

static void fill_recovery(const struct setup *setup)
{
    struct bench bench;
    struct rows rows;
    qs_options options;

    make_rows(&rows, 10000, 100);
    set_options(&options);
    options.checkpoint_bytes = 0;
    options.checkpoint_interval_ms = 0;
    open_with(&bench, setup, &options);
    publish(&bench, &rows, recovery_messages);
    wait_all(&bench);
    if (recovery_checkpoint) {
        checkpoint(&bench);
    }
    wait_to_be_killed();
}

static void open_recovery(const struct setup *setup)
{
    struct bench bench;
    qs_stats stats;
    qs_queue_status status;
    qs_error error = {0};
    uint64_t had_read = read_bytes();
    double began = seconds();

    open_bench(&bench, setup);
    began = seconds() - began;
    qs_store_stats(bench.store, &stats);
    check(qs_store_queue_status(bench.store, queue_name, &status, &error), &error, "status");
    line_begin("recovery", recovery_checkpoint ? "behind a checkpoint" : "journal alone");
    count("backlog", status.messages_ready);
    count("replayed_bytes", stats.recovered_bytes);
    count("read_bytes", read_bytes() - had_read);
    figure("seconds", began);
    figure("bytes_per_s", (double)stats.recovered_bytes / began);
    figures_of_memory(0);
    line_end();
    if (status.messages_ready != recovery_messages) {
        fprintf(stderr, "recovery lost messages\n");
        _exit(1);
    }
    wait_to_be_killed();
}

static void recovery_of(const struct setup *setup, uint64_t messages, bool with_checkpoint)
{
    recovery_messages = messages;
    recovery_checkpoint = with_checkpoint;
    in_child_killed(setup, fill_recovery);
    forget_pages(setup->path);
    in_child_killed(setup, open_recovery);
    remove_store(setup);
}

static void recovery(const struct setup *setup)
{
    for (uint64_t part = 16; part > 0; part /= 4) {
        recovery_of(setup, setup->messages / 2 / part, false);
    }
    for (uint64_t part = 16; part > 0; part /= 4) {
        recovery_of(setup, setup->messages / part, true);
    }
}

/* ---- all of it ---- */

static const struct {
    const char *name;
    void (*run)(const struct setup *);
} works[] = {
    {"backlog", backlog}, {"backlog8k", backlog_large}, {"fanout", fanout},     {"churn", churn},
    {"sparse", sparse},   {"pause", pause_bench},       {"recovery", recovery},
};

#define WORK_COUNT (sizeof works / sizeof works[0])

int main(int argc, char **argv)
{
    struct setup setup = {.dir = argc > 1 ? argv[1] : "."};
    bool chosen[WORK_COUNT] = {false}, any = false;

    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            setup.quick = true;
        } else if (strcmp(argv[i], "--messages") == 0 && i + 1 < argc) {
            setup.messages = strtoull(argv[++i], NULL, 10);
        } else {
            bool known = false;
            for (size_t work = 0; work < WORK_COUNT; work++) {
                bool same = strcmp(argv[i], works[work].name) == 0;
                chosen[work] = chosen[work] || same;
                known = known || same;
            }
            if (!known) {
                fprintf(stderr, "usage: bench_paging DIR [--quick] [--messages N] [WORK...]\n");
                return 2;
            }
            any = true;
        }
    }
    if (setup.messages == 0) {
        setup.messages = setup.quick ? 2000000 : 20000000;
    }
    snprintf(setup.path, sizeof setup.path, "%s/bench_paging.%d", setup.dir, (int)getpid());
    for (size_t work = 0; work < WORK_COUNT; work++) {
        if (!any || chosen[work]) {
            works[work].run(&setup);
        }
    }
    return 0;
}
