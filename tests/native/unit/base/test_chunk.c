/* Counted chunks: alive until the last reference goes, from any thread. */
#include "budget.h"
#include "chunk.h"
#include "qs_test.h"
#include "qs_test_alloc.h"

#include <pthread.h>
#include <sys/mman.h>

#define THREAD_COUNT 4
#define ROUND_COUNT 20000

static void test_chunk_lives_until_its_last_reference_goes(void)
{
    struct qs_test_alloc state;
    struct qsi_chunk *chunk;

    qs_test_alloc_install(&state);
    chunk = qsi_chunk_create(100);
    QS_CHECK(chunk != NULL && chunk->capacity == 100 && chunk->used == 0);
    memset(chunk->data, 7, 100);
    QS_CHECK(qsi_chunk_ref(chunk) == chunk);
    qsi_chunk_unref(chunk);
    QS_CHECK(state.alive == 1 && chunk->data[99] == 7);
    qsi_chunk_unref(chunk);
    qsi_chunk_unref(NULL);
    QS_CHECK(state.alive == 0);
    qs_test_alloc_arm(&state, 1, false);
    QS_CHECK(qsi_chunk_create(100) == NULL);
    QS_CHECK(qsi_chunk_create(SIZE_MAX) == NULL);
    qs_allocator_set(NULL);
}

static void test_a_chunk_is_counted_until_it_is_given_away(void)
{
    struct qsi_budget *budget = qsi_budget_create();
    struct qsi_chunk *chunk = qsi_chunk_create(100);

    QS_CHECK(budget != NULL && chunk != NULL);
    qsi_chunk_charge(chunk, budget);
    QS_CHECK(qsi_budget_bytes(budget) == sizeof *chunk + 100);
    qsi_chunk_uncharge(chunk);
    QS_CHECK(qsi_budget_bytes(budget) == 0);
    qsi_chunk_uncharge(chunk);
    QS_CHECK(qsi_budget_bytes(budget) == 0);
    qsi_chunk_charge(chunk, budget);
    qsi_chunk_unref(chunk);
    QS_CHECK(qsi_budget_bytes(budget) == 0);
    qsi_budget_unref(budget);
}

static void *take_and_drop(void *chunk)
{
    for (int i = 0; i < ROUND_COUNT; i++) {
        qsi_chunk_unref(qsi_chunk_ref(chunk));
    }
    qsi_chunk_unref(chunk);
    return NULL;
}

static void test_a_populated_chunk_has_its_pages_and_what_was_in_it(void)
{
    enum { PAGES = 512, PAGE_BYTES = 4096 };
    struct qsi_chunk *chunk = qsi_chunk_create((PAGES + 2) * PAGE_BYTES);
    unsigned char resident[PAGES];
    uint8_t *pages;

    QS_CHECK(chunk != NULL);
    pages = (uint8_t *)(((uintptr_t)chunk->data + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1));
    chunk->data[0] = 1;
    pages[PAGES * PAGE_BYTES / 2] = 2;
    qsi_chunk_populate(chunk);
    QS_CHECK(chunk->data[0] == 1 && pages[PAGES * PAGE_BYTES / 2] == 2);
#ifdef MADV_POPULATE_WRITE
    if (madvise(pages, PAGE_BYTES, MADV_POPULATE_WRITE) == 0) { /* the kernel can, since 5.14 */
        QS_CHECK(mincore(pages, sizeof resident * PAGE_BYTES, resident) == 0);
        for (int i = 0; i < PAGES; i++) {
            QS_CHECK((resident[i] & 1) != 0);
        }
    }
#else
    (void)resident;
#endif
    qsi_chunk_unref(chunk);
}

static void test_a_small_chunk_is_left_as_it_is(void)
{
    struct qsi_chunk *chunk = qsi_chunk_create(1);

    QS_CHECK(chunk != NULL);
    chunk->data[0] = 7;
    qsi_chunk_populate(chunk);
    QS_CHECK(chunk->data[0] == 7);
    qsi_chunk_unref(chunk);
}

static void test_references_of_many_threads_add_up(void)
{
    struct qsi_chunk *chunk = qsi_chunk_create(1);
    pthread_t threads[THREAD_COUNT];

    QS_CHECK(chunk != NULL);
    for (int i = 0; i < THREAD_COUNT; i++) {
        QS_CHECK(pthread_create(&threads[i], NULL, take_and_drop, qsi_chunk_ref(chunk)) == 0);
    }
    for (int i = 0; i < THREAD_COUNT; i++) {
        QS_CHECK(pthread_join(threads[i], NULL) == 0);
    }
    QS_CHECK(chunk->refs == 1);
    qsi_chunk_unref(chunk);
}

int main(void)
{
    test_chunk_lives_until_its_last_reference_goes();
    test_a_chunk_is_counted_until_it_is_given_away();
    test_a_populated_chunk_has_its_pages_and_what_was_in_it();
    test_a_small_chunk_is_left_as_it_is();
    test_references_of_many_threads_add_up();
    return 0;
}
