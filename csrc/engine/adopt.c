/* Adopting staged files: linked into a stream, or published from their blocks. */
#include "adopt_files.h"
#include "check.h"
#include "commit.h"
#include "enter.h"
#include "error.h"
#include "message_rules.h"
#include "staged_reader.h"
#include "transactions.h"

/* ---- publishing ---- */

/* A checked file may have been replaced since: its rows were not counted, nor its routes read. */
static qs_status check_same(const struct qs_staged_reader *reader,
                            const struct qsi_adopted_file *file, qs_error *error)
{
    const struct qsi_staged *now = &reader->staged, *then = &file->staged;

    return now->file.salt == then->file.salt && now->file.end == then->file.end &&
                   now->rows == then->rows
               ? QS_OK
               : qsi_fail_corrupt(error, file->name, 0,
                                  "staged file '%s' was replaced while it was adopted", file->name);
}

static qs_status publish_block(const struct qsi_staged_batch *rows, struct qs_channel *channel,
                               uint64_t *unroutable_io, qs_error *error)
{
    const struct ArrowArray *array = &rows->shown_array;
    const qs_batch batch = {
        .schema = &rows->shown_schema,
        .arrays = &array,
        .array_count = 1,
        .body_column = "body",
        .properties = {(const char *)rows->properties.data, rows->properties.bytes},
    };
    qs_receipt receipt;

    QS_DCHECK(array->release != NULL);
    QS_TRY(qs_channel_publish_batch(channel, &batch, &receipt, error));
    *unroutable_io += receipt.unrouted_count;
    return QS_OK;
}

/* All rows of one file, in the channel's transaction. */
static qs_status publish_file(struct qsi_adoption *adoption, const struct qsi_adopted_file *file,
                              qs_dir *dir, struct qs_channel *channel, qs_error *error)
{
    struct qsi_staged_batch rows = {.array = {.release = NULL}};
    struct qs_staged_reader *reader;
    qs_status status;

    QS_DCHECK(channel->store != NULL && dir != NULL);
    QS_TRY(qsi_staged_reader_open_in(&reader, channel->store->env, dir, file->name, error));
    status = check_same(reader, file, error);
    while (status == QS_OK && (status = qsi_adoption_check_stop(adoption, error)) == QS_OK &&
           (status = qsi_staged_reader_next_batch(reader, &rows, error)) == QS_OK) {
        status = publish_block(&rows, channel, &adoption->unroutable, error);
        qsi_staged_batch_clear(&rows);
    }
    qsi_staged_batch_fini(&rows);
    qs_staged_reader_close(reader);
    return status == QS_EEMPTY ? QS_OK : status;
}

static qs_status publish_files(struct qsi_adoption *adoption, struct qs_channel *channel,
                               bool *repeated_out, qs_error *error)
{
    const struct qsi_adopted_file *files = qsi_adopted_files(adoption);
    struct qsi_staged_folder folder = {.dir = NULL};
    qs_env *env = adoption->store->env;
    qs_status status;

    QS_ASSERT_NOT_HELD(&adoption->store->mutex);
    adoption->unroutable = 0;
    status = qs_channel_tx_select(channel, error);
    for (uint32_t i = 0; status == QS_OK && i < qsi_adopted_count(adoption); i++) {
        status = qsi_staged_folder_open(&folder, env, files[i].folder, error);
        if (status == QS_OK) {
            status = publish_file(adoption, &files[i], folder.dir, channel, error);
        }
    }
    qsi_staged_folder_close(&folder, env);
    QS_TRY(status);
    if (adoption->rows > 0) { /* a commit of many rows takes long, too */
        QS_TRY(qsi_adoption_check_stop(adoption, error));
    }
    if (adoption->mandatory && adoption->unroutable > 0) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "no queue would take %llu of %llu messages (their headers decide, or what "
                        "was bound changed meanwhile)",
                        (unsigned long long)adoption->unroutable,
                        (unsigned long long)adoption->rows);
    }
    return qs_channel_tx_commit(channel, adoption->key, 0, repeated_out, error);
}

/* ---- adopting ---- */

