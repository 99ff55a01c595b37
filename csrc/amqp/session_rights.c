/* The user's rights: asked of the host, and cached if granted. */
#include "alloc.h"
#include "check.h"
#include "session_internal.h"

#include <string.h>

struct qsi_amqp_granted {
    enum qsi_amqp_right right;
    uint8_t name_bytes;
    char name[QSI_AMQP_NAME_BYTES];
};

void qsi_amqp_rights_fini(struct qsi_amqp_rights *rights)
{
    qsi_free(rights->granted);
    *rights = (struct qsi_amqp_rights){0};
}

static bool is_for(const struct qsi_amqp_granted *granted, enum qsi_amqp_right right,
                   struct qsi_slice name)
{
    return granted->right == right && granted->name_bytes == name.bytes &&
           memcmp(granted->name, name.data, name.bytes) == 0;
}

/* Tries the right found last first: most messages are published like the one before. */
static bool is_known(struct qsi_amqp_rights *rights, enum qsi_amqp_right right,
                     struct qsi_slice name)
{
    uint32_t count = rights->next < QSI_AMQP_RIGHTS_KEPT ? rights->next : QSI_AMQP_RIGHTS_KEPT;
    uint32_t i = rights->found < count ? rights->found : 0;

    for (uint32_t tried = 0; tried < count; tried++) {
        if (is_for(&rights->granted[i], right, name)) {
            rights->found = i;
            return true;
        }
        i = i + 1 < count ? i + 1 : 0;
    }
    return false;
}

/* Without memory the right is not cached, and is asked again the next time. */
static void keep(struct qsi_amqp_rights *rights, enum qsi_amqp_right right, struct qsi_slice name)
{
    struct qsi_amqp_granted *granted;

    if (rights->granted == NULL) {
        rights->granted = qsi_alloc(QSI_AMQP_RIGHTS_KEPT * sizeof *rights->granted);
    }
    if (rights->granted != NULL) {
        granted = &rights->granted[rights->next++ % QSI_AMQP_RIGHTS_KEPT];
        granted->right = right;
        granted->name_bytes = (uint8_t)name.bytes;
        memcpy(granted->name, name.data, name.bytes);
    }
}

/* Caches an answer, unless the rights have changed since the question. */
static void remember(struct qsi_amqp_rights *rights, const struct qsi_amqp_question *question)
{
    if (question->version != rights->version) {
        return;
    }
    if (question->verdict == QSI_AMQP_GRANTED_ALL) {
        rights->to_all |= 1u << question->right;
    } else if (question->verdict == QSI_AMQP_GRANTED) {
        keep(rights, question->right, qsi_slice_make(question->name, question->name_bytes));
    }
}

static void forget_old(struct qsi_amqp_session *session)
{
    const uint64_t *version = session->setup.rights_version;
    struct qsi_amqp_rights *rights = &session->rights;
    uint64_t current = version == NULL ? 0 : __atomic_load_n(version, __ATOMIC_ACQUIRE);

    if (current != rights->version) {
        rights->next = rights->to_all = 0;
        rights->version = current;
    }
}

static bool is_about(const struct qsi_amqp_question *question, enum qsi_amqp_right right,
                     struct qsi_slice name)
{
    return question->is_open && question->right == right && question->name_bytes == name.bytes &&
           memcmp(question->name, name.data, name.bytes) == 0;
}

static void ask(struct qsi_amqp_session *session, enum qsi_amqp_right right, struct qsi_slice name)
{
    const struct qsi_amqp_host *host = &session->setup.host;
    struct qsi_amqp_question *question = &session->question;

    *question = (struct qsi_amqp_question){.is_open = true,
                                           .right = right,
                                           .name_bytes = (uint8_t)name.bytes,
                                           .version = session->rights.version};
    memcpy(question->name, name.data, name.bytes);
    question->verdict = host->permit(host->context, session, right, qsi_amqp_public(name));
    question->is_answered = question->verdict != QSI_AMQP_LATER;
}

/* FAULT: refused; the caller sets the text. */
static enum qsi_amqp_result find_out(struct qsi_amqp_session *session, enum qsi_amqp_right right,
                                     struct qsi_slice name)
{
    enum qsi_amqp_verdict verdict;

    QS_ASSERT(name.bytes < QSI_AMQP_NAME_BYTES);
    forget_old(session);
    if ((session->rights.to_all & 1u << right) != 0 || is_known(&session->rights, right, name)) {
        return QSI_AMQP_DONE;
    }
    if (!is_about(&session->question, right, name)) {
        ask(session, right, name);
    }
    if (!session->question.is_answered) {
        return QSI_AMQP_MUST_ASK;
    }
    remember(&session->rights, &session->question);
    verdict = session->question.verdict;
    session->question = (struct qsi_amqp_question){0};
    return verdict == QSI_AMQP_REFUSED ? QSI_AMQP_FAULT : QSI_AMQP_DONE;
}

enum qsi_amqp_result qsi_amqp_require(struct qsi_amqp_session *session, enum qsi_amqp_right right,
                                      bool is_exchange, struct qsi_slice name)
{
    enum qsi_amqp_result result;

    if (session->setup.host.permit == NULL) {
        return QSI_AMQP_DONE;
    }
    if (is_exchange && name.bytes == 0) {
        name = QSI_SLICE_LITERAL("amq.default");
    }
    result = find_out(session, right, name);
    if (result == QSI_AMQP_FAULT) {
        qsi_amqp_fault_set(&session->fault, QS_ACCESS_REFUSED,
                           "access to %s '%.*s' in vhost '%s' refused for user '%s'",
                           is_exchange ? "exchange" : "queue", (int)name.bytes,
                           (const char *)name.data, session->vhost, session->user);
    }
    return result;
}

enum qsi_amqp_result qsi_amqp_require_vhost(struct qsi_amqp_session *session)
{
    struct qsi_slice name = qsi_slice_make(session->vhost, (uint32_t)strlen(session->vhost));
    enum qsi_amqp_result result = session->setup.host.permit == NULL
                                      ? QSI_AMQP_DONE
                                      : find_out(session, QSI_AMQP_ENTER, name);

    if (result == QSI_AMQP_FAULT) {
        qsi_amqp_fault_set(&session->fault, QS_NOT_ALLOWED,
                           "access to vhost '%s' refused for user '%s'", session->vhost,
                           session->user);
    }
    return result;
}
