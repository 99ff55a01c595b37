#include "file_system.h"

#include <stdio.h>

static const struct {
    uint32_t magic;
    uint32_t kind;
    const char *name;
} known[] = {
    {0xef53, QS_FS_LOCAL, "ext4"},
    {0x58465342, QS_FS_LOCAL, "xfs"},
    {0x9123683e, QS_FS_LOCAL, "btrfs"},
    {0xf2f52010, QS_FS_LOCAL, "f2fs"},
    {0x2fc12fc1, QS_FS_LOCAL, "zfs"},
    {0xca451a4e, QS_FS_LOCAL, "bcachefs"},
    {0x3153464a, QS_FS_LOCAL, "jfs"},
    {0x794c7630, QS_FS_LOCAL, "overlay"}, /* syncs go to the upper layer */
    {0x01021994, QS_FS_VOLATILE, "tmpfs"},
    {0x858458f6, QS_FS_VOLATILE, "ramfs"},
    {0x6969, QS_FS_NETWORK, "nfs"},
    {0xff534d42, QS_FS_NETWORK, "cifs"},
    {0xfe534d42, QS_FS_NETWORK, "smb2"},
    {0x517b, QS_FS_NETWORK, "smb"},
    {0x01021997, QS_FS_NETWORK, "9p"},
    {0x00c36400, QS_FS_NETWORK, "ceph"},
    {0x5346414f, QS_FS_NETWORK, "afs"},
    {0x0bd00bd0, QS_FS_NETWORK, "lustre"},
    {0x47504653, QS_FS_NETWORK, "gpfs"},
    {0x7461636f, QS_FS_NETWORK, "ocfs2"},
    {0x01161970, QS_FS_NETWORK, "gfs2"},
    {0x786f4256, QS_FS_NETWORK, "vboxsf"},
    {0x65735546, QS_FS_UNKNOWN, "fuse"}, /* depends on its process */
    {0x4d44, QS_FS_UNKNOWN, "vfat"},     /* no journal */
    {0x2011bab0, QS_FS_UNKNOWN, "exfat"},
};

void qsi_file_system_of(uint64_t magic, qs_file_system *system_out)
{
    system_out->kind = QS_FS_UNKNOWN;
    (void)snprintf(system_out->name, sizeof system_out->name, "0x%llx",
                   (unsigned long long)magic & 0xffffffff);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].magic == magic) {
            system_out->kind = known[i].kind;
            (void)snprintf(system_out->name, sizeof system_out->name, "%s", known[i].name);
        }
    }
}
