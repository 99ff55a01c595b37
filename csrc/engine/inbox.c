/* The owner's side of a store's inbox. */
#include "inbox.h"

#include "adopt_files.h"
#include "buf.h"
#include "check.h"
#include "enter.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "inbox_dir.h"
#include "inbox_note.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_NS UINT64_C(1000000000)
#define RETRY_DOUBLED_MAX 5u /* so it is tried twice a minute at least */

struct looking {
    struct qs_store *store;
    enum qsi_inbox_pace pace;
    struct qsi_buf names; /* struct qsi_inbox_name, in order */
    struct qsi_buf known; /* struct qsi_inbox_known, in order, with room for all names */
    size_t known_at;      /* in what was known before */
    uint32_t answered;
    uint64_t due_ns; /* of the first one to be tried again; UINT64_MAX: there is none */
    bool is_short;   /* of memory for the names */
};

/* When an owner began with a manifest: this owner now, or an earlier one. */
enum begun { BEGUN_NOW, BEGUN_BEFORE };

/* A name that is examined. */
struct one {
    struct qsi_inbox_name name;
    uint64_t expires_us;
    enum begun begun;
    struct qsi_inbox_known before;
};

/* By the present time: earlier ones may have taken long. */
static bool is_past(const struct looking *looking, uint64_t end_us)
{
    qs_env *env = looking->store->env;

    return env->wall_us(env) > end_us;
}

/* So long after its expiry no process fetches it any more. */
static bool is_old(const struct looking *looking, uint64_t expires_us)
{
    return expires_us <= UINT64_MAX - QSI_INBOX_ANSWER_KEPT_US &&
           is_past(looking, expires_us + QSI_INBOX_ANSWER_KEPT_US);
}

/* ---- one manifest ---- */

/* The adoption, like qs_store_adopt for any caller. */
static qs_status adopt(struct qs_store *store, const struct qsi_inbox_note *note,
                       qs_adoption *adoption_out, qs_error *error)
{
    const qs_slice *unless = note->strings + 1;
    const qs_slice *paths = unless + note->unless_count + note->forget_count;
    struct qsi_buf pointers = {0};
    bool is_known = false;
    qs_status status = QS_OK;

    *adoption_out = (qs_adoption){.committed = false};
    for (uint32_t i = 0; i < note->unless_count && !is_known; i++) {
        QS_TRY(qs_store_transaction_known(store, unless[i], &is_known, error));
    }
    if (is_known) {
        adoption_out->excluded = true;
        return QS_OK;
    }
    for (uint32_t i = 0; i < note->path_count && status == QS_OK; i++) {
        status = qsi_buf_append(&pointers, &paths[i].data, sizeof paths[i].data);
    }
    if (status == QS_OK) {
        status =
            qsi_adopt_asked(store, (const char *const *)(void *)pointers.data, note->path_count,
                            note->strings[0], note->flags & QS_MANDATORY, adoption_out, error);
    } else {
        status = qsi_fail(error, status, "paths of staged files");
    }
    qsi_buf_fini(&pointers);
    return status;
}

static void forget_keys(struct qs_store *store, const struct qsi_inbox_note *note)
{
    const qs_slice *keys = note->strings + 1 + note->unless_count;
    uint64_t count;

    QS_DCHECK(note->kind == QSI_INBOX_MANIFEST);
    for (uint32_t i = 0; i < note->forget_count; i++) {
        qs_status ignored = qs_store_forget_transaction(store, keys[i], &count, NULL);
        (void)ignored; /* it is known for longer */
    }
}

/* It is unknown whether it was committed, or nothing could be done: the store's next owner
 * continues with it. */
static bool is_for_the_next_owner(qs_status status)
{
    return status == QS_ESTORE_FAILED || status == QS_ESTORE_CLOSED || status == QS_EFORKED;
}

/* ---- what is known of names ---- */

