/* Publishing one message. */
#include "publish.h"

#include "alloc.h"
#include "check.h"
#include "clock.h"
#include "early.h"
#include "notify.h"
#include "properties.h"
#include "publish_counts.h"
#include "publish_trace.h"
#include "publishing.h"
#include "returns.h"
#include "trace.h"
#include "ways.h"

#include <string.h>

static qs_status take_unroutable(const struct qsi_publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = publishing->channel;
    struct qsi_list *returns = qsi_returns_of(channel);
    uint64_t place;

    QS_DCHECK(publishing->route->count == 0);
    if (qsi_confirms_reserve(&channel->confirms,
                             qsi_journal_durable_lsn(channel->store->journal)) != QS_OK ||
        qsi_ways_reserve(channel, qsi_way_bytes(0)) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "confirms");
    }
    if (!qsi_publishing_is_mandatory(publishing)) {
        return QS_OK;
    }
    place = channel->tx_selected && channel->tx_records != NULL ? channel->tx_records->count : 0;
    return qsi_return_one(channel, returns, place, publishing->exchange, publishing->routing.key,
                          publishing->properties, publishing->body, error);
}

/* In a transaction: notes the counts of the message until the commit. */
static qs_status keep(struct qsi_publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_published_notes *notes = &publishing->channel->tx_published;
    const struct qsi_route *route = publishing->route;
    bool as_before = qsi_published_as_before(notes, publishing);

    if (!as_before && qsi_published_note_prepare(notes, route) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "transaction");
    }
    QS_TRY(route->count > 0 ? qsi_publishing_keep(publishing, error)
                            : take_unroutable(publishing, error));
    if (QS_LIKELY(as_before)) {
        qsi_published_note_again(notes);
    } else {
        qsi_published_note_end(notes, publishing->exchange, route->count, 1,
                               qsi_publishing_is_mandatory(publishing));
    }
    return QS_OK;
}

static qs_status take(struct qsi_publishing *publishing, struct qsi_refusals *refusals,
                      qs_receipt *receipt, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    if (publishing->channel->tx_selected) {
        return keep(publishing, error);
    }
    QS_TRY(QS_LIKELY(publishing->route->count > 0)
               ? qsi_publishing_accept(publishing, refusals, &receipt->lsn, error)
               : take_unroutable(publishing, error));
    qsi_count_published(publishing);
    return QS_OK;
}

/* Notes the way of the message for its confirm; a message that waits for nothing is counted as
 * confirmed. */
static void record_way(const struct qsi_publishing *publishing, const qs_receipt *receipt)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_route *route = publishing->route;
    struct qs_channel *channel = publishing->channel;
    uint64_t number = receipt->first_number, *ids;
    struct qsi_confirm_way *way;

    if (QS_LIKELY(receipt->lsn != 0 &&
                  qsi_ways_again(channel, route, publishing->persistent, number, receipt->lsn))) {
        return;
    }
    way = qsi_ways_next(channel, &ids);
    *way = (struct qsi_confirm_way){.first_number = number,
                                    .last_number = number,
                                    .count = 1,
                                    .lsn = receipt->lsn,
                                    .queue_count = route->count,
                                    .persistent = publishing->persistent};
    for (uint32_t i = 0; i < route->count; i++) {
        ids[i] = qsi_queue_of(route->destinations[i])->container.id;
    }
    if (receipt->lsn != 0) {
        qsi_ways_record(channel, way, publishing->exchange);
        qsi_ways_expect(channel, route, publishing->persistent, number);
    } else {
        qsi_ways_count(channel->store, publishing->exchange, ids, route->count, 1);
    }
}

static qs_status publish(struct qsi_publishing *publishing, qs_receipt *receipt, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = publishing->channel;
    struct qsi_refusals refusals = {NULL};
    uint64_t began_us = qsi_is_traced(channel->store) ? qsi_clock_us(channel->store) : 0;
    qs_status status = qsi_publishing_prepare(publishing, error);

    if (status == QS_OK) {
        status = take(publishing, &refusals, receipt, error);
    }
    qsi_message_store_abandon(channel->store->messages, &publishing->place);
    if (status == QS_OK) {
        channel->store->stats.published += 1;
        QS_DCHECK(receipt->lsn == 0 || publishing->route->count > 0);
        receipt->count = 1;
        receipt->unrouted_count = publishing->route->count == 0 ? 1 : 0;
        qsi_refusals_report(&refusals, channel->store, receipt);
    }
    if (status == QS_OK && channel->confirms.selected && !channel->tx_selected) {
        receipt->first_number =
            qsi_confirms_add_batch(&channel->confirms, 1, receipt->lsn, refusals.queues);
        receipt->last_number = receipt->first_number;
        if (QS_LIKELY(refusals.count == 0)) {
            record_way(publishing, receipt);
            if (receipt->lsn != 0 && qsi_early_is_likely(publishing->route)) {
                qsi_early_record(channel, publishing->route, publishing->priority,
                                 receipt->first_number);
            }
        }
        if (receipt->lsn == 0 || refusals.count > 0) {
            qsi_events_notify(channel->store);
        }
    }
    if (status == QS_OK && qsi_is_traced(channel->store)) {
        qsi_trace_published(publishing, receipt, &refusals, began_us);
    }
    qsi_refusals_fini(&refusals);
    return status;
}

static bool may_have_copies(struct qsi_slice properties)
{
    return qsi_properties_may_have_headers(properties.data, properties.bytes) &&
           qsi_may_have_copies(properties);
}

