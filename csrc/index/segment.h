/* The segmented index of all queues: files of slots addressed by sequence, and small bodies
 * (docs/FORMAT.md, "Index segment").
 *
 * A segment covers `entries` consecutive sequences of one queue: sequence s is in segment s /
 * entries, slot s % entries.  Slots and bodies are written once and never change.  A state area
 * records which messages are settled.  A file has two state areas, and the one that a checkpoint
 * names is never overwritten.  A segment with few live messages is rewritten, packed, as the next
 * generation.  The checkpoint determines how much of a file is valid, in struct qsi_segment_file.
 * A reader does not trust the file itself: bytes after heap_end, and slots that are not wanted, are
 * dead whatever they contain.
 *
 * The caller ensures that one thread at a time writes a file, and that no file is removed while it
 * is read.  Any threads may use different files, or read one file.  Functions do not sync unless
 * their comments say so. */
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

#define QSI_SEGMENT_ENTRIES 16384u /* default of a new store */
#define QSI_SEGMENT_ENTRIES_MIN 16u
#define QSI_SEGMENT_ENTRIES_MAX 65536u
#define QSI_SLOT_BYTES 32u
/* Slots of one page of 4096 bytes: slots that a checkpoint names share no page with later ones. */
#define QSI_SLOT_PAGE 128u

struct qsi_index; /* the directory of segment files of one store; opaque */

/* A power of two between the limits. */
static inline bool qsi_segment_entries_are_possible(uint32_t entries)
{
    return entries >= QSI_SEGMENT_ENTRIES_MIN && entries <= QSI_SEGMENT_ENTRIES_MAX &&
           (entries & (entries - 1)) == 0;
}

/* REQUIRES valid entries.  The caller owns dir and env, which outlive the index. */
qs_status qsi_index_open(struct qsi_index **index_out, qs_env *env, qs_dir *dir,
                         const uint8_t uuid[QSI_UUID_BYTES], uint32_t entries,
                         qs_error *error) QS_MUST_CHECK;
void qsi_index_close(struct qsi_index *index); /* NULL is fine */

/* The description of a segment file, in memory and in checkpoints. */
struct qsi_segment_file {
    uint64_t queue_id;
    uint64_t number;     /* covers sequences [number * entries, (number + 1) * entries) */
    uint64_t salt;       /* random; part of each checksum in the file */
    uint64_t heap_end;   /* offset of the next body; 0: the file does not exist yet */
    uint32_t generation; /* 0, then one more for each rewrite */
    uint32_t slot_count; /* entries; in a packed file the number of present slots */
    uint32_t state_crc;
    /* 1 or 2: the area with the state; 0: none was written, since no message is settled or seen */
    uint8_t state_area;
    bool packed; /* only present slots are in the file, in order; their bitmap is in the header */
};

/* A bitmap over the slots of a segment: bit i % 64 of word i / 64 for slot i; entries bits, rounded
 * up to words. */
static inline bool qsi_bitmap_has(const uint64_t *bits, uint32_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}
static inline uint32_t qsi_bitmap_words(uint32_t bits)
{
    return (bits + 63) / 64;
}

/* Writes a file's path for errors: "index/0000000000000007-000000000000-00000000.seg". */
#define QSI_SEGMENT_PATH_BYTES 64u
void qsi_segment_path(char path_out[QSI_SEGMENT_PATH_BYTES], const struct qsi_segment_file *file);

/* The entry of a record for a damaged message of a segment. */
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
/* The error of reading that message's body; QS_ECORRUPT. */
qs_status qsi_segment_fail_message(qs_error *error, const struct qsi_body_damage *damage);

/* ---- writing slots and bodies ---- */

struct qsi_segment_writer;
/* Begins to write to a file, which is created if heap_end is 0 (from queue_id, number and
 * generation; salt, heap_end and slot_count are set).  page_aligned: bodies begin on a new page,
 * because a checkpoint names the bytes before.  One writer per index at a time: the index has its
 * buffers.  QS_ESTORE_FULL: no space, nothing is lost.  QS_ECORRUPT: the existing file cannot be
 * read, and nothing was written. */
