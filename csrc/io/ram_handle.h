/* Declarations shared by the functions of the environment in memory: handles, mutex, error
 * texts. */
#ifndef QSI_RAM_HANDLE_H
#define QSI_RAM_HANDLE_H

#include "ram_disk.h"

struct qsi_ram_dir {
    struct qsi_ram_node *node; /* a counted reference, like the next one */
    struct qsi_ram_node *parent;
};

struct qsi_ram_file {
    struct qsi_ram_node *node; /* counted; of a lock: the directory */
    /* Counted: the directory of the open; of a lock: the directory's parent. */
    struct qsi_ram_node *dir;
    bool is_writable;
    bool is_lock;
    bool is_shared;                   /* a lock that other readers can share */
    char name[QS_NAME_BYTES_MAX + 1]; /* as opened, for error texts */
};

static inline struct qsi_ram_dir *qsi_ram_dir_of(qs_dir *dir)
{
    return (struct qsi_ram_dir *)(void *)dir;
}

static inline struct qsi_ram_file *qsi_ram_file_of(qs_file *file)
{
    return (struct qsi_ram_file *)(void *)file;
}

static inline struct qsi_ram_disk *qsi_ram_lock_disk(qs_env *env)
{
    struct qsi_ram_disk *disk = env->data;

    qsi_mutex_lock(&disk->mutex);
    return disk;
}

/* Sets the error text for an operation's status; returns status. */
qs_status qsi_ram_report(qs_error *error, qs_status status, const char *what, const char *name);

/* QS_EIO: the name belongs to the wrong kind of node. */
qs_status qsi_ram_fail_kind(qs_error *error, const char *name, const char *what);

/* Fills in the functions of files and locks. */
void qsi_ram_file_env_init(qs_env *env);

#endif
