/* Writing slots, envelopes and bodies.
 *
 * Invariant: slots are written after everything they refer to, and only from the first to the last
 * that was put.  So a valid slot of this writer has its body, and slots of earlier writers are not
 * touched. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "segment_file.h"

#include <string.h>

struct qsi_segment_writer {
    struct qsi_index *index;
    struct qsi_segment_file *file; /* owned by the caller */
    struct qsi_segment_file before;
    qs_file *handle;
    struct qsi_segment_buffers buffers;
    uint32_t seed; /* of the slots' identities */
    bool owns_index_buffers;
    qs_status failed; /* status of the first failure */
    /* slots */
    uint64_t first_sequence; /* of the segment */
    uint32_t next_slot;      /* lower slots cannot be put any more */
    uint32_t first_place;    /* of the slots that were put, among the slots of the file */
    uint32_t end_place;
    /* heap */
    uint64_t heap_at;   /* in the file, of the buffer */
    uint32_t heap_used; /* in the buffer */
    bool has_bodies;
    /* The previous envelope. */
    uint32_t envelope_bytes;
    uint64_t envelope_at;
};

/* -- a new file ------------------------------------------------------------------------------- */

/* Creates a file.  A file of that name, left by a crash or a full disk, has no references and is
 * replaced. */
static qs_status create(struct qsi_segment_writer *writer, qs_error *error)
{
    struct qsi_index *index = writer->index;
    uint32_t flags = QS_OPEN_WRITE | QS_OPEN_CREATE_NEW;
    char name[QSI_SEGMENT_NAME_BYTES];
    qs_status status;

    qsi_segment_name(name, writer->file);
    status = qsi_env_open(index->env, index->dir, name, flags, &writer->handle, error);
    if (status != QS_EEXIST) {
        return status;
    }
    QS_TRY(qsi_env_remove(index->env, index->dir, name, error));
    return qsi_env_open(index->env, index->dir, name, flags, &writer->handle, error);
}

/* Writes the header.  The size extends to the heap at once; blocks are allocated when they are
 * written. */
static qs_status write_header(struct qsi_segment_writer *writer, const uint64_t *present,
                              qs_error *error)
{
    struct qsi_index *index = writer->index;
    uint8_t header[QSI_SEGMENT_HEADER_BYTES_MAX];
    const qs_part part = {header, (size_t)qsi_segment_header_bytes(index->entries)};

    QS_DCHECK(writer->file->heap_end >= qsi_segment_slots_at(index->entries));
    qsi_segment_header_encode(header, writer->file, index->entries, index->uuid, present);
    QS_TRY(qsi_file_write(index->env, writer->handle, &part, 1, 0, error));
    return qsi_env_truncate(index->env, writer->handle, writer->file->heap_end, error);
}

/* REQUIRES the final file->packed and slot_count. */
static qs_status begin_new(struct qsi_segment_writer *writer, const uint64_t *present,
                           qs_error *error)
{
    struct qsi_segment_file *file = writer->file;
    uint64_t salt;

    QS_DCHECK(file->heap_end == 0 && writer->handle == NULL);
    QS_TRY(qsi_env_random(writer->index->env, &salt, sizeof salt, error));
    QS_TRY(create(writer, error));
    file->salt = salt;
    file->heap_end = qsi_segment_heap_at(writer->index->entries, file->packed, file->slot_count);
    file->state_area = 0;
    file->state_crc = 0;
    return write_header(writer, present, error);
}

static qs_status begin_old(struct qsi_segment_writer *writer, qs_error *error)
{
    struct qsi_segment_view view;

    QS_DCHECK(writer->file->heap_end > 0 && writer->handle == NULL);
    QS_TRY(qsi_segment_view_open_to_write(&view, writer->index, writer->file, error));
    writer->handle = view.handle;
    view.handle = NULL;
    qsi_segment_view_close(&view);
    return QS_OK;
}

/* -- begin and end ---------------------------------------------------------------------------- */

static void writer_free(struct qsi_segment_writer *writer)
{
    writer->index->env->close(writer->index->env, writer->handle);
    if (writer->owns_index_buffers) {
        writer->index->is_writing = false;
    }
    qsi_free(writer);
}

void qsi_segment_writer_abandon(struct qsi_segment_writer *writer)
{
    char name[QSI_SEGMENT_NAME_BYTES];
    struct qsi_index *index;
    bool is_new;

    if (writer == NULL) {
        return;
    }
    index = writer->index;
    is_new = writer->before.heap_end == 0 && writer->handle != NULL;
    qsi_segment_name(name, writer->file);
    *writer->file = writer->before;
    writer_free(writer);
    if (is_new) {
        /* If this fails, the file stays until its name is used again, or keep returns false for
         * it. */
        (void)qsi_env_remove(index->env, index->dir, name, NULL);
    }
}