static void keep(struct looking *looking, const struct qsi_inbox_known *known)
{
    qs_status status;

    QS_ASSERT(looking->known.capacity - looking->known.bytes >= sizeof *known);
    QS_DCHECK(known->as != QSI_INBOX_NOT_KNOWN);
    status = qsi_buf_append(&looking->known, known, sizeof *known);
    QS_ASSERT(status == QS_OK);
    if (known->wakes && known->due_ns < looking->due_ns) {
        looking->due_ns = known->due_ns;
    }
}

/* adoption: of one that needs its answer only. */
static void keep_failing(struct looking *looking, const struct one *one,
                         const qs_adoption *adoption, bool wakes)
{
    qs_env *env = looking->store->env;
    uint32_t tries = one->before.tries;
    struct qsi_inbox_known known = {
        .name = one->name,
        .as = adoption != NULL ? QSI_INBOX_UNANSWERED : QSI_INBOX_FAILS,
        .tries = tries + 1,
        .due_ns = env->monotonic_ns(env) +
                  (RETRY_NS << (tries < RETRY_DOUBLED_MAX ? tries : RETRY_DOUBLED_MAX)),
        .wakes = wakes,
    };

    if (adoption != NULL) {
        known.adoption = *adoption;
    }
    keep(looking, &known);
}

static void record_error(struct qs_store *store, const struct one *one, const qs_error *error)
{
    qs_error detail = *error;

    if (detail.text[0] != 0) {
        qsi_error_prefix(&detail, "%s", one->name.text);
        qsi_inbox_record_error(store, &detail);
    }
}

/* ---- answers ---- */

/* From now on the manifest's name stands for its answer, durably. */
static qs_status answer(struct looking *looking, const struct one *one, qs_status status,
                        const qs_adoption *adoption, const qs_error *detail)
{
    struct qs_store *store = looking->store;
    qs_slice strings[QSI_INBOX_ANSWER_STRINGS] = {
        {detail->text, strnlen(detail->text, sizeof detail->text)},
        {detail->path, strnlen(detail->path, sizeof detail->path)},
    };
    const struct qsi_inbox_note note = {
        .kind = QSI_INBOX_ANSWER,
        .status = (uint32_t)status,
        .path_count = 1,
        .os_errno = (uint32_t)detail->os_errno,
        .offset = detail->offset,
        .adoption = *adoption,
        .strings = strings,
    };
    qs_error error = {0};
    qs_status stored =
        qsi_inbox_note_store(&note, store->env, store->inbox.dir, one->name.text, &error);

    looking->answered += stored == QS_OK;
    qsi_store_lock(store);
    store->inbox.adopted += stored == QS_OK && status == QS_OK;
    store->inbox.refused += stored == QS_OK && status != QS_OK;
    qsi_store_unlock(store);
    record_error(store, one, stored != QS_OK ? &error : detail);
    return stored;
}

/* If it was adopted again, its key would be known, and its answer a different one. */
static void answer_adopted(struct looking *looking, const struct one *one,
                           const struct qsi_inbox_note *note, const qs_adoption *adoption)
{
    const qs_error none = {0};

    if (answer(looking, one, QS_OK, adoption, &none) != QS_OK) {
        keep_failing(looking, one, adoption, true);
    } else if (note != NULL && !adoption->excluded) {
        forget_keys(looking->store, note);
    }
}

static void answer_refused(struct looking *looking, const struct one *one, qs_status status,
                           const qs_adoption *adoption, const qs_error *detail)
{
    QS_DCHECK(status != QS_OK);
    if (answer(looking, one, status, adoption, detail) != QS_OK) {
        keep_failing(looking, one, NULL, true);
    }
}

/* If this owner has just begun with the file, nothing was adopted.  Otherwise an earlier owner may
 * have adopted it, or it may be an answer: the caller is told that the outcome is unknown. */
