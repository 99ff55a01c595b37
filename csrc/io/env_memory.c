/* The environment of stores without files: a disk in memory, with the machine's clock and
 * randomness. */
#include "alloc.h"
#include "ram_disk.h"

qs_env *qs_env_memory_create(void)
{
    struct qsi_ram_disk *disk = qsi_alloc(sizeof *disk);

    if (disk == NULL) {
        return NULL;
    }
    if (qsi_ram_disk_init(disk, &qsi_ram_ops) != QS_OK) {
        qsi_free(disk);
        return NULL;
    }
    return &disk->env;
}

void qs_env_memory_destroy(qs_env *env)
{
    struct qsi_ram_disk *disk;

    if (env != NULL) {
        disk = env->data;
        qsi_ram_disk_fini(disk);
        qsi_free(disk);
    }
}
