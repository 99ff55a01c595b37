/* The properties of a message: the property part of an AMQP 0-9-1 basic content header, byte for
 * byte.
 *
 *   flags   u16 big-endian, bit 15 for the first property of the list below, bit 2 for the last
 *   values  the present properties in that order, big-endian
 *
 * A blob of 0 bytes is a message without properties.  Blobs come from files and from callers
 * alike, so nothing here reads past the given size.  Nothing allocates: decoded slices point
 * into the blob. */
#ifndef QSI_PROPERTIES_H
#define QSI_PROPERTIES_H

#include "qstore/status.h"

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

enum qsi_property { /* in the order of the encoding */
                    QSI_PROPERTY_CONTENT_TYPE,
                    QSI_PROPERTY_CONTENT_ENCODING,
                    QSI_PROPERTY_HEADERS, /* a field table, without its 4-byte length */
                    QSI_PROPERTY_DELIVERY_MODE,
                    QSI_PROPERTY_PRIORITY,
                    QSI_PROPERTY_CORRELATION_ID,
                    QSI_PROPERTY_REPLY_TO,
                    QSI_PROPERTY_EXPIRATION, /* milliseconds as decimal text */
                    QSI_PROPERTY_MESSAGE_ID,
                    QSI_PROPERTY_TIMESTAMP, /* seconds since 1970 */
                    QSI_PROPERTY_TYPE,
                    QSI_PROPERTY_USER_ID,
                    QSI_PROPERTY_APP_ID,
                    QSI_PROPERTY_CLUSTER_ID,
                    QSI_PROPERTY_COUNT
};

#define QSI_SHORTSTR_BYTES_MAX 255

/* Zeroed memory has no property.  Strings and headers are in text, the three numbers are members;
 * present has the flag of each present property.  Fields of absent properties are undefined:
 * clearing all of them would cost more than decoding most messages' properties. */
struct qsi_properties {
    struct qsi_slice text[QSI_PROPERTY_COUNT];
    uint64_t timestamp;
    uint16_t present; /* qsi_property_flag() of each */
    uint8_t delivery_mode;
    uint8_t priority;
};

static inline uint16_t qsi_property_flag(enum qsi_property property)
{
    return (uint16_t)(0x8000u >> property);
}

static inline bool qsi_properties_has(const struct qsi_properties *properties,
                                      enum qsi_property property)
{
    return (properties->present & qsi_property_flag(property)) != 0;
}

/* A string or the headers; a null slice if absent. */
static inline struct qsi_slice qsi_properties_text(const struct qsi_properties *properties,
                                                   enum qsi_property property)
{
    return qsi_properties_has(properties, property) ? properties->text[property] : QSI_SLICE_NULL;
}

/* Sets a string or the headers; value is borrowed and not null. */
static inline void qsi_properties_set(struct qsi_properties *properties, enum qsi_property property,
                                      struct qsi_slice value)
{
    properties->text[property] = value;
    properties->present |= qsi_property_flag(property);
}

/* The AMQP name, "content_type"; never NULL. */
const char *qsi_property_name(enum qsi_property property);

/* Decodes and checks a whole blob, nested tables included.  QS_ECORRUPT: it is malformed; the text
 * has the reason. */
qs_status qsi_properties_decode(struct qsi_properties *properties_out, const uint8_t *blob,
                                uint32_t blob_bytes, qs_error *error) QS_MUST_CHECK;

/* The exact size of the blob; 0 without properties. */
uint64_t qsi_properties_bytes(const struct qsi_properties *properties);

/* Writes qsi_properties_bytes() bytes.  REQUIRES a size that fits 32 bits, and strings of at most
 * 255 bytes.  If headers are present with data NULL, room for text[QSI_PROPERTY_HEADERS].bytes is
 * left for the caller to fill in.  Returns the begin of that room, or of the copied table; NULL
 * without headers. */
uint8_t *qsi_properties_encode(uint8_t *blob_out, const struct qsi_properties *properties);

/* Single properties of a blob, without decoding the rest, for publishing and expiry of each
 * message.  0 or a null slice: the property is absent, or the blob is malformed. */
uint8_t qsi_properties_delivery_mode(const uint8_t *blob, uint32_t blob_bytes);
uint8_t qsi_properties_priority(const uint8_t *blob, uint32_t blob_bytes);
struct qsi_slice qsi_properties_expiration(const uint8_t *blob, uint32_t blob_bytes);
struct qsi_slice qsi_properties_headers(const uint8_t *blob, uint32_t blob_bytes);
/* A fast test: false means that there are no headers. */
static inline bool qsi_properties_may_have_headers(const uint8_t *blob, uint32_t blob_bytes)
{
    return blob_bytes > 0 && (blob[0] & (qsi_property_flag(QSI_PROPERTY_HEADERS) >> 8)) != 0;
}
/* The same for an expiration. */
static inline bool qsi_properties_may_have_expiration(const uint8_t *blob, uint32_t blob_bytes)
{
    return blob_bytes > 0 && (blob[0] & (qsi_property_flag(QSI_PROPERTY_EXPIRATION) >> 8)) != 0;
}
/* Parses the milliseconds of an expiration.  QS_PRECONDITION_FAILED: it is not a decimal number of
 * at most QSI_EXPIRATION_MS_MAX. */
#define QSI_EXPIRATION_MS_MAX (UINT32_MAX - 1)
qs_status qsi_expiration_parse(struct qsi_slice text, uint32_t *ms_out,
                               qs_error *error) QS_MUST_CHECK;

#endif
