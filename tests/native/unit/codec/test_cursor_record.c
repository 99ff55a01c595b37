/* Cursor records, and that nothing damaged is taken for one. */
#include "cursor_record.h"
#include "qs_test.h"
#include "record.h"

static struct qsi_slice text(const char *string)
{
    return qsi_slice_make(string, (uint32_t)strlen(string));
}

QS_TEST(test_a_cursor_comes_back)
{
    uint8_t record[512];
    struct qsi_cursor_record back,
        cursor = {
            .stream_id = 7, .offset = UINT64_MAX, .group = text("billing"), .own = text("xy")};

    qsi_cursor_record_encode(record, &cursor);
    QS_CHECK(qsi_record_length(record) == qsi_cursor_record_bytes(&cursor));
    QS_CHECK(qsi_record_length(record) % QSI_RECORD_ALIGN == 0);
    QS_CHECK(qsi_record_type(record) == QSI_RECORD_CURSOR);
    QS_CHECK_OK(qsi_cursor_record_decode(&back, record, QS_ERROR));
    QS_CHECK(back.stream_id == 7 && back.offset == UINT64_MAX);
    QS_CHECK(qsi_slice_equals(back.group, text("billing")));
    QS_CHECK(qsi_slice_equals(back.own, text("xy")));
}

QS_TEST(test_the_longest_and_the_shortest_cursor_come_back)
{
    static char long_group[QSI_CURSOR_GROUP_BYTES_MAX], long_own[QSI_CURSOR_OWN_BYTES_MAX];
    uint8_t record[512];
    struct qsi_cursor_record back,
        shortest = {.group = text("g")},
        longest = {.group = qsi_slice_make(long_group, 255), .own = qsi_slice_make(long_own, 64)};

    qsi_cursor_record_encode(record, &shortest);
    QS_CHECK_OK(qsi_cursor_record_decode(&back, record, QS_ERROR));
    QS_CHECK(back.own.bytes == 0 && back.group.bytes == 1);
    memset(long_group, 'g', sizeof long_group);
    qsi_cursor_record_encode(record, &longest);
    QS_CHECK_OK(qsi_cursor_record_decode(&back, record, QS_ERROR));
    QS_CHECK(back.own.bytes == 64 && back.group.bytes == 255);
}

QS_TEST(test_a_cursor_that_does_not_fit_its_record_is_refused)
{
    static const struct {
        uint32_t at, value;
    } damages[] = {{0, 24},       {0, 40},  {0, 64},         {4, QSI_RECORD_SETTLE},
                   {5, 1},        {6, 1},   {24, 0},         {24, 256},
                   {24, 9999999}, {28, 65}, {28, UINT32_MAX}};
    struct qsi_cursor_record back, cursor = {.group = text("billing"), .own = text("xy")};

    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        uint8_t record[512];
        qsi_cursor_record_encode(record, &cursor);
        if (damages[i].at >= 4 && damages[i].at < 8) {
            record[damages[i].at] = (uint8_t)damages[i].value;
        } else {
            qsi_put_u32(record + damages[i].at, damages[i].value);
        }
        QS_CHECK(qsi_cursor_record_decode(&back, record, NULL) == QS_ECORRUPT);
    }
}
