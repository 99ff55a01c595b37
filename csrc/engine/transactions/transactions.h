/* Keys of committed transactions: kept until they are forgotten on request.
 *
 * The latest keys are in memory, in a table.  A full table is frozen and written to a key file,
 * together with files that are not larger, so that there are few files.  Memory keeps only a filter
 * of each file: most keys that were never committed are recognised without reading.  Checkpoints
 * carry the table and name the files; the journal has later keys.
 *
 * Everything here REQUIRES the store's lock. */
#ifndef QSI_TRANSACTIONS_H
#define QSI_TRANSACTIONS_H

#include "key_file.h"
#include "list.h"
#include "map.h"
#include "record.h"
#include "store.h"
#include "thread_safety.h"

#define QSI_TRANSACTION_KEY_BYTES_MAX 1024
_Static_assert(QSI_TRANSACTION_KEY_BYTES_MAX == QSI_KEY_BYTES_MAX, "of files");

#define QSI_KEY_NOTE_BYTES 128u /* of a note in memory, about, besides its key */
#define QSI_KEY_RUNS_MAX 40u    /* each is larger than all behind it, nearly */

struct qsi_key_table {
    struct qsi_map notes; /* key -> key_note */
    uint64_t bytes;       /* in the budget */
};

struct qsi_key_run { /* a file */
    struct qsi_list in_dead;
    struct qsi_key_file file;
    uint64_t lsn; /* all its keys are durable when this is */
    uint32_t reference_count;
    bool named;       /* by a checkpoint, perhaps one that never became valid */
    bool is_unmerged; /* it is damaged: it stays as it is */
    bool is_dead;     /* others have its keys */
    bool sealed;      /* it was dead when the checkpoint that is being made began */
};

struct qsi_transactions {
    struct qsi_key_dir dir;
    struct qsi_key_table fresh;
    struct qsi_key_table frozen;                /* is being written; does not change */
    uint64_t frozen_lsn;                        /* its keys are durable when this is */
    struct qsi_key_run *runs[QSI_KEY_RUNS_MAX]; /* oldest first */
    uint32_t run_count;
    uint64_t generation; /* of runs and frozen */
    struct qsi_list dead;
    uint64_t next_number;
    uint64_t forgotten_before_us; /* keys that were committed before are forgotten */
    bool is_busy; /* frozen and runs are not changed, for threads that read them unlocked */
    bool sweeps;  /* files have many forgotten keys: they are to be written anew */
};

/* The store has no keys yet; its files and MANIFEST are open. */
qs_status qsi_transactions_open(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex) QS_MUST_CHECK;
void qsi_transactions_free(struct qs_store *store); /* a store without any is fine */
/* Debug builds: asserts that tables, files and counts agree; called where qsi_store_check is. */
#ifdef NDEBUG
#define qsi_transactions_check(store) ((void)(store))
#else
void qsi_transactions_check(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
#endif

/* ---- asking (transactions.c) ---- */

/* The files' answer about a key; zeroed at first. */
struct qsi_key_search {
    uint64_t generation; /* 0: nobody looked */
    bool has;
    uint64_t lsn, time_us;
};
/* May release the lock, and reports that; then ask again with the same search.  *lsn_out 0: no
 * transaction has that key; otherwise the transaction is durable when that LSN is.  QS_ECORRUPT: a
 * file that may have it is damaged. */
qs_status qsi_transactions_find(struct qs_store *store, struct qsi_slice key,
                                struct qsi_key_search *search, uint64_t *lsn_out,
                                bool *released_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Reserves a place for the key's note, before anything changes. */
qs_status qsi_transactions_reserve(struct qs_store *store, struct qsi_slice key,
                                   qs_error *error) QS_MUST_CHECK;
void qsi_transactions_unreserve(struct qs_store *store, struct qsi_slice key);
/* REQUIRES the place. */
void qsi_transactions_record(struct qs_store *store, struct qsi_slice key, uint64_t lsn,
                             uint64_t time_us, bool forgotten) QSI_REQUIRES(qsi_store_mutex);
/* The most bytes of the table in memory: with more, it is written to a file. */
uint64_t qsi_transactions_bytes_max(const struct qs_store *store);
/* Whether the table is to be written, or files are to be written anew. */
bool qsi_transactions_want_spill(const struct qs_store *store);
/* The time to journal for a commit now: no age that was given before makes it forgotten. */
uint64_t qsi_transactions_time(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* ---- the disk (transactions_spill.c) ---- */

/* May release the lock, and reports that.  Returns when the table has room. */
qs_status qsi_transactions_make_room(struct qs_store *store, bool *released_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Releases the lock meanwhile.  Writes the table to a file: for the pager, and for a checkpoint. */
qs_status qsi_transactions_spill(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Whether the table has more than a checkpoint should carry. */
bool qsi_transactions_are_many(const struct qs_store *store);
/* Releases the lock meanwhile.  The number of known keys that are older than this; afterwards no
 * other thread uses the files until qsi_transactions_end_count. */
qs_status qsi_transactions_count(struct qs_store *store, uint64_t before_us, uint64_t *count_out,
                                 qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_transactions_end_count(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* ---- among those files ---- */

struct qsi_key_note {
    uint64_t lsn, time_us;
    enum { KEY_NOTE_NONE, KEY_NOTE_KNOWN, KEY_NOTE_FORGOTTEN } state;
};
void qsi_key_table_free(struct qs_store *store, struct qsi_key_table *table);
struct qsi_key_run *qsi_key_run_create(struct qs_store *store, const struct qsi_key_file *file);
void qsi_key_run_unref(struct qs_store *store, struct qsi_key_run *run);
static inline uint64_t qsi_key_run_bytes(const struct qsi_key_run *run)
{
    return qsi_key_file_bytes(&run->file.header);
}

#endif
