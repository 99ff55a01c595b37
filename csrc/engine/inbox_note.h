/* Notes in a store's inbox: a request to its owner, and the answer.  Each note is one file,
 * and only one file at a time has its name without the ending:
 *
 *   EEEEEEEEEEEEEEEE-RRRRRRRRRRRRRRRR.ask   a manifest that no owner has begun: its expiry, in
 *                                           microseconds since 1970, and a random number
 *   EEEEEEEEEEEEEEEE-RRRRRRRRRRRRRRRR.own   one that an owner began with; then its answer
 *
 * Each step is one rename or removal, in which only one of several processes succeeds. */
#ifndef QSI_INBOX_NOTE_H
#define QSI_INBOX_NOTE_H

#include "qstore/adopt.h"

#include "inbox_state.h"
#include "slice.h"

#define QSI_INBOX_DIR "inbox"
#define QSI_INBOX_ASKS ".ask"
#define QSI_INBOX_OWNED ".own"
#define QSI_INBOX_WRITING ".tmp" /* behind one of these */
#define QSI_INBOX_NOTE_BYTES_MAX (16u << 20)
/* After its expiry, for a caller that was away meanwhile; no other process reads an answer. */
#define QSI_INBOX_ANSWER_KEPT_US (UINT64_C(24) * 3600 * 1000000)

#define QSI_INBOX_ANSWER_STRINGS 2

enum qsi_inbox_kind { QSI_INBOX_MANIFEST = 1, QSI_INBOX_ANSWER };

/* Strings of a manifest: the key, those of unless, those of forget, the paths, each path with a NUL
 * after it.  Of an answer: the error's text and its file. */
struct qsi_inbox_note {
    uint32_t kind;
    uint32_t flags;  /* manifest: QS_MANDATORY or 0 */
    uint32_t status; /* answer: a qs_status; the other fields are the result of the adoption */
    uint32_t unless_count, forget_count, path_count;
    uint32_t os_errno; /* answer */
    uint64_t offset;   /* answer: of the damage in the file */
    qs_adoption adoption;
    qs_slice *strings;
    uint8_t *data; /* that the strings lie in; NULL: somewhere else */
};

static inline uint32_t qsi_inbox_string_count(const struct qsi_inbox_note *note)
{
    return 1 + note->unless_count + note->forget_count + note->path_count;
}

void qsi_inbox_name_make(struct qsi_inbox_name *name, uint64_t expires_us, uint64_t number,
                         const char *ending);
/* Gives the name the ending of a note that a store owns. */
void qsi_inbox_name_own(struct qsi_inbox_name *name);
/* ending: where it begins. false: it is not a note's name. */
bool qsi_inbox_name_read(const char *name, uint64_t *expires_us_out, const char **ending_out);

/* The note has this name, durably, or the name is unchanged.  QS_EINVAL: it is too long. */
qs_status qsi_inbox_note_store(const struct qsi_inbox_note *note, qs_env *env, qs_dir *dir,
                               const char *name, qs_error *error) QS_MUST_CHECK;
/* QS_ENOENT, QS_ECORRUPT.  The caller calls fini after QS_OK. */
qs_status qsi_inbox_note_load(struct qsi_inbox_note *note, qs_env *env, qs_dir *dir,
                              const char *name, qs_error *error) QS_MUST_CHECK;
void qsi_inbox_note_fini(struct qsi_inbox_note *note); /* of one that was loaded */

#endif
