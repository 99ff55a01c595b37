/* Error text: what stands in it, what survives a prefix, and that nothing overruns. */
#include "error.h"
#include "qs_test.h"

#include <errno.h>

QS_TEST(test_fail_fills_in_everything)
{
    qs_error error;

    memset(&error, 'x', sizeof error);
    QS_CHECK(qsi_fail(&error, QS_EINVAL, "field %d is %s", 7, "odd") == QS_EINVAL);
    QS_CHECK(error.status == QS_EINVAL && error.os_errno == 0 && error.offset == 0);
    QS_CHECK(strcmp(error.path, "") == 0);
    QS_CHECK(strcmp(error.text, "field 7 is odd") == 0);
}

QS_TEST(test_system_error_is_kept_and_spelled_out)
{
    qs_error error;

    QS_CHECK(qsi_fail_errno(&error, QS_ENOSPC, ENOSPC, "write '%s'", "a") == QS_ENOSPC);
    QS_CHECK(error.os_errno == ENOSPC);
    QS_CHECK(strcmp(error.text, "write 'a': No space left on device") == 0);
    QS_CHECK(qsi_fail_errno(&error, QS_EIO, 99999, "x") == QS_EIO);
    QS_CHECK(strstr(error.text, "99999") != NULL);
}

QS_TEST(test_damage_names_file_and_offset)
{
    qs_error error;

    QS_CHECK(qsi_fail_corrupt(&error, "q1/0007", 8192, "bad %s", "checksum") == QS_ECORRUPT);
    QS_CHECK(error.status == QS_ECORRUPT && error.offset == 8192);
    QS_CHECK(strcmp(error.path, "q1/0007") == 0);
    QS_CHECK(strcmp(error.text, "'q1/0007' at offset 8192: bad checksum") == 0);
}

QS_TEST(test_prefix_keeps_the_rest)
{
    qs_error error;

    QS_CHECK(qsi_fail_corrupt(&error, "f", 5, "torn") == QS_ECORRUPT);
    qsi_error_prefix(&error, "open queue '%s'", "q1");
    QS_CHECK(strcmp(error.text, "open queue 'q1': 'f' at offset 5: torn") == 0);
    QS_CHECK(error.status == QS_ECORRUPT && error.offset == 5 && strcmp(error.path, "f") == 0);
}

QS_TEST(test_text_that_is_too_long_is_cut)
{
    char words[2 * QS_ERROR_TEXT_BYTES];
    qs_error error;

    memset(words, 'w', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    QS_CHECK(qsi_fail(&error, QS_EIO, "%s", words) == QS_EIO);
    QS_CHECK(strlen(error.text) == QS_ERROR_TEXT_BYTES - 1);
    qsi_error_prefix(&error, "%s", words);
    QS_CHECK(strlen(error.text) == QS_ERROR_TEXT_BYTES - 1);
    QS_CHECK(qsi_fail_errno(&error, QS_EIO, EIO, "%s", words) == QS_EIO);
    QS_CHECK(strlen(error.text) == QS_ERROR_TEXT_BYTES - 1);
    QS_CHECK(qsi_fail_corrupt(&error, words, 1, "%s", words) == QS_ECORRUPT);
    QS_CHECK(strlen(error.path) == QS_ERROR_PATH_BYTES - 1);
    qsi_error_set_path(&error, words);
    QS_CHECK(strlen(error.path) == QS_ERROR_PATH_BYTES - 1);
}

QS_TEST(test_error_may_quote_itself)
{
    qs_error error;

    QS_CHECK(qsi_fail(&error, QS_EIO, "first") == QS_EIO);
    QS_CHECK(qsi_fail(&error, QS_ENOSPC, "again %s", error.text) == QS_ENOSPC);
    QS_CHECK(strcmp(error.text, "again first") == 0);
}

QS_TEST(test_full_disk_is_a_full_store_of_a_file)
{
    qs_error error;

    QS_CHECK(qsi_fail(&error, QS_ENOSPC, "write") == QS_ENOSPC);
    QS_CHECK(qsi_fail_file(&error, QS_ENOSPC, "index/1.seg") == QS_ESTORE_FULL);
    QS_CHECK(error.status == QS_ESTORE_FULL && strcmp(error.text, "index/1.seg: write") == 0);
    QS_CHECK(qsi_fail(&error, QS_EIO, "write") == QS_EIO);
    QS_CHECK(qsi_fail_file(&error, QS_EIO, "index/1.seg") == QS_EIO);
    QS_CHECK(error.status == QS_EIO && strcmp(error.text, "index/1.seg: write") == 0);
}

QS_TEST(test_no_error_is_fine)
{
    QS_CHECK(qsi_fail_file(NULL, QS_ENOSPC, "f") == QS_ESTORE_FULL);
    QS_CHECK(qsi_fail(NULL, QS_EIO, "x") == QS_EIO);
    QS_CHECK(qsi_fail_errno(NULL, QS_EIO, EIO, "x") == QS_EIO);
    QS_CHECK(qsi_fail_corrupt(NULL, "f", 0, "x") == QS_ECORRUPT);
    qsi_error_prefix(NULL, "x");
    qsi_error_set_path(NULL, "x");
}