static void answer_damage(struct looking *looking, const struct one *one, const qs_error *damage)
{
    const qs_adoption none = {.committed = false};
    qs_error detail = *damage;

    if (one->begun == BEGUN_BEFORE) {
        qsi_error_prefix(&detail, "whether it was adopted is not known, and its key tells");
    }
    answer_refused(looking, one, one->begun == BEGUN_NOW ? QS_ECORRUPT : QS_ESTORE_FAILED, &none,
                   &detail);
}

/* ---- one name ---- */

static bool has_failed(struct qs_store *store)
{
    bool failed;

    qsi_store_lock(store);
    failed = store->failed;
    qsi_store_unlock(store);
    return failed;
}

/* An owner died in the middle of it, and so much later no caller depends on it.  A store that
 * failed does not know what it committed. */
static bool is_too_late(const struct looking *looking, const struct one *one,
                        const struct qsi_inbox_note *note)
{
    bool is_known = false;

    QS_DCHECK(note->kind == QSI_INBOX_MANIFEST);
    return is_past(looking, one->expires_us) &&
           qs_store_transaction_known(looking->store, note->strings[0], &is_known, NULL) == QS_OK &&
           !is_known && !has_failed(looking->store);
}

static void set_adopting(struct qs_store *store, bool adopting)
{
    qsi_store_lock(store);
    QS_DCHECK(store->inbox.adopting != adopting);
    store->inbox.adopting = adopting;
    qsi_store_unlock(store);
}

static void take_manifest(struct looking *looking, const struct one *one,
                          const struct qsi_inbox_note *note)
{
    qs_adoption adoption;
    qs_error detail = {0};
    qs_status status;

    QS_DCHECK(note->kind == QSI_INBOX_MANIFEST);
    set_adopting(looking->store, true);
    status = adopt(looking->store, note, &adoption, &detail);
    set_adopting(looking->store, false);
    if (status == QS_OK) {
        answer_adopted(looking, one, note, &adoption);
    } else if (!is_for_the_next_owner(status)) {
        answer_refused(looking, one, status, &adoption, &detail);
    }
}

static void remove_note(const struct looking *looking, const struct one *one)
{
    QS_DCHECK(looking->store->inbox.dir != NULL);
    (void)qsi_env_remove(looking->store->env, looking->store->inbox.dir, one->name.text, NULL);
}

/* It may be readable another time, or be no file at all. */
static void leave_unread(struct looking *looking, const struct one *one, const qs_error *error)
{
    if (is_old(looking, one->expires_us)) {
        remove_note(looking, one);
    } else {
        record_error(looking->store, one, error);
        keep_failing(looking, one, NULL, !is_past(looking, one->expires_us));
    }
}

/* It stays for the caller. */
static void keep_answer(struct looking *looking, const struct one *one)
{
    const struct qsi_inbox_known known = {.name = one->name, .as = QSI_INBOX_IS_ANSWER};

    if (is_old(looking, one->expires_us)) {
        remove_note(looking, one);
    } else {
        keep(looking, &known);
    }
}

static void take_note(struct looking *looking, const struct one *one,
                      const struct qsi_inbox_note *note)
{
    if (note->kind == QSI_INBOX_ANSWER) {
        keep_answer(looking, one);
    } else if (one->before.as == QSI_INBOX_UNANSWERED) {
        answer_adopted(looking, one, note, &one->before.adoption);
    } else if (is_too_late(looking, one, note)) {
        remove_note(looking, one);
    } else {
        take_manifest(looking, one, note);
    }
}

static void take_owned(struct looking *looking, const struct one *one)
{
    struct qs_store *store = looking->store;
    struct qsi_inbox_note note;
    qs_error detail = {0};
    qs_status status =
        qsi_inbox_note_load(&note, store->env, store->inbox.dir, one->name.text, &detail);

    if (status == QS_OK) {
        take_note(looking, one, &note);
        qsi_inbox_note_fini(&note);
    } else if (status == QS_ENOENT) { /* its answer was fetched */
        return;
    } else if (one->before.as == QSI_INBOX_UNANSWERED) {
        answer_adopted(looking, one, NULL, &one->before.adoption);
    } else if (status == QS_ECORRUPT) {
        answer_damage(looking, one, &detail);
    } else {
        leave_unread(looking, one, &detail);
    }
}

