/* The byte buffer: contents survive growth, a failed growth changes nothing, sizes cannot wrap. */
#include "buf.h"
#include "qs_test_alloc.h"

QS_TEST(test_appended_bytes_stay_in_order_through_growth)
{
    struct qsi_buf buf = {0};

    for (unsigned i = 0; i < 100000; i++) {
        uint8_t byte = (uint8_t)(i % 251);

        QS_CHECK_OK(qsi_buf_append(&buf, &byte, 1));
    }
    QS_CHECK(buf.bytes == 100000 && buf.capacity < 300000);
    for (unsigned i = 0; i < 100000; i++) {
        QS_CHECK(buf.data[i] == i % 251);
    }
    qsi_buf_fini(&buf);
    QS_CHECK(buf.data == NULL && buf.capacity == 0);
}

QS_TEST(test_reserve_gives_room_and_takes_none)
{
    struct qsi_buf buf = {0};
    uint8_t *room = NULL;

    QS_CHECK_OK(qsi_buf_reserve(&buf, 0, &room));
    QS_CHECK(room != NULL && buf.bytes == 0);
    QS_CHECK_OK(qsi_buf_append(&buf, "ab", 2));
    QS_CHECK_OK(qsi_buf_reserve(&buf, 1000, &room));
    QS_CHECK(room == buf.data + 2 && buf.bytes == 2 && buf.capacity >= 1002);
    QS_CHECK_OK(qsi_buf_append(&buf, NULL, 0));
    qsi_buf_clear(&buf);
    QS_CHECK(buf.bytes == 0 && buf.capacity >= 1002);
    qsi_buf_fini(&buf);
}

QS_TEST(test_failed_growth_changes_nothing)
{
    struct qs_test_alloc state;
    struct qsi_buf buf = {0};
    uint8_t *room;

    qs_test_alloc_install(&state);
    QS_CHECK_OK(qsi_buf_append(&buf, "abc", 3));
    qs_test_alloc_arm(&state, 1, true);
    QS_CHECK_STATUS(QS_ENOMEM, qsi_buf_reserve(&buf, 1 << 20, &room));
    QS_CHECK(buf.bytes == 3 && memcmp(buf.data, "abc", 3) == 0);
    QS_CHECK_STATUS(QS_ENOMEM, qsi_buf_reserve(&buf, SIZE_MAX - 1, &room));
    qsi_buf_fini(&buf);
    qsi_buf_fini(NULL);
    qs_test_alloc_end(&state);
}
