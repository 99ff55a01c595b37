/* Inside the floor: the index, one open segment file, and messages gathered from it. */
#ifndef QSI_SEGMENT_FILE_H
#define QSI_SEGMENT_FILE_H

#include "bits.h"
#include "buf.h"
#include "file_head.h"
#include "segment.h"
#include "segment_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The buffers of a writer. */
struct qsi_segment_buffers {
    uint8_t *slots; /* entries slots */
    uint8_t *heap;  /* QSI_SEGMENT_HEAP_BUFFER_BYTES */
};
#define QSI_SEGMENT_HEAP_BUFFER_BYTES (1u << 20)
qs_status qsi_segment_buffers_init(struct qsi_segment_buffers *buffers, uint32_t entries,
                                   qs_error *error) QS_MUST_CHECK;
void qsi_segment_buffers_fini(struct qsi_segment_buffers *buffers);

struct qsi_index {
    qs_env *env;
    qs_dir *dir;
    uint32_t entries;
    uint8_t uuid[QSI_UUID_BYTES];
    struct qsi_segment_buffers buffers;
    bool is_writing; /* a writer uses the buffers */
};

/* Puts the file's name in front of the text; a full disk becomes QS_ESTORE_FULL. */
qs_status qsi_segment_fail(qs_error *error, qs_status status, const struct qsi_segment_file *file);

/* A job that writes could not read the file: qsi_fail_unread. */
qs_status qsi_segment_fail_unread(qs_error *error, qs_status status,
                                  const struct qsi_segment_file *file);

/* A mask of the bits of a word of the bitmap that are below `bits`. */
static inline uint64_t qsi_bitmap_mask(uint32_t bits, uint32_t word)
{
    uint32_t left = bits - word * 64;

    return left >= 64 ? UINT64_MAX : (UINT64_C(1) << left) - 1;
}
/* The first set bit in [from, to); to if there is none. */
uint32_t qsi_bitmap_next(const uint64_t *bits, uint32_t from, uint32_t to);
/* The first clear bit in [from, to); to if there is none. */
uint32_t qsi_bitmap_next_clear(const uint64_t *bits, uint32_t from, uint32_t to);
/* One after the last set bit in [from, to); from if there is none. */
uint32_t qsi_bitmap_end(const uint64_t *bits, uint32_t from, uint32_t to);
/* The number of set bits in [from, to). */
uint32_t qsi_bitmap_count(const uint64_t *bits, uint32_t from, uint32_t to);

/* ---- one open file ---- */

struct qsi_segment_view {
    struct qsi_index *index;
    const struct qsi_segment_file *file;
    qs_file *handle;
    uint64_t slots_at;
    uint64_t heap_at;
    uint64_t *present; /* of a packed file, otherwise NULL; one allocation with ranks */
    uint32_t *ranks;   /* number of present slots before each word of the bitmap */
    uint32_t seed;     /* of the identities of its slots */
};
/* Opens a file, and checks its header and that it reaches heap_end.  flags: those of
 * qs_env.open. */
qs_status qsi_segment_view_open(struct qsi_segment_view *view_out, struct qsi_index *index,
                                const struct qsi_segment_file *file, uint32_t flags,
                                qs_error *error) QS_MUST_CHECK;
/* Opens a file for writing: QS_ECORRUPT if it cannot be read, for any reason. */
qs_status qsi_segment_view_open_to_write(struct qsi_segment_view *view_out, struct qsi_index *index,
                                         const struct qsi_segment_file *file,
                                         qs_error *error) QS_MUST_CHECK;
void qsi_segment_view_close(struct qsi_segment_view *view);
/* QS_ECORRUPT: the file ends before. */
qs_status qsi_segment_view_read(const struct qsi_segment_view *view, void *data, size_t bytes,
                                uint64_t offset, qs_error *error) QS_MUST_CHECK;

static inline bool qsi_segment_view_has(const struct qsi_segment_view *view, uint32_t slot)
{
    return view->present == NULL || qsi_bitmap_has(view->present, slot);
}
/* The index of a slot among the slots of the file; for a slot that a packed file lacks, the index
 * of the next one. */
static inline uint32_t qsi_segment_view_place(const struct qsi_segment_view *view, uint32_t slot)
{
    if (view->present == NULL) {
        return slot;
    }
    return view->ranks[slot / 64] +
           qsi_popcount(view->present[slot / 64] & ((UINT64_C(1) << slot % 64) - 1));
}
static inline uint64_t qsi_segment_view_sequence(const struct qsi_segment_view *view, uint32_t slot)
{
    return view->file->number * view->index->entries + slot;
}

/* Whether the envelope and the body of an embedded slot are within the file. */
static inline bool qsi_segment_view_holds(const struct qsi_segment_view *view,
                                          const struct qsi_slot *slot)
{
    uint64_t end = view->file->heap_end;

    return slot->where >= view->heap_at && slot->where <= end &&
           slot->body_bytes <= end - slot->where && slot->back <= slot->where - view->heap_at &&
           slot->envelope_bytes > 0 && slot->envelope_bytes <= slot->back &&
           (uint64_t)slot->envelope_bytes + slot->body_bytes <= QSI_SEGMENT_MESSAGE_BYTES_MAX;
}

/* ---- messages gathered from a file ---- */

