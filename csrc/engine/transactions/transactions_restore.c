/* Keys of transactions in checkpoints, and at open. */
#include "transactions_restore.h"

#include "check.h"
#include "env_call.h"
#include "error.h"
#include "transactions.h"

#include <string.h>

/* ---- the snapshot ---- */

static qs_status put_record(struct qsi_buf *records, uint32_t *record_count_io,
                            const struct qsi_topology *record)
{
    uint64_t bytes = qsi_topology_bytes(record);
    uint8_t *at;

    QS_DCHECK(record->strings[0].bytes <= QSI_KEY_BYTES_MAX);
    QS_TRY(qsi_buf_reserve(records, bytes, &at));
    qsi_topology_encode(at, record);
    records->bytes += bytes;
    *record_count_io += 1;
    return QS_OK;
}

static qs_status put_table(struct qsi_buf *records, uint32_t *record_count_io,
                           const struct qsi_key_table *table)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&table->notes);

    while (qsi_map_next(&table->notes, &cursor)) {
        const struct qsi_key_note *note = cursor.value;
        struct qsi_topology record = {
            .type = note->state == KEY_NOTE_KNOWN ? QSI_RECORD_TRANSACTION
                                                  : QSI_RECORD_TRANSACTION_FORGET,
            .number = note->time_us,
            .strings = {qsi_slice_make(cursor.key, (uint32_t)cursor.key_bytes)},
        };
        if (note->state != KEY_NOTE_NONE) {
            QS_TRY(put_record(records, record_count_io, &record));
        }
    }
    return QS_OK;
}

qs_status qsi_transactions_snapshot(struct qs_store *store, struct qsi_buf *records,
                                    uint32_t *record_count_io)
{
    struct qsi_transactions *keys = store->transactions;
    struct qsi_topology forgotten = {.type = QSI_RECORD_TRANSACTION_FORGET,
                                     .number = keys->forgotten_before_us};

    QS_ASSERT_HELD(&store->mutex);
    if (keys->forgotten_before_us > 0) {
        QS_TRY(put_record(records, record_count_io, &forgotten));
    }
    for (uint32_t i = 0; i < keys->run_count; i++) {
        struct qsi_key_run *run = keys->runs[i];
        struct qsi_key_file_entry entry;
        QS_DCHECK(run->reference_count > 0 && !run->is_dead);
        run->named = true;
        entry = (struct qsi_key_file_entry){
            .number = run->file.header.number,
            .key_count = run->file.header.key_count,
            .bytes = qsi_key_run_bytes(run),
            .header_crc = run->file.header_crc,
        };
        QS_TRY(qsi_key_file_encode(records, &entry));
        *record_count_io += 1;
    }
    QS_TRY(put_table(records, record_count_io, &keys->frozen));
    return put_table(records, record_count_io, &keys->fresh);
}

void qsi_transactions_seal(struct qs_store *store, bool sealed)
{
    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->transactions->dead.next; node != &store->transactions->dead;
         node = node->next) {
        QSI_LIST_OWNER(node, struct qsi_key_run, in_dead)->sealed = sealed;
    }
}

void qsi_transactions_remove_dead(struct qs_store *store)
{
    struct qsi_list *dead = &store->transactions->dead;
    struct qsi_list *node = dead->next;

    QS_ASSERT_HELD(&store->mutex);
    while (node != dead) {
        struct qsi_key_run *run = QSI_LIST_OWNER(node, struct qsi_key_run, in_dead);
        char name[QSI_KEY_NAME_BYTES];
        node = node->next;
        if (!run->sealed) {
            continue;
        }
        qsi_list_remove(&run->in_dead);
        QS_DCHECK(run->is_dead && store->paging.dead_bytes >= qsi_key_run_bytes(run));
        store->paging.dead_bytes -= qsi_key_run_bytes(run);
        qsi_key_file_name(name, run->file.header.number);
        qsi_key_run_unref(store, run);
        qsi_store_unlock(store);
        /* If it fails, the next open removes what no checkpoint names. */
        (void)!qsi_env_remove(store->env, store->checkpoint_dir, name, NULL);
        qsi_store_lock(store);
        node = dead->next; /* the list may be another one by now */
    }
}

/* ---- at open ---- */

qs_status qsi_transactions_replay(struct qs_store *store, const struct qsi_topology *record,
                                  qs_error *error)
{
    struct qsi_transactions *keys = store->transactions;
    struct qsi_slice key = record->strings[0];
    bool forgotten = record->type == QSI_RECORD_TRANSACTION_FORGET;

    QS_ASSERT_HELD(&store->mutex);
    if (key.bytes > QSI_KEY_BYTES_MAX) {
        return qsi_fail(error, QS_ECORRUPT, "a transaction key of %u bytes", key.bytes);
    }
    if (key.bytes > 0) {
        QS_TRY(qsi_transactions_reserve(store, key, error));
        qsi_transactions_record(store, key, 1, record->number, forgotten);
    } else if (forgotten && record->number > keys->forgotten_before_us) {
        keys->forgotten_before_us = record->number;
        keys->sweeps = true;
    }
    return QS_OK;
}

static qs_status add_run(struct qs_store *store, const struct qsi_key_file *file, qs_error *error)
{
    struct qsi_transactions *keys = store->transactions;
    struct qsi_key_run *run;

    if (keys->run_count == QSI_KEY_RUNS_MAX) {
        return qsi_fail(error, QS_ECORRUPT, "more than %u key files", QSI_KEY_RUNS_MAX);
    }
    run = qsi_key_run_create(store, file);
    if (run == NULL) {
        return qsi_fail(error, QS_ENOMEM, "transaction keys");
    }
    run->named = true;
    run->lsn = 1;
    QS_DCHECK(run->file.header.number < keys->next_number);
    keys->runs[keys->run_count++] = run;
    keys->generation += 1;
    return QS_OK;
}

qs_status qsi_transactions_replay_file(struct qs_store *store, const uint8_t *record,
                                       qs_error *error)
{
    struct qsi_transactions *keys = store->transactions;
    struct qsi_key_file_entry entry;
    struct qsi_key_file file;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_key_file_decode(&entry, record, error));
    keys->next_number = entry.number >= keys->next_number ? entry.number + 1 : keys->next_number;
    status = qsi_key_file_load(&file, &keys->dir, entry.number, entry.header_crc, error);
    if (status == QS_ECORRUPT && store->options.recovery == QS_RECOVERY_SALVAGE) {
        store->recovery.lost_ranges += 1;
        store->recovery.lost_bytes += entry.bytes;
        return QS_OK;
    }
    QS_TRY(status);
    status = add_run(store, &file, error);
    if (status != QS_OK) {
        qsi_key_file_fini(&file);
    }
    return status;
}

bool qsi_transactions_is_leftover(const struct qs_store *store, const char *name)
{
    const struct qsi_transactions *keys = store->transactions;
    uint64_t number;

    if (!qsi_key_file_number(name, &number)) {
        return false;
    }
    for (uint32_t i = 0; i < keys->run_count; i++) {
        if (keys->runs[i]->file.header.number == number) {
            return false;
        }
    }
    for (const struct qsi_list *node = keys->dead.next; node != &keys->dead; node = node->next) {
        /* The replay merged it; the checkpoint names it still. */
        if (QSI_LIST_OWNER(node, struct qsi_key_run, in_dead)->file.header.number == number) {
            return false;
        }
    }
    return true;
}
