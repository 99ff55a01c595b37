/* Counters of exchange and queue: made when they are used, kept by the end that stays. */
#include "route_fixture.h"
#include "tally.h"

#define QUEUES 3

struct world {
    struct qsi_router router;
    struct queue queues[QUEUES];
    struct qsi_exchange *first, *second;
};

static void start(struct world *world)
{
    QS_CHECK(qsi_router_init(&world->router, NULL, NULL, NULL) == QS_OK);
    for (int i = 0; i < QUEUES; i++) {
        add_queue(&world->router, &world->queues[i], i);
    }
    world->first = declare(&world->router, "first", "fanout");
    world->second = declare(&world->router, "second", "fanout");
}

QS_TEST_FIXTURE(run_world, struct world, start(&fixture), qsi_router_fini(&fixture.router))
#define WORLD_TEST(name) QS_TEST_BY(run_world, name, (struct world * world))

static void count(struct world *world, struct qsi_exchange *exchange, int queue, uint64_t messages)
{
    qsi_tally(exchange, &world->queues[queue].destination, messages);
}

static uint64_t published_to(const struct world *world, int queue)
{
    return qsi_destination_published(&world->queues[queue].destination);
}

struct found {
    uint64_t sum;
    int count;
};

static void note(void *context, const struct qsi_tally *tally)
{
    struct found *found = context;

    found->sum += tally->published;
    found->count += 1;
}

static struct found find_all(const struct world *world)
{
    struct found found = {0};

    qsi_router_visit_tallies(&world->router, note, &found);
    return found;
}

WORLD_TEST(test_each_pair_counts_for_itself_however_they_alternate)
{
    QS_CHECK(find_all(world).count == 0);
    for (uint64_t i = 1; i <= 10; i++) {
        count(world, world->first, 0, 1);
        count(world, world->second, 0, 10);
        count(world, world->first, 1, 100);
    }
    QS_CHECK(find_all(world).count == 3 && find_all(world).sum == 1110);
    QS_CHECK(published_to(world, 0) == 110 && published_to(world, 1) == 1000);
    QS_CHECK(published_to(world, 2) == 0);
    QS_CHECK(qsi_exchange_published_out(world->first) == 1010);
    QS_CHECK(qsi_exchange_published_out(world->second) == 100);
}

WORLD_TEST(test_a_queue_keeps_what_an_exchange_that_goes_has_counted)
{
    count(world, world->first, 0, 5);
    count(world, world->second, 0, 7);
    count(world, world->first, 1, 1);
    count(world, world->first, 0, 1);
    qsi_router_delete(&world->router, world->first, QSI_AUTO_DELETE_GOES);
    QS_CHECK(find_all(world).count == 1 && find_all(world).sum == 7);
    QS_CHECK(published_to(world, 0) == 13 && published_to(world, 1) == 1);
    count(world, world->second, 0, 1);
    QS_CHECK(published_to(world, 0) == 14);
}

WORLD_TEST(test_an_exchange_keeps_what_a_queue_that_goes_has_counted)
{
    count(world, world->first, 0, 5);
    count(world, world->first, 1, 7);
    qsi_router_remove_destination(&world->router, &world->queues[0].destination,
                                  QSI_AUTO_DELETE_GOES);
    QS_CHECK(qsi_exchange_published_out(world->first) == 12);
    QS_CHECK(find_all(world).count == 1);
    add_queue(&world->router, &world->queues[0], 0); /* at the same place, and another queue */
    QS_CHECK(published_to(world, 0) == 0);
    count(world, world->first, 0, 1);
    QS_CHECK(published_to(world, 0) == 1 && qsi_exchange_published_out(world->first) == 13);
}

QS_TEST(test_without_memory_for_a_pair_its_ends_count_alone)
{
    struct qs_test_alloc memory;
    struct world world;

    qs_test_alloc_install(&memory);
    start(&world);
    qs_test_alloc_arm(&memory, 1, true);
    count(&world, world.first, 0, 2);
    qs_test_alloc_arm(&memory, 0, false);
    QS_CHECK(find_all(&world).count == 0 && published_to(&world, 0) == 2);
    QS_CHECK(qsi_exchange_published_out(world.first) == 2);
    count(&world, world.first, 0, 1);
    QS_CHECK(find_all(&world).count == 1 && published_to(&world, 0) == 3);
    qsi_router_fini(&world.router);
    qs_test_alloc_end(&memory);
}
