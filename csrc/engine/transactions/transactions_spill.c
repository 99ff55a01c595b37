/* Writing keys of transactions to files.
 *
 * A file becomes part of the store when a checkpoint names it: until then the journal has its keys,
 * and the next open removes it.  A file that a checkpoint named is removed when a checkpoint is
 * valid that does not. */
#include "alloc.h"
#include "check.h"
#include "enter.h"
#include "env_call.h"
#include "error.h"
#include "pager.h"
#include "transactions.h"

#include <stdlib.h>
#include <string.h>

#define CARRIED_BYTES_MAX (64u << 10) /* in a checkpoint */
/* a file smaller than so many times the data after it is written anew with that data */
#define GROWTH 2

bool qsi_transactions_are_many(const struct qs_store *store)
{
    const struct qsi_transactions *keys = store->transactions;

    return keys->fresh.bytes + keys->frozen.bytes > CARRIED_BYTES_MAX;
}

/* ---- one job ---- */

struct spill {
    struct qs_store *store;
    struct qsi_key *keys; /* of the frozen table, sorted */
    uint64_t key_count;
    uint32_t first; /* run that is written anew, with all behind it */
    uint64_t number;
    uint64_t forgotten_before_us;
    uint64_t lsn;
    bool has_file;
    struct qsi_key_file file;
    struct qsi_key_reader readers[QSI_KEY_RUNS_MAX];
    uint32_t reader_count;
};

static int compare(const void *left, const void *right)
{
    return qsi_key_compare(left, right);
}

/* Without the lock: the frozen table does not change. */
static qs_status collect(struct spill *spill, qs_error *error)
{
    const struct qsi_transactions *keys = spill->store->transactions;
    struct qsi_map_cursor cursor = qsi_map_begin(&keys->frozen.notes);

    if (keys->frozen.notes.count == 0) {
        return QS_OK;
    }
    spill->keys = qsi_alloc(keys->frozen.notes.count * sizeof *spill->keys);
    if (spill->keys == NULL) {
        return qsi_fail(error, QS_ENOMEM, "transaction keys");
    }
    while (qsi_map_next(&keys->frozen.notes, &cursor)) {
        const struct qsi_key_note *note = cursor.value;
        struct qsi_slice key = qsi_slice_make(cursor.key, (uint32_t)cursor.key_bytes);
        if (note->state != KEY_NOTE_NONE) {
            spill->keys[spill->key_count++] = (struct qsi_key){
                .hash = qsi_key_hash(keys->dir.uuid, key),
                .time_us = note->time_us,
                .bytes = key,
                .forgotten = note->state == KEY_NOTE_FORGOTTEN,
            };
        }
    }
    QS_ASSERT(spill->key_count <= keys->frozen.notes.count);
    qsort(spill->keys, spill->key_count, sizeof *spill->keys, compare);
    return QS_OK;
}

static void choose_runs(struct spill *spill) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_transactions *keys = spill->store->transactions;
    uint64_t count = keys->frozen.notes.count;

    QS_ASSERT(keys->run_count <= QSI_KEY_RUNS_MAX);
    spill->first = keys->run_count;
    while (spill->first > 0) {
        const struct qsi_key_run *run = keys->runs[spill->first - 1];
        if (run->is_unmerged || (!keys->sweeps && keys->run_count < QSI_KEY_RUNS_MAX - 1 &&
                                 run->file.header.key_count >= GROWTH * count)) {
            break;
        }
        count += run->file.header.key_count;
        QS_DCHECK(spill->first > 0);
        spill->first -= 1;
    }
}

static qs_status open_readers(struct spill *spill, qs_error *error)
{
    const struct qsi_transactions *keys = spill->store->transactions;

    QS_ASSERT(keys->is_busy && spill->reader_count == 0);
    for (uint32_t i = keys->run_count; i-- > spill->first;) { /* the newest counts */
        QS_TRY(qsi_key_reader_begin(&spill->readers[spill->reader_count], &keys->dir,
                                    &keys->runs[i]->file, error));
        spill->reader_count += 1;
    }
    return QS_OK;
}

static void close_readers(struct spill *spill)
{
    for (uint32_t i = 0; i < spill->reader_count; i++) {
        qsi_key_reader_fini(&spill->readers[i]);
    }
    spill->reader_count = 0;
}

static uint64_t keys_max(const struct spill *spill)
{
    uint64_t count = spill->key_count;

    for (uint32_t i = 0; i < spill->reader_count; i++) {
        count += spill->readers[i].file->header.key_count;
    }
    return count;
}

/* In the oldest file forgotten keys are dropped: there is no older file. */
static bool is_needed(const struct spill *spill, const struct qsi_key *key)
{
    QS_DCHECK(spill->number > 0);
    return spill->first > 0 || (!key->forgotten && key->time_us >= spill->forgotten_before_us);
}

/* A file that exists and cannot be read is damaged: QS_EIO is left to writes. */
static qs_status fail_unread(qs_status status, qs_error *error)
{
    return qsi_fail_unread(error, status, "checkpoint");
}

