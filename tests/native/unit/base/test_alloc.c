/* The allocator: zeroing, replacing, and requests for nothing. */
#include "alloc.h"
#include "qs_test_alloc.h"

QS_TEST(test_zalloc_is_zeroed)
{
    const char zeros[1000] = {0};
    char *memory = qsi_zalloc(sizeof zeros);

    QS_CHECK(memory != NULL && memcmp(memory, zeros, sizeof zeros) == 0);
    qsi_free(memory);
}

QS_TEST(test_nothing_asked_for_is_still_memory)
{
    void *memory = qsi_alloc(0);

    QS_CHECK(memory != NULL);
    memory = qsi_realloc(memory, 0);
    QS_CHECK(memory != NULL);
    qsi_free(memory);
    qsi_free(NULL);
}

QS_TEST(test_an_array_grows_or_stays)
{
    struct qs_test_alloc state;
    uint32_t capacity = 0, *items = NULL, *grown;

    qs_test_alloc_install(&state);
    items = qsi_grow(items, &capacity, 4, sizeof *items);
    QS_CHECK(items != NULL && capacity == 4);
    items[3] = 7;
    items = qsi_grow(items, &capacity, 4, sizeof *items);
    QS_CHECK(items != NULL && capacity == 8 && items[3] == 7);
    qs_test_alloc_arm(&state, 1, true);
    QS_CHECK(qsi_grow(items, &capacity, 4, sizeof *items) == NULL && capacity == 8);
    capacity = UINT32_C(1) << 31; /* twice that is no number */
    grown = qsi_grow(NULL, &capacity, 4, sizeof *items);
    QS_CHECK(grown == NULL && capacity == UINT32_C(1) << 31);
    QS_CHECK(items[3] == 7);
    qsi_free(items);
    qs_allocator_set(NULL);
}

QS_TEST(test_replaced_allocator_is_used_until_reset)
{
    struct qs_test_alloc state;
    void *memory;

    qs_test_alloc_install(&state);
    memory = qsi_alloc(10);
    QS_CHECK(memory != NULL && state.alive == 1);
    qs_test_alloc_arm(&state, 1, true);
    QS_CHECK(qsi_zalloc(10) == NULL);
    QS_CHECK(qsi_realloc(memory, 20) == NULL);
    qsi_free(memory);
    qs_test_alloc_end(&state);
    memory = qsi_alloc(10);
    QS_CHECK(memory != NULL && state.alive == 0);
    qsi_free(memory);
}
