/* An allocator that fails on demand and knows how many allocations are alive. */
#ifndef QS_TEST_ALLOC_H
#define QS_TEST_ALLOC_H

#include "qstore/alloc.h"

#include "qs_test.h"

#include <stddef.h>
#include <stdint.h>

struct qs_test_alloc {
    uint64_t calls;
    uint64_t fail_at; /* the call, from 1, that fails; 0: none */
    bool is_sticky;   /* the calls after it as well */
    bool has_failed;
    uint64_t alive;
};

static inline void *qs_test_alloc_realloc(void *context, void *memory, size_t bytes)
{
    struct qs_test_alloc *state = context;

    state->calls++;
    if (state->fail_at != 0 &&
        (state->calls == state->fail_at || (state->is_sticky && state->calls > state->fail_at))) {
        state->has_failed = true;
        return NULL;
    }
    state->alive += memory == NULL;
    return realloc(memory, bytes);
}

static inline void qs_test_alloc_free(void *context, void *memory)
{
    struct qs_test_alloc *state = context;

    state->alive -= memory != NULL;
    free(memory);
}

/* One thread only.  state must live until qs_allocator_set(NULL). */
static inline void qs_test_alloc_use(struct qs_test_alloc *state)
{
    qs_allocator allocator = {
        .realloc = qs_test_alloc_realloc, .free = qs_test_alloc_free, .context = state};

    qs_allocator_set(&allocator);
}

static inline void qs_test_alloc_install(struct qs_test_alloc *state)
{
    *state = (struct qs_test_alloc){0};
    qs_test_alloc_use(state);
}

/* All is given back. */
static inline void qs_test_alloc_end(const struct qs_test_alloc *state)
{
    QS_CHECK(state->alive == 0);
    qs_allocator_set(NULL);
}

static inline void qs_test_alloc_arm(struct qs_test_alloc *state, uint64_t fail_at, bool is_sticky)
{
    state->calls = 0;
    state->fail_at = fail_at;
    state->is_sticky = is_sticky;
    state->has_failed = false;
}

#endif
