/* What the server had of vhosts that have ended is freed while it goes on, also when several
 * threads end the same one. */
#include "qstore/alloc.h"
#include "qstore/qstore.h"

#include "qs_test.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 300, ENDERS = 3, BLOCKS_MAX = 40 };

static atomic_long blocks; /* that are allocated */

static void *count_realloc(void *context, void *memory, size_t bytes)
{
    void *made = realloc(memory, bytes);

    (void)context;
    atomic_fetch_add(&blocks, memory == NULL && made != NULL);
    return made;
}

static void count_free(void *context, void *memory)
{
    (void)context;
    atomic_fetch_sub(&blocks, memory != NULL);
    free(memory);
}

static void *run_ender(void *server)
{
    qs_server_end_vhost(server, "b", 0);
    return NULL;
}

static void come_and_go(qs_server *server, qs_store *store)
{
    pthread_t enders[ENDERS];

    QS_CHECK_OK(qs_server_add_vhost(server, "b", store, QS_ERROR));
    for (int i = 0; i < ENDERS; i++) {
        QS_CHECK(pthread_create(&enders[i], NULL, run_ender, server) == 0);
    }
    for (int i = 0; i < ENDERS; i++) {
        pthread_join(enders[i], NULL);
    }
}

static void await_blocks(long most)
{
    for (int i = 0; atomic_load(&blocks) > most; i++) {
        QS_CHECK(i < 60000);
        usleep(1000);
    }
}

int main(void)
{
    const qs_allocator counting = {.realloc = count_realloc, .free = count_free};
    qs_options options;
    qs_store *first, *second;
    qs_server *server;
    long before;

    qs_allocator_set(&counting);
    qs_options_default(&options);
    QS_CHECK_OK(qs_store_open(&first, QS_PATH_MEMORY, &options, NULL, QS_ERROR));
    QS_CHECK_OK(qs_store_open(&second, QS_PATH_MEMORY, &options, NULL, QS_ERROR));
    QS_CHECK_OK(qs_server_open(&server, first, NULL, QS_ERROR));
    come_and_go(server, second);
    before = atomic_load(&blocks);
    for (int i = 0; i < ROUNDS; i++) {
        come_and_go(server, second);
    }
    await_blocks(before + BLOCKS_MAX);
    QS_CHECK(qs_server_add_vhost(server, "b", first, NULL) == QS_EINVAL); /* it is another's */
    qs_server_close(server);
    QS_CHECK_OK(qs_store_close(second, QS_ERROR));
    QS_CHECK_OK(qs_store_close(first, QS_ERROR));
    QS_CHECK(atomic_load(&blocks) == 0);
    return 0;
}
