/* The methods of AMQP 0-9-1: their numbers, and decoding and encoding of their arguments.  Pure:
 * decoded slices point into the input, and nothing is read beyond its size. */
#ifndef QSI_AMQP_METHOD_H
#define QSI_AMQP_METHOD_H

#include "qstore/store.h"

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

enum qsi_amqp_method {
#define QSI_AMQP_METHOD(name, class_id, method_id, fields, from) QSI_AMQP_##name,
#include "amqp_method.def"
#undef QSI_AMQP_METHOD
    QSI_AMQP_METHOD_COUNT
};

enum qsi_amqp_from { QSI_AMQP_FROM_CLIENT = 1, QSI_AMQP_FROM_SERVER = 2, QSI_AMQP_FROM_BOTH = 3 };

struct qsi_amqp_layout {
    uint16_t class_id, method_id;
    enum qsi_amqp_from from;
    const char *fields; /* as in amqp_method.def */
};
extern const struct qsi_amqp_layout qsi_amqp_layouts[QSI_AMQP_METHOD_COUNT];

/* The arguments of any method, each kind in the order of its fields.  No method has two tables or
 * two octets of bits.  The octets of connection.start are numbers. */
struct qsi_amqp_arguments {
    struct qsi_slice text[3];
    struct qsi_slice table; /* without the 4-byte length in front */
    uint64_t number[3];
    uint8_t bits; /* the first flag has the value 1 */
};

/* False: no method has these numbers. */
bool qsi_amqp_method_find(uint16_t class_id, uint16_t method_id, enum qsi_amqp_method *method_out);

enum qsi_amqp_decoded {
    QSI_AMQP_DECODED,
    QSI_AMQP_CANNOT_DECODE, /* too short, or bytes after the last argument */
    QSI_AMQP_NOT_UTF8,      /* a short string is not UTF-8 */
    QSI_AMQP_BAD_TABLE,     /* damaged, or more than QSI_FIELD_DEPTH_MAX tables deep */
};
/* fields: the bytes of the frame after class and method. */
enum qsi_amqp_decoded qsi_amqp_method_decode(enum qsi_amqp_method method, struct qsi_slice fields,
                                             struct qsi_amqp_arguments *arguments_out);

/* The size of class, method and arguments. */
size_t qsi_amqp_method_bytes(enum qsi_amqp_method method,
                             const struct qsi_amqp_arguments *arguments);
/* Encodes class, method and arguments at out; returns the end.  REQUIRES short strings of at most
 * 255 bytes. */
uint8_t *qsi_amqp_method_put(uint8_t *out, enum qsi_amqp_method method,
                             const struct qsi_amqp_arguments *arguments);

bool qsi_amqp_is_utf8(struct qsi_slice text);

static inline qs_slice qsi_amqp_public(struct qsi_slice slice)
{
    return (qs_slice){slice.data, slice.bytes};
}

static inline struct qsi_slice qsi_amqp_slice(qs_slice slice)
{
    return qsi_slice_make(slice.data, (uint32_t)slice.bytes);
}

#endif
