/* The table of status codes: names, texts, and numbers that users may have written down. */
#include "qs_test.h"

QS_TEST(test_name_and_text_of_a_status_come_from_the_table)
{
    QS_CHECK(strcmp(qs_status_name(QS_OK), "QS_OK") == 0);
    QS_CHECK(strcmp(qs_status_name(QS_ESTORE_LOCKED), "QS_ESTORE_LOCKED") == 0);
    QS_CHECK(strcmp(qs_status_text(QS_ENOMEM), "out of memory") == 0);
}

QS_TEST(test_unknown_status_has_a_name_and_a_text)
{
    QS_CHECK(strcmp(qs_status_name((qs_status)12345), "QS_UNKNOWN") == 0);
    QS_CHECK(qs_status_text((qs_status)12345)[0] != '\0');
}

QS_TEST(test_channel_numbers_are_amqp_reply_codes)
{
    QS_CHECK(QS_NOT_FOUND == 404);
    QS_CHECK(QS_PRECONDITION_FAILED == 406);
    QS_CHECK(QS_NOT_IMPLEMENTED == 540);
}
