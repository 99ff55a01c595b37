/* Notes in a store's inbox: their names and contents. */
#include "inbox_note.h"

#include "qstore/codec.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "le.h"
#include "name.h"
#include "transactions.h"

#include <stdio.h>
#include <string.h>

#define MAGIC "QSINBOX1"
#define FIXED_BYTES 72u
#define CRC_BYTES 4u
#define COMMITTED 1u
#define EXCLUDED 2u
#define NAME_FRONT_BYTES 33 /* two numbers and what stands between them */

/* ---- names ---- */

void qsi_inbox_name_make(struct qsi_inbox_name *name, uint64_t expires_us, uint64_t number,
                         const char *ending)
{
    int bytes = snprintf(name->text, sizeof name->text, "%016llx-%016llx%s",
                         (unsigned long long)expires_us, (unsigned long long)number, ending);

    QS_DCHECK(bytes > NAME_FRONT_BYTES && bytes < (int)sizeof name->text);
    (void)bytes;
}

void qsi_inbox_name_own(struct qsi_inbox_name *name)
{
    QS_DCHECK(strlen(name->text) > NAME_FRONT_BYTES);
    (void)snprintf(name->text + NAME_FRONT_BYTES, sizeof name->text - NAME_FRONT_BYTES, "%s",
                   QSI_INBOX_OWNED);
}

bool qsi_inbox_name_read(const char *name, uint64_t *expires_us_out, const char **ending_out)
{
    uint64_t number;
    const char *dash = qsi_name_hex(name, expires_us_out);

    if (dash != name + 16 || *dash != '-') {
        return false;
    }
    *ending_out = qsi_name_hex(dash + 1, &number);
    return *ending_out == name + NAME_FRONT_BYTES;
}

/* ---- writing ---- */

static uint64_t note_bytes(const struct qsi_inbox_note *note)
{
    uint64_t bytes = FIXED_BYTES + CRC_BYTES;

    for (uint32_t i = 0; i < qsi_inbox_string_count(note); i++) {
        bytes += 4 + note->strings[i].bytes + 1;
    }
    return bytes;
}

static void encode(const struct qsi_inbox_note *note, uint8_t *data, size_t bytes)
{
    uint8_t *at = data + FIXED_BYTES;

    memset(data, 0, FIXED_BYTES);
    memcpy(data, MAGIC, 8);
    qsi_put_u32(data + 8, note->kind);
    qsi_put_u32(data + 12, note->flags);
    qsi_put_u32(data + 16, note->status);
    qsi_put_u32(data + 20, note->unless_count);
    qsi_put_u32(data + 24, note->forget_count);
    qsi_put_u32(data + 28, note->path_count);
    qsi_put_u64(data + 32, note->adoption.rows);
    qsi_put_u64(data + 40, note->adoption.unroutable);
    qsi_put_u32(data + 48, note->adoption.files);
    qsi_put_u32(data + 52, note->adoption.linked);
    qsi_put_u32(data + 56, (note->adoption.committed ? COMMITTED : 0) |
                               (note->adoption.excluded ? EXCLUDED : 0));
    qsi_put_u32(data + 60, note->os_errno);
    qsi_put_u64(data + 64, note->offset);
    for (uint32_t i = 0; i < qsi_inbox_string_count(note); i++) {
        size_t string_bytes = note->strings[i].bytes;
        qsi_put_u32(at, (uint32_t)string_bytes);
        if (string_bytes > 0) {
            memcpy(at + 4, note->strings[i].data, string_bytes);
        }
        at[4 + string_bytes] = 0;
        at += 4 + string_bytes + 1;
    }
    QS_DCHECK(at + CRC_BYTES == data + bytes);
    qsi_put_u32(at, qs_crc32c(0, data, bytes - CRC_BYTES));
}

qs_status qsi_inbox_note_store(const struct qsi_inbox_note *note, qs_env *env, qs_dir *dir,
                               const char *name, qs_error *error)
{
    uint64_t bytes = note_bytes(note);
    uint8_t *data;
    qs_status status;

    if (bytes > QSI_INBOX_NOTE_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL,
                        "the paths of %u staged files take %llu bytes, and at most %u are taken in",
                        note->path_count, (unsigned long long)bytes, QSI_INBOX_NOTE_BYTES_MAX);
    }
    data = qsi_alloc((size_t)bytes);
    if (data == NULL) {
        return qsi_fail(error, QS_ENOMEM, "%s", name);
    }
    encode(note, data, (size_t)bytes);
    status = qsi_file_replace(env, dir, name, data, (size_t)bytes, error);
    qsi_free(data);
    return status;
}

/* ---- reading ---- */

