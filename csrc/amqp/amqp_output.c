/* Invariant: the pieces from piece_from on are the unsent bytes, in order; each lies in a block
 * that counts it, or in the body of a held message.  Frames are built in the last block. */
#include "amqp_output.h"

#include "alloc.h"
#include "check.h"
#include "le.h"

#include <string.h>

#define BLOCK_BYTES 16384u
#define COPIED_BODY_BYTES 4096u /* larger bodies are referred to */
#define CONTENT_HEAD_BYTES 12u  /* class, weight, size */

struct qsi_amqp_block {
    struct qsi_amqp_block *next;
    size_t used, capacity;
    uint32_t piece_count; /* unsent ones */
    uint8_t bytes[];
};

struct qsi_amqp_piece {
    const uint8_t *data;
    size_t bytes;
    struct qsi_amqp_block *block; /* NULL: the piece is in the body of a held message */
    bool ends_message;            /* the first held message is not needed after this piece */
};

/* ---- blocks ---- */

static struct qsi_amqp_block *new_block(struct qsi_amqp_output *output, size_t bytes)
{
    struct qsi_amqp_block *block = output->spare;
    size_t capacity = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;

    if (block != NULL && capacity == BLOCK_BYTES) {
        output->spare = NULL;
    } else {
        block = qsi_alloc(sizeof *block + capacity);
    }
    if (block != NULL) {
        *block = (struct qsi_amqp_block){.capacity = capacity};
    }
    return block;
}

static void drop_block(struct qsi_amqp_output *output, struct qsi_amqp_block *block)
{
    if (output->spare == NULL && block->capacity == BLOCK_BYTES) {
        output->spare = block;
    } else {
        qsi_free(block);
    }
}

/* Drops blocks at the front without unsent pieces; the last one stays, since frames are built in
 * it. */
static void drop_sent_blocks(struct qsi_amqp_output *output)
{
    while (output->first != output->last && output->first->piece_count == 0) {
        struct qsi_amqp_block *block = output->first;

        output->first = block->next;
        drop_block(output, block);
    }
    if (output->first != NULL && output->first == output->last && output->last->piece_count == 0) {
        if (output->last->capacity == BLOCK_BYTES) {
            output->last->used = 0;
        } else {
            qsi_free(output->last);
            output->first = output->last = NULL;
        }
    }
}

/* ---- pieces ---- */

/* Makes room for one more element at the end; if there is none, first moves the remaining ones to
 * the front.  False: no memory. */
static bool make_room(void **array, uint32_t *from, uint32_t *count, uint32_t *capacity,
                      size_t element_bytes)
{
    uint32_t left = *count - *from;

    if (*count < *capacity) {
        return true;
    }
    if (*from > 0 && *from >= *capacity / 2) {
        memmove(*array, (char *)*array + *from * element_bytes, left * element_bytes);
        *from = 0;
        *count = left;
    } else {
        void *memory = qsi_grow(*array, capacity, 8, element_bytes);

        if (memory == NULL) {
            return false;
        }
        *array = memory;
    }
    return true;
}

static struct qsi_amqp_piece *last_piece(struct qsi_amqp_output *output)
{
    return output->piece_count > output->piece_from ? &output->pieces[output->piece_count - 1]
                                                    : NULL;
}

static struct qsi_amqp_piece *new_piece(struct qsi_amqp_output *output)
{
    void *pieces = output->pieces;

    if (!make_room(&pieces, &output->piece_from, &output->piece_count, &output->piece_capacity,
                   sizeof *output->pieces)) {
        output->failed = true;
        return NULL;
    }
    output->pieces = pieces;
    output->pieces[output->piece_count] = (struct qsi_amqp_piece){0};
    return &output->pieces[output->piece_count++];
}

/* Contiguous room for bytes in the last block; NULL: no memory.  Nothing may be built after bytes
 * that failed: the stream would have a hole. */
static uint8_t *room(struct qsi_amqp_output *output, size_t bytes)
{
    struct qsi_amqp_block *block = output->last;

    if (output->failed) {
        return NULL;
    }
    if (block == NULL || block->capacity - block->used < bytes) {
        block = new_block(output, bytes);
        if (block == NULL) {
            output->failed = true;
            return NULL;
        }
        if (output->last != NULL) {
            output->last->next = block;
        } else {
            output->first = block;
        }
        output->last = block;
    }
    return block->bytes + block->used;
}

/* Appends bytes that were built in the room. */
static void commit(struct qsi_amqp_output *output, size_t bytes)
{
    struct qsi_amqp_block *block = output->last;
    struct qsi_amqp_piece *piece = last_piece(output);
    const uint8_t *data = block->bytes + block->used;

    QS_DCHECK(bytes <= block->capacity - block->used);
    if (piece == NULL || piece->block != block || piece->data + piece->bytes != data) {
        piece = new_piece(output);
        if (piece == NULL) {
            return;
        }
        piece->data = data;
        piece->block = block;
        block->piece_count++;
    }
    piece->bytes += bytes;
    block->used += bytes;
    output->unsent += bytes;
}

