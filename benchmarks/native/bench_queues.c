/* Many small queues: what they cost to declare, to checkpoint, to keep on the disk, to open, and to
 * hold in memory.
 *
 *   declare     durable queues, none of which waits for its own sync
 *   publish     messages of body_bytes each to every queue, in the order of the queues
 *   checkpoint  a first one, and one after a message more for every queue
 *   disk        bytes that the store's files take, without the journal, for each byte of a body
 *   open        after an orderly close
 *   memory      resident bytes of the process for each queue: of declared ones, while all content
 *               is in memory, and of another process that opens the store
 *
 * usage: bench_queues DIR [queues [messages [body_bytes [rounds]]]]; prints one JSON object a line
 * for each round. */
#define _GNU_SOURCE
#include "qstore/qstore.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAME_BYTES 32
#define DISK_BLOCK 512u /* of st_blocks */
#define OPEN "--open"   /* the next argument is a store: open it, and tell what that took */

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

/* ---- what the process and the files take ---- */

static double resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;

    if (file == NULL || fscanf(file, "%*u %lu", &pages) != 1) {
        perror("/proc/self/statm");
        exit(1);
    }
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static struct {
    uint64_t bytes, files;
} disk;

static int add_file(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type == FTW_F && strstr(path, "/journal/") == NULL && strstr(path, "/RESERVE") == NULL) {
        disk.bytes += (uint64_t)stat->st_blocks * DISK_BLOCK;
        disk.files += 1;
    }
    return 0;
}

static void measure_disk(const char *path)
{
    disk.bytes = disk.files = 0;
    if (nftw(path, add_file, 16, FTW_PHYS) != 0) {
        perror(path);
        exit(1);
    }
}

/* ---- the store ---- */

struct bench {
    char path[4096];
    uint32_t queues, messages, body_bytes;
    uint8_t *body;
    qs_store *store;
    qs_channel *channel;
};

static const qs_slice persistent = {"\x10\x00\x02", 3};

static qs_slice name_of(char out[NAME_BYTES], uint32_t queue)
{
    return (qs_slice){out, (size_t)snprintf(out, NAME_BYTES, "queue.%06" PRIu32, queue)};
}

static void open_store(struct bench *bench)
{
    qs_options options;
    qs_error error = {0};

    qs_options_default(&options);
    options.memory_budget = UINT64_C(1) << 31;
    options.checkpoint_interval_ms = 0;
    options.checkpoint_bytes = UINT64_C(1) << 32; /* only when asked for */
    check(qs_store_open(&bench->store, bench->path, &options, NULL, &error), &error, "open");
    check(qs_channel_open(&bench->channel, bench->store, &error), &error, "channel");
}

static void close_store(struct bench *bench)
{
    qs_error error = {0};

    qs_channel_close(bench->channel);
    check(qs_store_close(bench->store, &error), &error, "close");
}

static void declare_all(struct bench *bench)
{
    qs_error error = {0};

    for (uint32_t i = 0; i < bench->queues; i++) {
        char name[NAME_BYTES];
        qs_declare_ok ok;
        check(qs_channel_queue_declare(bench->channel, name_of(name, i), QS_DURABLE | QS_NO_SYNC,
                                       (qs_slice){0}, &ok, &error),
              &error, "declare");
    }
    check(qs_store_sync(bench->store, &error), &error, "sync");
}

static void publish_all(struct bench *bench, uint32_t messages)
{
    qs_error error = {0};

    for (uint32_t i = 0; i < bench->queues; i++) {
        char name[NAME_BYTES];
        qs_slice key = name_of(name, i);
        for (uint32_t k = 0; k < messages; k++) {
            qs_receipt receipt;
            check(qs_channel_publish(bench->channel, (qs_slice){"", 0}, key, persistent,
                                     (qs_slice){bench->body, bench->body_bytes}, 0, 0, &receipt,
                                     &error),
                  &error, "publish");
        }
    }
    check(qs_store_sync(bench->store, &error), &error, "sync");
}

static double checkpoint(struct bench *bench)
{
    qs_error error = {0};
    double began = seconds();

    check(qs_store_checkpoint(bench->store, &error), &error, "checkpoint");
    return seconds() - began;
}

struct opened {
    double seconds, resident;
};

