/* A router with queues, exchanges that lead to each other, and the queues that a route reaches. */
#ifndef WALK_FIXTURE_H
#define WALK_FIXTURE_H

#include "header_table.h"

static struct queue queues[8];

static inline void start(struct qsi_router *router)
{
    QS_CHECK(qsi_router_init(router, NULL, NULL, NULL) == QS_OK);
    for (int i = 0; i < 8; i++) {
        add_queue(router, &queues[i], i);
    }
}

QS_TEST_FIXTURE(run_router, struct qsi_router, start(&fixture), qsi_router_fini(&fixture))
#define ROUTER_TEST(name) QS_TEST_BY(run_router, name, (struct qsi_router * router))

static inline struct table alternate_table(const char *name)
{
    struct table table = {.used = 0};

    put_text(&table, "alternate-exchange", name);
    return table;
}

static inline struct qsi_exchange *declare_alternate(struct qsi_router *router, const char *name,
                                                     const char *type, const char *alternate)
{
    struct table arguments = alternate_table(alternate);
    const struct qsi_exchange_options options = {.type = text(type),
                                                 .arguments = slice_of(&arguments)};
    bool created;

    QS_CHECK(qsi_router_declare(router, text(name), &options, &created, NULL) == QS_OK);
    return qsi_router_find(router, text(name));
}

static inline void join(struct qsi_router *router, struct qsi_exchange *source,
                        struct qsi_exchange *destination, const char *key)
{
    bool bound;

    QS_CHECK(qsi_router_bind(router, source, &destination->destination, text(key), NO_ARGUMENTS,
                             &bound, NULL) == QS_OK);
}

static inline void part(struct qsi_router *router, struct qsi_exchange *source,
                        struct qsi_exchange *destination, const char *key)
{
    bool unbound;

    QS_CHECK(qsi_router_unbind(router, source, &destination->destination, text(key), NO_ARGUMENTS,
                               QSI_AUTO_DELETE_GOES, &unbound, NULL) == QS_OK &&
             unbound);
}

/* The queues' numbers as digits, in route order. */
static inline const char *reached(struct qsi_router *router, struct qsi_exchange *exchange,
                                  const char *key)
{
    static char digits[9];
    const struct qsi_route *route = lookup(router, exchange, text(key));

    for (uint32_t i = 0; i < route->count; i++) {
        digits[i] = (char)route->destinations[i]->name.data[1];
    }
    digits[route->count] = 0;
    return digits;
}
#define CHECK_REACHED(exchange, key, digits) \
    QS_CHECK(strcmp(reached(router, exchange, key), digits) == 0)

#endif
