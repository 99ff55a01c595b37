/* The planted bug that needs another link: a checksum that always fits.  crc32c.c holds this one
 * symbol and nothing else, so the definition below takes its place in the whole engine.
 *
 * Arguments: seed. */
#include "qstore/codec.h"

#include "crash_run.h"

uint32_t qs_crc32c(uint32_t seed, const void *data, size_t data_bytes)
{
    (void)seed;
    (void)data;
    (void)data_bytes;
    return 0x12345678;
}

int main(int argc, char **argv)
{
    static const struct crash_run_options options = {2, 40, 40, 3, .end_steps = 100};
    static const struct crash_mix mix = {crash_run, &options, 1};

    QS_CHECK(qs_crc32c(0, "a", 1) == qs_crc32c(0, "b", 1));
    crash_must_be_caught(&mix, "no CRC", CRASH_NO_BUG, false, qs_test_seed(argc, argv));
    return 0;
}
