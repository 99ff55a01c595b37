/* The segmented index of all queues: files of slots addressed by sequence, and the small bodies
 * behind them (docs/FORMAT.md, "Index segment").
 *
 * A segment covers `entries` consecutive sequences of one queue: sequence s lies in segment s /
 * entries, slot s % entries.  Slots and bodies are written once and never change; which messages
 * are settled stands in a state area, of which a file has two: the one that a checkpoint names
 * is never overwritten.  A segment with few live messages is rewritten, packed, under the next
 * generation.  The checkpoint says how much of a file is valid, in struct qsi_segment_file: a
 * reader believes nothing that the file says of itself, and what lies behind heap_end or in a
 * slot nobody asks for is dead, whatever its bytes.
 *
 * Single-threaded per file: the caller sees to it that one file is written by one thread at a
 * time, and not removed while it is read.  Different files, and readers of one file: any
 * threads.  Nothing here syncs unless it says so. */
#ifndef QSI_SEGMENT_H
#define QSI_SEGMENT_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "body_ref.h"
#include "buf.h"
#include "chunk.h"
#include "file_head.h"
#include "slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QSI_SEGMENT_ENTRIES 16384u /* of a new store that asks for nothing else */
#define QSI_SEGMENT_ENTRIES_MIN 16u
#define QSI_SEGMENT_ENTRIES_MAX 65536u
#define QSI_SLOT_BYTES 32u
/* slots of one page of 4096 bytes: those a checkpoint names share no page with later ones */
#define QSI_SLOT_PAGE 128u

struct qsi_index; /* the directory of segment files of one store; opaque */

/* A power of two between the limits. */
static inline bool qsi_segment_entries_are_possible(uint32_t entries)
{
    return entries >= QSI_SEGMENT_ENTRIES_MIN && entries <= QSI_SEGMENT_ENTRIES_MAX &&
           (entries & (entries - 1)) == 0;
}

/* REQUIRES entries that are possible.  dir and env stay the caller's and outlive the index. */
qs_status qsi_index_open(struct qsi_index **index_out, qs_env *env, qs_dir *dir,
                         const uint8_t uuid[QSI_UUID_BYTES], uint32_t entries,
                         qs_error *error) QS_MUST_CHECK;
void qsi_index_close(struct qsi_index *index); /* NULL is fine */

/* One segment file as memory and checkpoint know it. */
struct qsi_segment_file {
    uint64_t queue_id;
    uint64_t number;     /* covers sequences [number * entries, (number + 1) * entries) */
    uint64_t salt;       /* random, of this file; seeds every check in it */
    uint64_t heap_end;   /* where the next body goes; 0: there is no file yet */
    uint32_t generation; /* 0, then 1, 2, ... for each rewriting */
    uint32_t slot_count; /* entries, or, packed, the number of slots that there are */
    uint32_t state_crc;
    /* 1 or 2: where the state is; 0: none was written (nothing settled, nothing seen) */
    uint8_t state_area;
    bool packed; /* slots are at their rank among those present, whose bitmap is in the header */
};

/* A bitmap over the sequences of a segment: bit i % 64 of word i / 64 for slot i; entries bits,
 * rounded up to words. */
static inline bool qsi_bitmap_has(const uint64_t *bits, uint32_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}
static inline uint32_t qsi_bitmap_words(uint32_t bits)
{
    return (bits + 63) / 64;
}

/* "index/0000000000000007-000000000000-00000000.seg": what errors call a file. */
#define QSI_SEGMENT_PATH_BYTES 64u
void qsi_segment_path(char path_out[QSI_SEGMENT_PATH_BYTES], const struct qsi_segment_file *file);

/* What a record says of a message that is damaged in a segment. */
static inline struct qsi_body_damage qsi_segment_damage(const struct qsi_segment_file *file,
                                                        uint32_t slot, uint64_t offset)
{
    return (struct qsi_body_damage){
        .queue_id = file->queue_id,
        .number = file->number,
        .generation = file->generation,
        .slot = slot,
        .offset = offset,
    };
}
/* The error of whoever wants its body; QS_ECORRUPT. */
qs_status qsi_segment_fail_message(qs_error *error, const struct qsi_body_damage *damage);

