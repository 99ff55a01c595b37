/* Missing files, and what the other files say about them.
 *
 * The creation of a store makes its directories and then a MANIFEST without sessions, and no file
 * before that.  So if there is a file and no MANIFEST, MANIFEST was lost: a new beginning would
 * destroy the store. */
#include "lost_files.h"

#include "check.h"
#include "checkpoint_format.h"
#include "env_call.h"
#include "error.h"
#include "file.h"

#include <stdio.h>
#include <string.h>

/* ---- no MANIFEST ---- */

struct found_file {
    char name[64];
};

static bool record_file(void *context, const char *name)
{
    struct found_file *found = context;

    snprintf(found->name, sizeof found->name, "%s", name);
    return false;
}

/* QS_OK: the directory does not exist, or is empty. */
static qs_status check_is_empty(qs_env *env, qs_dir *root, const char *dir_name, qs_error *error)
{
    struct found_file found = {0};
    qs_dir *dir = NULL;
    bool created;
    qs_status status = qsi_env_dir_open(env, root, dir_name, false, &dir, &created, error);

    if (status == QS_ENOENT) {
        return QS_OK;
    }
    QS_TRY(status);
    status = qsi_env_dir_list(env, dir, record_file, &found, error);
    env->dir_close(env, dir);
    if (status == QS_OK && found.name[0] != 0) {
        return qsi_fail_corrupt(error, "MANIFEST", 0,
                                "missing, but the directory holds a store, as %s/%s shows: restore "
                                "it from a backup; nothing was changed",
                                dir_name, found.name);
    }
    return status;
}

struct entries {
    bool has_manifest;
    char other[64]; /* "": none */
};

static bool record_entry(void *context, const char *name)
{
    static const char *const known[] = {
        "LOCK",       "MANIFEST.tmp", "RESERVE",        "journal",         "checkpoint",
        "index",      "messages",     "streams",        "transient",       "staging",
        "lost+found", "users.json",   "users.json.tmp", "users.json.lock", "inbox"};
    struct entries *entries = context;

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i]) == 0) {
            return true;
        }
    }
    if (strcmp(name, "MANIFEST") == 0) {
        entries->has_manifest = true;
        return false;
    }
    snprintf(entries->other, sizeof entries->other, "%s", name);
    return true;
}

qs_status qsi_check_nothing_else(qs_env *env, qs_dir *root, qs_error *error)
{
    struct entries entries = {0};

    QS_TRY(qsi_env_dir_list(env, root, record_entry, &entries, error));
    if (entries.has_manifest || entries.other[0] == '\0') {
        return QS_OK;
    }
    return qsi_fail(error, QS_ESTORE_NOT_FOUND,
                    "no store here, and the directory has other things in it, such as '%s': a new "
                    "store begins in an empty directory, or in one that it makes; nothing was "
                    "changed",
                    entries.other);
}

qs_status qsi_check_never_was(qs_env *env, qs_dir *root, qs_error *error)
{
    static const char *const names[] = {"journal",  "checkpoint", "index",
                                        "messages", "streams",    "transient"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        QS_TRY(check_is_empty(env, root, names[i], error));
    }
    return QS_OK;
}

qs_status qsi_fail_no_manifest(qs_env *env, qs_dir *root, qs_error *error)
{
    QS_TRY(qsi_check_never_was(env, root, error));
    return qsi_fail(error, QS_ESTORE_NOT_FOUND, "no store here (no MANIFEST)");
}

qs_status qsi_fail_not_created(qs_error *error)
{
    return qsi_fail(error, QS_ESTORE_NOT_FOUND,
                    "no store here: its creation was cut off, and nothing was ever stored");
}

/* ---- directories ---- */

qs_status qsi_require_directory(qs_env *env, qs_dir *root, const char *name, qs_dir **dir_out,
                                qs_error *error)
{
    bool created;
    qs_status status = qsi_env_dir_open(env, root, name, false, dir_out, &created, error);

    return status == QS_ENOENT
               ? qsi_fail_corrupt(error, name, 0,
                                  "the directory is missing: put it back with what was in it, or, "
                                  "if that was nothing, make it again")
               : status;
}

/* ---- checkpoints ---- */

/* A checkpoint that was begun and is not named yet has the next number, and was made when the
 * journal was durable up to its LSN. */
static qs_status check_unnamed(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                               uint64_t number, uint64_t end_lsn, qs_error *error)
{
    uint8_t data[QSI_CHECKPOINT_HEADER_BYTES] = {0};
    char name[QSI_CHECKPOINT_NAME_BYTES];
    char path[QSI_CHECKPOINT_PATH_BYTES];
    struct qsi_checkpoint_header header;
    qs_file *file = NULL;
    size_t bytes = 0;
    qs_status status;

    QS_DCHECK(number > manifest->checkpoint_number);
    qsi_checkpoint_name(name, number);
    qsi_checkpoint_path(path, number);
    if (number > manifest->checkpoint_number + 1) {
        return qsi_fail_corrupt(error, "MANIFEST", 56,
                                "an older copy: it names checkpoint %llu, and %s is there: put the "
                                "latest MANIFEST back",
                                (unsigned long long)manifest->checkpoint_number, path);
    }
    QS_TRY(qsi_env_open(env, dir, name, QS_OPEN_READ, &file, error));
    status = qsi_file_read(env, file, data, sizeof data, 0, &bytes, error);
    env->close(env, file);
    if (status != QS_OK) {
        return status;
    }
    if (qsi_checkpoint_header_decode(&header, data, path, manifest->uuid, number, NULL) == QS_OK &&
        header.lsn > end_lsn) {
        return qsi_fail_corrupt(error, "MANIFEST", 56,
                                "the journal ends at LSN %llu, and %s was made when it was durable "
                                "up to %llu: MANIFEST is an older copy, or the journal is damaged",
                                (unsigned long long)end_lsn, path, (unsigned long long)header.lsn);
    }
    return QS_OK;
}

struct unnamed {
    uint64_t above;   /* numbers */
    uint64_t highest; /* 0: there is none */
};

static bool record_unnamed(void *context, const char *name)
{
    struct unnamed *unnamed = context;
    uint64_t number;

    if (qsi_checkpoint_number(name, &number) && number > unnamed->above &&
        number > unnamed->highest) {
        unnamed->highest = number;
    }
    return true;
}

qs_status qsi_check_checkpoints(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                                uint64_t end_lsn, qs_error *error)
{
    struct unnamed unnamed = {.above = manifest->checkpoint_number};

    QS_TRY(qsi_env_dir_list(env, dir, record_unnamed, &unnamed, error));
    return unnamed.highest == 0
               ? QS_OK
               : check_unnamed(env, dir, manifest, unnamed.highest, end_lsn, error);
}
