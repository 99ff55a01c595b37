/* What users may do: what the host is asked, and what of it is remembered. */
#include "qs_test_fields.h"
#include "qs_test_session.h"

static struct peer peer;

static struct {
    enum qsi_amqp_right right;
    char name[64];
    int count;
} asked;

static enum qsi_amqp_verdict permit_later(void *context, struct qsi_amqp_session *session,
                                          enum qsi_amqp_right right, qs_slice name)
{
    (void)context;
    (void)session;
    asked.right = right;
    snprintf(asked.name, sizeof asked.name, "%.*s", (int)name.bytes, (const char *)name.data);
    asked.count++;
    return QSI_AMQP_LATER;
}

static enum qsi_amqp_verdict permit(void *context, struct qsi_amqp_session *session,
                                    enum qsi_amqp_right right, qs_slice name)
{
    if (right == QSI_AMQP_ENTER) {
        QS_CHECK(strcmp(qsi_amqp_session_user(session), "guest") == 0);
        QS_CHECK(strcmp(qsi_amqp_session_vhost(session), "/") == 0);
        return QSI_AMQP_GRANTED;
    }
    return permit_later(context, session, right, name);
}

static void answer(enum qsi_amqp_right right, const char *name, enum qsi_amqp_verdict verdict)
{
    QS_CHECK(peer.wants == QSI_AMQP_WANTS_ANSWER);
    QS_CHECK(asked.right == right && strcmp(asked.name, name) == 0);
    qsi_amqp_session_answer(peer.session, verdict, (qs_slice){NULL, 0});
    run(&peer);
}

static void start(void)
{
    peer_init(&peer);
    peer.setup.host.permit = permit;
    make_ready(&peer);
}

static void run_with_rights(void (*test)(void))
{
    start();
    test();
    peer_fini(&peer);
}
#define RIGHTS_TEST(name) QS_TEST_BY(run_with_rights, name, (void))

static void expect_refusal(const char *what, uint16_t class_id, uint16_t method_id)
{
    char text[128];

    snprintf(text, sizeof text, "access to %s in vhost '/' refused for user 'guest'", what);
    expect_channel_close(&peer, 1, 403, text, class_id, method_id);
}

RIGHTS_TEST(test_rights_are_asked_for_and_remembered)
{
    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT("q")});
    answer(QSI_AMQP_CONFIGURE, "q", QSI_AMQP_GRANTED);
    EXPECT(&peer, 1, QUEUE_DECLARE_OK);
    SEND(&peer, 1, QUEUE_BIND, .text = {TEXT("q"), TEXT("amq.direct"), TEXT("k")});
    answer(QSI_AMQP_WRITE, "q", QSI_AMQP_GRANTED);
    answer(QSI_AMQP_READ, "amq.direct", QSI_AMQP_GRANTED);
    EXPECT(&peer, 1, QUEUE_BIND_OK);
    publish(&peer, "", "q", "x");
    answer(QSI_AMQP_WRITE, "amq.default", QSI_AMQP_GRANTED);
    asked.count = 0;
    publish(&peer, "", "q", "x");
    CALL(&peer, 1, QUEUE_DECLARE, .text = {TEXT("q")});
    QS_CHECK(asked.count == 0 && peer.wants == QSI_AMQP_WANTS_INPUT);
    SEND(&peer, 1, BASIC_GET, .text = {TEXT("q")});
    answer(QSI_AMQP_READ, "q", QSI_AMQP_REFUSED);
    expect_refusal("queue 'q'", 60, 70);
}