enum qsi_row_kind {
    QSI_ROW_EMBEDDED,
    QSI_ROW_STORED,
    QSI_ROW_NO_SLOT,      /* the slot's bytes are damaged; where: of the slot */
    QSI_ROW_NO_BODY,      /* the slot is valid, but envelope or body are damaged */
    QSI_ROW_NOTHING_THERE /* the slot is zeros, or a packed file lacks it */
};

struct qsi_row {
    /* Offset in the file; of a stored row: file and slot of the message store. */
    uint64_t where;
    uint32_t heap_index; /* of the body in the gathered bytes */
    uint32_t slot;
    uint32_t envelope; /* index of the gathered envelope; of a stored row: offset / 8 */
    uint32_t envelope_bytes;
    uint32_t body_bytes;
    uint32_t crc;      /* from the slot */
    uint32_t identity; /* of the slot */
    uint8_t kind;
};

/* An envelope; consecutive rows share it. */
struct qsi_row_envelope {
    uint64_t where;
    uint32_t heap_index;
    uint32_t bytes;
    uint32_t route;    /* set by the reader */
    bool is_malformed; /* even though its checksum may be right */
    bool has_route;    /* set by the reader */
    struct qsi_slice exchange, key, properties;
};

/* Zeroed memory is an empty one. */
struct qsi_gather {
    struct qsi_buf rows;      /* struct qsi_row */
    struct qsi_buf envelopes; /* struct qsi_row_envelope */
    struct qsi_buf pieces;
    uint8_t *heap;
    uint64_t heap_bytes;
    uint64_t wasted_bytes; /* bytes of gaps, which are read with their neighbours */
    uint32_t row_count;
    uint32_t envelope_count;
    uint32_t damaged_count; /* rows that are neither embedded nor stored */
};
void qsi_gather_fini(struct qsi_gather *gather);

static inline struct qsi_row *qsi_gather_rows(const struct qsi_gather *gather)
{
    return (struct qsi_row *)(void *)gather->rows.data;
}
static inline struct qsi_row_envelope *qsi_gather_envelopes(const struct qsi_gather *gather)
{
    return (struct qsi_row_envelope *)(void *)gather->envelopes.data;
}

/* Reads and checks the wanted slots in [from, to), and stops before envelopes and bodies would
 * exceed bytes_max, but takes at least one.  *next_out is the next slot to read.  REQUIRES an empty
 * gather and from < to. */
qs_status qsi_gather_slots(struct qsi_gather *gather, const struct qsi_segment_view *view,
                           uint32_t from, uint32_t to, const uint64_t *wanted, uint64_t bytes_max,
                           uint32_t *next_out, qs_error *error) QS_MUST_CHECK;
/* Reads and checks the envelopes and bodies of the rows. */
qs_status qsi_gather_heap(struct qsi_gather *gather, const struct qsi_segment_view *view,
                          qs_error *error) QS_MUST_CHECK;

/* The checksum of an embedded row, computed from its bytes.  REQUIRES that its bytes were read. */
uint32_t qsi_row_crc(const struct qsi_gather *gather, const struct qsi_row *row);

/* The reference of a stored row. */
static inline struct qsi_body_ref qsi_row_ref(const struct qsi_row *row)
{
    return (struct qsi_body_ref){
        .file = (uint32_t)row->where,
        .slot = (uint32_t)(row->where >> 32),
        .offset = (uint64_t)row->envelope * 8,
        .envelope_bytes = row->envelope_bytes,
        .body_bytes = row->body_bytes,
        .crc = row->crc,
    };
}

/* Loads messages like qsi_segment_load(), if they are contiguous and none is damaged; otherwise
 * load->chunk stays NULL.  REQUIRES empty results in load, and a wanted slot. */
qs_status qsi_segment_load_plain(const struct qsi_segment_view *view, struct qsi_segment_load *load,
                                 qs_error *error) QS_MUST_CHECK;

qs_status qsi_segment_fail_slot(qs_error *error, const struct qsi_segment_file *file,
                                const struct qsi_row *row);
/* qsi_segment_read_state() for an open file. */
qs_status qsi_segment_view_state(const struct qsi_segment_view *view,
                                 struct qsi_segment_state *state, uint32_t *columns_out,
                                 qs_error *error) QS_MUST_CHECK;

/* ---- writing a packed file ---- */

/* Creates a file without messages. */
qs_status qsi_segment_make(struct qsi_index *index, struct qsi_segment_file *file,
                           qs_error *error) QS_MUST_CHECK;
/* Begins a file with the slots of present, which are then put in ascending order.  file has
 * identity and generation; the rest is set.  REQUIRES buffers without another user. */
qs_status qsi_segment_writer_begin_packed(struct qsi_segment_writer **writer_out,
                                          struct qsi_index *index, struct qsi_segment_file *file,
                                          const uint64_t *present,
                                          const struct qsi_segment_buffers *buffers,
                                          qs_error *error) QS_MUST_CHECK;
/* Copy damage: a body whose checksum differs from the slot's by crc_difference, or a slot with
 * damaged bytes. */
qs_status qsi_segment_put_wrong(struct qsi_segment_writer *writer, uint32_t slot,
                                struct qsi_slice envelope, struct qsi_slice body,
                                uint32_t crc_difference, qs_error *error) QS_MUST_CHECK;
qs_status qsi_segment_put_raw(struct qsi_segment_writer *writer, uint32_t slot,
                              const uint8_t bytes[QSI_SLOT_BYTES], uint32_t check_difference,
                              qs_error *error) QS_MUST_CHECK;

#endif