static qs_status writer_create(struct qsi_segment_writer **writer_out, struct qsi_index *index,
                               struct qsi_segment_file *file, qs_error *error)
{
    struct qsi_segment_writer *writer = qsi_zalloc(sizeof *writer);

    QS_DCHECK(index->entries > 0);
    *writer_out = writer;
    if (writer == NULL) {
        return qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "segment writer"), file);
    }
    writer->index = index;
    writer->file = file;
    writer->before = *file;
    writer->first_sequence = file->number * index->entries;
    return QS_OK;
}

/* Sets the begin of slots and heap, after the file was opened or created. */
static void start(struct qsi_segment_writer *writer, bool page_aligned)
{
    const struct qsi_segment_file *file = writer->file;

    QS_DCHECK(file->heap_end > 0 && writer->heap_used == 0);
    writer->seed = qsi_slot_seed(file);
    writer->heap_at =
        page_aligned ? qsi_round_up(file->heap_end, QSI_SEGMENT_PAGE) : file->heap_end;
}

qs_status qsi_segment_writer_begin(struct qsi_segment_writer **writer_out, struct qsi_index *index,
                                   struct qsi_segment_file *file, bool page_aligned,
                                   qs_error *error)
{
    struct qsi_segment_writer *writer;
    qs_status status;

    *writer_out = NULL;
    QS_ASSERT(!index->is_writing);
    QS_ASSERT(file->heap_end == 0 || !file->packed);
    QS_TRY(writer_create(&writer, index, file, error));
    index->is_writing = true;
    writer->owns_index_buffers = true;
    writer->buffers = index->buffers;
    if (file->heap_end == 0) {
        file->packed = false;
        file->slot_count = index->entries;
        status = begin_new(writer, NULL, error);
        status = status == QS_OK ? QS_OK : qsi_segment_fail(error, status, file);
    } else {
        status = begin_old(writer, error);
    }
    if (status != QS_OK) {
        qsi_segment_writer_abandon(writer);
        return status;
    }
    start(writer, page_aligned);
    *writer_out = writer;
    return QS_OK;
}

qs_status qsi_segment_make(struct qsi_index *index, struct qsi_segment_file *file, qs_error *error)
{
    struct qsi_segment_writer *writer;
    qs_status status;

    QS_ASSERT(file->heap_end == 0);
    QS_TRY(writer_create(&writer, index, file, error));
    file->packed = false;
    file->slot_count = index->entries;
    status = begin_new(writer, NULL, error);
    if (status != QS_OK) {
        status = qsi_segment_fail(error, status, file);
        qsi_segment_writer_abandon(writer);
        return status;
    }
    writer_free(writer);
    return QS_OK;
}

qs_status qsi_segment_writer_begin_packed(struct qsi_segment_writer **writer_out,
                                          struct qsi_index *index, struct qsi_segment_file *file,
                                          const uint64_t *present,
                                          const struct qsi_segment_buffers *buffers,
                                          qs_error *error)
{
    struct qsi_segment_writer *writer;
    qs_status status;

    *writer_out = NULL;
    QS_ASSERT(file->heap_end == 0);
    QS_TRY(writer_create(&writer, index, file, error));
    writer->buffers = *buffers;
    file->packed = true;
    file->slot_count = qsi_bitmap_count(present, 0, index->entries);
    status = begin_new(writer, present, error);
    if (status != QS_OK) {
        status = qsi_segment_fail(error, status, file);
        qsi_segment_writer_abandon(writer);
        return status;
    }
    start(writer, false);
    *writer_out = writer;
    return QS_OK;
}

/* -- the heap --------------------------------------------------------------------------------- */

/* Records a failure: slots put later could refer to missing bytes, so they are not written. */
static qs_status record_failure(struct qsi_segment_writer *writer, qs_status status,
                                qs_error *error)
{
    QS_DCHECK(status != QS_OK);
    writer->failed = qsi_segment_fail(error, status, writer->file);
    return writer->failed;
}

static qs_status write_at(struct qsi_segment_writer *writer, const void *data, size_t bytes,
                          uint64_t offset, qs_error *error)
{
    const qs_part part = {data, bytes};
    qs_status status;

    if (bytes == 0) {
        return QS_OK;
    }
    status = qsi_file_write(writer->index->env, writer->handle, &part, 1, offset, error);
    return status == QS_OK ? QS_OK : record_failure(writer, status, error);
}

