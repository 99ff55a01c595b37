/* Opening a record batch: its defaults, its arrays and its distinct routes; and its end.  Without
 * the lock: no store is needed. */
#include "alloc.h"
#include "batch.h"
#include "check.h"

struct qsi_batch_rules qsi_batch_rules_of(const struct qs_store *store)
{
    uint64_t limit = store->options.journal_file_bytes / 4;

    limit = limit < QSI_BATCH_RECORD_BYTES_MAX ? limit : QSI_BATCH_RECORD_BYTES_MAX;
    limit = limit < qsi_part_of_budget(store) ? limit : qsi_part_of_budget(store);
    return (struct qsi_batch_rules){
        .body_bytes_max = store->options.body_bytes_max,
        .record_bytes_max = limit,
        .stream_embed_below = STREAM_EMBED_BELOW,
        .budget = store->budget,
    };
}

static qs_status read_defaults(struct qsi_batch *batch, qs_error *error)
{
    struct qsi_slice blob = qsi_slice_of(batch->input->properties);
    uint64_t bytes;

    QS_TRY(qsi_copies_read(&batch->copies, blob, error));
    if (batch->copies.properties != NULL) {
        blob = qsi_slice_make(batch->copies.properties, batch->copies.properties_bytes);
    }
    QS_TRY(qsi_properties_decode(&batch->defaults, blob.data, blob.bytes, error));
    if (!qsi_properties_has(&batch->defaults, QSI_PROPERTY_DELIVERY_MODE)) {
        batch->defaults.delivery_mode = 2; /* a batch is persistent by default */
        batch->defaults.present |= qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE);
    }
    bytes = qsi_properties_bytes(&batch->defaults);
    batch->constant = qsi_alloc(bytes);
    if (batch->constant == NULL) {
        return qsi_batch_no_memory(error);
    }
    qsi_properties_encode(batch->constant, &batch->defaults);
    batch->constant_bytes = (uint32_t)bytes;
    return QS_OK;
}

static qs_status open_arrays(struct qsi_batch *batch, qs_error *error)
{
    const qs_batch *input = batch->input;

    batch->arrays = qsi_zalloc((input->array_count + 1) * sizeof *batch->arrays);
    if (batch->arrays == NULL) {
        return qsi_batch_no_memory(error);
    }
    for (size_t i = 0; i < input->array_count; i++) {
        QS_TRY(qsi_arrow_batch_open(&batch->arrays[i], input->schema, input->arrays[i],
                                    input->body_column, batch->row_count, input->utc_of, error));
        QS_TRY(qsi_arrow_check_bodies(&batch->arrays[i], batch->row_count,
                                      batch->rules.body_bytes_max, error));
        QS_DCHECK(batch->row_count + batch->arrays[i].rows >= batch->row_count);
        batch->row_count += batch->arrays[i].rows;
    }
    return QS_OK;
}

qs_status qsi_batch_open(struct qsi_batch *batch, qs_error *error)
{
    QS_TRY(read_defaults(batch, error));
    QS_TRY(open_arrays(batch, error));
    return qsi_batch_find_routes(batch, error);
}

void qsi_batch_fini(struct qsi_batch *batch)
{
    for (uint32_t i = 0; i < batch->route_count; i++) {
        qsi_free(batch->routes[i].destinations);
    }
    qsi_free_return_list(batch->store, &batch->returns);
    qsi_pending_records_fini(&batch->pending_records,
                             batch->store != NULL ? batch->store->messages : NULL);
    qsi_free(batch->routes);
    qsi_free(batch->slots);
    qsi_free(batch->destinations);
    qsi_free(batch->codes);
    qsi_free(batch->refined);
    qsi_buf_fini(&batch->published.notes);
    qsi_map_fini(&batch->destination_codes);
    qsi_copies_fini(&batch->copies);
    qsi_free(batch->constant);
    for (size_t i = 0; batch->arrays != NULL && i < batch->input->array_count; i++) {
        qsi_arrow_batch_close(&batch->arrays[i]);
    }
    qsi_free(batch->arrays);
}
