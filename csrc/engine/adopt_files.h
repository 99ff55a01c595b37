/* Adopting: the files of one adoption, and where their rows lead.  Shared by adopt.c, adopt_link.c
 * and adopt_files.c. */
#ifndef QSI_ADOPT_FILES_H
#define QSI_ADOPT_FILES_H

#include "qstore/adopt.h"

#include "map.h"
#include "publishing.h"
#include "staged_file.h"
#include "store.h"
#include "stream.h"

#define QSI_ADOPTION_UNROUTED_TOLD 5u

struct qsi_adopted_file {
    const char *folder, *name; /* of the adoption */
    struct qsi_staged staged;
};

struct qsi_adoption {
    struct qs_store *store;
    qs_slice key;
    bool mandatory;
    bool is_asked;        /* by another process: the inbox stops for a store that is being closed */
    struct qsi_buf names; /* of files, each with its NUL: their paths, divided at the last slash */
    struct qsi_buf files; /* struct qsi_adopted_file, with rows */
    struct qsi_map routes; /* as of qsi_staged_know_route */
    bool tells_routes;     /* all files have all of their routes */
    uint64_t rows;
    uint32_t body_longest, properties_longest;

    /* of the look-up: */
    uint64_t stream_id; /* the one that all rows lead to, or 0 */
    uint64_t unroutable;
    struct qsi_published_notes notes; /* how many rows go where, for that stream */
};

static inline struct qsi_adopted_file *qsi_adopted_files(const struct qsi_adoption *adoption)
{
    return (struct qsi_adopted_file *)(void *)adoption->files.data;
}
static inline uint32_t qsi_adopted_count(const struct qsi_adoption *adoption)
{
    return (uint32_t)(adoption->files.bytes / sizeof(struct qsi_adopted_file));
}
/* QS_ESTORE_CLOSED: the next owner is to make a requested adoption. */
qs_status qsi_adoption_check_stop(const struct qsi_adoption *adoption, qs_error *error)
    QSI_EXCLUDES(qsi_store_mutex) QS_MUST_CHECK;
/* Like qs_store_adopt, for the inbox.  QS_ESTORE_CLOSED: nothing changed. */
qs_status qsi_adopt_asked(struct qs_store *store, const char *const *paths, size_t path_count,
                          qs_slice key, uint32_t flags, qs_adoption *adoption_out,
                          qs_error *error) QS_MUST_CHECK;
/* Opens and checks all of them; none stays open.  The caller calls fini in any case. */
qs_status qsi_adoption_open(struct qsi_adoption *adoption, const char *const *paths, size_t count,
                            qs_error *error) QS_MUST_CHECK;
/* Looks up the routes: stream_id, unroutable, notes.  QS_NOT_FOUND; QS_PRECONDITION_FAILED:
 * mandatory rows lead to no queue. */
qs_status qsi_adoption_look_up(struct qsi_adoption *adoption, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_adoption_fini(struct qsi_adoption *adoption);

/* Makes the files segments of the stream, with the key.  *lsn_out: the LSN that makes them durable.
 * *repeated_out: the key was committed meanwhile.  QS_EEMPTY: it cannot be done now, or not in this
 * store; nothing changed. */
qs_status qsi_adoption_link(struct qsi_adoption *adoption, struct qs_channel *channel,
                            uint64_t *lsn_out, bool *repeated_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