void qsi_amqp_put_bytes(struct qsi_amqp_output *output, const void *data, size_t bytes)
{
    uint8_t *out = room(output, bytes);

    if (out != NULL) {
        memcpy(out, data, bytes);
        commit(output, bytes);
    }
}

/* ---- frames ---- */

static uint8_t *put_head(uint8_t *out, uint8_t type, uint16_t channel, uint32_t bytes)
{
    out[0] = type;
    qsi_put_be16(out + 1, channel);
    qsi_put_be32(out + 3, bytes);
    return out + QSI_AMQP_FRAME_HEAD_BYTES;
}

void qsi_amqp_put_method(struct qsi_amqp_output *output, uint16_t channel,
                         enum qsi_amqp_method method, const struct qsi_amqp_arguments *arguments)
{
    size_t bytes = qsi_amqp_method_bytes(method, arguments);
    uint8_t *start = room(output, bytes + QSI_AMQP_FRAME_EXTRA_BYTES), *out;

    if (start == NULL) {
        return;
    }
    out = put_head(start, QSI_AMQP_FRAME_METHOD, channel, (uint32_t)bytes);
    out = qsi_amqp_method_put(out, method, arguments);
    QS_DCHECK(out == start + QSI_AMQP_FRAME_HEAD_BYTES + bytes);
    *out = QSI_AMQP_FRAME_END;
    commit(output, bytes + QSI_AMQP_FRAME_EXTRA_BYTES);
}

/* Writes the header frame.  An empty blob is a message without properties: its flags are 0. */
static void put_content_header(struct qsi_amqp_output *output, uint16_t channel,
                               qs_slice properties, uint64_t body_bytes)
{
    size_t property_bytes = properties.bytes > 0 ? properties.bytes : 2;
    size_t bytes = CONTENT_HEAD_BYTES + property_bytes;
    uint8_t *out = room(output, bytes + QSI_AMQP_FRAME_EXTRA_BYTES);

    if (out == NULL) {
        return;
    }
    out = put_head(out, QSI_AMQP_FRAME_HEADER, channel, (uint32_t)bytes);
    qsi_put_be16(out, 60);
    qsi_put_be16(out + 2, 0);
    qsi_put_be64(out + 4, body_bytes);
    out += CONTENT_HEAD_BYTES;
    memset(out, 0, 2);
    if (properties.bytes > 0) {
        memcpy(out, properties.data, properties.bytes);
    }
    out[property_bytes] = QSI_AMQP_FRAME_END;
    commit(output, bytes + QSI_AMQP_FRAME_EXTRA_BYTES);
}

static void copy_body_frame(struct qsi_amqp_output *output, uint16_t channel, const uint8_t *data,
                            size_t bytes)
{
    uint8_t *out = room(output, bytes + QSI_AMQP_FRAME_EXTRA_BYTES);

    if (out != NULL) {
        out = put_head(out, QSI_AMQP_FRAME_BODY, channel, (uint32_t)bytes);
        memcpy(out, data, bytes);
        out[bytes] = QSI_AMQP_FRAME_END;
        commit(output, bytes + QSI_AMQP_FRAME_EXTRA_BYTES);
    }
}

static void refer_to_body_frame(struct qsi_amqp_output *output, uint16_t channel,
                                const uint8_t *data, size_t bytes)
{
    uint8_t *out = room(output, QSI_AMQP_FRAME_HEAD_BYTES);
    struct qsi_amqp_piece *piece;

    if (out == NULL) {
        return;
    }
    put_head(out, QSI_AMQP_FRAME_BODY, channel, (uint32_t)bytes);
    commit(output, QSI_AMQP_FRAME_HEAD_BYTES);
    piece = output->failed ? NULL : new_piece(output);
    if (piece == NULL) {
        return;
    }
    piece->data = data;
    piece->bytes = bytes;
    output->unsent += bytes;
    out = room(output, 1);
    if (out != NULL) {
        *out = QSI_AMQP_FRAME_END;
        commit(output, 1);
    }
}

static bool hold(struct qsi_amqp_output *output, const qs_message *message)
{
    void *held = output->held;

    if (!make_room(&held, &output->held_from, &output->held_count, &output->held_capacity,
                   sizeof *output->held)) {
        output->failed = true;
        return false;
    }
    output->held = held;
    output->held[output->held_count++] = *message;
    return true;
}

static void refer_to_body(struct qsi_amqp_output *output, uint16_t channel, qs_message *message,
                          size_t part_max)
{
    const uint8_t *data = message->body.data;
    size_t left = message->body.bytes;

    if (!hold(output, message)) {
        qs_message_release(message);
        return;
    }
    for (; left > 0 && !output->failed;) {
        size_t part = left < part_max ? left : part_max;

        refer_to_body_frame(output, channel, data, part);
        data += part;
        left -= part;
    }
    if (!output->failed) {
        last_piece(output)->ends_message = true;
    }
}