static qs_status link_files(struct qsi_adoption *adoption, struct qs_channel *channel,
                            bool *repeated_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t lsn;

    QS_ASSERT_HELD(&adoption->store->mutex);
    QS_TRY(qsi_adoption_look_up(adoption, error));
    if (adoption->stream_id == 0) {
        return QS_EEMPTY;
    }
    QS_TRY(qsi_adoption_link(adoption, channel, &lsn, repeated_out, error));
    return qsi_commit_wait(adoption->store, lsn, QS_FOREVER, error);
}

static qs_status adopt_in(struct qsi_adoption *adoption, struct qs_channel *channel,
                          bool *repeated_out, bool *linked_out, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_store_enter(adoption->store, error));
    status = link_files(adoption, channel, repeated_out, error);
    qsi_store_leave(adoption->store);
    *linked_out = status == QS_OK && !*repeated_out;
    return status == QS_EEMPTY ? publish_files(adoption, channel, repeated_out, error) : status;
}

/* As publishing does. */
static qs_status check_sizes(const struct qsi_adoption *adoption, qs_error *error)
{
    uint64_t most = adoption->store->options.body_bytes_max;

    QS_TRY(qsi_check_body_bytes(most, adoption->body_longest, error));
    return adoption->properties_longest <= most
               ? QS_OK
               : qsi_fail(error, QS_EINVAL,
                          "a message has properties of %u bytes: %llu at most (body_bytes_max)",
                          adoption->properties_longest, (unsigned long long)most);
}

static qs_status adopt(struct qsi_adoption *adoption, qs_adoption *out, qs_error *error)
{
    struct qs_channel *channel;
    bool repeated = false, linked = false;
    qs_status status;

    QS_DCHECK(out->rows == 0 && !out->committed);
    QS_TRY(check_sizes(adoption, error));
    QS_TRY(qs_channel_open(&channel, adoption->store, error));
    status = adopt_in(adoption, channel, &repeated, &linked, error);
    qs_channel_close(channel);
    out->unroutable = adoption->unroutable;
    if (status == QS_OK && !repeated) {
        *out = (qs_adoption){
            .committed = true,
            .rows = adoption->rows,
            .unroutable = adoption->unroutable,
            .files = qsi_adopted_count(adoption),
            .linked = linked ? qsi_adopted_count(adoption) : 0,
        };
    }
    return status;
}

static qs_status check_key(qs_slice key, qs_error *error)
{
    return key.bytes > 0 && key.bytes <= QSI_TRANSACTION_KEY_BYTES_MAX
               ? QS_OK
               : qsi_fail(error, QS_EINVAL, "transaction key of %zu bytes: 1 to %d", key.bytes,
                          QSI_TRANSACTION_KEY_BYTES_MAX);
}

static qs_status adopt_paths(struct qsi_adoption *adoption, const char *const *paths,
                             size_t path_count, qs_adoption *adoption_out, qs_error *error)
{
    bool is_known;
    qs_status status;

    *adoption_out = (qs_adoption){.committed = false};
    QS_TRY(check_key(adoption->key, error));
    QS_TRY(qs_store_transaction_known(adoption->store, adoption->key, &is_known, error));
    if (is_known) { /* its files may be gone */
        return QS_OK;
    }
    status = qsi_adoption_open(adoption, paths, path_count, error);
    if (status == QS_OK) {
        status = adopt(adoption, adoption_out, error);
    }
    qsi_adoption_fini(adoption);
    return status;
}

qs_status qs_store_adopt(qs_store *store, const char *const *paths, size_t path_count, qs_slice key,
                         uint32_t flags, qs_adoption *adoption_out, qs_error *error)
{
    struct qsi_adoption adoption = {
        .store = store, .key = key, .mandatory = (flags & QS_MANDATORY) != 0};

    return adopt_paths(&adoption, paths, path_count, adoption_out, error);
}

qs_status qsi_adopt_asked(struct qs_store *store, const char *const *paths, size_t path_count,
                          qs_slice key, uint32_t flags, qs_adoption *adoption_out, qs_error *error)
{
    struct qsi_adoption adoption = {
        .store = store, .key = key, .mandatory = (flags & QS_MANDATORY) != 0, .is_asked = true};

    QS_DCHECK(store->inbox.dir != NULL);
    return adopt_paths(&adoption, paths, path_count, adoption_out, error);
}