static qs_status write_merged(struct spill *spill, struct qsi_key_writer *writer, bool *begun,
                              qs_error *error)
{
    const struct qsi_key_dir *dir = &spill->store->transactions->dir;
    struct qsi_key_merge merge = {.fresh = spill->keys,
                                  .fresh_count = spill->key_count,
                                  .readers = spill->readers,
                                  .reader_count = spill->reader_count};

    QS_ASSERT_NOT_HELD(&spill->store->mutex);
    QS_TRY(fail_unread(qsi_key_merge_next(&merge, error), error));
    while (!merge.at_end) {
        if (is_needed(spill, &merge.key)) {
            if (!*begun) {
                QS_TRY(qsi_key_writer_begin(writer, dir, spill->number, keys_max(spill), error));
                *begun = true;
            }
            QS_TRY(qsi_key_writer_add(writer, &merge.key, error));
        }
        QS_TRY(fail_unread(qsi_key_merge_next(&merge, error), error));
    }
    spill->has_file = *begun;
    return *begun ? qsi_key_writer_end(writer, spill->store->options.sync == QS_SYNC_FDATASYNC,
                                       &spill->file, error)
                  : QS_OK;
}

/* Without the lock. */
static qs_status run_spill(struct spill *spill, qs_error *error)
{
    struct qsi_key_writer writer = {0};
    bool begun = false;
    qs_status status = collect(spill, error);

    if (status == QS_OK) {
        status = fail_unread(open_readers(spill, error), error);
    }
    if (status == QS_OK) {
        status = write_merged(spill, &writer, &begun, error);
    }
    qsi_key_writer_fini(&writer);
    close_readers(spill);
    qsi_free(spill->keys);
    return status;
}

/* Releases the lock meanwhile.  Files that no checkpoint names are removed at once, the others with
 * the next one. */
static void drop_run(struct qs_store *store, struct qsi_key_run *run) QSI_REQUIRES(qsi_store_mutex)
{
    char name[QSI_KEY_NAME_BYTES];

    QS_ASSERT(!run->is_dead && qsi_list_is_empty(&run->in_dead));
    run->is_dead = true;
    if (run->named) {
        qsi_list_push_back(&store->transactions->dead, &run->in_dead);
        store->paging.dead_bytes += qsi_key_run_bytes(run);
        return;
    }
    qsi_key_file_name(name, run->file.header.number);
    qsi_store_unlock(store);
    (void)!qsi_env_remove(store->env, store->checkpoint_dir, name, NULL); /* else the next open */
    qsi_store_lock(store);
    qsi_key_run_unref(store, run);
}

/* May release the lock meanwhile. */
static void install(struct spill *spill, struct qsi_key_run *run) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = spill->store;
    struct qsi_transactions *keys = store->transactions;
    struct qsi_key_run *dropped[QSI_KEY_RUNS_MAX];
    uint32_t count = keys->run_count - spill->first;

    QS_ASSERT(keys->is_busy && spill->first <= keys->run_count);
    memcpy(dropped, keys->runs + spill->first, count * sizeof(struct qsi_key_run *));
    keys->run_count = spill->first;
    if (run != NULL) {
        run->lsn = spill->lsn;
        for (uint32_t i = 0; i < count; i++) {
            run->lsn = dropped[i]->lsn > run->lsn ? dropped[i]->lsn : run->lsn;
        }
        QS_ASSERT(keys->run_count < QSI_KEY_RUNS_MAX && run->lsn > 0);
        keys->runs[keys->run_count++] = run;
    }
    qsi_key_table_free(store, &keys->frozen);
    keys->sweeps = keys->sweeps && spill->forgotten_before_us < keys->forgotten_before_us;
    keys->generation += 1;
    for (uint32_t i = 0; i < count; i++) {
        drop_run(store, dropped[i]);
    }
}

static uint64_t appended_lsn(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return store->journal != NULL ? qsi_journal_appended_lsn(store->journal) : 0;
}

static bool is_reported(qs_status status)
{
    return qsi_consequence_of(QSI_USE_REWRITING, status) == QSI_TELLS_READERS;
}