static qs_status flush_heap(struct qsi_segment_writer *writer, qs_error *error)
{
    QS_DCHECK(writer->heap_used <= QSI_SEGMENT_HEAP_BUFFER_BYTES);
    QS_TRY(write_at(writer, writer->buffers.heap, writer->heap_used, writer->heap_at, error));
    writer->heap_at += writer->heap_used;
    writer->heap_used = 0;
    return QS_OK;
}

static qs_status append_slowly(struct qsi_segment_writer *writer, struct qsi_slice bytes,
                               qs_error *error)
{
    QS_DCHECK(writer->failed == QS_OK);
    QS_TRY(flush_heap(writer, error));
    if (bytes.bytes < QSI_SEGMENT_HEAP_BUFFER_BYTES) {
        memcpy(writer->buffers.heap, bytes.data, bytes.bytes);
        writer->heap_used = bytes.bytes;
        return QS_OK;
    }
    QS_TRY(write_at(writer, bytes.data, bytes.bytes, writer->heap_at, error));
    writer->heap_at += bytes.bytes;
    return QS_OK;
}

static inline qs_status append(struct qsi_segment_writer *writer, struct qsi_slice bytes,
                               qs_error *error)
{
    if (QS_UNLIKELY(bytes.bytes > QSI_SEGMENT_HEAP_BUFFER_BYTES - writer->heap_used)) {
        return append_slowly(writer, bytes, error);
    }
    if (bytes.bytes > 0) {
        memcpy(writer->buffers.heap + writer->heap_used, bytes.data, bytes.bytes);
        writer->heap_used += bytes.bytes;
    }
    return QS_OK;
}

static inline uint64_t heap_end(const struct qsi_segment_writer *writer)
{
    return writer->heap_at + writer->heap_used;
}

/* Whether the previous envelope has the same bytes.  It is compared only while it is in the buffer;
 * after that an equal envelope is written again. */
static bool repeats(const struct qsi_segment_writer *writer, struct qsi_slice envelope)
{
    return writer->has_bodies && envelope.bytes == writer->envelope_bytes &&
           writer->envelope_at >= writer->heap_at &&
           memcmp(writer->buffers.heap + (writer->envelope_at - writer->heap_at), envelope.data,
                  envelope.bytes) == 0;
}

/* Writes an envelope unless it repeats; the distance from body to envelope must fit into 4 GiB. */
static inline qs_status put_envelope(struct qsi_segment_writer *writer, struct qsi_slice envelope,
                                     qs_error *error)
{
    if (QS_LIKELY(repeats(writer, envelope)) &&
        heap_end(writer) - writer->envelope_at <= UINT32_MAX) {
        return QS_OK;
    }
    QS_TRY(append(writer, envelope, error));
    writer->envelope_bytes = envelope.bytes;
    writer->envelope_at = heap_end(writer) - envelope.bytes;
    writer->has_bodies = true;
    return QS_OK;
}

/* -- slots ------------------------------------------------------------------------------------ */

/* Room to encode a slot.  Slots that are skipped in a dense file become zeros. */
static inline uint8_t *slot_room(struct qsi_segment_writer *writer, uint32_t slot)
{
    bool is_first = writer->next_slot == 0;
    uint32_t place = writer->file->packed ? writer->end_place : slot;

    QS_ASSERT(slot >= writer->next_slot && slot < writer->index->entries &&
              place < writer->file->slot_count);
    if (is_first) {
        writer->first_place = place;
    } else if (QS_UNLIKELY(place > writer->end_place)) {
        memset(writer->buffers.slots + (size_t)writer->end_place * QSI_SLOT_BYTES, 0,
               (size_t)(place - writer->end_place) * QSI_SLOT_BYTES);
    }
    writer->next_slot = slot + 1;
    writer->end_place = place + 1;
    return writer->buffers.slots + (size_t)place * QSI_SLOT_BYTES;
}

static qs_status fail_again(struct qsi_segment_writer *writer, qs_error *error)
{
    QS_DCHECK(writer->failed != QS_OK);
    return qsi_segment_fail(
        error, qsi_fail(error, writer->failed, "an earlier write to the segment failed"),
        writer->file);
}

static qs_status check_message(struct qsi_segment_writer *writer, struct qsi_slice envelope,
                               struct qsi_slice body, qs_error *error)
{
    if (writer->failed != QS_OK) {
        return fail_again(writer, error);
    }
    QS_ASSERT(envelope.bytes > 0);
    if ((uint64_t)envelope.bytes + body.bytes > QSI_SEGMENT_MESSAGE_BYTES_MAX) {
        return qsi_segment_fail(
            error, qsi_fail(error, QS_EINVAL, "a message of %u bytes is too large", body.bytes),
            writer->file);
    }
    return QS_OK;
}

