/* The planted bug that needs another link: a checksum that always fits.  crc32c.c holds this one
 * symbol and nothing else, so the definition below takes its place in the whole engine.
 *
 * Arguments: seed. */
#include "qstore/codec.h"

#include "crash_run.h"

#define STATES_MAX 100000

uint32_t qs_crc32c(uint32_t seed, const void *data, size_t data_bytes)
{
    (void)seed;
    (void)data;
    (void)data_bytes;
    return 0x12345678;
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);
    const struct crash_run_options options = {
        .generations = 2, .ops = 40, .cut_percent = 40, .random_cuts = 3, .end_steps = 100};
    struct crash_report report = {.told_max = 1};

    QS_CHECK(qs_crc32c(0, "a", 1) == qs_crc32c(0, "b", 1));
    crash_run_many(&options, &report, seed, STATES_MAX, true);
    printf("no CRC: %s after %" PRIu64 " states\n", report.violations > 0 ? "caught" : "NOT CAUGHT",
           report.states);
    QS_CHECK(report.violations > 0);
    return 0;
}
