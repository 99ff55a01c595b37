/* Tests of sessions: one peer, which has logged in. */
#ifndef PEER_FIXTURE_H
#define PEER_FIXTURE_H

#include "qs_test_session.h"

static struct peer peer;

static inline void run_with_peer(void (*test)(void))
{
    peer_start(&peer);
    test();
    peer_fini(&peer);
}
#define PEER_TEST(name) QS_TEST_BY(run_with_peer, name, (void))

#endif
