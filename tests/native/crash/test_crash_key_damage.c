/* Damage to files of transaction keys: it is told, and no key is forgotten.
 *
 * Arguments: seed. */
#include "keys_world.h"
#include "qs_test_dirs.h"
#include "transactions.h"

struct key_files {
    char names[QSI_KEY_RUNS_MAX][QSI_KEY_NAME_BYTES];
    uint32_t count;
};

static bool note_key_file(void *context, const char *name)
{
    struct key_files *files = context;
    uint64_t number;

    if (strlen(name) == QSI_KEY_NAME_BYTES - 2 && qsi_key_file_number(name, &number)) {
        QS_CHECK(files->count < QSI_KEY_RUNS_MAX);
        snprintf(files->names[files->count++], QSI_KEY_NAME_BYTES, "%s", name);
    }
    return true;
}

/* Known, unknown or damaged: never forgotten, and never what it was not. */
static void check_damaged(qs_env *disk, const struct model *model, uint64_t *refused,
                          uint64_t *told)
{
    qs_options options = options_of_store();
    qs_store *store = NULL;
    qs_status status = qs_store_open(&store, "store", &options, disk, QS_ERROR);
    qs_stats stats;

    if (status == QS_OK) {
        check_keys(store, model, true, told);
        (void)qs_store_close(store, NULL);
        return;
    }
    QS_CHECK(status == QS_ECORRUPT && strncmp(qs_test_error.path, "checkpoint/", 11) == 0);
    *refused += 1;
    options.recovery = QS_RECOVERY_SALVAGE;
    QS_CHECK_OK(qs_store_open(&store, "store", &options, disk, QS_ERROR));
    qs_store_stats(store, &stats);
    QS_CHECK(stats.lost_ranges == 1 && stats.lost_bytes >= QSI_KEY_PAGE_BYTES);
    QS_CHECK_OK(qs_store_close(store, QS_ERROR));
}

static void damage_one(qs_env *whole, const struct model *model, const char *name, uint64_t at,
                       bool removes, uint64_t *random, uint64_t *refused, uint64_t *told)
{
    qs_env *disk = qsi_env_mem_clone(whole, 1);
    qs_dir *dir = qs_test_open_dir(disk, "store", "checkpoint");
    uint64_t before = *refused + *told;
    qs_verified verified;

    if (removes) {
        QS_CHECK_OK(disk->remove(disk, dir, name, QS_ERROR));
    } else {
        qs_test_flip(disk, dir, name, at, (uint8_t)(1u << below(random, 8)));
    }
    disk->dir_close(disk, dir);
    /* What is met is what is found: but for the padding behind the filter, which tells nothing. */
    if (qs_store_verify("store", disk, NULL, &verified, NULL) == QS_OK) {
        check_damaged(disk, model, refused, told);
        QS_CHECK(*refused + *told == before);
    } else {
        check_damaged(disk, model, refused, told);
        QS_CHECK(verified.damages == 1);
    }
    qsi_env_mem_destroy(disk);
}

static void test_damaged_key_file_is_told_and_forgets_nothing(uint64_t seed)
{
    struct model model;
    qs_env *disk = make_disk(seed, &model, true);
    qs_dir *dir = qs_test_open_dir(disk, "store", "checkpoint");
    struct key_files files = {.count = 0};
    uint64_t random = seed, refused = 0, told = 0, flips = 0;

    QS_CHECK_OK(disk->dir_list(disk, dir, note_key_file, &files, QS_ERROR));
    QS_CHECK(files.count >= 1);
    for (uint32_t i = 0; i < files.count; i++) {
        uint64_t bytes = qs_test_file_bytes(disk, dir, files.names[i]);
        for (uint64_t at = below(&random, 7); at < bytes; at += 1 + below(&random, 13)) {
            damage_one(disk, &model, files.names[i], at, false, &random, &refused, &told);
            flips += 1;
        }
        damage_one(disk, &model, files.names[i], 0, true, &random, &refused, &told);
    }
    printf("%u key files, %" PRIu64 " bits: %" PRIu64 " times refused at open, %" PRIu64
           " answers refused\n",
           files.count, flips, refused, told);
    QS_CHECK(refused > 0 && told > 0);
    disk->dir_close(disk, dir);
    qsi_env_mem_destroy(disk);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    struct qs_test_alloc alloc;

    qs_test_alloc_install(&alloc);
    test_damaged_key_file_is_told_and_forgets_nothing(seed);
    qs_test_alloc_end(&alloc);
    return 0;
}