qs_status qsi_segment_put_wrong(struct qsi_segment_writer *writer, uint32_t slot,
                                struct qsi_slice envelope, struct qsi_slice body,
                                uint32_t crc_difference, qs_error *error)
{
    uint32_t identity = qsi_slot_identity(writer->seed, writer->first_sequence + slot);
    struct qsi_slot fields = {
        .envelope_bytes = envelope.bytes, .body_bytes = body.bytes, .kind = QSI_SLOT_EMBEDDED};

    QS_TRY(check_message(writer, envelope, body, error));
    QS_TRY(put_envelope(writer, envelope, error));
    fields.where = heap_end(writer);
    fields.back = (uint32_t)(fields.where - writer->envelope_at);
    QS_TRY(append(writer, body, error));
    fields.crc =
        qs_crc32c(qs_crc32c(identity, envelope.data, envelope.bytes), body.data, body.bytes) ^
        crc_difference;
    qsi_slot_encode(slot_room(writer, slot), &fields, identity);
    return QS_OK;
}

qs_status qsi_segment_put_embedded(struct qsi_segment_writer *writer, uint32_t slot,
                                   struct qsi_slice envelope, struct qsi_slice body,
                                   qs_error *error)
{
    return qsi_segment_put_wrong(writer, slot, envelope, body, 0, error);
}

qs_status qsi_segment_put_stored(struct qsi_segment_writer *writer, uint32_t slot,
                                 const struct qsi_body_ref *ref, qs_error *error)
{
    const struct qsi_slot fields = {
        .where = (uint64_t)ref->slot << 32 | ref->file,
        .back = (uint32_t)(ref->offset / 8),
        .envelope_bytes = ref->envelope_bytes,
        .body_bytes = ref->body_bytes,
        .crc = ref->crc,
        .kind = QSI_SLOT_STORED,
    };

    QS_ASSERT(ref->offset % 8 == 0 && ref->offset / 8 <= UINT32_MAX);
    if (writer->failed != QS_OK) {
        return fail_again(writer, error);
    }
    qsi_slot_encode(slot_room(writer, slot), &fields,
                    qsi_slot_identity(writer->seed, writer->first_sequence + slot));
    return QS_OK;
}

qs_status qsi_segment_put_raw(struct qsi_segment_writer *writer, uint32_t slot,
                              const uint8_t bytes[QSI_SLOT_BYTES], uint32_t check_difference,
                              qs_error *error)
{
    uint32_t identity = qsi_slot_identity(writer->seed, writer->first_sequence + slot);
    uint8_t *room;

    if (writer->failed != QS_OK) {
        return fail_again(writer, error);
    }
    room = slot_room(writer, slot);
    memcpy(room, bytes, QSI_SLOT_BYTES - 4);
    qsi_put_u32(room + QSI_SLOT_BYTES - 4,
                qs_crc32c(identity, room, QSI_SLOT_BYTES - 4) ^ check_difference);
    return QS_OK;
}

/* -- the end ---------------------------------------------------------------------------------- */

static qs_status write_out(struct qsi_segment_writer *writer, qs_error *error)
{
    uint64_t first = (uint64_t)writer->first_place * QSI_SLOT_BYTES;
    uint64_t bytes = (uint64_t)writer->end_place * QSI_SLOT_BYTES - first;

    QS_DCHECK(writer->first_place <= writer->end_place);
    QS_DCHECK(writer->end_place <= writer->file->slot_count);
    if (writer->failed != QS_OK) {
        return fail_again(writer, error);
    }
    QS_TRY(flush_heap(writer, error));
    return write_at(writer, writer->buffers.slots + first, (size_t)bytes,
                    qsi_segment_slots_at(writer->index->entries) + first, error);
}

qs_status qsi_segment_writer_end(struct qsi_segment_writer *writer, qs_error *error)
{
    qs_status status = write_out(writer, error);

    if (status != QS_OK) {
        qsi_segment_writer_abandon(writer);
        return status;
    }
    /* Without bodies, an aligned begin of the heap does not move its end. */
    if (writer->has_bodies) {
        QS_DCHECK(writer->heap_used == 0 && writer->heap_at >= writer->before.heap_end);
        writer->file->heap_end = writer->heap_at;
    }
    writer_free(writer);
    return QS_OK;
}
