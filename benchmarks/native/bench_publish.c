/* Durable publishing beside the disk itself, in one run and on one file system.
 *
 *   raw    the same bytes by pwrite to a zero-filled file, 1 MiB and one fdatasync at a time
 *   batch  publish_batch of 10,000 rows of 100 bytes, one thread, confirmed at the end
 *   single publish, pipelined, confirmed at the end
 *   wait   publish + wait for the confirm, p50, beside one 4 KiB pwrite + fdatasync
 *   after  the same, a second after a burst of 200,000 pipelined messages, whose journal files
 *   were made in a hurry
 *          wait and after take turns with their pwrite + fdatasync, some at a time, so that both
 *          meet the same disk
 *
 * usage: bench_publish DIR [rounds [wait]]; prints one JSON object a line for each round, of all
 * workloads or of wait and after alone. */
#define _GNU_SOURCE
#include "qstore/qstore.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROWS 10000u
#define BODY_BYTES 100u
#define BATCHES 200u
#define SINGLES 200000u
#define WAITS 2000u
#define TURN 20u /* waits before the other one's turn */
#define RAW_STEP (1u << 20)

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void check(qs_status status, const qs_error *error, const char *what)
{
    if (status != QS_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, qs_status_name(status), error->text);
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* ---- the disk ---- */

static int make_file(const char *dir, const char *name, size_t bytes)
{
    char path[4096];
    char *zeros = calloc(1, RAW_STEP);
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    for (size_t at = 0; at < bytes; at += RAW_STEP) {
        if (fd < 0 || pwrite(fd, zeros, RAW_STEP, (off_t)at) != RAW_STEP) {
            perror(path);
            exit(1);
        }
    }
    fsync(fd);
    unlink(path);
    free(zeros);
    return fd;
}

static double raw_bandwidth(const char *dir, size_t bytes)
{
    int fd = make_file(dir, "raw", bytes);
    char *data = malloc(RAW_STEP);
    double began;

    memset(data, 'x', RAW_STEP);
    began = seconds();
    for (size_t at = 0; at < bytes; at += RAW_STEP) {
        if (pwrite(fd, data, RAW_STEP, (off_t)at) != RAW_STEP || fdatasync(fd) != 0) {
            perror("raw");
            exit(1);
        }
    }
    began = seconds() - began;
    close(fd);
    free(data);
    return (double)bytes / began;
}

static double raw_wait(int fd, unsigned number)
{
    static char page[4096];
    double began = seconds();

    if (pwrite(fd, page, sizeof page, (off_t)number * 4096) != 4096 || fdatasync(fd) != 0) {
        perror("raw");
        exit(1);
    }
    return seconds() - began;
}

/* ---- the store ---- */

struct bench {
    qs_store *store;
    qs_channel *channel;
    char path[4096];
};

static const qs_slice queue_name = {"q", 1};
static const qs_slice persistent = {"\x10\x00\x02", 3};

static void open_bench(struct bench *bench, const char *dir, const char *name)
{
    qs_error error = {0};
    qs_declare_ok ok;

    snprintf(bench->path, sizeof bench->path, "%s/%s.%d", dir, name, (int)getpid());
    check(qs_store_open(&bench->store, bench->path, NULL, NULL, &error), &error, "open");
    check(qs_channel_open(&bench->channel, bench->store, &error), &error, "channel");
    check(qs_channel_queue_declare(bench->channel, queue_name, QS_DURABLE, (qs_slice){0}, &ok,
                                   &error),
          &error, "declare");
    check(qs_channel_confirm_select(bench->channel, &error), &error, "confirm");
    usleep(200000); /* the spare file is made behind the scenes */
}

static void close_bench(struct bench *bench)
{
    char command[8192];

    qs_channel_close(bench->channel);
    qs_store_close(bench->store, NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", bench->path);
    if (system(command) != 0) {
        fprintf(stderr, "%s stays\n", bench->path);
    }
}

static void wait_all(struct bench *bench)
{
    qs_error error = {0};
    bool nacked = false;

    check(qs_channel_wait_confirms(bench->channel, QS_FOREVER, &nacked, &error), &error, "wait");
    if (nacked) {
        fprintf(stderr, "nacked\n");
        exit(1);
    }
}

static void no_release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}
static void no_release_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static double run_batches(const char *dir)
{
    static int32_t offsets[ROWS + 1];
    static char bodies[ROWS * BODY_BYTES];
    const void *body_buffers[3] = {NULL, offsets, bodies};
    const void *struct_buffers[1] = {NULL};
    struct ArrowSchema body_schema = {.format = "z", .name = "body", .release = no_release_schema};
    struct ArrowSchema *schema_children[1] = {&body_schema};
    struct ArrowSchema schema = {.format = "+s",
                                 .name = "",
                                 .n_children = 1,
                                 .children = schema_children,
                                 .release = no_release_schema};
    struct ArrowArray body = {
        .length = ROWS, .n_buffers = 3, .buffers = body_buffers, .release = no_release_array};
    struct ArrowArray *children[1] = {&body};
    struct ArrowArray array = {.length = ROWS,
                               .n_buffers = 1,
                               .buffers = struct_buffers,
                               .n_children = 1,
                               .children = children,
                               .release = no_release_array};
    const struct ArrowArray *arrays[1] = {&array};
    qs_batch batch = {.schema = &schema,
                      .arrays = arrays,
                      .array_count = 1,
                      .body_column = "body",
                      .routing_key = queue_name};
    struct bench bench;
    qs_error error = {0};
    qs_receipt receipt;
    double began;

    memset(bodies, 'x', sizeof bodies);
    for (uint32_t i = 0; i <= ROWS; i++) {
        offsets[i] = (int32_t)(i * BODY_BYTES);
    }
    open_bench(&bench, dir, "batch");
    began = seconds();
    for (uint32_t i = 0; i < BATCHES; i++) {
        check(qs_channel_publish_batch(bench.channel, &batch, &receipt, &error), &error,
              "publish_batch");
    }
    wait_all(&bench);
    began = seconds() - began;
    close_bench(&bench);
    return (double)ROWS * BATCHES / began;
}

static void publish_one(struct bench *bench)
{
    static char body[BODY_BYTES];
    qs_error error = {0};
    qs_receipt receipt;

    check(qs_channel_publish(bench->channel, (qs_slice){"", 0}, queue_name, persistent,
                             (qs_slice){body, sizeof body}, 0, 0, &receipt, &error),
          &error, "publish");
}

static void publish_singles(struct bench *bench)
{
    for (uint32_t i = 0; i < SINGLES; i++) {
        publish_one(bench);
    }
    wait_all(bench);
}

static double run_singles(const char *dir)
{
    struct bench bench;
    double began;

    open_bench(&bench, dir, "single");
    began = seconds();
    publish_singles(&bench);
    began = seconds() - began;
    close_bench(&bench);
    return SINGLES / began;
}

static double publish_and_wait(struct bench *bench)
{
    double began = seconds();

    publish_one(bench);
    wait_all(bench);
    return seconds() - began;
}

static double run_waits(const char *dir, bool after_burst, double *raw_out)
{
    int fd = make_file(dir, "raw", (size_t)WAITS * 4096 / RAW_STEP * RAW_STEP + RAW_STEP);
    static double times[WAITS], raw_times[WAITS];
    struct bench bench;
    double began;

    open_bench(&bench, dir, "wait");
    if (after_burst) {
        publish_singles(&bench);
    }
    for (began = seconds(); seconds() - began < 1;) { /* alone, as afterwards */
        (void)publish_and_wait(&bench);
    }
    for (uint32_t i = 0; i < WAITS; i += TURN) {
        for (uint32_t k = i; k < i + TURN; k++) {
            raw_times[k] = raw_wait(fd, k);
        }
        for (uint32_t k = i; k < i + TURN; k++) {
            times[k] = publish_and_wait(&bench);
        }
    }
    close_bench(&bench);
    close(fd);
    *raw_out = median(raw_times, WAITS);
    return median(times, WAITS);
}

/* ---- publish + wait from several threads ---- */

struct waiter {
    struct bench *bench;
    uint32_t count;
};

static void *run_waiter(void *argument)
{
    static char body[BODY_BYTES];
    struct waiter *waiter = argument;
    qs_channel *channel;
    qs_error error = {0};
    qs_receipt receipt;

    check(qs_channel_open(&channel, waiter->bench->store, &error), &error, "channel");
    for (uint32_t i = 0; i < waiter->count; i++) {
        check(qs_channel_publish(channel, (qs_slice){"", 0}, queue_name, persistent,
                                 (qs_slice){body, sizeof body}, 0, 0, &receipt, &error),
              &error, "publish");
        check(qs_store_wait_durable(waiter->bench->store, receipt.lsn, QS_FOREVER, &error), &error,
              "wait");
    }
    qs_channel_close(channel);
    return NULL;
}

static double run_threads(const char *dir, uint32_t thread_count)
{
    struct bench bench;
    struct waiter waiter = {&bench, WAITS};
    pthread_t threads[16];
    double began;

    open_bench(&bench, dir, "threads");
    began = seconds();
    for (uint32_t i = 0; i < thread_count; i++) {
        if (pthread_create(&threads[i], NULL, run_waiter, &waiter) != 0) {
            perror("thread");
            exit(1);
        }
    }
    for (uint32_t i = 0; i < thread_count; i++) {
        pthread_join(threads[i], NULL);
    }
    began = seconds() - began;
    close_bench(&bench);
    return (double)WAITS * thread_count / began;
}

static void run_waits_alone(const char *dir, int round)
{
    double raw, wait = run_waits(dir, false, &raw);
    double raw_after, after = run_waits(dir, true, &raw_after);

    printf("{\"round\": %d, \"raw_sync_p50_us\": %.1f, \"wait_p50_us\": %.1f, "
           "\"wait_of_raw\": %.2f, \"raw_sync_after_burst_p50_us\": %.1f, "
           "\"wait_after_burst_p50_us\": %.1f, \"wait_after_burst_of_raw\": %.2f}\n",
           round, raw * 1e6, wait * 1e6, wait / raw, raw_after * 1e6, after * 1e6,
           after / raw_after);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : ".";
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    size_t bytes = (size_t)ROWS * BODY_BYTES * BATCHES / RAW_STEP * RAW_STEP;

    for (int round = 0; argc > 3 && round < rounds; round++) {
        run_waits_alone(dir, round);
    }
    for (int round = 0; argc <= 3 && round < rounds; round++) {
        double raw_bytes = raw_bandwidth(dir, bytes);
        double batch = run_batches(dir);
        double single = run_singles(dir);
        double raw_wait, wait = run_waits(dir, false, &raw_wait);
        double raw_after, after = run_waits(dir, true, &raw_after);
        double one = run_threads(dir, 1), eight = run_threads(dir, 8);
        printf("{\"round\": %d, \"raw_bytes_per_s\": %.0f, \"batch_messages_per_s\": %.0f, "
               "\"batch_of_raw\": %.3f, "
               "\"single_messages_per_s\": %.0f, \"raw_sync_p50_us\": %.1f, \"wait_p50_us\": %.1f, "
               "\"wait_of_raw\": %.2f, \"raw_sync_after_burst_p50_us\": %.1f, "
               "\"wait_after_burst_p50_us\": %.1f, \"wait_after_burst_of_raw\": %.2f, "
               "\"threads_1_per_s\": %.0f, \"threads_8_per_s\": %.0f, \"threads_8_of_1\": %.2f}\n",
               round, raw_bytes, batch, batch * BODY_BYTES / raw_bytes, single, raw_wait * 1e6,
               wait * 1e6, wait / raw_wait, raw_after * 1e6, after * 1e6, after / raw_after, one,
               eight, eight / one);
        fflush(stdout);
    }
    return 0;
}
