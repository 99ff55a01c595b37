/* Logins that failed: for how long the next answer is kept back, and of whom that is remembered. */
#include "failures.h"
#include "qs_test.h"

#define SECOND UINT64_C(1000000000)
#define TENTH (SECOND / 10)

static struct qsi_failures failures;
static uint64_t now_ns;

static void start(void)
{
    memset(&failures, 0, sizeof failures);
    now_ns = 5 * SECOND;
}

static uint64_t note(const char *peer)
{
    return qsi_failures_record(&failures, peer, now_ns);
}

QS_TEST(test_each_failure_takes_longer_than_the_one_before)
{
    static const uint64_t expected[] = {0, 1, 2, 4, 8, 16, 20, 20, 20};

    start();
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        QS_CHECK(note("10.0.0.1:1000") == expected[i] * TENTH);
        now_ns += SECOND;
    }
    for (int i = 0; i < 100; i++) {
        QS_CHECK(note("10.0.0.1:1000") == 2 * SECOND);
    }
    QS_CHECK(note("10.0.0.2:1000") == 0);
}

QS_TEST(test_a_minute_without_a_failure_forgets_them)
{
    start();
    QS_CHECK(note("10.0.0.1:1000") == 0 && note("10.0.0.1:1000") == TENTH);
    now_ns += 60 * SECOND - 1;
    QS_CHECK(note("10.0.0.1:1000") == 2 * TENTH);
    now_ns += 60 * SECOND;
    QS_CHECK(note("10.0.0.1:1000") == 0 && note("10.0.0.1:1000") == TENTH);
}

/* Else one client has more addresses than anybody could count. */
QS_TEST(test_addresses_of_one_ipv6_network_count_as_one)
{
    start();
    QS_CHECK(note("[2001:db8:1:2::1]:1000") == 0);
    QS_CHECK(note("[2001:db8:1:2:ffff:eeee:dddd:cccc]:2000") == TENTH);
    QS_CHECK(note("[2001:db8:1:3::1]:1000") == 0);
    QS_CHECK(note("[fe80::1%eth0]:1000") == 0 && note("[fe80::2%eth0]:1000") == TENTH);
    QS_CHECK(note("[::ffff:10.0.0.1]:1000") == 0 && note("10.0.0.1:2000") == TENTH);
    QS_CHECK(note("[::ffff:10.0.0.2]:1000") == 0);
    QS_CHECK(note("unix") == 0 && note("unix") == TENTH);
}

QS_TEST(test_the_address_that_failed_last_long_ago_makes_room)
{
    char peer[32];

    start();
    for (int i = 0; i < QSI_FAILURES_ADDRESSES + 10; i++) {
        snprintf(peer, sizeof peer, "10.0.%d.%d:1000", i / 256, i % 256);
        now_ns += 1;
        QS_CHECK(note(peer) == 0);
    }
    QS_CHECK(note("10.0.0.10:1000") == TENTH);
    QS_CHECK(note("10.0.4.9:1000") == TENTH);
    QS_CHECK(note("10.0.0.9:1000") == 0);
}
