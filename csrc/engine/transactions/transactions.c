/* Keys of transactions: those in memory, and look-ups. */
#include "transactions.h"

#include "alloc.h"
#include "check.h"
#include "enter.h"
#include "error.h"
#include "store.h"

#include <string.h>

#define FILTERS_SHARE 32u /* of memory_budget: one filter at most */
#define FILTER_BYTES_MIN 512u
/* of memory_budget: the table, before it is written; twice that, and commits wait */
#define TABLE_SHARE 16
#define TABLE_BYTES_MAX (4u << 20)

qs_status qsi_transactions_open(struct qs_store *store, qs_error *error)
{
    struct qsi_transactions *keys = qsi_zalloc(sizeof *keys);
    uint64_t share = store->options.memory_budget / FILTERS_SHARE;

    QS_DCHECK(store->checkpoint_dir != NULL || store->options.read_only);
    store->transactions = keys;
    if (keys == NULL) {
        return qsi_fail(error, QS_ENOMEM, "keys of transactions");
    }
    keys->dir.env = store->env;
    keys->dir.dir = store->checkpoint_dir;
    memcpy(keys->dir.uuid, store->manifest.uuid, sizeof keys->dir.uuid);
    keys->dir.filter_bytes_max = FILTER_BYTES_MIN;
    while (keys->dir.filter_bytes_max <= share / 2) {
        keys->dir.filter_bytes_max *= 2;
    }
    keys->generation = 1;
    keys->next_number = 1;
    qsi_list_init(&keys->dead);
    return QS_OK;
}

void qsi_key_table_free(struct qs_store *store, struct qsi_key_table *table)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&table->notes);

    while (qsi_map_next(&table->notes, &cursor)) {
        qsi_free(cursor.value);
    }
    qsi_map_fini(&table->notes);
    QS_DCHECK(table->bytes == 0 || qsi_budget_bytes(store->budget) >= table->bytes);
    qsi_budget_sub(store->budget, table->bytes);
    *table = (struct qsi_key_table){0};
}

struct qsi_key_run *qsi_key_run_create(struct qs_store *store, const struct qsi_key_file *file)
{
    struct qsi_key_run *run = qsi_zalloc(sizeof *run);

    QS_DCHECK(file->filter != NULL && file->filter_bytes <= file->header.filter_bytes);
    if (run != NULL) {
        run->file = *file;
        run->reference_count = 1;
        qsi_list_init(&run->in_dead);
        qsi_budget_add(store->budget, sizeof *run + run->file.filter_bytes);
    }
    return run;
}

void qsi_key_run_unref(struct qs_store *store, struct qsi_key_run *run)
{
    QS_DCHECK(run->reference_count > 0);
    run->reference_count -= 1;
    if (run->reference_count == 0) {
        qsi_budget_sub(store->budget, sizeof *run + run->file.filter_bytes);
        qsi_key_file_fini(&run->file);
        qsi_free(run);
    }
}

void qsi_transactions_free(struct qs_store *store)
{
    struct qsi_transactions *keys = store->transactions;

    if (keys == NULL) {
        return;
    }
    qsi_key_table_free(store, &keys->fresh);
    qsi_key_table_free(store, &keys->frozen);
    for (uint32_t i = 0; i < keys->run_count; i++) {
        qsi_key_run_unref(store, keys->runs[i]);
    }
    while (!qsi_list_is_empty(&keys->dead)) {
        struct qsi_key_run *run = QSI_LIST_OWNER(keys->dead.next, struct qsi_key_run, in_dead);
        qsi_list_remove(&run->in_dead);
        qsi_key_run_unref(store, run);
    }
    QS_DCHECK(!keys->is_busy);
    keys->run_count = 0;
    qsi_free(keys);
    store->transactions = NULL;
}

/* ---- asking ---- */

static const struct qsi_key_note *find_note(const struct qsi_transactions *keys,
                                            struct qsi_slice key)
{
    const struct qsi_key_note *note = qsi_map_get(&keys->fresh.notes, key.data, key.bytes);

    if (note == NULL || note->state == KEY_NOTE_NONE) {
        note = qsi_map_get(&keys->frozen.notes, key.data, key.bytes);
    }
    return note;
}

static uint64_t known_lsn(const struct qsi_transactions *keys, uint64_t lsn, uint64_t time_us)
{
    return time_us < keys->forgotten_before_us ? 0 : lsn;
}

/* The files that may have the key, newest first; each referenced. */
static uint32_t find_candidates(const struct qsi_transactions *keys, uint64_t hash,
                                struct qsi_key_run *candidates[QSI_KEY_RUNS_MAX])
{
    uint32_t count = 0;

    QS_DCHECK(keys->run_count <= QSI_KEY_RUNS_MAX);
    for (uint32_t i = keys->run_count; i-- > 0;) {
        if (qsi_key_file_may_have(&keys->runs[i]->file, hash)) {
            candidates[count] = keys->runs[i];
            candidates[count]->reference_count += 1;
            count += 1;
        }
    }
    return count;
}

