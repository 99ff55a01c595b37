/* Counted chunks: alive until the last reference goes, from any thread. */
#include "budget.h"
#include "chunk.h"
#include "qs_test_alloc.h"

#include <pthread.h>
#include <sys/mman.h>

#define THREAD_COUNT 4
#define ROUND_COUNT 20000

QS_TEST(test_chunk_lives_until_its_last_reference_goes)
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

QS_TEST(test_a_chunk_is_counted_until_it_is_given_away)
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

/* What is behind `used` is neither counted nor kept, and nothing is given back twice. */
QS_TEST(test_the_rest_of_a_chunk_that_has_ended_is_given_back)
{
    enum { CAPACITY = 256 << 10, USED = 5000 };
    struct qsi_budget *budget = qsi_budget_create();
    struct qsi_chunk *chunk = qsi_chunk_create(CAPACITY), *small = qsi_chunk_create(100);

    QS_CHECK(budget != NULL && chunk != NULL && small != NULL);
    qsi_chunk_charge(chunk, budget);
    memset(chunk->data, 7, CAPACITY);
    chunk->used = USED;
    qsi_chunk_end(chunk, budget);
    QS_CHECK(qsi_budget_bytes(budget) == sizeof *chunk + USED);
    for (size_t i = 0; i < USED; i++) {
        QS_CHECK(chunk->data[i] == 7);
    }
    QS_CHECK(chunk->data[CAPACITY / 2] == 0);
    qsi_chunk_charge(small, budget);
    qsi_chunk_end(small, budget);
    QS_CHECK(qsi_budget_bytes(budget) == 2 * sizeof *chunk + USED + 100);
    qsi_chunk_unref(small);
    qsi_chunk_uncharge(chunk);
    QS_CHECK(qsi_budget_bytes(budget) == 0);
    qsi_chunk_end(chunk, budget);
    QS_CHECK(qsi_budget_bytes(budget) == 0);
    qsi_chunk_unref(chunk);
    qsi_budget_unref(budget);
}

#ifndef __SANITIZE_ADDRESS__
static void test_a_reusable_chunk_waits_for_the_next_one_that_fits(void)
{
    struct qs_test_alloc state;
    struct qsi_budget *budget;
    struct qsi_chunk *first, *second, *third;

    qs_test_alloc_install(&state);
    budget = qsi_budget_create();
    QS_CHECK(budget != NULL);
    first = qsi_chunk_create_reusable(budget, 1 << 20);
    qsi_chunk_charge(first, budget);
    qsi_chunk_unref(first);
    QS_CHECK(state.alive == 2 && qsi_budget_bytes(budget) == 0);
    second = qsi_chunk_create_reusable(budget, (1 << 20) - 4096);
    QS_CHECK(second == first && second->refs == 1 && second->used == 0 && state.alive == 2);
    qsi_chunk_charge(second, budget);
    QS_CHECK(qsi_budget_bytes(budget) == sizeof *second + second->capacity);
    third = qsi_chunk_create_reusable(budget, 300 << 10);
    QS_CHECK(third != first && third->capacity == 300 << 10);
    qsi_chunk_charge(third, budget);
    qsi_chunk_unref(second);
    qsi_chunk_unref(third);
    first = qsi_chunk_create_reusable(budget, 3 << 20); /* neither fits: both are given up */
    QS_CHECK(first->capacity == 3 << 20 && state.alive == 2);
    qsi_chunk_charge(first, budget);
    qsi_chunk_unref(first);
    QS_CHECK(state.alive == 2);
    qsi_budget_drop_spares(budget);
    QS_CHECK(state.alive == 1 && qsi_budget_bytes(budget) == 0);
    qsi_budget_unref(budget);
    qs_test_alloc_end(&state);
}

