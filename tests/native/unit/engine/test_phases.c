/* The states of a store: the ways that it goes, and what it must never do. */
#include "phases.h"
#include "qs_test_abort.h"

static void lead_while_another_leads(void *lead)
{
    qsi_lead_step(lead, QSI_LEAD_GATHERS);
}

static void flush_while_another_flushes(void *flush)
{
    qsi_flush_step(flush, QSI_FLUSH_PAGES);
}

static void begin_a_second_checkpoint(void *state)
{
    qsi_checkpoint_step(state, QSI_CHECKPOINT_PREPARES);
}

static void write_without_a_turn(void *state)
{
    qsi_checkpoint_step(state, QSI_CHECKPOINT_WRITES);
}

static void shut(void *life)
{
    qsi_life_step(life, QSI_LIFE_SHUT);
}

QS_TEST(test_two_threads_that_lead_abort)
{
    for (enum qsi_lead lead = QSI_LEAD_GATHERS; lead <= QSI_LEAD_COPIES; lead++) {
        enum qsi_lead led = lead;
        QS_CHECK(qs_test_aborts(lead_while_another_leads, &led));
        qsi_lead_step(&led, QSI_LEAD_NONE); /* when it is done anybody may */
        qsi_lead_step(&led, QSI_LEAD_GATHERS);
        qsi_lead_step(&led, QSI_LEAD_COMMITS);
    }
}

QS_TEST(test_two_flushes_abort)
{
    for (enum qsi_flush_state by = QSI_FLUSH_PAGES; by <= QSI_FLUSH_SNAPSHOT; by++) {
        enum qsi_flush_state flush = by;
        QS_CHECK(qs_test_aborts(flush_while_another_flushes, &flush));
        qsi_flush_step(&flush, QSI_FLUSH_NONE);
        qsi_flush_step(&flush, by);
    }
}

QS_TEST(test_two_checkpoints_abort)
{
    enum qsi_checkpoint_state state = QSI_CHECKPOINT_NONE;

    begin_a_second_checkpoint(&state);
    QS_CHECK(qs_test_aborts(begin_a_second_checkpoint, &state));
    QS_CHECK(qs_test_aborts(write_without_a_turn, &state));
    qsi_checkpoint_step(&state, QSI_CHECKPOINT_WAITS);
    qsi_checkpoint_step(&state, QSI_CHECKPOINT_WRITES);
    QS_CHECK(qs_test_aborts(begin_a_second_checkpoint, &state));
    qsi_checkpoint_step(&state, QSI_CHECKPOINT_SYNCS);
    QS_CHECK(qs_test_aborts(write_without_a_turn, &state));
    qsi_checkpoint_step(&state, QSI_CHECKPOINT_TRIED);
    begin_a_second_checkpoint(&state); /* the same one, tried again */
    qsi_checkpoint_step(&state, QSI_CHECKPOINT_TRIED);
    qsi_checkpoint_step(&state, QSI_CHECKPOINT_NONE);
    qsi_checkpoint_step(&state, QSI_CHECKPOINT_HELD);
    QS_CHECK(qs_test_aborts(begin_a_second_checkpoint, &state));
    qsi_checkpoint_step(&state, QSI_CHECKPOINT_NONE);
    begin_a_second_checkpoint(&state);
}

QS_TEST(test_store_is_shut_once_and_after_it_was_open)
{
    enum qsi_life life = QSI_LIFE_OPENS;

    QS_CHECK(qs_test_aborts(shut, &life));
    qsi_life_step(&life, QSI_LIFE_OPEN);
    shut(&life);
    QS_CHECK(qs_test_aborts(shut, &life));
    qsi_life_step(&life, QSI_LIFE_STOPS);
    QS_CHECK(qs_test_aborts(shut, &life));
}

QS_TEST(test_store_that_was_not_opened_stops)
{
    enum qsi_life life = QSI_LIFE_OPENS;

    qsi_life_step(&life, QSI_LIFE_STOPS);
    QS_CHECK(life == QSI_LIFE_STOPS);
}
