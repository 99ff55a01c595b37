/* The header x-stream-offset: put where headers are, in place of one that is there. */
#include "field_table.h"
#include "properties.h"
#include "qs_test_fields.h"
#include "stream_offset.h"

static uint32_t encode(uint8_t *out, const struct qsi_properties *properties)
{
    uint32_t bytes = (uint32_t)qsi_properties_bytes(properties);

    qsi_properties_encode(out, properties);
    return bytes;
}

/* Puts the offset, and checks that everything else is as before. */
static struct qsi_slice put(uint8_t *out, const uint8_t *blob, uint32_t bytes, uint64_t offset)
{
    struct qsi_properties before, after;
    /* Of its own size, so that a sanitizer sees a write behind it. */
    QS_TEST_FREED uint8_t *room = malloc(bytes + QSI_STREAM_OFFSET_BYTES_MAX);
    uint32_t used = qsi_stream_offset_put(room, qsi_slice_make(blob, bytes), offset);
    struct qsi_field field;
    struct qsi_number number;

    QS_CHECK(room != NULL && used <= bytes + QSI_STREAM_OFFSET_BYTES_MAX);
    memcpy(out, room, used);
    QS_CHECK_OK(qsi_properties_decode(&before, blob, bytes, QS_ERROR));
    QS_CHECK_OK(qsi_properties_decode(&after, out, used, QS_ERROR));
    for (int i = 0; i < QSI_PROPERTY_COUNT; i++) {
        enum qsi_property property = (enum qsi_property)i;
        if (property != QSI_PROPERTY_HEADERS) {
            QS_CHECK(qsi_properties_has(&before, property) == qsi_properties_has(&after, property));
        }
    }
    QS_CHECK(qsi_table_find(qsi_properties_text(&after, QSI_PROPERTY_HEADERS),
                            QSI_SLICE_LITERAL("x-stream-offset"), &field));
    QS_CHECK(field.type == 'l' && qsi_field_integer(&field, &number) && number.bits == offset);
    return qsi_properties_text(&after, QSI_PROPERTY_HEADERS);
}

QS_TEST(test_a_message_without_properties_gets_the_header)
{
    uint8_t out[64];

    QS_CHECK(put(out, NULL, 0, 7).bytes == 25);
}

QS_TEST(test_headers_stay_and_one_of_that_name_goes)
{
    struct qsi_properties properties = {.timestamp = 9, .delivery_mode = 2};
    struct qs_test_fields fields = qs_test_fields_of("k=v x-stream-offset=77 n=1");
    struct qsi_field field;
    struct qsi_slice headers;
    uint8_t blob[256], out[320];
    uint32_t bytes;

    qsi_properties_set(&properties, QSI_PROPERTY_CONTENT_TYPE, QSI_SLICE_LITERAL("text/plain"));
    qsi_properties_set(&properties, QSI_PROPERTY_CONTENT_ENCODING, QSI_SLICE_LITERAL(""));
    qsi_properties_set(&properties, QSI_PROPERTY_HEADERS,
                       qsi_slice_make(fields.bytes, fields.used));
    qsi_properties_set(&properties, QSI_PROPERTY_APP_ID, QSI_SLICE_LITERAL("app"));
    properties.present |=
        qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE) | qsi_property_flag(QSI_PROPERTY_TIMESTAMP);
    bytes = encode(blob, &properties);
    headers = put(out, blob, bytes, UINT64_C(0x123456789abc));
    QS_CHECK(headers.bytes == fields.used); /* one went, one of its size came */
    QS_CHECK(qsi_table_find(headers, QSI_SLICE_LITERAL("k"), &field) && field.value.data[0] == 'v');
    QS_CHECK(qsi_table_find(headers, QSI_SLICE_LITERAL("n"), &field));
}

QS_TEST(test_each_property_alone_stays)
{
    for (int i = 0; i < QSI_PROPERTY_COUNT; i++) {
        struct qsi_properties properties = {.timestamp = 3, .delivery_mode = 1, .priority = 4};
        uint8_t blob[64], out[128];
        qsi_properties_set(&properties, (enum qsi_property)i, QSI_SLICE_LITERAL(""));
        put(out, blob, encode(blob, &properties), (uint64_t)i);
    }
}
