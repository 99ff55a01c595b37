/* What the tests of compaction share: a file of which most bodies died. */
#ifndef COMPACT_FIXTURE_H
#define COMPACT_FIXTURE_H

#include "counts_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#define BODY 10000u /* six fit a file */

static const char *const first_name = "0000000001.msg";

static const char *const second_name = "0000000001-0001.msg";

static inline bool has_name(struct fixture *fixture, const char *name)
{
    qs_file *file;

    if (fixture->env->open(fixture->env, fixture->dir, name, QS_OPEN_READ, &file, NULL) != QS_OK) {
        return false;
    }
    fixture->env->close(fixture->env, file);
    return true;
}

/* Compacts what is worth it most; false: nothing was worth it. */
static inline bool compact(struct fixture *fixture)
{
    struct qsi_compaction *job;

    QS_CHECK_OK(qsi_message_store_compact_begin(fixture->messages, &job, QS_ERROR));
    if (job == NULL) {
        return false;
    }
    QS_CHECK_OK(qsi_message_store_compact_run(fixture->messages, job, QS_ERROR));
    qsi_message_store_compact_end(fixture->messages, job, true);
    return true;
}

/* Six bodies in file 1, settled; bodies 1 and 4 live on. */
static inline void make_sparse(struct fixture *fixture, struct qsi_body_ref refs[6])
{
    for (uint32_t i = 0; i < 6; i++) {
        refs[i] = put_counted(fixture, BODY, i, 1);
    }
    settle_all(fixture);
    for (uint32_t i = 0; i < 6; i++) {
        if (i != 1 && i != 4) {
            drop(fixture, &refs[i]);
        }
    }
}

static inline void check_sparse(struct fixture *fixture, const struct qsi_body_ref refs[6])
{
    for (uint32_t i = 1; i < 6; i += 3) {
        QS_CHECK_OK(get(fixture, &refs[i], i, QS_ERROR));
        QS_CHECK_OK(qsi_message_store_check(fixture->messages, &refs[i], QS_ERROR));
        QS_CHECK_OK(qsi_message_store_locate(fixture->messages, &refs[i], QS_ERROR));
    }
}

#endif
