/* The x-jms-topic type: a topic exchange whose bindings may have a selector.
 *
 * A binding matches a message if its key matches, as in a topic exchange, and its selector is true
 * for the message's headers and properties.  Equal selectors are compiled once, and evaluated once
 * for each message, however many bindings share them.
 *
 * Without selectors only the key decides, and the exchange is as fast as a topic exchange.
 *
 * Invariant: a selector is in the map while bindings use it; while the map has selectors, the
 * exchange is marked with headers and the properties that decide. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "field_print.h"
#include "match_topic.h"
#include "route_internal.h"
#include "selector.h"

#define SELECTOR "x-jms-selector"
#define ERLANG_SELECTOR "rjms_erlang_selector"

struct qsi_shared_selector {
    struct qsi_selector *selector;
    uint64_t user_count;
    uint64_t message; /* the last message for which it was evaluated */
    bool is_selected; /* its value for that message */
};

struct jms_topic {
    struct qsi_map selectors; /* text to qsi_shared_selector */
    uint64_t message;         /* number of the last message */
};

/* ---- arguments ---- */

/* An empty slice: every message is selected. */
static struct qsi_slice text_of(struct qsi_slice arguments)
{
    struct qsi_field field;

    return qsi_table_find(arguments, QSI_SLICE_LITERAL(SELECTOR), &field) && field.type == 'S'
               ? field.value
               : QSI_SLICE_NULL;
}

static qs_status check_text(struct qsi_slice text, qs_error *error)
{
    struct qsi_selector *selector;

    QS_TRY(qsi_selector_compile(text, &selector, error));
    qsi_selector_destroy(selector);
    return QS_OK;
}

static qs_status check(struct qsi_slice key, struct qsi_slice arguments, qs_error *error)
{
    struct qsi_slice text = text_of(arguments);
    struct qsi_field field;

    (void)key;
    if (qsi_table_find(arguments, QSI_SLICE_LITERAL(ERLANG_SELECTOR), &field)) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "binding argument '" ERLANG_SELECTOR "' is not supported: give the "
                        "selector's text as '" SELECTOR "'");
    }
    if (qsi_table_find(arguments, QSI_SLICE_LITERAL(SELECTOR), &field) && field.type != 'S') {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "invalid type '%s' for binding argument '" SELECTOR "': a string is needed",
                        qsi_field_type_name(field.type));
    }
    return text.bytes > 0 ? check_text(text, error) : QS_OK;
}

/* ---- shared selectors ---- */

static struct jms_topic *jms_of(const struct qsi_exchange *exchange)
{
    return *qsi_topic_extra(exchange->matcher);
}

static void record_selectors(struct qsi_exchange *exchange)
{
    struct jms_topic *jms = jms_of(exchange);
    struct qsi_map_cursor cursor = qsi_map_begin(&jms->selectors);

    exchange->by_headers = jms->selectors.count > 0;
    exchange->by_properties = 0;
    while (qsi_map_next(&jms->selectors, &cursor)) {
        const struct qsi_shared_selector *shared = cursor.value;
        exchange->by_properties |= qsi_selector_properties(shared->selector);
    }
    qsi_exchange_update_is_plain(exchange);
}

static qs_status create_shared(struct jms_topic *jms, struct qsi_slice text,
                               struct qsi_shared_selector **shared_out)
{
    struct qsi_shared_selector *shared = qsi_zalloc(sizeof *shared);
    qs_status status;

    if (shared == NULL) {
        return QS_ENOMEM;
    }
    status = qsi_selector_compile(text, &shared->selector, NULL);
    if (status == QS_OK) {
        status = qsi_map_put(&jms->selectors, text.data, text.bytes, shared);
    }
    if (status != QS_OK) {
        qsi_selector_destroy(shared->selector);
        qsi_free(shared);
        return status;
    }
    *shared_out = shared;
    return QS_OK;
}

/* An invalid selector, from a binding of another build, selects all messages, so that none is
 * lost. */
static qs_status use_selector(struct qsi_binding *binding)
{
    struct jms_topic *jms = jms_of(binding->exchange);
    struct qsi_slice text = text_of(binding->arguments);
    struct qsi_shared_selector *shared;
    qs_status status;

    if (text.bytes == 0) {
        return QS_OK;
    }
    shared = qsi_map_get(&jms->selectors, text.data, text.bytes);
    if (shared == NULL) {
        status = create_shared(jms, text, &shared);
        if (status != QS_OK) {
            return status == QS_ENOMEM ? status : QS_OK;
        }
        record_selectors(binding->exchange);
    }
    shared->user_count++;
    binding->selector = shared;
    return QS_OK;
}