/* REQUIRES that nobody is at it; releases it meanwhile. */
static qs_status spill_once(struct qs_store *store, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_transactions *keys = store->transactions;
    struct spill *spill = qsi_zalloc(sizeof *spill);
    struct qsi_key_run *run = NULL;
    qs_status status;

    QS_ASSERT(keys->is_busy);
    if (spill == NULL) {
        return qsi_fail(error, QS_ENOMEM, "transaction keys");
    }
    if (keys->frozen.notes.count == 0) {
        qsi_key_table_free(store, &keys->frozen);
        keys->frozen = keys->fresh;
        keys->fresh = (struct qsi_key_table){0};
        keys->frozen_lsn = appended_lsn(store);
    }
    spill->store = store;
    spill->lsn = keys->frozen_lsn > 0 ? keys->frozen_lsn : 1;
    spill->number = keys->next_number++;
    spill->forgotten_before_us = keys->forgotten_before_us;
    QS_ASSERT(spill->number < keys->next_number);
    choose_runs(spill);
    if (spill->first == QSI_KEY_RUNS_MAX) {
        qsi_free(spill);
        return qsi_fail(error, QS_ECORRUPT, "too many key files are damaged");
    }
    qsi_store_unlock(store);
    status = run_spill(spill, error);
    qsi_store_lock(store);
    if (status == QS_OK && spill->has_file) {
        run = qsi_key_run_create(store, &spill->file);
        if (run == NULL) { /* the file is a leftover: its number is not used again */
            qsi_key_file_fini(&spill->file);
            status = qsi_fail(error, QS_ENOMEM, "transaction keys");
        }
    }
    if (status == QS_OK) {
        install(spill, run);
    } else if (is_reported(
                   status)) { /* to calls that ask for a key there; others are not held up */
        for (uint32_t i = spill->first; i < keys->run_count; i++) {
            keys->runs[i]->is_unmerged = true;
        }
    }
    qsi_free(spill);
    return status;
}

qs_status qsi_transactions_spill(struct qs_store *store, qs_error *error)
{
    struct qsi_transactions *keys = store->transactions;
    uint32_t tries = QSI_KEY_RUNS_MAX;
    qs_error detail = {0};
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    while (keys->is_busy) {
        qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
    }
    QS_TRY(qsi_store_check_failed(store, error));
    keys->is_busy = true;
    do {
        status = spill_once(store, &detail);
    } while (is_reported(status) && --tries > 0 && keys->run_count < QSI_KEY_RUNS_MAX);
    keys->is_busy = false;
    keys->sweeps = keys->sweeps && status == QS_OK;
    qsi_pager_record_failure(store, QSI_USE_REWRITING, status, &detail);
    qsi_cond_broadcast(&store->paging.done);
    if (status == QS_ENOSPC) {
        return qsi_fail(error, QS_ESTORE_FULL,
                        "no space left for keys of transactions; nothing was accepted: free some "
                        "space and try again");
    }
    if (status != QS_OK && error != NULL) {
        *error = detail;
    }
    return status;
}

qs_status qsi_transactions_make_room(struct qs_store *store, bool *released_out, qs_error *error)
{
    const struct qsi_transactions *keys = store->transactions;
    uint64_t most = qsi_transactions_bytes_max(store) * (store->paging.is_running ? 2 : 1);

    QS_ASSERT_HELD(&store->mutex);
    *released_out = false;
    while (keys->fresh.bytes > most) {
        QS_TRY(qsi_store_check_failed(store, error));
        *released_out = true;
        if (keys->is_busy) {
            qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
        } else {
            QS_TRY(qsi_transactions_spill(store, error));
        }
    }
    return QS_OK;
}

/* ---- counting ---- */

/* Without the lock. */
static qs_status count_merged(struct spill *spill, uint64_t before_us, uint64_t *count_out,
                              qs_error *error)
{
    struct qsi_key_merge merge = {.readers = spill->readers};
    qs_status status = open_readers(spill, error);

    QS_ASSERT_NOT_HELD(&spill->store->mutex);
    merge.reader_count = spill->reader_count;
    if (status == QS_OK) {
        status = qsi_key_merge_next(&merge, error);
    }
    while (status == QS_OK && !merge.at_end) {
        *count_out += !merge.key.forgotten && merge.key.time_us >= spill->forgotten_before_us &&
                              merge.key.time_us < before_us
                          ? 1
                          : 0;
        status = qsi_key_merge_next(&merge, error);
    }
    close_readers(spill);
    return status;
}

qs_status qsi_transactions_count(struct qs_store *store, uint64_t before_us, uint64_t *count_out,
                                 qs_error *error)
{
    struct qsi_transactions *keys = store->transactions;
    struct spill *spill = qsi_zalloc(sizeof *spill);
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    if (spill == NULL) {
        return qsi_fail(error, QS_ENOMEM, "transaction keys");
    }
    status = qsi_transactions_spill(store, error); /* all keys so far are in files */
    if (status != QS_OK) {
        qsi_free(spill);
        return status;
    }
    QS_ASSERT(!keys->is_busy);
    keys->is_busy = true;
    spill->store = store;
    spill->forgotten_before_us = keys->forgotten_before_us;
    qsi_store_unlock(store);
    status = count_merged(spill, before_us, count_out, error);
    qsi_free(spill);
    qsi_store_lock(store);
    if (status != QS_OK) {
        qsi_transactions_end_count(store);
    }
    return status;
}

void qsi_transactions_end_count(struct qs_store *store)
{
    QS_ASSERT(store->transactions->is_busy);
    QS_ASSERT_HELD(&store->mutex);
    store->transactions->is_busy = false;
    qsi_cond_broadcast(&store->paging.done);
}