/* ---- writing slots and bodies ---- */

struct qsi_segment_writer;
/* Begins to write to a file, which is created when heap_end is 0 (queue_id, number and
 * generation say which; salt, heap_end, slot_count are set).  page_aligned: bodies begin on a
 * page of their own, because a checkpoint names what is before.  One writer per index at a time:
 * its buffers belong to the index.  QS_ESTORE_FULL: no space, nothing lost.  QS_ECORRUPT: the
 * file that is there cannot be read, and nothing was written. */
qs_status qsi_segment_writer_begin(struct qsi_segment_writer **writer_out, struct qsi_index *index,
                                   struct qsi_segment_file *file, bool page_aligned,
                                   qs_error *error) QS_MUST_CHECK;
/* Slots in ascending order.  Consecutive equal envelopes are written once, as long as they are
 * in the buffer. */
qs_status qsi_segment_put_embedded(struct qsi_segment_writer *writer, uint32_t slot,
                                   struct qsi_slice envelope, struct qsi_slice body,
                                   qs_error *error) QS_MUST_CHECK;
/* REQUIRES ref->offset to be a multiple of 8 below 32 GiB. */
qs_status qsi_segment_put_stored(struct qsi_segment_writer *writer, uint32_t slot,
                                 const struct qsi_body_ref *ref, qs_error *error) QS_MUST_CHECK;
/* Writes what is buffered, closes, frees; on success file says what is there now.  After a
 * failure of put or end the file is as file said before, apart from bytes behind its heap_end
 * and slots that were not written yet. */
qs_status qsi_segment_writer_end(struct qsi_segment_writer *writer, qs_error *error) QS_MUST_CHECK;
void qsi_segment_writer_abandon(struct qsi_segment_writer *writer);

/* ---- reading ---- */

/* Reads messages back as one messages record (codec/record.h) in a chunk of its own: what the
 * queue delivers from. */
struct qsi_segment_load {
    /* in: slots [from, to), those in wanted (bitmap over the segment); stops before one that
     * would bring the bodies above bytes_max, but reads one in any case */
    uint32_t from, to;
    const uint64_t *wanted;
    uint64_t bytes_max;
    struct qsi_budget *budget; /* that the chunk will be charged to; NULL: to none */
    /* out: the caller's */
    /* the record is at data[0]; its one destination is the queue; NULL: nothing was wanted */
    struct qsi_chunk *chunk;
    uint32_t *rows; /* qsi_alloc: row of slot first + i; NULL: slot first + i is row i */
    uint32_t first,
        count; /* slots covered: [first, first + count), first wanted, the last wanted too */
    bool has_stored;
    uint32_t damaged_count;
};
/* Every slot and every body is checked.  Of a message that is damaged the record says where it
 * is, so that the others can be delivered; a file that is missing, too short or of another salt
 * is QS_ECORRUPT. */
qs_status qsi_segment_load(struct qsi_index *index, const struct qsi_segment_file *file,
                           struct qsi_segment_load *load, qs_error *error) QS_MUST_CHECK;

/* The references to the message store among the wanted slots; damaged slots are QS_ECORRUPT
 * (after the others were visited). */
typedef void qsi_segment_ref_visitor(void *context, uint32_t slot, const struct qsi_body_ref *ref);
qs_status qsi_segment_read_refs(struct qsi_index *index, const struct qsi_segment_file *file,
                                const uint64_t *wanted, qsi_segment_ref_visitor *visit,
                                void *context, qs_error *error) QS_MUST_CHECK;

/* ---- state: which messages are settled, and which were seen ---- */

