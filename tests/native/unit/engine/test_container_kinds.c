/* What each kind of container can do: all that belongs together, or nothing of it. */
#include "container.h"
#include "qs_test.h"
#include "queue.h"
#include "stream.h"

struct expected {
    const struct qsi_container_kind *kind;
    bool appends, takes, keeps_all;
};

static const struct expected kinds[] = {
    {&qsi_queue_kind, true, true, false},
    {&qsi_work_kind, false, true, false},
    {&qsi_stream_kind, true, false, true},
};

int main(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const struct qsi_container_kind *kind = kinds[i].kind;
        struct qsi_container container = {.kind = kind};
        bool takes = qsi_container_takes(&container), appends = qsi_container_appends(&container);

        QS_CHECK(takes == kinds[i].takes && appends == kinds[i].appends);
        QS_CHECK(qsi_container_keeps_all(&container) == kinds[i].keeps_all);
        QS_CHECK(!kinds[i].keeps_all || appends);
        QS_CHECK((kind->reserve != NULL) == appends && (kind->reserve_one != NULL) == appends);
        QS_CHECK((kind->append != NULL) == appends && (kind->append_one != NULL) == appends);
        QS_CHECK((kind->reserve_times != NULL) == (appends && takes));

        QS_CHECK((kind->take != NULL) == takes && (kind->untake != NULL) == takes);
        QS_CHECK((kind->settle != NULL) == takes && (kind->requeue != NULL) == takes);
        QS_CHECK((kind->give_back != NULL) == takes && (kind->replay_settle != NULL) == takes);
        QS_CHECK((kind->purge != NULL) == takes && (kind->purge_ranges != NULL) == takes);
        QS_CHECK((kind->mark_all_seen != NULL) == takes);

        QS_CHECK(kind->name != NULL && kind->ready_count != NULL && kind->drop_content != NULL);
        QS_CHECK(kind->unflushed_bytes != NULL && kind->checkpoint_bytes != NULL);
        QS_CHECK(kind->begin_flush != NULL);
        QS_CHECK(kind->snapshot != NULL && kind->restore != NULL);
        QS_CHECK(kind->start_at != NULL && kind->skip_to != NULL);
        QS_CHECK(kind->abandon != NULL && kind->fini != NULL);
    }
    return 0;
}