/* Without the lock. */
static qs_status search_files(const struct qsi_transactions *keys,
                              struct qsi_key_run *const *candidates, uint32_t count,
                              const struct qsi_key *key, struct qsi_key_search *search,
                              qs_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        struct qsi_key found;
        bool has = false;
        QS_TRY(qsi_key_file_find(&candidates[i]->file, &keys->dir, key, &has, &found, error));
        if (has) {
            QS_DCHECK(candidates[i]->reference_count > 0 && found.hash == key->hash);
            search->has = !found.forgotten;
            search->time_us = found.time_us;
            search->lsn = candidates[i]->lsn;
            return QS_OK;
        }
    }
    return QS_OK;
}

qs_status qsi_transactions_find(struct qs_store *store, struct qsi_slice key,
                                struct qsi_key_search *search, uint64_t *lsn_out,
                                bool *released_out, qs_error *error)
{
    struct qsi_transactions *keys = store->transactions;
    struct qsi_key wanted = {.hash = qsi_key_hash(keys->dir.uuid, key), .bytes = key};

    QS_ASSERT_HELD(&store->mutex);
    *lsn_out = 0;
    *released_out = false;
    for (;;) {
        const struct qsi_key_note *note = find_note(keys, key);
        struct qsi_key_run *candidates[QSI_KEY_RUNS_MAX];
        struct qsi_key_search found = {.generation = keys->generation};
        qs_status status;
        uint32_t count;
        if (note != NULL && note->state != KEY_NOTE_NONE) {
            *lsn_out =
                note->state == KEY_NOTE_KNOWN ? known_lsn(keys, note->lsn, note->time_us) : 0;
            return QS_OK;
        }
        if (search->generation == keys->generation) {
            *lsn_out = search->has ? known_lsn(keys, search->lsn, search->time_us) : 0;
            return QS_OK;
        }
        QS_DCHECK(search->generation < keys->generation);
        count = find_candidates(keys, wanted.hash, candidates);
        if (count == 0) {
            *search = found;
            return QS_OK;
        }
        *released_out = true;
        qsi_store_unlock(store);
        status = search_files(keys, candidates, count, &wanted, &found, error);
        qsi_store_lock(store);
        for (uint32_t i = 0; i < count; i++) {
            qsi_key_run_unref(store, candidates[i]);
        }
        if (found.generation != keys->generation) {
            continue; /* a file that was read may be gone meanwhile */
        }
        QS_TRY(status);
        *search = found;
    }
}

/* ---- noting ---- */

qs_status qsi_transactions_reserve(struct qs_store *store, struct qsi_slice key, qs_error *error)
{
    struct qsi_key_table *table = &store->transactions->fresh;
    struct qsi_key_note *note = qsi_map_get(&table->notes, key.data, key.bytes);

    QS_DCHECK(key.bytes > 0 && key.bytes <= QSI_TRANSACTION_KEY_BYTES_MAX);
    if (note != NULL) {
        return QS_OK;
    }
    note = qsi_zalloc(sizeof *note);
    if (note == NULL || qsi_map_put(&table->notes, key.data, key.bytes, note) != QS_OK) {
        qsi_free(note);
        return qsi_fail(error, QS_ENOMEM, "transaction key");
    }
    table->bytes += QSI_KEY_NOTE_BYTES + key.bytes;
    qsi_budget_add(store->budget, QSI_KEY_NOTE_BYTES + key.bytes);
    return QS_OK;
}

void qsi_transactions_unreserve(struct qs_store *store, struct qsi_slice key)
{
    struct qsi_key_table *table = &store->transactions->fresh;
    struct qsi_key_note *note = qsi_map_get(&table->notes, key.data, key.bytes);

    if (note != NULL && note->state == KEY_NOTE_NONE) {
        qsi_map_remove(&table->notes, key.data, key.bytes);
        qsi_free(note);
        QS_DCHECK(table->bytes >= QSI_KEY_NOTE_BYTES + key.bytes);
        table->bytes -= QSI_KEY_NOTE_BYTES + key.bytes;
        qsi_budget_sub(store->budget, QSI_KEY_NOTE_BYTES + key.bytes);
    }
}

uint64_t qsi_transactions_bytes_max(const struct qs_store *store)
{
    uint64_t share = store->options.memory_budget / TABLE_SHARE;

    return share < TABLE_BYTES_MAX ? share : TABLE_BYTES_MAX;
}

bool qsi_transactions_want_spill(const struct qs_store *store)
{
    const struct qsi_transactions *keys = store->transactions;

    return !keys->is_busy && (keys->fresh.bytes > qsi_transactions_bytes_max(store) ||
                              (keys->sweeps && keys->run_count > 0));
}

void qsi_transactions_record(struct qs_store *store, struct qsi_slice key, uint64_t lsn,
                             uint64_t time_us, bool forgotten)
{
    struct qsi_key_note *note = qsi_map_get(&store->transactions->fresh.notes, key.data, key.bytes);

    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(note != NULL && lsn > 0);
    QS_ASSERT(note->state == KEY_NOTE_NONE || note->lsn <= lsn);
    note->lsn = lsn;
    note->time_us = time_us;
    note->state = forgotten ? KEY_NOTE_FORGOTTEN : KEY_NOTE_KNOWN;
    if (qsi_transactions_want_spill(store)) {
        store->paging.is_stuck = false;
        qsi_cond_signal(&store->paging.wanted);
    }
}

uint64_t qsi_transactions_time(struct qs_store *store)
{
    uint64_t now = store->env->wall_us(store->env);
    uint64_t least = store->transactions->forgotten_before_us;

    QS_ASSERT_HELD(&store->mutex);
    return now < least ? least : now;
}
