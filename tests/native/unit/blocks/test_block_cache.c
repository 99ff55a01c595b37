/* The cache of blocks: readers share what one of them read. */
#include "block_made.h"

BLOCKS_TEST(test_cache)
{
    uint64_t random = 3;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct qsi_budget *budget = qsi_budget_create();
    struct qsi_block_cache_options options = {
        .bytes_max = 20000, .handle_max = 1, .budget = budget};
    struct qsi_block_cache_counts counts;
    struct qsi_block_cache *cache;
    struct qsi_block_view held;

    QS_CHECK_OK(add_blocks(fixture, &made, 30, false, &random, QS_ERROR));
    QS_CHECK_OK(qsi_block_cache_create(&cache, fixture->blocks, &options, QS_ERROR));
    for (uint32_t pass = 0; pass < 3; pass++) {
        struct qsi_block_index *index;
        QS_CHECK_OK(qsi_block_cache_read_index(cache, &made.file, &index, QS_ERROR));
        QS_CHECK(index->count == 30);
        for (uint32_t i = 0; i < 30; i++) {
            struct qsi_block_view view, again;
            struct qsi_block_dictionary dictionary;
            QS_CHECK_OK(
                qsi_block_cache_read(cache, &made.file, &index->entries[i], &view, QS_ERROR));
            check_view(&view, made.entries[i].first_offset, made.entries[i].rows);
            QS_CHECK_OK(
                qsi_block_cache_read(cache, &made.file, &index->entries[i], &again, QS_ERROR));
            QS_CHECK(again.chunk == view.chunk);
            QS_CHECK_OK(qsi_block_cache_read_dictionary(cache, &made.file, &index->entries[29 - i],
                                                        &dictionary, QS_ERROR));
            QS_CHECK(dictionary.first_offset == made.entries[29 - i].first_offset);
            qsi_block_dictionary_fini(&dictionary);
            qsi_block_view_fini(&again);
            qsi_block_view_fini(&view);
        }
        qsi_block_index_unref(index);
    }
    qsi_block_cache_counts(cache, &counts);
    QS_CHECK(counts.hits >= 90 && counts.misses >= 30 && counts.bytes <= 20000);
    QS_CHECK(qsi_budget_bytes(budget) > 0);
    /* A block that is held stays what it is, whatever is read behind it. */
    QS_CHECK_OK(qsi_block_cache_read(cache, &made.file, &made.entries[0], &held, QS_ERROR));
    for (uint32_t i = 1; i < 30; i++) {
        struct qsi_block_view view;
        QS_CHECK_OK(qsi_block_cache_read(cache, &made.file, &made.entries[i], &view, QS_ERROR));
        qsi_block_view_fini(&view);
    }
    check_view(&held, made.entries[0].first_offset, made.entries[0].rows);
    qsi_block_cache_forget(cache, &made.file);
    QS_CHECK_OK(qsi_block_file_remove(fixture->blocks, &made.file, QS_ERROR));
    {
        struct qsi_block_view view;
        QS_CHECK_STATUS(QS_ECORRUPT,
                        qsi_block_cache_read(cache, &made.file, &made.entries[0], &view, QS_ERROR));
    }
    qsi_block_cache_destroy(cache);
    check_view(&held, made.entries[0].first_offset, made.entries[0].rows);
    qsi_block_view_fini(&held);
    QS_CHECK(qsi_budget_bytes(budget) == 0);
    qsi_budget_unref(budget);
}

static void read_cached(struct qsi_block_cache *cache, const struct made *made, uint32_t i)
{
    struct qsi_block_view view;

    QS_CHECK_OK(qsi_block_cache_read(cache, &made->file, &made->entries[i], &view, QS_ERROR));
    check_view(&view, made->entries[i].first_offset, made->entries[i].rows);
    qsi_block_view_fini(&view);
}

BLOCKS_TEST(test_reader_that_is_alone_leaves_blocks_that_others_share)
{
    uint64_t random = 5;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct qsi_block_cache_options options = {0};
    struct qsi_block_cache_counts before, after;
    struct qsi_block_cache *cache;

    QS_CHECK_OK(add_blocks(fixture, &made, 30, false, &random, QS_ERROR));
    options.bytes_max = made.file.end / 2;
    QS_CHECK_OK(qsi_block_cache_create(&cache, fixture->blocks, &options, QS_ERROR));
    for (uint32_t i = 0; i < 6; i++) {
        read_cached(cache, &made, i / 2);
    }
    for (uint32_t i = 3; i < 30; i++) {
        read_cached(cache, &made, i);
    }
    qsi_block_cache_counts(cache, &before);
    QS_CHECK(before.hits == 3 && before.misses == 30);
    for (uint32_t i = 0; i < 3; i++) {
        read_cached(cache, &made, i);
    }
    qsi_block_cache_counts(cache, &after);
    QS_CHECK(after.hits == before.hits + 3 && after.misses == before.misses);
    qsi_block_cache_destroy(cache);
}

/* Large bodies make such blocks: four of 100 MB that stayed would keep a store out of memory. */
BLOCKS_TEST(test_blocks_that_are_larger_than_the_cache_do_not_stay)
{
    uint64_t random = 4;
    struct made made = {.file = {.owner = OWNER, .number = 0}};
    struct qsi_budget *budget = qsi_budget_create();
    struct qsi_block_cache_options options = {.bytes_max = 64, .budget = budget};
    struct qsi_block_cache *cache;

    QS_CHECK_OK(add_blocks(fixture, &made, 10, false, &random, QS_ERROR));
    QS_CHECK_OK(qsi_block_cache_create(&cache, fixture->blocks, &options, QS_ERROR));
    for (uint32_t i = 0; i < 10; i++) {
        struct qsi_block_view view;
        QS_CHECK_OK(qsi_block_cache_read(cache, &made.file, &made.entries[i], &view, QS_ERROR));
        QS_CHECK(qsi_budget_bytes(budget) > 0);
        qsi_block_view_fini(&view);
    }
    /* The last one goes when the next is put beside it. */
    QS_CHECK(qsi_budget_bytes(budget) < 2 * made.entries[9].bytes + 4096);
    qsi_block_cache_destroy(cache);
    QS_CHECK(qsi_budget_bytes(budget) == 0);
    qsi_budget_unref(budget);
}