qs_status qsi_segment_writer_begin(struct qsi_segment_writer **writer_out, struct qsi_index *index,
                                   struct qsi_segment_file *file, bool page_aligned,
                                   qs_error *error) QS_MUST_CHECK;
/* Put slots in ascending order.  An envelope equal to the previous one is not written again if that
 * is still in the buffer. */
qs_status qsi_segment_put_embedded(struct qsi_segment_writer *writer, uint32_t slot,
                                   struct qsi_slice envelope, struct qsi_slice body,
                                   qs_error *error) QS_MUST_CHECK;
/* REQUIRES ref->offset to be a multiple of 8 below 32 GiB. */
qs_status qsi_segment_put_stored(struct qsi_segment_writer *writer, uint32_t slot,
                                 const struct qsi_body_ref *ref, qs_error *error) QS_MUST_CHECK;
/* Writes the buffers, closes and frees; on success file describes the new content.  After a failure
 * of put or end, file is unchanged and still describes valid content: only bytes after its heap_end
 * and unwritten slots may differ. */
qs_status qsi_segment_writer_end(struct qsi_segment_writer *writer, qs_error *error) QS_MUST_CHECK;
void qsi_segment_writer_abandon(struct qsi_segment_writer *writer);

/* ---- reading ---- */

/* Reads messages into one messages record (codec/record.h) in a new chunk, from which the queue
 * delivers. */
struct qsi_segment_load {
    /* In: slots [from, to) that are in the bitmap wanted.  Reading stops before a message that
     * would exceed bytes_max of bodies, but takes at least one. */
    uint32_t from, to;
    const uint64_t *wanted;
    uint64_t bytes_max;
    struct qsi_budget *budget; /* the chunk will be charged to it; NULL: to none */
    /* Out: owned by the caller.  The record is at chunk->data[0]; its one destination is the queue.
     * chunk NULL: nothing was wanted. */
    struct qsi_chunk *chunk;
    uint32_t *rows;        /* qsi_alloc: row of slot first + i; NULL: slot first + i has row i */
    uint32_t first, count; /* slots [first, first + count); the first and the last one are wanted */
    bool has_stored;
    uint32_t damaged_count;
};
/* Loads wanted messages, and checks every slot and body.  For a damaged message the record has the
 * place of the damage, so that the others can be delivered.  QS_ECORRUPT: the file is missing, too
 * short, or has another salt. */
qs_status qsi_segment_load(struct qsi_index *index, const struct qsi_segment_file *file,
                           struct qsi_segment_load *load, qs_error *error) QS_MUST_CHECK;

/* Visits the references to the message store among the wanted slots.  QS_ECORRUPT: some slots are
 * damaged; the others were visited. */
typedef void qsi_segment_ref_visitor(void *context, uint32_t slot, const struct qsi_body_ref *ref);
qs_status qsi_segment_read_refs(struct qsi_index *index, const struct qsi_segment_file *file,
                                const uint64_t *wanted, qsi_segment_ref_visitor *visit,
                                void *context, qs_error *error) QS_MUST_CHECK;

/* ---- state: settled and seen messages ---- */

/* Optional columns of a state. */
enum qsi_state_column {
    QSI_STATE_DELIVERIES = 1,
    QSI_STATE_EXPIRIES = 2,
    QSI_STATE_SIZES = 4,
    QSI_STATE_DUES = 8,
};
struct qsi_segment_state {
    uint64_t *settled; /* bitmaps of entries bits */
    uint64_t *seen;    /* messages delivered before */
    /* Columns of entries values, or NULL. */
    uint8_t *deliveries; /* earlier deliveries; NULL: 1 for seen messages */
    uint64_t *expiries;  /* in us since 1970, UINT64_MAX never; NULL: no message expires */
    uint32_t *sizes;     /* bytes of bodies; NULL: not recorded */
    /* Due times of delayed messages, in us since 1970; 0: not delayed; NULL: none is delayed. */
    uint64_t *dues;
    uint32_t wanted; /* QSI_STATE_* that reading allocates (qsi_alloc) if the file has them */
};
/* Writes the state into an area that is not durable_area, the one that the last checkpoint names
 * (0: none); file names the written area afterwards.  A file that does not exist (heap_end 0) is
 * created.  QS_ECORRUPT: the file cannot be read, and nothing was written. */
