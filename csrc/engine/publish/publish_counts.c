/* Counting what was published. */
#include "publish_counts.h"

#include "buf.h"
#include "check.h"
#include "priorities.h"

#include <stddef.h>
#include <string.h>

/* Exchange names take their maximum length, so ids are aligned. */
#define ALIGN 8u
#define KNOWN_BYTES 128u /* of memory for a known note, beside the note itself, about */

static size_t note_bytes(uint32_t queue_count, uint8_t exchange_bytes)
{
    return sizeof(struct qsi_published_note) + queue_count * sizeof(uint64_t) +
           (exchange_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static struct qsi_published_note *note_at(const struct qsi_published_notes *notes, size_t at)
{
    return (struct qsi_published_note *)(void *)(notes->notes.data + at);
}

static uint64_t *ids_of(struct qsi_published_note *note)
{
    return (uint64_t *)(void *)(note + 1);
}

const uint64_t *qsi_published_note_ids(const struct qsi_published_note *note)
{
    return (const uint64_t *)(const void *)(note + 1);
}

struct qsi_slice qsi_published_note_exchange(const struct qsi_published_note *note)
{
    return qsi_slice_make(qsi_published_note_ids(note) + note->queue_count, note->exchange_bytes);
}

void qsi_count_unroutable(struct qs_channel *channel, struct qsi_exchange *exchange, uint64_t count,
                          bool mandatory)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    if (mandatory) {
        channel->counts.return_unroutable += count;
        exchange->returned += count;
    } else {
        channel->counts.drop_unroutable += count;
        exchange->dropped += count;
    }
}

/* ---- notes ---- */

qs_status qsi_published_note_begin(struct qsi_published_notes *notes, uint32_t queue_count,
                                   uint64_t **ids_out)
{
    uint8_t *room;

    QS_TRY(qsi_buf_reserve(&notes->notes, note_bytes(queue_count, UINT8_MAX), &room));
    *ids_out = ids_of((struct qsi_published_note *)(void *)room);
    return QS_OK;
}

/* Whether the note after the last one says the same about other messages. */
static bool goes_the_same_way(const struct qsi_published_notes *notes,
                              const struct qsi_published_note *next)
{
    const struct qsi_published_note *last = note_at(notes, notes->last_at);

    return notes->notes.bytes > 0 && last->queue_count == next->queue_count &&
           last->exchange_bytes == next->exchange_bytes && last->mandatory == next->mandatory &&
           memcmp(last + 1, next + 1,
                  next->queue_count * sizeof(uint64_t) + next->exchange_bytes) == 0;
}

void qsi_published_note_end(struct qsi_published_notes *notes, struct qsi_slice exchange,
                            uint32_t queue_count, uint64_t count, bool mandatory)
{
    struct qsi_published_note *next = note_at(notes, notes->notes.bytes);

    QS_DCHECK(exchange.bytes <= QSI_ROUTE_NAME_BYTES_MAX);
    memset(next, 0, sizeof *next); /* its gaps are compared, too */
    next->count = count;
    next->queue_count = queue_count;
    next->exchange_bytes = (uint8_t)exchange.bytes;
    next->mandatory = mandatory;
    qsi_slice_put((uint8_t *)(ids_of(next) + queue_count), exchange);
    if (goes_the_same_way(notes, next)) {
        note_at(notes, notes->last_at)->count += count;
        return;
    }
    notes->last_at = notes->notes.bytes;
    notes->notes.bytes += note_bytes(queue_count, next->exchange_bytes);
}

bool qsi_published_as_before(const struct qsi_published_notes *notes,
                             const struct qsi_publishing *publishing)
{
    const struct qsi_route *route = publishing->route;
    struct qsi_published_note *last;
    bool is_same;

    if (notes->notes.bytes == 0) {
        return false;
    }
    last = note_at(notes, notes->last_at);
    is_same = last->queue_count == route->count &&
              last->mandatory == qsi_publishing_is_mandatory(publishing) &&
              qsi_slice_equals(qsi_published_note_exchange(last), publishing->exchange);
    for (uint32_t i = 0; is_same && i < route->count; i++) {
        is_same = qsi_queue_of(route->destinations[i])->container.id == ids_of(last)[i];
    }
    return is_same;
}

qs_status qsi_published_note_prepare(struct qsi_published_notes *notes,
                                     const struct qsi_route *route)
{
    uint64_t *ids;

    QS_TRY(qsi_published_note_begin(notes, route->count, &ids));
    for (uint32_t i = 0; i < route->count; i++) {
        ids[i] = qsi_queue_of(route->destinations[i])->container.id;
    }
    return QS_OK;
}

/* The destination: all but the number, and the gap after the name. */
static struct qsi_slice way_of(struct qsi_published_note *note)
{
    uint8_t *begin = (uint8_t *)note + offsetof(struct qsi_published_note, queue_count);
    struct qsi_slice exchange = qsi_published_note_exchange(note);

    QS_DCHECK(exchange.data >= begin);
    return qsi_slice_make(begin, (uint32_t)(exchange.data - begin) + exchange.bytes);
}

/* REQUIRES room.  A note that comes with others stays known at its place: notes of the next batch
 * mostly have the same destinations.  Without memory for that it does not. */
static void add_note(struct qsi_published_notes *notes, struct qsi_published_note *note,
                     bool has_others)
{
    struct qsi_slice way = way_of(note);
    uintptr_t found = has_others ? (uintptr_t)qsi_map_get(&notes->known, way.data, way.bytes) : 0;
    size_t bytes = note_bytes(note->queue_count, note->exchange_bytes);

    if (found != 0) {
        notes->last_at = found - 1;
        note_at(notes, notes->last_at)->count += note->count;
        return;
    }
    QS_DCHECK(notes->notes.capacity - notes->notes.bytes >= bytes);
    memcpy(notes->notes.data + notes->notes.bytes, note, bytes);
    notes->last_at = notes->notes.bytes;
    notes->notes.bytes += bytes;
    if (has_others) {
        qs_status ignored = qsi_map_put(&notes->known, way.data, way.bytes,
                                        (void *)((uintptr_t)notes->last_at + 1));
        (void)ignored;
    }
}

qs_status qsi_published_notes_add(struct qsi_published_notes *notes,
                                  const struct qsi_published_notes *others)
{
    size_t at = 0;
    uint8_t *room;

    if (others->notes.bytes > 0) {
        QS_TRY(qsi_buf_reserve(&notes->notes, others->notes.bytes, &room));
    }
    while (at < others->notes.bytes) {
        struct qsi_published_note *note = note_at(others, at);
        at += note_bytes(note->queue_count, note->exchange_bytes);
        add_note(notes, note, others->last_at > 0);
    }
    QS_DCHECK(at == others->notes.bytes);
    return QS_OK;
}

const struct qsi_published_note *qsi_published_note_next(const struct qsi_published_notes *notes,
                                                         const struct qsi_published_note *note)
{
    size_t at = note == NULL ? 0
                             : (size_t)((const uint8_t *)note - notes->notes.data) +
                                   note_bytes(note->queue_count, note->exchange_bytes);

    return at < notes->notes.bytes ? note_at(notes, at) : NULL;
}

uint64_t qsi_published_notes_memory(const struct qsi_published_notes *notes)
{
    return notes->notes.bytes + notes->known.count * KNOWN_BYTES +
           notes->known.bucket_count * sizeof *notes->known.buckets;
}

static void count_note(struct qs_channel *channel, struct qsi_published_note *note)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    struct qsi_exchange *exchange =
        qsi_router_find(&store->router, qsi_published_note_exchange(note));

    channel->counts.publish += note->count;
    if (exchange == NULL) {
        return;
    }
    exchange->published_in += note->count;
    if (note->queue_count == 0) {
        qsi_count_unroutable(channel, exchange, note->count, note->mandatory);
    }
    for (uint32_t i = 0; i < note->queue_count; i++) {
        struct qsi_store_queue *queue = qsi_find_by_id(store, qsi_queue_in(ids_of(note)[i]));
        if (queue != NULL) {
            qsi_tally(exchange, &queue->destination, note->count);
        }
    }
}

void qsi_count_notes(struct qs_channel *channel, const struct qsi_published_notes *notes)
{
    size_t at = 0;

    QS_ASSERT_HELD(&channel->store->mutex);
    while (at < notes->notes.bytes) {
        struct qsi_published_note *note = note_at(notes, at);
        count_note(channel, note);
        at += note_bytes(note->queue_count, note->exchange_bytes);
    }
    QS_DCHECK(at == notes->notes.bytes);
}
