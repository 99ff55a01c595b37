/* What the parts of the journal writer share: journal.c appends and seals, journal_write.c writes,
 * journal_spares.c makes the files ahead, journal_release.c gives them back, journal_session.c
 * begins and ends.
 *
 * Invariant: block_lsn counts what was written, durable_lsn what was synced, appended_lsn what
 * was accepted; durable_lsn <= block_lsn <= appended_lsn, and the three meet when the journal is
 * idle.  written_lsn is block_lsn as those know it who have the lock. */
#ifndef QSI_JOURNAL_INTERNAL_H
#define QSI_JOURNAL_INTERNAL_H

#include "journal.h"
#include "thread_safety.h"

#define QSI_JOURNAL_SLACK_BYTES (4 * (uint64_t)QSI_BLOCK_ALIGN)

struct qsi_entry { /* whole records, next to each other in one chunk */
    struct qsi_chunk *chunk;
    uint64_t from;
    uint64_t bytes;
    uint32_t record_count;
    bool more;
};

struct qsi_entries {
    struct qsi_entry *items;
    qs_part *parts; /* room for a block made of all of them */
    uint32_t count;
    uint32_t capacity;
    uint64_t bytes;
};

struct qsi_spares {
    struct qsi_spare *items;
    uint32_t count;
    uint32_t capacity;
};

/* Files of the session that were begun: at each of them reading can begin. */
struct qsi_starts {
    struct qsi_session *items; /* ascending in number and LSN */
    uint32_t count;
    uint32_t capacity;
};

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_journal {
    qs_env *env;
    qs_dir *root;
    qs_dir *dir;
    struct qsi_journal_options options;
    struct qsi_session session; /* as it began */

    /* under the lock */
    struct qsi_entries open GUARDED;
    struct qsi_spares spares GUARDED; /* ascending numbers */
    uint64_t appended_lsn GUARDED;
    uint64_t durable_lsn GUARDED;
    uint64_t written_lsn GUARDED;
    uint64_t room_bytes GUARDED;      /* usable for what comes after written_lsn */
    uint64_t entry_bytes_max GUARDED; /* of the appends since written_lsn */
    struct qsi_journal_commits commits GUARDED;
    uint64_t open_commit_bytes GUARDED; /* appended for commits.open */
    uint64_t last_entry GUARDED;        /* how many were begun, ever */
    /* of the file, behind what is written: reserved, and not written yet */
    uint64_t fill_left GUARDED;
    uint64_t last_spare_bytes GUARDED;
    uint64_t last_spare_ns GUARDED; /* when it was begun, and where the journal was */
    uint64_t last_spare_lsn GUARDED;
    /* by the leader, who counts in taken_used and changes nothing here before finish */
    struct qsi_spares taken;
    struct qsi_starts files GUARDED; /* in which something is durable and that were not released */
    /* number of the spare that was begun last; 0: it is finished */
    uint32_t making GUARDED;
    struct qsi_journal_counts counts GUARDED;

    uint32_t next_number; /* atomic: a leader that finds no spare makes its own */

    /* the leader's, between seal and finish */
    struct qsi_entries sealed;
    uint32_t sealed_done; /* of its entries: written */
    /* the last write ended for want of another file, at a place where it can go on */
    bool wants_file;
    uint32_t taken_used;
    uint64_t grows_from; /* last_spare_bytes at seal */
    qs_file *file;
    struct qsi_journal_header header;
    struct qsi_starts begun; /* since the last sync */
    uint64_t file_bytes;
    uint64_t write_at;
    uint64_t filled_upto; /* behind it the file was reserved only */
    uint64_t block_lsn;
    uint64_t durable_upto;
    uint64_t marked_upto; /* what the last mark in the file says, or the file's base_lsn */
    uint64_t marked_ns;
    uint64_t mark_count;               /* in the file */
    struct qsi_journal_counts written; /* not counted yet */
};
#undef GUARDED

static inline void qsi_journal_lock(struct qsi_journal *journal)
    QSI_ACQUIRES(qsi_store_mutex) QSI_UNCHECKED
{
    if (journal->options.lock != NULL) {
        journal->options.lock(journal->options.lock_context);
    }
}

/* No other thread knows of the journal: it is being opened, or freed. */
static inline void qsi_journal_is_private(const struct qsi_journal *journal)
    QSI_ASSUMES(qsi_store_mutex)
{
    (void)journal;
}

static inline void qsi_journal_unlock(struct qsi_journal *journal)
    QSI_RELEASES(qsi_store_mutex) QSI_UNCHECKED
{
    if (journal->options.unlock != NULL) {
        journal->options.unlock(journal->options.lock_context);
    }
}

/* A session begins small. */
static inline uint64_t qsi_journal_first_bytes(const struct qsi_journal *journal)
{
    const uint64_t first = UINT64_C(1) << 20;

    return journal->options.file_bytes < first ? journal->options.file_bytes : first;
}

/* ---- journal_spares.c ---- */

uint32_t qsi_journal_take_number(struct qsi_journal *journal); /* threads: any */
/* The next file, for the leader: a spare, or one made now. */
qs_status qsi_journal_next_file(struct qsi_journal *journal, struct qsi_spare *spare_out,
                                uint64_t entry_bytes, qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  Spares that the leader did not need go back to those made meanwhile. */
void qsi_journal_return_spares(struct qsi_journal *journal);
/* REQUIRES lock.  Closes spares that a file made by a leader has overtaken: they offer no room, and
 * the next release removes them. */
void qsi_journal_drop_spares_below(struct qsi_journal *journal, uint32_t number);
void qsi_journal_close_spares(struct qsi_journal *journal);
/* Room for one spare and for room_for - 1 more.  QS_ENOMEM. */
qs_status qsi_spares_push(struct qsi_spares *spares, const struct qsi_spare *spare,
                          uint32_t room_for) QS_MUST_CHECK;

/* ---- journal_release.c ---- */

/* A file that is missing is as good as removed. */
qs_status qsi_journal_remove(struct qsi_journal *journal, uint32_t number, qs_error *error);

/* ---- journal.c ---- */

void qsi_entries_fini(struct qsi_entries *entries);
/* Without memory the file is left out: reading then begins at an earlier one, which is right as
 * well. */
void qsi_starts_note(struct qsi_starts *starts, const struct qsi_session *start);

/* ---- journal_write.c ---- */

/* Writes the header of the file, which is complete but for its size, and syncs it. */
qs_status qsi_journal_begin_file(struct qsi_journal *journal, qs_error *error) QS_MUST_CHECK;

#endif
