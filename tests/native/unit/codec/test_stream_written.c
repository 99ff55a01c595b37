/* Records of what was written straight into a stream's file, and that nothing damaged is taken for
 * one. */
#include "qs_test.h"
#include "stream_record.h"

#define BYTES (QSI_STREAM_WRITTEN_BYTES + 2 * QSI_STREAM_SEGMENT_BYTES_IN_RECORD)

static const struct qsi_stream_state_segment segments[2] = {
    {.first = 10,
     .next = 20,
     .end = 9000,
     .last_at = 8500,
     .first_time_us = 5,
     .last_time_us = 6,
     .salt = 77,
     .block_count = 3,
     .sealed = true},
    {.first = 20,
     .next = 60,
     .end = 30000,
     .last_at = 8192,
     .first_time_us = 6,
     .last_time_us = 9,
     .salt = 78,
     .block_count = 2},
};

static void encode(uint8_t record[BYTES])
{
    const struct qsi_stream_written written = {
        .stream_id = 7, .first = 40, .next = 60, .block_count = 1, .crc = 5, .segment_count = 2};

    qsi_stream_written_encode(record, &written);
    qsi_stream_written_put_segment(record, 0, &segments[0]);
    qsi_stream_written_put_segment(record, 1, &segments[1]);
}

QS_TEST(test_a_record_comes_back)
{
    struct qsi_stream_state_segment segment;
    struct qsi_stream_written back;
    uint8_t record[BYTES];

    encode(record);
    QS_CHECK(qsi_record_length(record) == BYTES && BYTES % QSI_RECORD_ALIGN == 0);
    QS_CHECK(qsi_record_type(record) == QSI_RECORD_STREAM_WRITTEN);
    QS_CHECK_OK(qsi_stream_written_decode(&back, record, QS_ERROR));
    QS_CHECK(back.stream_id == 7 && back.first == 40 && back.next == 60);
    QS_CHECK(back.block_count == 1 && back.crc == 5 && back.segment_count == 2);
    for (uint32_t i = 0; i < 2; i++) {
        qsi_stream_written_segment(&back, i, &segment);
        QS_CHECK(segment.first == segments[i].first && segment.next == segments[i].next);
        QS_CHECK(segment.end == segments[i].end && segment.last_at == segments[i].last_at);
        QS_CHECK(segment.salt == segments[i].salt && segment.sealed == segments[i].sealed);
        QS_CHECK(segment.block_count == segments[i].block_count);
    }
}

QS_TEST(test_a_record_that_contradicts_itself_is_refused)
{
    static const struct {
        uint32_t at, value;
    } damages[] = {
        {0, 40},   {0, BYTES - 64}, {0, BYTES + 8}, /* length */
        {16, 10},                                   /* in the segment before */
        {16, 60},  {16, 61},                        /* nothing was written */
        {24, 59},  {24, 61},                        /* not the end of the segment */
        {32, 0},   {32, 3},                         /* blocks */
        {40, 0},   {40, 1},         {40, 3},        /* segments */
        {112, 19},                                  /* that overlap */
        {172, 1},                                   /* and are all sealed */
        {172, 2},
    };

    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        struct qsi_stream_written back;
        uint8_t record[BYTES];
        encode(record);
        qsi_put_u32(record + damages[i].at, damages[i].value);
        QS_CHECK(qsi_stream_written_decode(&back, record, NULL) == QS_ECORRUPT);
    }
}

/* What a flipped bit makes of it is refused, or is another record that makes sense. */
QS_TEST(test_no_flipped_bit_is_read_beyond_the_record)
{
    uint32_t refused = 0;

    for (uint32_t bit = 0; bit < BYTES * 8; bit++) {
        struct qsi_stream_written back;
        uint8_t record[BYTES];
        encode(record);
        record[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (qsi_stream_written_decode(&back, record, NULL) != QS_OK) {
            refused++;
            continue;
        }
        QS_CHECK(back.first < back.next && back.segment_count == 2);
        QS_CHECK(back.segments + 2 * QSI_STREAM_SEGMENT_BYTES_IN_RECORD == record + BYTES);
    }
    QS_CHECK(refused > 100);
}
