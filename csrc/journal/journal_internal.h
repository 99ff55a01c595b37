/* Declarations shared by the parts of the journal writer: journal_append.c has appending, seal
 * and finish, journal_write.c writes, journal_spares.c creates files ahead, journal_release.c
 * removes them, journal_session.c begins and ends sessions.
 *
 * Invariant: block_lsn is the end of written entries, durable_lsn that of synced ones, appended_lsn
 * that of accepted ones; durable_lsn <= block_lsn <= appended_lsn, and the three are equal when the
 * journal is idle.  written_lsn is the copy of block_lsn for threads with the lock. */
#ifndef QSI_JOURNAL_INTERNAL_H
#define QSI_JOURNAL_INTERNAL_H

#include "journal.h"
#include "thread_safety.h"

#define QSI_JOURNAL_SLACK_BYTES (4 * (uint64_t)QSI_BLOCK_ALIGN)

struct qsi_entry { /* whole records, adjacent in one chunk */
    struct qsi_chunk *chunk;
    uint64_t from;
    uint64_t bytes;
    uint32_t record_count;
    bool more;
};

struct qsi_entries {
    struct qsi_entry *items;
    qs_part *parts; /* room for a block of all entries */
    uint32_t count;
    uint32_t capacity;
    uint64_t bytes;
};

struct qsi_spares {
    struct qsi_spare *items;
    uint32_t count;
    uint32_t capacity;
};

/* Files of the session that were begun; reading can begin at each of them. */
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
    uint64_t room_bytes GUARDED;      /* usable after written_lsn */
    uint64_t entry_bytes_max GUARDED; /* of the appends since written_lsn */
    struct qsi_journal_commits commits GUARDED;
    uint64_t open_commit_bytes GUARDED; /* appended for commits.open */
    uint64_t last_entry GUARDED;        /* the number of entries begun so far */
    /* Bytes of the file after the written ones that are reserved, and not written yet. */
    uint64_t fill_left GUARDED;
    uint64_t last_spare_bytes GUARDED;
    uint64_t last_spare_ns GUARDED; /* when it was begun, and appended_lsn then */
    uint64_t last_spare_lsn GUARDED;
    /* Taken by the leader, which counts in taken_used and changes nothing here before finish. */
    struct qsi_spares taken;
    struct qsi_starts files GUARDED; /* with durable records, and not released */
    /* Number of the spare that was begun last; 0: it is finished.  It stays after a failed make. */
    uint32_t making GUARDED;
    struct qsi_journal_counts counts GUARDED;

    uint32_t next_number; /* atomic: a leader without a spare creates a file itself */

    /* Of the leader, between seal and finish. */
    struct qsi_entries sealed;
    uint32_t sealed_done; /* number of its entries that are written */
    /* The last write ended because a next file was missing; it can be continued. */
    bool wants_file;
    uint32_t taken_used;
    uint64_t grows_from; /* last_spare_bytes at seal */
    qs_file *file;
    struct qsi_journal_header header;
    struct qsi_starts begun; /* files begun since the last sync */
    uint64_t file_bytes;
    uint64_t write_at;
    uint64_t filled_upto; /* the file is only reserved after this offset */
    uint64_t block_lsn;
    uint64_t durable_upto;
    uint64_t marked_upto; /* LSN of the last mark in the file, or the file's base_lsn */
    uint64_t marked_ns;
    uint64_t mark_count;               /* marks in the file so far */
    struct qsi_journal_counts written; /* not yet added to counts */
};
#undef GUARDED

static inline void qsi_journal_lock(struct qsi_journal *journal)
    QSI_ACQUIRES(qsi_store_mutex) QSI_UNCHECKED
{
    if (journal->options.lock != NULL) {
        journal->options.lock(journal->options.lock_context);
    }
}

/* Declares that the lock is not needed: no other thread knows the journal, which is being opened or
 * freed. */
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

/* The size of a session's first file, which is small. */
static inline uint64_t qsi_journal_first_bytes(const struct qsi_journal *journal)
{
    const uint64_t first = UINT64_C(1) << 20;

    return journal->options.file_bytes < first ? journal->options.file_bytes : first;
}

/* ---- journal_spares.c ---- */

uint32_t qsi_journal_take_number(struct qsi_journal *journal); /* threads: any */
/* Returns the next file for the leader: a spare, or a file created now. */
qs_status qsi_journal_next_file(struct qsi_journal *journal, struct qsi_spare *spare_out,
                                uint64_t entry_bytes, qs_error *error) QS_MUST_CHECK;
/* Gives back the spares that the leader did not need.  REQUIRES the lock. */
void qsi_journal_return_spares(struct qsi_journal *journal);
/* Closes spares with numbers below that of a file that a leader created: they have no room for the
 * journal any more, and the next release removes them.  REQUIRES the lock. */
void qsi_journal_drop_spares_below(struct qsi_journal *journal, uint32_t number);
void qsi_journal_close_spares(struct qsi_journal *journal);
/* Adds a spare, and makes room for room_for - 1 more.  QS_ENOMEM. */
qs_status qsi_spares_push(struct qsi_spares *spares, const struct qsi_spare *spare,
                          uint32_t room_for) QS_MUST_CHECK;

/* ---- journal_release.c ---- */

/* A missing file counts as removed. */
qs_status qsi_journal_remove(struct qsi_journal *journal, uint32_t number, qs_error *error);

/* ---- journal_append.c ---- */

void qsi_entries_fini(struct qsi_entries *entries);
/* Records a begun file.  Without memory it is left out; reading then begins at an earlier file,
 * which is correct, too. */
void qsi_starts_add(struct qsi_starts *starts, const struct qsi_session *start);

/* ---- journal_write.c ---- */

/* Writes and syncs the file's header, which is complete except for its size. */
qs_status qsi_journal_begin_file(struct qsi_journal *journal, qs_error *error) QS_MUST_CHECK;

#endif