static void take_asked(struct looking *looking, const struct one *one)
{
    struct qs_store *store = looking->store;
    struct one owned = *one;
    qs_error error = {0};
    qs_status status;

    if (is_past(looking, one->expires_us)) { /* the caller died, or takes it back right now */
        remove_note(looking, one);
        return;
    }
    owned.begun = BEGUN_NOW;
    qsi_inbox_name_own(&owned.name);
    status = qsi_env_rename(store->env, store->inbox.dir, one->name.text, owned.name.text, &error);
    if (status == QS_OK) {
        take_owned(looking, &owned);  /* which looks at the clock again */
    } else if (status != QS_ENOENT) { /* which was taken back */
        record_error(store, one, &error);
        keep_failing(looking, one, NULL, true);
    }
}

/* ---- all of them ---- */

static bool record_name(void *context, const char *name)
{
    struct looking *looking = context;
    struct qsi_inbox_name one = {.text = ""};
    uint64_t expires_us;
    const char *ending;

    if (!qsi_inbox_name_read(name, &expires_us, &ending) || strlen(name) >= sizeof one.text) {
        return true; /* its meaning is unknown */
    }
    memcpy(one.text, name, strlen(name));
    looking->is_short = qsi_buf_append(&looking->names, &one, sizeof one) != QS_OK;
    return !looking->is_short;
}

static int compare_names(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(struct qsi_inbox_name));
}

/* All names, the earliest expiry first, and room for notes about them: an adoption from then on is
 * not forgotten for lack of memory. */
static qs_status list_names(struct looking *looking, qs_error *error)
{
    struct qs_store *store = looking->store;
    struct qsi_buf *names = &looking->names;
    uint8_t *room;

    QS_TRY(qsi_env_dir_list(store->env, store->inbox.dir, record_name, looking, error));
    if (looking->is_short || qsi_buf_reserve(&looking->known,
                                             names->bytes / sizeof(struct qsi_inbox_name) *
                                                 sizeof(struct qsi_inbox_known),
                                             &room) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "names of an inbox");
    }
    if (names->bytes > 0) {
        qsort(names->data, names->bytes / sizeof(struct qsi_inbox_name),
              sizeof(struct qsi_inbox_name), compare_names);
    }
    return QS_OK;
}

/* Both are in order.  Notes about a name that is gone are skipped. */
static void recall(struct looking *looking, struct one *one)
{
    const struct qsi_buf *known = &looking->store->inbox.known;
    int order = -1;

    QS_DCHECK(one->before.as == QSI_INBOX_NOT_KNOWN);
    while (looking->known_at < known->bytes && order < 0) {
        const struct qsi_inbox_known *next = (const void *)(known->data + looking->known_at);
        order = compare_names(&next->name, &one->name);
        if (order == 0) {
            one->before = *next;
        }
        looking->known_at += order <= 0 ? sizeof *next : 0;
    }
}

static bool is_being_written(const char *ending)
{
    return strcmp(ending, QSI_INBOX_ASKS QSI_INBOX_WRITING) == 0 ||
           strcmp(ending, QSI_INBOX_OWNED QSI_INBOX_WRITING) == 0;
}

static bool is_due(const struct looking *looking, const struct one *one)
{
    qs_env *env = looking->store->env;

    return looking->pace == QSI_INBOX_AT_ONCE || env->monotonic_ns(env) >= one->before.due_ns;
}

