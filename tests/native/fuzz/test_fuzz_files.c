/* Mutated files: any bytes end in a store or in an error, never in a crash, a hang or an allocation
 * out of proportion (build it with AddressSanitizer to see reads out of bounds as well).
 *
 * Each round changes a few bytes of one file of a small store and makes the checksums right again,
 * so that the change reaches the decoders behind them; then it opens the store, strictly or to
 * salvage, and uses what is in it.
 *
 * Arguments: seed, seconds.  Round n of seed s is round 0 of seed s + n, once those that found
 * something are over. */
#include "qstore/alloc.h"

#include "le.h"
#include "mended_files.h"

#include <signal.h>

#define SECONDS 10
#define NAMES_MAX 64
#define IMAGES 6
#define PAGED_IMAGES_FROM 4              /* these page and have checkpoints, in small segments */
#define ALLOCATION_BYTES_MAX (16u << 20) /* the files are far smaller */
#define ROUND_SECONDS_MAX 5.0

/* A body of 1.6 GB that a damaged reference claimed was made room for. */
static const uint64_t seeds_that_found_something[] = {73908};

#define FIRST_SEEDS (sizeof seeds_that_found_something / sizeof seeds_that_found_something[0])

static volatile uint64_t current_seed;

/* ---- watching ---- */