static void test_what_waits_goes_with_its_budget(void)
{
    struct qs_test_alloc state;
    struct qsi_budget *budget;
    struct qsi_chunk *held, *given, *small;

    qs_test_alloc_install(&state);
    budget = qsi_budget_create();
    held = qsi_chunk_create_reusable(budget, 1 << 20);
    given = qsi_chunk_create_reusable(budget, 1 << 20);
    small = qsi_chunk_create_reusable(budget, 100);
    QS_CHECK(budget != NULL && held != NULL && given != NULL && small != NULL);
    qsi_chunk_charge(held, budget);
    qsi_chunk_charge(given, budget);
    qsi_chunk_charge(small, budget);
    qsi_chunk_unref(small);
    qsi_chunk_uncharge(given); /* it is its holder's memory */
    qsi_chunk_unref(given);
    QS_CHECK(state.alive == 2);
    qsi_budget_unref(budget); /* the store was closed, a message is held still */
    qsi_chunk_unref(held);
    qs_test_alloc_end(&state);
}

struct shared_budget {
    struct qsi_budget *budget;
    int failures; /* touched with atomics only */
};

static void *make_and_drop(void *context)
{
    struct shared_budget *shared = context;

    for (int i = 0; i < 200; i++) {
        struct qsi_chunk *chunk = qsi_chunk_create_reusable(shared->budget, 300 << 10);
        uint8_t own = (uint8_t)(uintptr_t)&chunk;
        qsi_chunk_charge(chunk, shared->budget);
        memset(chunk->data, own, 4096);
        if (chunk->refs != 1 || chunk->data[4095] != own || chunk->used != 0) {
            __atomic_fetch_add(&shared->failures, 1, __ATOMIC_RELAXED);
        }
        chunk->used = 4096;
        qsi_chunk_unref(chunk);
    }
    return NULL;
}

/* A batch that somebody kept after close kept up to 8 MiB besides. */
static void test_nothing_waits_once_the_owner_of_the_budget_is_gone(void)
{
    struct qs_test_alloc state;
    struct qsi_budget *budget;
    struct qsi_chunk *batch, *before, *after;

    qs_test_alloc_install(&state);
    budget = qsi_budget_create();
    batch = qsi_chunk_create(100);
    before = qsi_chunk_create_reusable(budget, 1 << 20);
    after = qsi_chunk_create_reusable(budget, 1 << 20);
    QS_CHECK(budget != NULL && batch != NULL && before != NULL && after != NULL);
    qsi_chunk_charge(batch, budget);
    qsi_chunk_charge(before, budget);
    qsi_chunk_charge(after, budget);
    qsi_chunk_unref(before);
    qsi_budget_close(budget);
    QS_CHECK(state.alive == 3);
    qsi_chunk_unref(after);
    QS_CHECK(state.alive == 2);
    qsi_chunk_unref(batch);
    qs_test_alloc_end(&state);
}

static void test_threads_reuse_each_others_chunks(void)
{
    struct shared_budget shared = {.budget = qsi_budget_create()};
    pthread_t threads[THREAD_COUNT];

    for (int i = 0; i < THREAD_COUNT; i++) {
        QS_CHECK(pthread_create(&threads[i], NULL, make_and_drop, &shared) == 0);
    }
    for (int i = 0; i < THREAD_COUNT; i++) {
        QS_CHECK(pthread_join(threads[i], NULL) == 0);
    }
    QS_CHECK(shared.failures == 0 && qsi_budget_bytes(shared.budget) == 0);
    qsi_budget_unref(shared.budget);
}
#endif

static void *take_and_drop(void *chunk)
{
    for (int i = 0; i < ROUND_COUNT; i++) {
        qsi_chunk_unref(qsi_chunk_ref(chunk));
    }
    qsi_chunk_unref(chunk);
    return NULL;
}

QS_TEST(test_a_populated_chunk_has_its_pages_and_what_was_in_it)
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

QS_TEST(test_a_small_chunk_is_left_as_it_is)
{
    struct qsi_chunk *chunk = qsi_chunk_create(1);

    QS_CHECK(chunk != NULL);
    chunk->data[0] = 7;
    qsi_chunk_populate(chunk);
    QS_CHECK(chunk->data[0] == 7);
    qsi_chunk_unref(chunk);
}

QS_TEST(test_references_of_many_threads_add_up)
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
    qs_test_run_all();
#ifndef __SANITIZE_ADDRESS__
    test_a_reusable_chunk_waits_for_the_next_one_that_fits();
    test_what_waits_goes_with_its_budget();
    test_nothing_waits_once_the_owner_of_the_budget_is_gone();
    test_threads_reuse_each_others_chunks();
#endif
    return 0;
}
