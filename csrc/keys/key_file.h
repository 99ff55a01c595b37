/* Key files: created once, read by page, never changed.  No function needs a lock; a file stays
 * while it is read. */
#ifndef QSI_KEY_FILE_H
#define QSI_KEY_FILE_H

#include "qstore/env.h"

#include "file_head.h"
#include "key_format.h"

/* The directory of key files. */
struct qsi_key_dir {
    qs_env *env;
    qs_dir *dir;
    uint8_t uuid[QSI_UUID_BYTES];
    uint64_t filter_bytes_max; /* of one filter in memory; a power of two */
};

/* A finished file. */
struct qsi_key_file {
    struct qsi_key_header header;
    uint32_t header_crc;
    uint8_t *filter; /* folded to filter_bytes if the file's is larger */
    uint64_t filter_bytes;
};

/* Opens the file that a checkpoint names, and loads its filter.  QS_ECORRUPT: it is missing, too
 * short, or another file. */
qs_status qsi_key_file_load(struct qsi_key_file *file_out, const struct qsi_key_dir *dir,
                            uint64_t number, uint32_t header_crc, qs_error *error) QS_MUST_CHECK;
void qsi_key_file_fini(struct qsi_key_file *file);
/* Debug builds: asserts that the data in memory agrees with the file's header.  Reads nothing. */
#ifdef NDEBUG
#define qsi_key_file_memory_check(file) ((void)(file))
#else
void qsi_key_file_memory_check(const struct qsi_key_file *file);
#endif

/* Whether the key may be in the file; without input or output. */
static inline bool qsi_key_file_may_have(const struct qsi_key_file *file, uint64_t hash)
{
    return qsi_key_filter_may_have(file->filter, file->filter_bytes, hash);
}
/* Searches the key in the file.  found_out->bytes is the caller's key. */
qs_status qsi_key_file_find(const struct qsi_key_file *file, const struct qsi_key_dir *dir,
                            const struct qsi_key *key, bool *has_out, struct qsi_key *found_out,
                            qs_error *error) QS_MUST_CHECK;

/* ---- reading all of it, in order ---- */

struct qsi_key_reader {
    const struct qsi_key_dir *dir;
    const struct qsi_key_file *file;
    qs_file *handle;
    uint8_t *pages;      /* PAGES pages */
    uint64_t first_page; /* in the buffer */
    uint32_t page_count; /* in the buffer */
    uint32_t page, at;   /* in the buffer; in the page */
    struct qsi_key key;  /* the current one, until the next call */
    bool at_end;
};
qs_status qsi_key_reader_begin(struct qsi_key_reader *reader, const struct qsi_key_dir *dir,
                               const struct qsi_key_file *file, qs_error *error) QS_MUST_CHECK;
void qsi_key_reader_fini(struct qsi_key_reader *reader);

/* Reads the whole file; QS_ECORRUPT has the offset of the first damage. */
qs_status qsi_key_file_check(const struct qsi_key_dir *dir, uint64_t number, uint32_t header_crc,
                             qs_error *error) QS_MUST_CHECK;

/* ---- creating one ---- */

struct qsi_key_writer {
    const struct qsi_key_dir *dir;
    struct qsi_key_file made;
    qs_file *handle;
    uint8_t *pages;
    uint32_t page;      /* in the buffer */
    uint64_t last_hash; /* of the latest key; keys are added in order */
    bool has_name;      /* the file has a name and is not finished: fini removes it */
};
/* keys_max: at least the number of keys to add. */
qs_status qsi_key_writer_begin(struct qsi_key_writer *writer, const struct qsi_key_dir *dir,
                               uint64_t number, uint64_t keys_max, qs_error *error) QS_MUST_CHECK;
/* Adds a key; keys must come in order. */
qs_status qsi_key_writer_add(struct qsi_key_writer *writer, const struct qsi_key *key,
                             qs_error *error) QS_MUST_CHECK;
/* Finishes the file; with sync its bytes are durable, its name is not.  REQUIRES a key. */
qs_status qsi_key_writer_end(struct qsi_key_writer *writer, bool sync,
                             struct qsi_key_file *file_out, qs_error *error) QS_MUST_CHECK;
void qsi_key_writer_fini(struct qsi_key_writer *writer);

/* ---- merging ---- */

/* The keys of several sources in order; if sources have the same key, the first source is used. */
struct qsi_key_merge {
    const struct qsi_key *fresh; /* sorted; the first source */
    uint64_t fresh_count, fresh_at;
    struct qsi_key_reader *readers; /* the others */
    uint32_t reader_count;
    struct qsi_key key; /* the current one, until the next call */
    bool at_end;
};
/* Advances to the next key.  The caller has begun readers, newest file first; the merge advances
 * them. */
qs_status qsi_key_merge_next(struct qsi_key_merge *merge, qs_error *error) QS_MUST_CHECK;

#endif