QS_TEST(test_a_vhost_is_entered_when_the_host_says_so)
{
    for (int granted = 0; granted <= 1; granted++) {
        peer_init(&peer);
        peer.setup.host.permit = permit_later;
        connect_as_guest(&peer);
        SEND(&peer, 0, CONNECTION_TUNE_OK, .number = {2047, 131072, 0});
        SEND(&peer, 0, CONNECTION_OPEN, .text = {TEXT("/")});
        answer(QSI_AMQP_ENTER, "/", granted ? QSI_AMQP_GRANTED : QSI_AMQP_REFUSED);
        if (granted) {
            EXPECT(&peer, 0, CONNECTION_OPEN_OK);
        } else {
            expect_connection_close(&peer, 530, "access to vhost '/' refused for user 'guest'", 10,
                                    40);
        }
        peer_fini(&peer);
    }
}

RIGHTS_TEST(test_a_right_to_every_name_is_asked_for_once)
{
    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT("q")});
    answer(QSI_AMQP_CONFIGURE, "q", QSI_AMQP_GRANTED_ALL);
    EXPECT(&peer, 1, QUEUE_DECLARE_OK);
    asked.count = 0;
    CALL(&peer, 1, QUEUE_DECLARE, .text = {TEXT("other")});
    QS_CHECK(asked.count == 0);
    publish(&peer, "", "q", "x");
    answer(QSI_AMQP_WRITE, "amq.default", QSI_AMQP_GRANTED_ALL);
    publish(&peer, "amq.fanout", "q", "x");
    QS_CHECK(asked.count == 1 && peer.wants == QSI_AMQP_WANTS_INPUT);
}

QS_TEST(test_rights_are_asked_for_again_when_they_have_changed)
{
    uint64_t version = 1;

    peer_init(&peer);
    peer.setup.host.permit = permit;
    peer.setup.rights_version = &version;
    make_ready(&peer);
    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT("q")});
    version++; /* while it is asked: what was said may be no longer so */
    answer(QSI_AMQP_CONFIGURE, "q", QSI_AMQP_GRANTED);
    EXPECT(&peer, 1, QUEUE_DECLARE_OK);
    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT("q")});
    answer(QSI_AMQP_CONFIGURE, "q", QSI_AMQP_GRANTED_ALL);
    EXPECT(&peer, 1, QUEUE_DECLARE_OK);
    version++;
    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT("q")});
    answer(QSI_AMQP_CONFIGURE, "q", QSI_AMQP_REFUSED);
    expect_refusal("queue 'q'", 50, 10);
    peer_fini(&peer);
}

static void declare_with(const char *queue, const char *arguments)
{
    struct qs_test_fields fields = qs_test_fields_of("%s", arguments);

    SEND(&peer, 1, QUEUE_DECLARE, .text = {TEXT(queue)}, .bits = DURABLE,
         .table = qsi_slice_make(fields.bytes, fields.used));
}

/* What was declared let through what its user may neither read nor write. */
static void check_source(const char *arguments)
{
    start();
    declare_with("work", arguments);
    answer(QSI_AMQP_CONFIGURE, "work", QSI_AMQP_GRANTED);
    answer(QSI_AMQP_READ, "log", QSI_AMQP_REFUSED);
    expect_refusal("queue 'log'", 50, 10);
    peer_fini(&peer);
}

/* The first of two arguments of one name, or one of another type, hid what the engine takes. */
QS_TEST(test_an_argument_that_is_given_twice_went_round_rights)
{
    check_source("x-stream-source=mine x-stream-source=log");
    check_source("x-stream-source=1 x-stream-source=log");
}

QS_TEST(test_a_work_queue_gave_out_a_stream_that_its_user_may_not_read)
{
    check_source("x-stream-source=log");
}

RIGHTS_TEST(test_dead_letters_of_a_server_named_queue_went_where_its_user_may_not_write)
{
    declare_with("", "x-dead-letter-exchange=amq.fanout");
    answer(QSI_AMQP_CONFIGURE, "amq.gen-", QSI_AMQP_GRANTED);
    answer(QSI_AMQP_READ, "amq.gen-", QSI_AMQP_GRANTED);
    answer(QSI_AMQP_WRITE, "amq.fanout", QSI_AMQP_REFUSED);
    expect_refusal("exchange 'amq.fanout'", 50, 10);
}