static void open_and_tell(struct bench *bench)
{
    double idle = resident();
    double began = seconds();

    open_store(bench);
    printf("%f %f\n", seconds() - began, resident() - idle);
    close_store(bench);
}

/* By a program of its own: memory that this one has freed would hide what the store takes. */
static struct opened open_elsewhere(struct bench *bench)
{
    char *arguments[] = {"bench_queues", OPEN, bench->path, NULL};
    struct opened opened;
    FILE *answer;
    int ends[2];
    pid_t child;

    if (pipe(ends) != 0 || (child = fork()) < 0) {
        perror("fork");
        exit(1);
    }
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execv("/proc/self/exe", arguments);
        _exit(1);
    }
    close(ends[1]);
    answer = fdopen(ends[0], "r");
    if (answer == NULL || fscanf(answer, "%lf %lf", &opened.seconds, &opened.resident) != 2) {
        fprintf(stderr, "the other program opened nothing\n");
        exit(1);
    }
    fclose(answer);
    (void)waitpid(child, NULL, 0);
    return opened;
}

static void run(struct bench *bench)
{
    double queues = bench->queues, messages = bench->messages;
    double began, declare, publish, first, second, close, idle, declared, full;
    struct opened opened;
    double bodies = queues * messages * bench->body_bytes;
    uint64_t first_bytes, first_files;

    open_store(bench);
    idle = resident();
    began = seconds();
    declare_all(bench);
    declare = seconds() - began;
    declared = resident() - idle;
    began = seconds();
    publish_all(bench, bench->messages);
    publish = seconds() - began;
    full = resident() - idle;
    first = checkpoint(bench);
    measure_disk(bench->path);
    first_bytes = disk.bytes;
    first_files = disk.files;
    publish_all(bench, 1);
    second = checkpoint(bench);
    measure_disk(bench->path);
    began = seconds();
    close_store(bench);
    close = seconds() - began;
    opened = open_elsewhere(bench);
    printf("{\"queues\": %u, \"messages\": %u, \"body_bytes\": %u, \"declares_per_s\": %.0f, "
           "\"publishes_per_s\": %.0f, \"checkpoint_s\": %.3f, \"disk_per_body_byte\": %.3f, "
           "\"files\": %" PRIu64 ", \"second_checkpoint_s\": %.3f, "
           "\"second_disk_per_body_byte\": %.3f, \"second_files\": %" PRIu64 ", \"close_s\": %.3f, "
           "\"open_s\": %.3f, \"ram_declared\": %.0f, \"ram_full\": %.0f, \"ram_opened\": %.0f}\n",
           bench->queues, bench->messages, bench->body_bytes, queues / declare,
           queues * messages / publish, first, (double)first_bytes / bodies, first_files, second,
           (double)disk.bytes / (bodies + queues * bench->body_bytes), disk.files, close,
           opened.seconds, declared / queues, full / queues, opened.resident / queues);
    fflush(stdout);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat;
    (void)type;
    (void)ftw;
    return remove(path);
}

static uint32_t argument(int argc, char **argv, int index, uint32_t otherwise)
{
    return argc > index ? (uint32_t)strtoul(argv[index], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    struct bench bench = {.queues = argument(argc, argv, 2, 100000),
                          .messages = argument(argc, argv, 3, 20),
                          .body_bytes = argument(argc, argv, 4, 100)};
    uint32_t rounds = argument(argc, argv, 5, 1);

    if (argc == 3 && strcmp(argv[1], OPEN) == 0) {
        snprintf(bench.path, sizeof bench.path, "%s", argv[2]);
        open_and_tell(&bench);
        return 0;
    }
    if (argc < 2 || bench.queues == 0 || bench.messages == 0) {
        fprintf(stderr, "usage: bench_queues DIR [queues [messages [body_bytes [rounds]]]]\n");
        return 2;
    }
    bench.body = malloc(bench.body_bytes + 1);
    memset(bench.body, 'x', bench.body_bytes + 1);
    for (uint32_t i = 0; i < rounds; i++) {
        snprintf(bench.path, sizeof bench.path, "%s/queues.%d", argv[1], (int)getpid());
        run(&bench);
        if (nftw(bench.path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) {
            perror(bench.path);
            return 1;
        }
    }
    free(bench.body);
    return 0;
}