static void tell_seed(int signal_number)
{
    char text[64];
    int bytes = snprintf(text, sizeof text, "signal %d in the round of seed %llu\n", signal_number,
                         (unsigned long long)current_seed);

    (void)!write(2, text, (size_t)bytes);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void *watched_realloc(void *context, void *memory, size_t bytes)
{
    (void)context;
    QS_CHECK(bytes <= ALLOCATION_BYTES_MAX);
    return realloc(memory, bytes);
}

static void watched_free(void *context, void *memory)
{
    (void)context;
    free(memory);
}

/* ---- files ---- */

struct listing {
    struct store_image *image;
    const char *dir;
};

static bool add_file(void *context, const char *name)
{
    struct listing *listing = context;
    struct target_file *file = &listing->image->files[listing->image->file_count];

    if (strchr(name, '.') != NULL || strcmp(name, "MANIFEST") == 0) {
        QS_CHECK(listing->image->file_count < FILES_MAX);
        file->dir = listing->dir;
        snprintf(file->name, sizeof file->name, "%s", name);
        listing->image->file_count++;
    }
    return true;
}

static void list_files(struct store_image *image)
{
    static const char *const dirs[] = {"", "journal", "messages", "index", "checkpoint"};

    for (int i = 0; i < 5; i++) {
        struct listing listing = {image, dirs[i]};
        qs_dir *dir = qs_test_open_dir(image->mem, CRASH_PATH, dirs[i]);

        QS_CHECK_OK(image->mem->dir_list(image->mem, dir, add_file, &listing, QS_ERROR));
        image->mem->dir_close(image->mem, dir);
    }
}

/* ---- the stores to start from ---- */

static void page(struct crash_work *work)
{
    work->pages = true;
    work->options = crash_paging_options(1);
    work->options.segment_entries = SEGMENT_ENTRIES;
    work->options.memory_budget = 64 << 10;
    work->options.embed_below = 400;
}

static void make_image(struct store_image *image, uint64_t seed, bool is_closed, bool is_paged)
{
    struct crash_report report = {.told_max = 10, .cut = "preparing"};
    struct crash_model model;
    struct crash_env env;
    struct crash_work work = {.env = &env, .model = &model, .report = &report, .random = seed};

    *image = (struct store_image){.mem = qsi_env_mem_create(seed)};
    crash_model_init(&model);
    crash_env_init(&env, image->mem, CRASH_NO_BUG);
    if (is_paged) {
        page(&work);
    }
    QS_CHECK(crash_open_store(&work));
    crash_set_up(&work);
    crash_work_run(&work, 40);
    if (is_paged) { /* the journal behind it is no longer all that there is */
        crash_work_checkpoint(&work);
        crash_work_compact(&work);
        crash_work_checkpoint(&work);
        crash_work_run(&work, 4);
    }
    QS_CHECK(!work.is_over && report.violations == 0);
    env.is_dead = work.is_over = !is_closed;
    crash_close_store(&work);
    crash_model_fini(&model);
    list_files(image);
}

/* ---- mutations ---- */

static uint64_t below(uint64_t *random, uint64_t limit)
{
    return qsi_splitmix_below(random, limit);
}

/* Somewhere that matters: most of a file is padding. */
static size_t choose_offset(uint64_t *random, const uint8_t *data, size_t bytes)
{
    size_t offset = 0;

    for (int tries = 0; tries < 40; tries++) {
        offset = (size_t)below(random, bytes);
        if (data[offset] != 0) {
            break;
        }
    }
    return offset;
}

static void put_number(uint64_t *random, uint8_t *at, size_t left)
{
    static const uint64_t numbers[] = {0,          1,
                                       2,          7,
                                       8,          255,
                                       4095,       4096,
                                       65535,      65536,
                                       INT32_MAX,  UINT32_MAX - 7,
                                       UINT32_MAX, UINT64_MAX - 7,
                                       UINT64_MAX};
    uint64_t number = numbers[below(random, sizeof numbers / sizeof numbers[0])];

    if (left >= 8 && below(random, 2) == 0) {
        qsi_put_u64(at, number);
    } else if (left >= 4) {
        qsi_put_u32(at, (uint32_t)number);
    }
}

static void mutate_once(uint64_t *random, uint8_t *data, size_t bytes)
{
    size_t offset = choose_offset(random, data, bytes);
    size_t other = choose_offset(random, data, bytes);
    size_t count = 1 + (size_t)below(random, 64);

    switch (below(random, 6)) {
    case 0:
        data[offset] = (uint8_t)below(random, 256);
        break;
    case 1:
        data[offset] ^= (uint8_t)(1u << below(random, 8));
        break;
    case 2:
    case 3:
        put_number(random, data + offset, bytes - offset);
        break;
    case 4: /* a little more or less */
        if (bytes - offset >= 4) {
            qsi_put_u32(data + offset,
                        qsi_get_u32(data + offset) + (uint32_t)below(random, 33) - 16);
        }
        break;
    default: /* bytes from elsewhere */
        count = count < bytes - offset ? count : bytes - offset;
        count = count < bytes - other ? count : bytes - other;
        memmove(data + offset, data + other, count);
        break;
    }
}

/* ---- a round ---- */

struct names {
    char names[NAMES_MAX][256];
    size_t bytes[NAMES_MAX];
    uint32_t count;
};

static void add_name(void *context, const qs_queue_info *queue)
{
    struct names *names = context;

    if (names->count < NAMES_MAX && queue->name.bytes < sizeof names->names[0]) {
        memcpy(names->names[names->count], queue->name.data, queue->name.bytes);
        names->bytes[names->count++] = queue->name.bytes;
    }
}

static void use_queue(qs_channel *channel, qs_slice name, uint64_t *random)
{
    qs_message message;
    uint64_t count;

    for (int i = 0; i < 300; i++) {
        qs_status status = qs_channel_get(channel, name, 0, &message, QS_ERROR);

        if (status == QS_OK) {
            /* Every byte is touched, for the sanitizer's sake. */
            (void)qs_crc32c(0, message.body.data, message.body.bytes);
            (void)qs_crc32c(0, message.properties.data, message.properties.bytes);
            (void)qs_crc32c(0, message.routing_key.data, message.routing_key.bytes);
            qs_message_release(&message);
        } else if (status != QS_ECORRUPT) {
            break;
        }
    }
    if (below(random, 2) == 0) {
        (void)!qs_channel_recover(channel, QS_REQUEUE, NULL);
    }
    (void)!qs_channel_queue_purge(channel, name, 0, &count, NULL);
}

static void get_batch(qs_channel *channel, qs_slice name)
{
    struct ArrowSchema schema;
    struct ArrowArray array;

    if (qs_channel_get_batch(channel, name, 1000, 1 << 20, QS_NO_ACK, 0, &schema, &array, NULL) ==
        QS_OK) {
        array.release(&array);
        schema.release(&schema);
    }
}

static void use_store(qs_store *store, uint64_t *random)
{
    static struct names names;
    qs_channel *channel;

    names.count = 0;
    QS_CHECK_OK(qs_store_visit_queues(store, add_name, &names));
    QS_CHECK_OK(qs_channel_open(&channel, store, QS_ERROR));
    for (uint32_t i = 0; i < names.count; i++) {
        qs_slice name = {names.names[i], names.bytes[i]};

        if (below(random, 3) == 0) {
            get_batch(channel, name);
        } else {
            use_queue(channel, name, random);
        }
    }
    qs_channel_close(channel);
}

static qs_status open_and_use(qs_env *mem, uint64_t *random)
{
    qs_options options = crash_options();
    struct crash_env env;
    qs_store *store;
    qs_status status;

    options.memory_budget = below(random, 2) == 0 ? 64 << 10 : options.memory_budget;
    options.recovery = below(random, 3) == 0 ? QS_RECOVERY_SALVAGE : QS_RECOVERY_STRICT;
    crash_env_init(&env, mem, CRASH_NO_BUG);
    status = qs_store_open(&store, CRASH_PATH, &options, &env.env, QS_ERROR);
    if (status == QS_OK) {
        use_store(store, random);
        env.is_dead = below(random, 2) == 0;
        qs_store_close(store, NULL);
    }
    return status;
}

static qs_status round_of(const struct store_image *image, uint64_t seed)
{
    static uint8_t data[FILE_BYTES_MAX];
    uint64_t random = seed;
    const struct target_file *file;
    uint32_t old_crcs[2];
    qs_env *mem;
    size_t bytes;
    qs_status status;

    (void)qsi_splitmix_next(&random);
    file = &image->files[below(&random, image->file_count)];
    mem = qsi_env_mem_clone(image->mem, 1);
    bytes = transfer(mem, file, data, sizeof data, false);
    QS_CHECK(bytes < sizeof data);
    if (bytes == 0) {
        qsi_env_mem_destroy(mem);
        return QS_OK;
    }
    for (uint32_t area = 1; area <= 2; area++) {
        old_crcs[area - 1] = state_crc_of(data, bytes, area);
    }
    for (uint64_t i = 0, count = 1 + below(&random, 4); i < count; i++) {
        mutate_once(&random, data, bytes);
    }
    if (below(&random, 20) == 0) {
        bytes = 1 + (size_t)below(&random, bytes);
    }
    if (below(&random, 10) > 0) {
        mend(file, data, bytes);
        if (strcmp(file->dir, "index") == 0) {
            mend_states(image, mem, old_crcs, data, bytes);
        } else if (strcmp(file->dir, "checkpoint") == 0) {
            mend_manifest(mem, data, bytes);
        }
    }
    (void)transfer(mem, file, data, bytes, true);
    status = open_and_use(mem, &random);
    qsi_env_mem_destroy(mem);
    return status;
}

int main(int argc, char **argv)
{
    static const qs_allocator allocator = {watched_realloc, watched_free, NULL};
    uint64_t seed = qs_test_seed(argc, argv);
    double seconds = argc > 2 ? strtod(argv[2], NULL) : SECONDS;
    static struct store_image images[IMAGES];
    uint64_t rounds = 0, opened = 0, refused = 0, other = 0;
    double began = crash_seconds();

    qs_allocator_set(&allocator);
    signal(SIGABRT, tell_seed);
    for (uint64_t i = 0; i < IMAGES; i++) {
        make_image(&images[i], i + 1, i % 2 == 0, i >= PAGED_IMAGES_FROM);
    }
    for (; crash_seconds() - began < seconds; rounds++) {
        double round_began = crash_seconds();
        qs_status status;

        current_seed =
            rounds < FIRST_SEEDS ? seeds_that_found_something[rounds] : seed + rounds - FIRST_SEEDS;
        status = round_of(&images[current_seed % IMAGES], current_seed);
        opened += status == QS_OK;
        refused += status == QS_ECORRUPT;
        other += status != QS_OK && status != QS_ECORRUPT;
        if (status != QS_OK && status != QS_ECORRUPT && status != QS_EVERSION &&
            status != QS_EINVAL) {
            printf("seed %" PRIu64 ": %s: %s\n", current_seed, qs_status_name(status),
                   qs_test_error.text);
            return 1;
        }
        QS_CHECK(crash_seconds() - round_began < ROUND_SECONDS_MAX);
    }
    for (int i = 0; i < IMAGES; i++) {
        qsi_env_mem_destroy(images[i].mem);
    }
    qs_allocator_set(NULL);
    printf("%" PRIu64 " rounds: %" PRIu64 " stores opened, %" PRIu64 " refused as damaged, %" PRIu64
           " otherwise\n",
           rounds, opened, refused, other);
    return 0;
}
