/* ISO 8601 in one form: a year of four digits, and the zone UTC. */
#include "time_text.h"

#include "check.h"

#define FORM "0000-00-00T00:00:00"
#define FORM_BYTES ((uint32_t)sizeof FORM - 1)
#define FRACTION_DIGITS 6

/* Whether text has digits where FORM has them, and equals FORM elsewhere. */
static bool has_form(const uint8_t *text)
{
    for (uint32_t i = 0; i < FORM_BYTES; i++) {
        if (FORM[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != (uint8_t)FORM[i]) {
            return false;
        }
    }
    return true;
}

static uint32_t number_at(const uint8_t *text, uint32_t digits)
{
    uint32_t number = 0;

    for (uint32_t i = 0; i < digits; i++) {
        number = number * 10 + (uint32_t)(text[i] - '0');
    }
    return number;
}

/* Parses fraction and zone: "Z", ".5Z". */
static bool parse_rest(const uint8_t *text, uint32_t bytes, uint32_t *us_out)
{
    uint32_t digits = bytes < 2 ? 0 : bytes - 2;

    *us_out = 0;
    if (bytes == 0 || text[bytes - 1] != 'Z' || (bytes > 1 && (text[0] != '.' || digits == 0)) ||
        digits > FRACTION_DIGITS) {
        return false;
    }
    for (uint32_t i = 0; i < digits; i++) {
        if (text[1 + i] < '0' || text[1 + i] > '9') {
            return false;
        }
    }
    *us_out = digits == 0 ? 0 : number_at(text + 1, digits);
    for (; digits > 0 && digits < FRACTION_DIGITS; digits++) {
        *us_out *= 10;
    }
    return true;
}

static bool is_leap(uint32_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static uint32_t days_before(uint32_t year, uint32_t month)
{
    static const uint32_t days[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};

    QS_DCHECK(month >= 1 && month <= 13);
    return days[month - 1] + (month > 2 && is_leap(year) ? 1 : 0);
}

/* The number of leap days in the years [1, year). */
static uint32_t leap_days(uint32_t year)
{
    uint32_t last = year - 1;

    return last / 4 - last / 100 + last / 400;
}

bool qsi_time_parse(struct qsi_slice text, uint64_t *us_out)
{
    uint32_t year, month, day, hour, minute, second, fraction_us;
    uint64_t days;

    if (text.bytes <= FORM_BYTES || !has_form(text.data) ||
        !parse_rest(text.data + FORM_BYTES, text.bytes - FORM_BYTES, &fraction_us)) {
        return false;
    }
    year = number_at(text.data, 4);
    month = number_at(text.data + 5, 2);
    day = number_at(text.data + 8, 2);
    hour = number_at(text.data + 11, 2);
    minute = number_at(text.data + 14, 2);
    second = number_at(text.data + 17, 2);
    if (year < 1970 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 ||
        second > 59 || day > days_before(year, month + 1) - days_before(year, month)) {
        return false;
    }
    days = (uint64_t)(year - 1970) * 365 + leap_days(year) - leap_days(1970) +
           days_before(year, month) + day - 1;
    *us_out = (((days * 24 + hour) * 60 + minute) * 60 + second) * UINT64_C(1000000) + fraction_us;
    return true;
}