static void leave_selector(struct qsi_binding *binding)
{
    struct jms_topic *jms = jms_of(binding->exchange);
    struct qsi_shared_selector *shared = binding->selector;
    struct qsi_slice text = text_of(binding->arguments);
    const void *removed;

    if (shared == NULL) {
        return;
    }
    binding->selector = NULL;
    QS_ASSERT(shared->user_count > 0);
    if (--shared->user_count == 0) {
        removed = qsi_map_remove(&jms->selectors, text.data, text.bytes);
        QS_ASSERT(removed == shared);
        qsi_selector_destroy(shared->selector);
        qsi_free(shared);
        record_selectors(binding->exchange);
    }
}

/* ---- matching ---- */

static bool is_selected(const struct jms_topic *jms, struct qsi_shared_selector *shared,
                        const struct qsi_routing *routing)
{
    if (shared->message != jms->message) {
        const struct qsi_selector_subject subject = {routing->headers, routing->properties};
        shared->message = jms->message;
        shared->is_selected = qsi_selector_evaluate(shared->selector, &subject) == QSI_TRUTH_TRUE;
    }
    return shared->is_selected;
}

static qs_status collect_set(struct qsi_collection *collection, const struct jms_topic *jms,
                             const struct qsi_binding_set *set, const struct qsi_routing *routing)
{
    for (const struct qsi_list *node = set->bindings.next; node != &set->bindings;
         node = node->next) {
        const struct qsi_binding *binding = QSI_LIST_OWNER(node, const struct qsi_binding, in_set);
        if (binding->selector == NULL || is_selected(jms, binding->selector, routing)) {
            QS_TRY(qsi_collect_destination(collection, binding->destination));
        }
    }
    return QS_OK;
}

static qs_status collect_key(struct qsi_collection *collection, struct qsi_exchange *exchange,
                             struct qsi_slice key, const struct qsi_routing *routing)
{
    const struct jms_topic *jms = jms_of(exchange);
    uint32_t count;

    QS_TRY(qsi_topic_walk(exchange->matcher, key, &count));
    for (uint32_t i = 0; i < count; i++) {
        QS_TRY(collect_set(collection, jms, qsi_topic_found(exchange->matcher, i), routing));
    }
    return QS_OK;
}

static qs_status collect(struct qsi_collection *collection, struct qsi_exchange *exchange,
                         const struct qsi_routing *routing)
{
    jms_of(exchange)->message++;
    QS_TRY(collect_key(collection, exchange, routing->key, routing));
    for (uint32_t i = 0; i < routing->copy_count; i++) {
        QS_TRY(collect_key(collection, exchange, routing->copies[i], routing));
    }
    return QS_OK;
}

/* ---- the type ---- */

static qs_status create(void **matcher_out)
{
    struct jms_topic *jms = qsi_zalloc(sizeof *jms);

    if (jms == NULL || qsi_topic_create(matcher_out) != QS_OK) {
        qsi_free(jms);
        return QS_ENOMEM;
    }
    *qsi_topic_extra(*matcher_out) = jms;
    return QS_OK;
}

static void destroy(struct qsi_router *router, void *matcher)
{
    struct jms_topic *jms = *qsi_topic_extra(matcher);

    QS_ASSERT(jms->selectors.count == 0);
    qsi_topic_destroy(router, matcher);
    qsi_map_fini(&jms->selectors);
    qsi_free(jms);
}

static qs_status add(struct qsi_router *router, struct qsi_binding *binding)
{
    QS_TRY(use_selector(binding));
    if (qsi_topic_add(router, binding) != QS_OK) {
        leave_selector(binding);
        return QS_ENOMEM;
    }
    return QS_OK;
}

static void remove_binding(struct qsi_router *router, struct qsi_binding *binding)
{
    qsi_topic_remove(router, binding);
    leave_selector(binding);
}

const struct qsi_exchange_type qsi_match_jms_topic = {
    .name = {(const uint8_t *)"x-jms-topic", 11},
    .create = create,
    .destroy = destroy,
    .add = add,
    .remove = remove_binding,
    .lookup = qsi_topic_lookup,
    .collect = collect,
    .check = check,
    .forget = qsi_topic_forget,
};
