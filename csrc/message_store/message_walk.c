/* Walking over a message file from header to header.
 *
 * Records begin at multiples of 8, and the bytes between them are unknown.  So every multiple of 8
 * is examined, except those inside a record that the caller skips. */
#include "message_walk.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "file.h"

#include <string.h>

#define FIRST_READ_BYTES 4096u /* after a jump: most of what follows may be irrelevant */

qs_status qsi_walk_init(struct qsi_message_walk *walk, qs_env *env,
                        const struct qsi_message_view *view, uint64_t end, qs_error *error)
{
    *walk = (struct qsi_message_walk){
        .env = env,
        .view = view,
        .end = end < view->bytes ? end : view->bytes,
        .position = QSI_MESSAGE_HEADER_BYTES,
        .window = qsi_alloc(QSI_WALK_WINDOW_BYTES),
    };
    return walk->window != NULL ? QS_OK : qsi_fail(error, QS_ENOMEM, "walk over a message file");
}

void qsi_walk_fini(struct qsi_message_walk *walk)
{
    qsi_free(walk->window);
    walk->window = NULL;
}

/* Fills the window from position on. */
static qs_status fill(struct qsi_message_walk *walk, qs_error *error)
{
    uint64_t window_end = walk->window_from + walk->window_bytes;
    uint64_t left = walk->end - walk->position;
    bool goes_on = walk->position <= window_end && walk->window_bytes > 0;
    size_t bytes = goes_on ? QSI_WALK_WINDOW_BYTES : FIRST_READ_BYTES;
    qs_status status;

    bytes = left < bytes ? (size_t)left : bytes;
    walk->window_from = walk->position;
    status = qsi_file_read(walk->env, walk->view->handle, walk->window, bytes, walk->position,
                           &walk->window_bytes, error);
    if (status != QS_OK) {
        return qsi_message_file_fail(error, status, walk->view->file->id);
    }
    if (walk->window_bytes < bytes) {
        walk->end = walk->position + walk->window_bytes; /* the file was truncated meanwhile */
    }
    return QS_OK;
}

static bool is_in_window(const struct qsi_message_walk *walk)
{
    return walk->position >= walk->window_from && walk->window_bytes >= QSI_BODY_HEADER_BYTES &&
           walk->position - walk->window_from <= walk->window_bytes - QSI_BODY_HEADER_BYTES;
}

/* REQUIRES position in the window. */
static bool is_header(const struct qsi_message_walk *walk, struct qsi_body_ref *ref_out)
{
    const uint8_t *at = walk->window + (walk->position - walk->window_from);

    return qsi_body_header_parse(ref_out, at, walk->view->header.salt) &&
           ref_out->slot >= walk->slot_min &&
           qsi_body_record_bytes(ref_out) <= walk->end - walk->position;
}

qs_status qsi_walk_next(struct qsi_message_walk *walk, struct qsi_body_ref *ref_out,
                        bool *found_out, qs_error *error)
{
    *found_out = false;
    while (walk->position + QSI_BODY_HEADER_BYTES <= walk->end) {
        if (!is_in_window(walk)) {
            QS_TRY(fill(walk, error));
            continue; /* the end may have changed */
        }
        if (is_header(walk, ref_out)) {
            ref_out->file = walk->view->file->id.number;
            ref_out->offset = walk->position;
            *found_out = true;
            return QS_OK;
        }
        walk->position += QSI_BODY_PACKED_ALIGNMENT;
    }
    return QS_OK;
}

void qsi_walk_skip(struct qsi_message_walk *walk, const struct qsi_body_ref *ref)
{
    QS_ASSERT(walk->position == ref->offset);
    walk->position += qsi_body_packed_bytes(ref);
}

qs_status qsi_walk_finds_live(struct qsi_message_store *messages,
                              const struct qsi_message_file *file,
                              const struct qsi_message_view *view, uint64_t end, bool *all_out,
                              qs_error *error)
{
    struct qsi_message_walk walk;
    struct qsi_body_ref ref;
    uint32_t left = file->counts.live_count;
    bool found = true;
    qs_status status = qsi_walk_init(&walk, messages->env, view, end, error);

    while (status == QS_OK && found && left > 0) {
        status = qsi_walk_next(&walk, &ref, &found, error);
        if (status == QS_OK && found) {
            left -= qsi_counts_is_live(&file->counts, ref.slot);
            qsi_walk_skip(&walk, &ref);
            walk.slot_min = (uint64_t)ref.slot + 1; /* so each record is counted once */
        }
    }
    *all_out = left == 0;
    qsi_walk_fini(&walk);
    return status;
}
