/* Moments as text: each day of each month, fractions, and what is none. */
#include "qs_test.h"
#include "time_text.h"

#include <time.h>

static bool parsed(const char *text, uint64_t *us_out)
{
    return qsi_time_parse(qsi_slice_make(text, (uint32_t)strlen(text)), us_out);
}

QS_TEST(test_a_day_is_what_the_c_library_says)
{
    for (time_t second = 43200; second < INT64_C(86400) * 366 * 500; second += 86400) {
        char text[40];
        struct tm parts;
        uint64_t us;

        QS_CHECK(gmtime_r(&second, &parts) != NULL);
        QS_CHECK(strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 20);
        QS_CHECK(parsed(text, &us) && us == (uint64_t)second * 1000000);
    }
}

QS_TEST(test_a_fraction_has_up_to_six_digits)
{
    static const struct {
        const char *text;
        uint64_t us;
    } times[] = {{"1970-01-01T00:00:00Z", 0},
                 {"1970-01-01T00:00:01.5Z", 1500000},
                 {"1970-01-01T23:59:59.000001Z", 86399000001},
                 {"2026-01-31T12:00:00.250000Z", UINT64_C(1769860800250000)},
                 {"9999-12-31T23:59:59.999999Z", UINT64_C(253402300799999999)}};
    uint64_t us;

    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        QS_CHECK(parsed(times[i].text, &us) && us == times[i].us);
    }
}

QS_TEST(test_other_text_is_no_time)
{
    static const char *const texts[] = {"",
                                        "Z",
                                        "2026-01-31",
                                        "2026-01-31T12:00:00",
                                        "2026-01-31 12:00:00Z",
                                        "2026-01-31T12:00:00+00:00",
                                        "2026-01-31T12:00:00.Z",
                                        "2026-01-31T12:00:00.1234567Z",
                                        "2026-01-31T12:00:00.1x",
                                        "2026-01-31T12:00:00.xZ",
                                        "2026-01-31T12:00:00,5Z",
                                        "2026-01-31T12:00:00ZZ",
                                        "1969-12-31T23:59:59Z",
                                        "2026-00-31T12:00:00Z",
                                        "2026-13-31T12:00:00Z",
                                        "2026-01-00T12:00:00Z",
                                        "2026-01-32T12:00:00Z",
                                        "2026-02-29T12:00:00Z",
                                        "2100-02-29T12:00:00Z",
                                        "2026-01-31T24:00:00Z",
                                        "2026-01-31T12:60:00Z",
                                        "2026-01-31T12:00:60Z",
                                        "2026-01-3xT12:00:00Z"};
    uint64_t us;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        QS_CHECK(!parsed(texts[i], &us));
    }
    QS_CHECK(parsed("2024-02-29T12:00:00Z", &us));
}