static bool is_whole(const uint8_t *data, size_t bytes)
{
    return bytes >= FIXED_BYTES + CRC_BYTES && memcmp(data, MAGIC, 8) == 0 &&
           qsi_get_u32(data + bytes - CRC_BYTES) == qs_crc32c(0, data, bytes - CRC_BYTES);
}

static void decode_fixed(struct qsi_inbox_note *note)
{
    const uint8_t *data = note->data;

    QS_DCHECK(data != NULL);
    note->kind = qsi_get_u32(data + 8);
    note->flags = qsi_get_u32(data + 12);
    note->status = qsi_get_u32(data + 16);
    note->unless_count = qsi_get_u32(data + 20);
    note->forget_count = qsi_get_u32(data + 24);
    note->path_count = qsi_get_u32(data + 28);
    note->os_errno = qsi_get_u32(data + 60);
    note->offset = qsi_get_u64(data + 64);
    note->adoption = (qs_adoption){
        .committed = (qsi_get_u32(data + 56) & COMMITTED) != 0,
        .excluded = (qsi_get_u32(data + 56) & EXCLUDED) != 0,
        .rows = qsi_get_u64(data + 32),
        .unroutable = qsi_get_u64(data + 40),
        .files = qsi_get_u32(data + 48),
        .linked = qsi_get_u32(data + 52),
    };
}

/* A string takes five bytes at least. */
static bool counts_are_possible(const struct qsi_inbox_note *note, size_t bytes)
{
    uint64_t count = UINT64_C(1) + note->unless_count + note->forget_count + note->path_count;

    return (note->kind == QSI_INBOX_MANIFEST ||
            (note->kind == QSI_INBOX_ANSWER && count == QSI_INBOX_ANSWER_STRINGS &&
             note->path_count == 1)) &&
           count <= (bytes - FIXED_BYTES - CRC_BYTES) / 5;
}

static bool decode_strings(struct qsi_inbox_note *note, size_t bytes)
{
    size_t at = FIXED_BYTES, end = bytes - CRC_BYTES;

    for (uint32_t i = 0; i < qsi_inbox_string_count(note); i++) {
        size_t string_bytes;
        if (end - at < 5) {
            return false;
        }
        string_bytes = qsi_get_u32(note->data + at);
        if (string_bytes > end - at - 5 || note->data[at + 4 + string_bytes] != 0) {
            return false;
        }
        note->strings[i] = (qs_slice){note->data + at + 4, string_bytes};
        at += 4 + string_bytes + 1;
    }
    return at == end;
}

static bool is_key(qs_slice key)
{
    return key.bytes > 0 && key.bytes <= QSI_TRANSACTION_KEY_BYTES_MAX;
}

/* An owner has its own working directory, so paths are absolute. */
static bool is_path(qs_slice path)
{
    return path.bytes > 0 && *(const char *)path.data == '/' &&
           memchr(path.data, 0, path.bytes) == NULL;
}

static bool strings_are_possible(const struct qsi_inbox_note *note)
{
    uint32_t keys = 1 + note->unless_count + note->forget_count;
    bool possible = true;

    for (uint32_t i = 0; i < qsi_inbox_string_count(note) && possible; i++) {
        possible = i < keys ? is_key(note->strings[i]) : is_path(note->strings[i]);
    }
    return possible || note->kind == QSI_INBOX_ANSWER;
}

static qs_status decode(struct qsi_inbox_note *note, size_t bytes, const char *name,
                        qs_error *error)
{
    if (!is_whole(note->data, bytes)) {
        return qsi_fail_corrupt(error, name, 0, "it is no whole note of an inbox");
    }
    decode_fixed(note);
    if (!counts_are_possible(note, bytes)) {
        return qsi_fail_corrupt(error, name, 8, "it says what cannot be");
    }
    note->strings = qsi_alloc(qsi_inbox_string_count(note) * sizeof *note->strings);
    if (note->strings == NULL) {
        return qsi_fail(error, QS_ENOMEM, "%s", name);
    }
    if (!decode_strings(note, bytes) || !strings_are_possible(note)) {
        return qsi_fail_corrupt(error, name, FIXED_BYTES, "a key or a path cannot be one");
    }
    return QS_OK;
}

qs_status qsi_inbox_note_load(struct qsi_inbox_note *note, qs_env *env, qs_dir *dir,
                              const char *name, qs_error *error)
{
    size_t bytes;
    qs_status status;

    *note = (struct qsi_inbox_note){.kind = 0};
    QS_TRY(qsi_file_load(env, dir, name, QSI_INBOX_NOTE_BYTES_MAX, &note->data, &bytes, error));
    status = decode(note, bytes, name, error);
    if (status != QS_OK) {
        qsi_inbox_note_fini(note);
    }
    return status;
}

void qsi_inbox_note_fini(struct qsi_inbox_note *note)
{
    qsi_free(note->strings);
    qsi_free(note->data);
    note->strings = NULL;
    note->data = NULL;
}
