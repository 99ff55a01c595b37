/* Inside the message store: copying the records of one message file into another. */
#ifndef QSI_MESSAGE_COPY_H
#define QSI_MESSAGE_COPY_H

#include "message_file.h"

#define QSI_OUTPUT_BUFFER_BYTES (1u << 20)

/* The new file while it is written, record after record. */
struct qsi_message_output {
    qs_env *env;
    qs_file *handle;
    struct qsi_message_id id;
    uint8_t *buffer;
    size_t used;         /* of the buffer */
    uint64_t flushed;    /* the offset at which the buffer is written */
    uint64_t high_water; /* nothing was written from here on */
    uint64_t *offsets;   /* by slot */
    uint64_t effort;     /* bytes that may still be read */
};

/* Writes bytes at an offset of the new file, past the buffer. */
qs_status qsi_output_put(struct qsi_message_output *output, const void *data, size_t bytes,
                         uint64_t offset, qs_error *error) QS_MUST_CHECK;
/* Writes what is in the buffer. */
qs_status qsi_output_flush(struct qsi_message_output *output, qs_error *error) QS_MUST_CHECK;
/* Appends a record, whose header was found at ref->offset; *copied_out false: its checksum is
 * wrong, and nothing was appended.  QS_ECORRUPT: effort is used up. */
qs_status qsi_output_copy(struct qsi_message_output *output, const struct qsi_message_view *view,
                          const struct qsi_body_ref *ref, bool *copied_out,
                          qs_error *error) QS_MUST_CHECK;

#endif