static void copy_body(struct qsi_amqp_output *output, uint16_t channel, qs_slice body,
                      size_t part_max)
{
    const uint8_t *data = body.data;

    for (size_t left = body.bytes; left > 0;) {
        size_t part = left < part_max ? left : part_max;

        copy_body_frame(output, channel, data, part);
        data += part;
        left -= part;
    }
}

void qsi_amqp_put_content(struct qsi_amqp_output *output, uint16_t channel,
                          enum qsi_amqp_method method, const struct qsi_amqp_arguments *arguments,
                          qs_message *message, uint32_t frame_max)
{
    size_t part_max = frame_max - QSI_AMQP_FRAME_EXTRA_BYTES;

    QS_ASSERT(frame_max > QSI_AMQP_FRAME_EXTRA_BYTES);
    qsi_amqp_put_method(output, channel, method, arguments);
    put_content_header(output, channel, message->properties, message->body.bytes);
    if (message->body.bytes > COPIED_BODY_BYTES && !output->failed) {
        refer_to_body(output, channel, message, part_max);
    } else {
        copy_body(output, channel, message->body, part_max);
        qs_message_release(message);
    }
}

/* ---- barriers ---- */

/* With too many barriers the last one gets the higher LSN, so the bytes between the two wait a
 * little longer. */
void qsi_amqp_output_hold(struct qsi_amqp_output *output, uint64_t lsn)
{
    struct qsi_amqp_barrier *last =
        output->barrier_count > 0 ? &output->barriers[output->barrier_count - 1] : NULL;

    if (last != NULL && lsn <= last->lsn) {
        return;
    }
    if (output->barrier_count == QSI_AMQP_BARRIERS_MAX) {
        last->lsn = lsn;
        return;
    }
    output->barriers[output->barrier_count++] =
        (struct qsi_amqp_barrier){output->written + output->unsent, lsn};
}

void qsi_amqp_output_lift(struct qsi_amqp_output *output, uint64_t lsn)
{
    uint32_t lifted = 0;

    while (lifted < output->barrier_count && output->barriers[lifted].lsn <= lsn) {
        lifted++;
    }
    output->barrier_count -= lifted;
    memmove(output->barriers, output->barriers + lifted,
            output->barrier_count * sizeof output->barriers[0]);
}

size_t qsi_amqp_output_writable(const struct qsi_amqp_output *output)
{
    return output->barrier_count > 0 ? (size_t)(output->barriers[0].at - output->written)
                                     : output->unsent;
}

/* ---- writing ---- */

int qsi_amqp_output_pieces(const struct qsi_amqp_output *output, struct iovec *pieces_out,
                           int count)
{
    size_t left = qsi_amqp_output_writable(output);
    int given = 0;

    for (uint32_t i = output->piece_from; left > 0 && given < count; i++) {
        const struct qsi_amqp_piece *piece = &output->pieces[i];
        size_t bytes = piece->bytes < left ? piece->bytes : left;

        QS_ASSERT(i < output->piece_count);
        pieces_out[given++] = (struct iovec){(void *)(uintptr_t)piece->data, bytes};
        left -= bytes;
    }
    return given;
}

/* Drops a piece that was written whole. */
static void drop_piece(struct qsi_amqp_output *output)
{
    struct qsi_amqp_piece *piece = &output->pieces[output->piece_from++];

    if (piece->block != NULL) {
        piece->block->piece_count--;
        drop_sent_blocks(output);
    }
    if (piece->ends_message) {
        qs_message_release(&output->held[output->held_from++]);
    }
}

void qsi_amqp_output_written(struct qsi_amqp_output *output, size_t bytes)
{
    QS_ASSERT(bytes <= qsi_amqp_output_writable(output));
    output->unsent -= bytes;
    output->written += bytes;
    while (output->piece_from < output->piece_count) {
        struct qsi_amqp_piece *piece = &output->pieces[output->piece_from];

        if (bytes < piece->bytes) {
            piece->data += bytes;
            piece->bytes -= bytes;
            break;
        }
        bytes -= piece->bytes;
        drop_piece(output);
    }
    if (output->piece_from == output->piece_count) {
        output->piece_from = output->piece_count = 0;
        output->held_from = output->held_count = 0;
    }
}

void qsi_amqp_output_trim(struct qsi_amqp_output *output)
{
    if (output->unsent == 0) {
        struct qsi_amqp_output kept = *output;

        qsi_amqp_output_fini(output);
        output->failed = kept.failed;
        output->written = kept.written;
        output->barrier_count = kept.barrier_count;
        memcpy(output->barriers, kept.barriers, sizeof kept.barriers);
    }
}

void qsi_amqp_output_fini(struct qsi_amqp_output *output)
{
    while (output->first != NULL) {
        struct qsi_amqp_block *block = output->first;

        output->first = block->next;
        qsi_free(block);
    }
    for (uint32_t i = output->held_from; i < output->held_count; i++) {
        qs_message_release(&output->held[i]);
    }
    qsi_free(output->spare);
    qsi_free(output->pieces);
    qsi_free(output->held);
    *output = (struct qsi_amqp_output){0};
}
