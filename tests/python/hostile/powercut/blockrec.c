/* blockrec MOUNTPOINT DISK_BYTES LOG NAMESPACE: a disk that remembers every write and every flush,
 * in order.
 *
 * A file system in user space with two files: "disk", whose bytes are in memory, and "position",
 * which reads as the number of entries in the log so far. Each entry in LOG is a header of three
 * 64-bit numbers of this machine (kind, offset, length) and, of a write, its bytes.
 *
 * One thread serves all requests, so the order of entries is the order in which the disk did them,
 * and an entry is in the log before whoever asked for it is answered. Nothing goes through the page
 * cache.
 *
 * Once it is mounted it moves to the mount namespace that the descriptor NAMESPACE is of, away from
 * its mount and from those of the file system on its disk. They end with the last process of their
 * namespace, which waits for this one to serve the last writes: if that process were this one, it
 * would wait for itself. This one ends when its mount is gone. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ENTRY_WRITE = 1, ENTRY_FLUSH = 2 };
enum { POSITION_BYTES = 20 }; /* decimal, with a line feed */

static char *disk;
static uint64_t disk_bytes;
static uint64_t entries;
static int log_fd;
static int outside_fd;

static bool is_disk(const char *path)
{
    return strcmp(path, "/disk") == 0;
}

static bool is_position(const char *path)
{
    return strcmp(path, "/position") == 0;
}

/* The log must not have gaps: a recorder that cannot write it ends, and with it the disk. */
static void append_entry(uint64_t kind, uint64_t offset, const char *data, size_t bytes)
{
    uint64_t header[3] = {kind, offset, bytes};
    struct iovec parts[2] = {{header, sizeof header}, {(void *)data, bytes}};
    size_t wanted = sizeof header + bytes;

    if (writev(log_fd, parts, bytes > 0 ? 2 : 1) != (ssize_t)wanted) {
        perror("blockrec: log");
        abort();
    }
    entries++;
}

static int get_attributes(const char *path, struct stat *stat, struct fuse_file_info *file)
{
    (void)file;
    memset(stat, 0, sizeof *stat);
    if (strcmp(path, "/") == 0) {
        stat->st_mode = S_IFDIR | 0700;
        stat->st_nlink = 2;
        return 0;
    }
    if (!is_disk(path) && !is_position(path)) {
        return -ENOENT;
    }
    stat->st_mode = S_IFREG | 0600;
    stat->st_nlink = 1;
    stat->st_size = is_disk(path) ? (off_t)disk_bytes : POSITION_BYTES;
    return 0;
}

static int open_file(const char *path, struct fuse_file_info *file)
{
    if (!is_disk(path) && !is_position(path)) {
        return -ENOENT;
    }
    file->direct_io = 1;
    return 0;
}

static int read_position(char *into, size_t bytes, off_t offset)
{
    char text[POSITION_BYTES + 1];
    int length = snprintf(text, sizeof text, "%" PRIu64 "\n", entries);

    if (offset >= length) {
        return 0;
    }
    if (bytes > (size_t)(length - offset)) {
        bytes = (size_t)(length - offset);
    }
    memcpy(into, text + offset, bytes);
    return (int)bytes;
}

static int read_file(const char *path, char *into, size_t bytes, off_t offset,
                     struct fuse_file_info *file)
{
    (void)file;
    if (is_position(path)) {
        return read_position(into, bytes, offset);
    }
    if ((uint64_t)offset >= disk_bytes) {
        return 0;
    }
    if (bytes > disk_bytes - (uint64_t)offset) {
        bytes = disk_bytes - (uint64_t)offset;
    }
    memcpy(into, disk + offset, bytes);
    return (int)bytes;
}

static int write_file(const char *path, const char *from, size_t bytes, off_t offset,
                      struct fuse_file_info *file)
{
    (void)file;
    if (!is_disk(path)) {
        return -EACCES;
    }
    if ((uint64_t)offset > disk_bytes || bytes > disk_bytes - (uint64_t)offset) {
        return -ENOSPC;
    }
    memcpy(disk + offset, from, bytes);
    append_entry(ENTRY_WRITE, (uint64_t)offset, from, bytes);
    return (int)bytes;
}

static int sync_file(const char *path, int only_data, struct fuse_file_info *file)
{
    (void)only_data;
    (void)file;
    if (is_disk(path)) {
        append_entry(ENTRY_FLUSH, 0, NULL, 0);
    }
    return 0;
}

static void *leave_namespace(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    (void)config;
    if (setns(outside_fd, CLONE_NEWNS) != 0) {
        perror("blockrec: setns");
        abort();
    }
    close(outside_fd);
    return NULL;
}

static const struct fuse_operations operations = {
    .init = leave_namespace,
    .getattr = get_attributes,
    .open = open_file,
    .read = read_file,
    .write = write_file,
    .fsync = sync_file,
};

int main(int argc, char **argv)
{
    if (argc != 5) {
        fputs("usage: blockrec MOUNTPOINT DISK_BYTES LOG NAMESPACE\n", stderr);
        return 2;
    }
    disk_bytes = strtoull(argv[2], NULL, 10);
    outside_fd = atoi(argv[4]);
    disk = mmap(NULL, disk_bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    log_fd = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (disk == MAP_FAILED || log_fd < 0) {
        perror("blockrec");
        return 1;
    }
    char *arguments[] = {argv[0], "-f", "-s", "-o", "fsname=blockrec", argv[1], NULL};

    return fuse_main(6, arguments, &operations, NULL);
}
