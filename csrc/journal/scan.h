/* The reading side of the journal: every valid block of every session behind the checkpoint, in
 * order.  Blocks before it are read and checked as well where they share a file with others.
 *
 * A torn tail (what the last commit before a crash left behind) ends the scan; damage anywhere else
 * is refused, and so is a manifest that is older than the journal.  They are told apart by evidence
 * (scan_tail.c, scan_sessions.c). */
#ifndef QSI_SCAN_H
#define QSI_SCAN_H

#include "chunk.h"
#include "file_head.h"
#include "journal_file.h"

#include <stdint.h>

struct qsi_scan_block {
    struct qsi_block block;
    struct qsi_chunk *chunk; /* holds the payload at data[from]; ref it to keep it */
    uint64_t from;
    uint32_t session; /* index in the manifest */
    uint64_t offset;  /* of the block in its file (block.file_number) */
};
typedef qs_status qsi_scan_visitor(void *context, const struct qsi_scan_block *block,
                                   qs_error *error);

struct qsi_scan_result {
    uint32_t last_file;    /* the highest file number that belongs to a session; 0: none */
    uint32_t file_before;  /* of the same session, in which it went on to last_file; 0: none */
    uint32_t highest_file; /* the highest number there is, of a session or not */
    uint64_t end_offset;   /* behind the last valid block there */
    uint64_t end_lsn;
    uint64_t torn_bytes;              /* of a begun block behind the end */
    uint64_t lost_ranges, lost_bytes; /* damage that was passed over, behind the checkpoint */
    uint64_t blocks, bytes;           /* visited */
};

struct qsi_scan_options {
    /* Damage is passed over and counted, and what is whole behind it is visited; else it is
     * QS_ECORRUPT with file and offset. */
    bool salvage;
    /* NULL, or told every few MiB, and once at the end, how much of the journal's files was
     * read. */
    void (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_context;
};

/* What the pages before a file's blocks say. */
struct qsi_journal_head {
    struct qsi_journal_header header;
    uint64_t marked_upto; /* the session was durable up to here; 0: no mark */
    /* else the rest says nothing: this is no header of a file of this store with this number */
    bool is_whole;
    bool is_used; /* something was journalled in the file, which began with its first block */
};
qs_status qsi_journal_head_read(struct qsi_journal_head *head_out, qs_env *env, qs_dir *dir,
                                uint32_t number, const uint8_t uuid[QSI_UUID_BYTES],
                                qs_error *error) QS_MUST_CHECK;

/* Does no file know of a session that the manifest should know of?  Part of each scan that does not
 * salvage. */
qs_status qsi_journal_check_sessions(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                                     const struct qsi_journal_numbers *files,
                                     qs_error *error) QS_MUST_CHECK;
/* Before a scan that salvages: adds to the manifest what files know of such sessions. */
qs_status qsi_journal_adopt_sessions(qs_env *env, qs_dir *dir, struct qsi_manifest *manifest,
                                     qs_error *error) QS_MUST_CHECK;

/* Visits the blocks that end behind the checkpoint's LSN; the first of them may begin before it.
 * Whatever the visitor returns but QS_OK ends the scan.  A journal that ends before the
 * checkpoint is damaged: it was durable to there. */
qs_status qsi_journal_scan(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                           const struct qsi_scan_options *options, qsi_scan_visitor *visit,
                           void *context, struct qsi_scan_result *result_out,
                           qs_error *error) QS_MUST_CHECK;

#endif