static qs_status send_dead_letter(struct qsi_publishing *dead_letter, uint32_t *queue_count_out,
                                  qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status = qsi_publishing_prepare(dead_letter, error);

    *queue_count_out = status == QS_OK ? dead_letter->route->count : 0;
    if (*queue_count_out > 0) {
        status = qsi_publishing_keep(dead_letter, error);
    }
    qsi_message_store_abandon(dead_letter->channel->store->messages, &dead_letter->place);
    qsi_free((void *)(uintptr_t)dead_letter->open_route.destinations);
    return status;
}

qs_status qsi_publish_dead_letter(struct qs_channel *channel,
                                  const struct qsi_dead_letter *dead_letter,
                                  uint32_t *queue_count_out, bool *may_be_refused_out,
                                  enum qsi_wait wait, qs_error *error)
{
    struct qsi_copies copies = {NULL};
    struct qsi_publishing publishing = {
        .wait = wait,
        .channel = channel,
        .exchange = dead_letter->exchange,
        .routing.key = dead_letter->key,
        .properties = dead_letter->properties,
        .body = dead_letter->body,
        .is_dead_letter = true,
        .flags = QS_BODY_CONSTANT | QS_INTERNAL,
        .may_go_round = dead_letter->may_go_round,
        .expiration_ms = QSI_NO_EXPIRATION,
        .persistent = qsi_properties_delivery_mode(dead_letter->properties.data,
                                                   dead_letter->properties.bytes) == 2,
    };
    qs_status status;

    QS_ASSERT_HELD(&channel->store->mutex);
    *queue_count_out = 0;
    *may_be_refused_out = false;
    if (may_have_copies(dead_letter->properties)) {
        /* an invalid CC or BCC yields no key: the dead-lettered message goes on */
        QS_TRY(qsi_copies_read(&copies, dead_letter->properties, error));
        publishing.routing.copies = copies.keys;
        publishing.routing.copy_count = copies.count;
    }
    status = send_dead_letter(&publishing, queue_count_out, error);
    *may_be_refused_out = *queue_count_out > 0 && publishing.may_be_refused;
    qsi_copies_fini(&copies);
    return status;
}

qs_status qsi_check_names(size_t exchange_bytes, size_t key_bytes, qs_error *error)
{
    if (exchange_bytes > QSI_ROUTE_NAME_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "exchange name of %zu bytes: 255 at most",
                        exchange_bytes);
    }
    if (key_bytes > QSI_ROUTE_NAME_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "routing key of %zu bytes: 255 at most", key_bytes);
    }
    return QS_OK;
}

static qs_status publish_with_copies(struct qsi_publishing *publishing, qs_receipt *receipt,
                                     qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_copies copies;
    qs_status status;

    QS_ASSERT_HELD(&publishing->channel->store->mutex);
    QS_TRY(qsi_copies_read(&copies, publishing->properties, error));
    if (copies.properties != NULL) {
        publishing->properties = qsi_slice_make(copies.properties, copies.properties_bytes);
    }
    publishing->copies = &copies;
    publishing->routing.copies = copies.keys;
    publishing->routing.copy_count = copies.count;
    status = publish(publishing, receipt, error);
    qsi_copies_fini(&copies);
    return status;
}

/* Reads the expiration after the exchange is found: RabbitMQ reports errors of the exchange
 * first. */
static qs_status read_expiration(struct qsi_publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_slice blob = publishing->properties, text;

    publishing->expiration_ms = QSI_NO_EXPIRATION;
    if (QS_LIKELY(!qsi_properties_may_have_expiration(blob.data, blob.bytes))) {
        return QS_OK;
    }
    text = qsi_properties_expiration(blob.data, blob.bytes);
    if (text.data == NULL ||
        qsi_expiration_parse(text, &publishing->expiration_ms, error) == QS_OK) {
        return QS_OK;
    }
    QS_TRY(qsi_publishing_look_up(publishing, error));
    return qsi_expiration_parse(text, &publishing->expiration_ms, error);
}

qs_status qs_channel_publish(qs_channel *channel, qs_slice exchange, qs_slice routing_key,
                             qs_slice properties, qs_slice body, uint32_t flags, uint64_t delay_us,
                             qs_receipt *receipt_out, qs_error *error)
{
    struct qsi_publishing publishing;
    qs_status status;

    qsi_receipt_clear(receipt_out);
    QS_TRY(qsi_check_delay(delay_us, error));
    QS_TRY(qsi_check_names(exchange.bytes, routing_key.bytes, error));
    if (properties.bytes > channel->store->options.body_bytes_max) {
        return qsi_fail(error, QS_EINVAL, "properties of %zu bytes", properties.bytes);
    }
    QS_TRY(qsi_channel_enter(channel, error));
    memset(&publishing, 0, offsetof(struct qsi_publishing, route));
    publishing.channel = channel;
    publishing.exchange = qsi_slice_of(exchange);
    publishing.routing.key = qsi_slice_of(routing_key);
    publishing.properties = qsi_slice_of(properties);
    publishing.body = qsi_slice_of(body);
    if (delay_us > 0) {
        publishing.due_us = qsi_due_us(channel->store, delay_us);
    }
    publishing.wait = qsi_wait_of(flags);
    publishing.flags = flags;
    publishing.persistent =
        qsi_properties_delivery_mode(properties.data, (uint32_t)properties.bytes) == 2;
    status = (flags & QS_IMMEDIATE) != 0 ? qsi_fail(error, QS_NOT_IMPLEMENTED, "immediate=true")
                                         : read_expiration(&publishing, error);
    if (status == QS_OK) {
        status = qsi_check_body_bytes(channel->store->options.body_bytes_max, body.bytes, error);
    }
    if (status == QS_OK) {
        status = may_have_copies(publishing.properties)
                     ? publish_with_copies(&publishing, receipt_out, error)
                     : publish(&publishing, receipt_out, error);
    }
    return qsi_channel_leave_after(channel, publishing.wait, status);
}