/* What a state may tell of each slot besides. */
enum qsi_state_column {
    QSI_STATE_DELIVERIES = 1,
    QSI_STATE_EXPIRIES = 2,
    QSI_STATE_SIZES = 4,
    QSI_STATE_DUES = 8,
};
struct qsi_segment_state {
    uint64_t *settled; /* bitmaps of entries bits */
    uint64_t *seen;    /* delivered before */
    /* columns of entries values, or NULL: */
    uint8_t *deliveries; /* earlier ones; NULL: as seen says */
    uint64_t *expiries;  /* in us since 1970, UINT64_MAX never; NULL: no message expires */
    uint32_t *sizes;     /* bytes of bodies; NULL: nobody counts them */
    uint64_t *dues;      /* of delayed messages, in us since 1970; 0: of others; NULL: none is */
    uint32_t wanted;     /* QSI_STATE_* that reading makes (qsi_alloc) where the file has them */
};
/* Writes the state into the area that file does not name; file names it from then on.  A file
 * that a checkpoint names in durable_area keeps that one: when both are in use, the one that is
 * not durable_area is overwritten.  A file that is not there yet (heap_end 0) is made.
 * QS_ECORRUPT: the file cannot be read, and nothing was written. */
qs_status qsi_segment_write_state(struct qsi_index *index, struct qsi_segment_file *file,
                                  uint8_t durable_area, const struct qsi_segment_state *state,
                                  qs_error *error) QS_MUST_CHECK;
/* Fills settled and seen (the caller's).  The columns: the caller's, or NULL; those that are
 * wanted are made, and the caller's to free whatever is returned.  *columns_out tells which of
 * QSI_STATE_* the file has (the others are not filled).  Without a state area: nothing settled
 * but what a packed file lacks. */
qs_status qsi_segment_read_state(struct qsi_index *index, const struct qsi_segment_file *file,
                                 struct qsi_segment_state *state, uint32_t *columns_out,
                                 qs_error *error) QS_MUST_CHECK;

/* ---- space ---- */

/* Writes the live messages to a new file of the next generation, packed, with the state (in area
 * 1).  from stays.  Damaged messages are copied as they are.  On failure the new file is removed
 * again; QS_ECORRUPT: from cannot be read. */
qs_status qsi_segment_rewrite(struct qsi_index *index, const struct qsi_segment_file *from,
                              const uint64_t *live, const struct qsi_segment_state *state,
                              struct qsi_segment_file *to_out, qs_error *error) QS_MUST_CHECK;
/* fdatasync.  The name is durable after qsi_index_sync.  QS_ECORRUPT: the file cannot be read;
 * QS_EIO: the sync failed. */
qs_status qsi_segment_sync(struct qsi_index *index, const struct qsi_segment_file *file,
                           qs_error *error) QS_MUST_CHECK;
/* Is it there, and what it should be?  QS_ECORRUPT. */
qs_status qsi_segment_find(struct qsi_index *index, const struct qsi_segment_file *file,
                           qs_error *error) QS_MUST_CHECK;
qs_status qsi_index_sync(struct qsi_index *index, qs_error *error) QS_MUST_CHECK;
/* Removes the name; QS_OK when there is none. */
qs_status qsi_segment_remove(struct qsi_index *index, const struct qsi_segment_file *file,
                             qs_error *error) QS_MUST_CHECK;
/* What an earlier session left behind: the segment files that keep says no to (queue_id, number and
 * generation are set), as an array of struct qsi_segment_file.  Unknown names are left alone. */
typedef bool qsi_segment_filter(void *context, const struct qsi_segment_file *file);
qs_status qsi_index_note_others(struct qsi_index *index, qsi_segment_filter *keep, void *context,
                                struct qsi_buf *files_out, qs_error *error) QS_MUST_CHECK;
/* Removes those of them that keep says no to by now. */
qs_status qsi_index_remove_noted(struct qsi_index *index, const struct qsi_buf *files,
                                 qsi_segment_filter *keep, void *context, uint64_t *removed_out,
                                 qs_error *error) QS_MUST_CHECK;
/* Both at once. */
qs_status qsi_index_remove_others(struct qsi_index *index, qsi_segment_filter *keep, void *context,
                                  uint64_t *removed_out, qs_error *error) QS_MUST_CHECK;
/* Verifies header, state, and every slot and body among live (NULL: those that are not settled);
 * visits nothing. */
qs_status qsi_segment_check(struct qsi_index *index, const struct qsi_segment_file *file,
                            const uint64_t *live, qs_error *error) QS_MUST_CHECK;
/* What it takes on the disk, about. */
uint64_t qsi_segment_disk_bytes(const struct qsi_index *index, const struct qsi_segment_file *file);

#endif
