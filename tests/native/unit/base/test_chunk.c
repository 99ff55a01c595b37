/* Counted chunks: alive until the last reference goes, from any thread. */
#include "chunk.h"
#include "qs_test.h"
#include "qs_test_alloc.h"

#include <pthread.h>

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

static void *take_and_drop(void *chunk)
{
    for (int i = 0; i < ROUND_COUNT; i++) {
        qsi_chunk_unref(qsi_chunk_ref(chunk));
    }
    qsi_chunk_unref(chunk);
    return NULL;
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
    test_references_of_many_threads_add_up();
    return 0;
}
