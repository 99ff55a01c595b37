/* The disk's own floor, for the Python benchmarks: loops over pwrite and fdatasync, and nothing
 * else. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <unistd.h>

int raw_write(int fd, const void *data, uint64_t step_bytes, uint64_t step_count);

/* Writes data step_count times behind each other from offset 0, an fdatasync after each; 0 or an
 * errno. */
__attribute__((visibility("default"))) int raw_write(int fd, const void *data, uint64_t step_bytes,
                                                     uint64_t step_count)
{
    for (uint64_t i = 0; i < step_count; i++) {
        if (pwrite(fd, data, step_bytes, (off_t)(i * step_bytes)) != (ssize_t)step_bytes ||
            fdatasync(fd) != 0) {
            return errno != 0 ? errno : EIO;
        }
    }
    return 0;
}