qs_status qsi_segment_write_state(struct qsi_index *index, struct qsi_segment_file *file,
                                  uint8_t durable_area, const struct qsi_segment_state *state,
                                  qs_error *error) QS_MUST_CHECK;
/* Reads the state into settled and seen, which the caller provides.  The caller provides columns or
 * NULL; wanted columns are allocated, and the caller frees them whatever is returned.  *columns_out
 * has the QSI_STATE_* that the file has; other columns are not filled.  Without a state area only
 * the messages that a packed file lacks are settled. */
qs_status qsi_segment_read_state(struct qsi_index *index, const struct qsi_segment_file *file,
                                 struct qsi_segment_state *state, uint32_t *columns_out,
                                 qs_error *error) QS_MUST_CHECK;

/* ---- space ---- */

/* Writes the live messages to a packed file of the next generation, with the state in area 1.  from
 * is not changed.  Damaged messages are copied as they are.  On failure the new file is removed;
 * QS_ECORRUPT: from cannot be read. */
qs_status qsi_segment_rewrite(struct qsi_index *index, const struct qsi_segment_file *from,
                              const uint64_t *live, const struct qsi_segment_state *state,
                              struct qsi_segment_file *to_out, qs_error *error) QS_MUST_CHECK;
/* fdatasync.  The name is durable after qsi_index_sync.  QS_ECORRUPT: the file cannot be read;
 * QS_EIO: the sync failed. */
qs_status qsi_segment_sync(struct qsi_index *index, const struct qsi_segment_file *file,
                           qs_error *error) QS_MUST_CHECK;
/* Checks that the file exists, with the right header and size.  QS_ECORRUPT. */
qs_status qsi_segment_find(struct qsi_index *index, const struct qsi_segment_file *file,
                           qs_error *error) QS_MUST_CHECK;
qs_status qsi_index_sync(struct qsi_index *index, qs_error *error) QS_MUST_CHECK;
/* Removes the file's name; QS_OK if there is none. */
qs_status qsi_segment_remove(struct qsi_index *index, const struct qsi_segment_file *file,
                             qs_error *error) QS_MUST_CHECK;
/* Lists the segment files of earlier sessions for which keep returns false (queue_id, number and
 * generation are set), as an array of struct qsi_segment_file.  Unknown names are ignored. */
typedef bool qsi_segment_filter(void *context, const struct qsi_segment_file *file);
qs_status qsi_index_list_others(struct qsi_index *index, qsi_segment_filter *keep, void *context,
                                struct qsi_buf *files_out, qs_error *error) QS_MUST_CHECK;
/* Removes those of the listed files for which keep still returns false. */
qs_status qsi_index_remove_listed(struct qsi_index *index, const struct qsi_buf *files,
                                  qsi_segment_filter *keep, void *context, uint64_t *removed_out,
                                  qs_error *error) QS_MUST_CHECK;
/* Lists and removes them. */
qs_status qsi_index_remove_others(struct qsi_index *index, qsi_segment_filter *keep, void *context,
                                  uint64_t *removed_out, qs_error *error) QS_MUST_CHECK;
/* Verifies header, state, and the slots and bodies of live (NULL: of all that are not settled). */
qs_status qsi_segment_check(struct qsi_index *index, const struct qsi_segment_file *file,
                            const uint64_t *live, qs_error *error) QS_MUST_CHECK;
/* The approximate space of the file on the disk. */
uint64_t qsi_segment_disk_bytes(const struct qsi_index *index, const struct qsi_segment_file *file);

#endif