static void take_one(struct looking *looking, const struct qsi_inbox_name *name)
{
    struct one one = {.name = *name, .begun = BEGUN_BEFORE};
    const char *ending;
    bool is_note = qsi_inbox_name_read(name->text, &one.expires_us, &ending);

    QS_ASSERT(is_note);
    recall(looking, &one);
    if (one.before.as == QSI_INBOX_IS_ANSWER) {
        keep_answer(looking, &one);
    } else if (!is_due(looking, &one)) {
        keep(looking, &one.before);
    } else if (strcmp(ending, QSI_INBOX_ASKS) == 0) {
        take_asked(looking, &one);
    } else if (strcmp(ending, QSI_INBOX_OWNED) == 0) {
        take_owned(looking, &one);
    } else if (is_being_written(ending) && is_old(looking, one.expires_us)) {
        /* a process ended in the middle of that */
        remove_note(looking, &one);
    }
}

/* More than one manifest may wait, and each may take long. */
static bool goes_on(struct qs_store *store)
{
    bool goes;

    qsi_store_lock(store);
    goes = !store->inbox.stops && !store->failed;
    qsi_store_unlock(store);
    return goes;
}

static uint64_t left_ns(const struct looking *looking)
{
    qs_env *env = looking->store->env;
    uint64_t now_ns = env->monotonic_ns(env);

    if (looking->due_ns == UINT64_MAX) {
        return UINT64_MAX;
    }
    return looking->due_ns > now_ns ? looking->due_ns - now_ns : 0;
}

/* For earlier notes, if the directory could not be listed. */
static void count_failing(struct qs_store *store, bool is_listed)
{
    const struct qsi_inbox_known *known = (const void *)store->inbox.known.data;
    size_t count = store->inbox.known.bytes / sizeof *known;
    uint64_t failing = is_listed ? 0 : 1;

    for (size_t i = 0; i < count; i++) {
        failing += known[i].as != QSI_INBOX_IS_ANSWER;
    }
    qsi_store_lock(store);
    store->inbox.failing = failing;
    qsi_store_unlock(store);
}

qs_status qsi_inbox_take_in(struct qs_store *store, enum qsi_inbox_pace pace,
                            uint32_t *answered_out, uint64_t *again_ns_out, qs_error *error)
{
    struct looking looking = {.store = store, .pace = pace, .due_ns = UINT64_MAX};
    qs_status status;

    QS_ASSERT(store->inbox.dir != NULL);
    QS_ASSERT_NOT_HELD(&store->mutex);
    status = list_names(&looking, error);
    for (size_t at = 0; status == QS_OK && at < looking.names.bytes && goes_on(store);
         at += sizeof(struct qsi_inbox_name)) {
        take_one(&looking, (const struct qsi_inbox_name *)(const void *)(looking.names.data + at));
    }
    qsi_buf_fini(&looking.names);
    qsi_buf_fini(status == QS_OK ? &store->inbox.known : &looking.known);
    if (status == QS_OK) {
        store->inbox.known = looking.known;
    }
    count_failing(store, status == QS_OK);
    *answered_out = looking.answered;
    *again_ns_out = left_ns(&looking);
    return status;
}

qs_status qs_store_take_in(qs_store *store, uint32_t *answered_out, qs_error *error)
{
    uint64_t again_ns;
    bool is_running;
    qs_status status;

    *answered_out = 0;
    QS_TRY(qsi_store_enter_to_change(store, error));
    is_running = store->inbox.is_running;
    status = qsi_store_check_failed(store, error);
    qsi_store_leave(store);
    QS_TRY(status);
    if (is_running) {
        return qsi_fail(error, QS_EINVAL, "a thread of the store takes in what comes");
    }
    if (store->inbox.dir == NULL) {
        QS_TRY(qsi_dir_open(store->env, store->root, QSI_INBOX_DIR, &store->inbox.dir, error));
    }
    return qsi_inbox_take_in(store, QSI_INBOX_AT_ONCE, answered_out, &again_ns, error);
}
