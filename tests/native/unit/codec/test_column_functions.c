/* Functions of each row of a column. */
#include "qstore/codec.h"

#include "qs_test.h"
#include "shard.h"

static const char data[] = "123456789key";
static const int32_t offsets[] = {0, 9, 9, 12};

static qs_strings whole(void)
{
    return (qs_strings){offsets, data, sizeof data - 1, 3};
}

QS_TEST(test_each_row_has_its_checksum)
{
    qs_strings column = whole();
    uint32_t crcs[3];

    QS_CHECK_OK(qs_crc32c_column(&column, crcs, NULL));
    QS_CHECK(crcs[0] == UINT32_C(0xe3069283));
    QS_CHECK(crcs[1] == 0);
    QS_CHECK(crcs[2] == qs_crc32c(0, "key", 3));
}

QS_TEST(test_a_column_may_begin_behind_the_first_byte)
{
    qs_strings column = whole();
    uint32_t crcs[1];

    column.offsets += 2;
    column.count = 1;
    QS_CHECK_OK(qs_crc32c_column(&column, crcs, NULL));
    QS_CHECK(crcs[0] == qs_crc32c(0, "key", 3));
}

QS_TEST(test_no_rows_need_no_memory)
{
    qs_strings column = {0};

    QS_CHECK_OK(qs_crc32c_column(&column, NULL, NULL));
    QS_CHECK_OK(qs_shard_column(&column, 1, NULL, NULL));
}

static void expect_refused(const int32_t *wrong, const char *words)
{
    qs_strings column = {wrong, data, sizeof data - 1, 2};
    uint32_t numbers[2];
    qs_error error;

    QS_CHECK(qs_crc32c_column(&column, numbers, &error) == QS_EINVAL);
    QS_CHECK(strstr(error.text, words) != NULL);
    QS_CHECK(qs_shard_column(&column, 3, numbers, &error) == QS_EINVAL);
    QS_CHECK(strstr(error.text, words) != NULL);
}

QS_TEST(test_offsets_that_lead_out_of_the_data_are_refused)
{
    expect_refused((const int32_t[]){0, 3, 2}, "row 1");
    expect_refused((const int32_t[]){0, 3, 13}, "row 1");
    expect_refused((const int32_t[]){-1, 3, 4}, "row 0");
}

QS_TEST(test_shards_are_consistent)
{
    qs_strings column = whole();
    uint32_t few[3], more[3];
    qs_error error;

    QS_CHECK_OK(qs_shard_column(&column, 10, few, NULL));
    QS_CHECK_OK(qs_shard_column(&column, 11, more, NULL));
    for (int row = 0; row < 3; row++) {
        QS_CHECK(few[row] < 10);
        QS_CHECK(more[row] == few[row] || more[row] == 10);
    }
    QS_CHECK(qs_shard_column(&column, 0, few, &error) == QS_EINVAL);
    QS_CHECK(qs_shard_column(&column, UINT32_C(1) << 31, few, &error) == QS_EINVAL);
}

QS_TEST(test_shards_have_equal_shares)
{
    uint64_t counts[7] = {0};

    for (uint64_t key = 0; key < 70000; key++) {
        counts[qsi_shard_jump(qsi_shard_hash(&key, sizeof key), 7)]++;
    }
    for (int i = 0; i < 7; i++) {
        QS_CHECK(counts[i] > 9500 && counts[i] < 10500);
    }
}
