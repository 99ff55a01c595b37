/* A queue and a plain array of messages are given the same random steps, and compared after each.
 * The seed is printed and is the first argument. */
#include "plain_queue_fixture.h"
#include "queue_settle.h"
#include "queue_take.h"

#define MODEL_MAX 20000

enum state { READY, OUT, SETTLED };

struct model_message {
    enum state state;
    uint32_t deliveries;
    bool journalled, stored, seen;
};

struct model {
    struct qsi_queue queue;
    struct model_message messages[MODEL_MAX];
    uint64_t count;
    uint64_t random;
};

static uint32_t random_below(struct model *model, uint32_t limit)
{
    model->random = model->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(model->random >> 33) % limit;
}

static void model_push(struct model *model)
{
    bool journalled = random_below(model, 4) > 0;

    if (random_below(model, 3) > 0) {
        bool stored = random_below(model, 5) == 0;

        QS_CHECK(push_single(&model->queue, journalled, stored) == model->count);
        model->messages[model->count++] =
            (struct model_message){.journalled = journalled, .stored = stored};
    } else {
        uint32_t count = 1 + random_below(model, 150);
        uint32_t every = 1 + random_below(model, 2);
        uint32_t stored = random_below(model, 3) == 0 ? 3 : 0;

        QS_CHECK(push_batch(&model->queue, count, every, stored, journalled) == model->count);
        for (uint32_t i = 0; i < count; i++) {
            model->messages[model->count++] = (struct model_message){
                .journalled = journalled, .stored = stored > 0 && i * every % 3 == 0};
        }
    }
}

static uint64_t model_first_ready(const struct model *model)
{
    uint64_t seq = 0;

    while (seq < model->count && model->messages[seq].state != READY) {
        seq++;
    }
    return seq;
}

static void model_take(struct model *model)
{
    uint32_t max = 1 + random_below(model, 100);
    uint64_t first = model_first_ready(model);
    struct qsi_stretch stretch;
    uint32_t keep;

    if (!take_unseen(&model->queue, max, &stretch)) {
        QS_CHECK(first == model->count);
        return;
    }
    QS_CHECK(seq_of(&stretch) == first);
    keep = stretch.count;
    if (random_below(model, 4) == 0) {
        keep = random_below(model, stretch.count);
        qsi_queue_untake(&model->queue.container, &stretch, keep);
    }
    for (uint32_t i = 0; i < keep; i++) {
        struct model_message *message = &model->messages[first + i];

        QS_CHECK(message->state == READY);
        QS_CHECK(qsi_segment_was_seen(stretch.segment, stretch.slot + i) == message->seen);
        QS_CHECK(qsi_segment_deliveries(stretch.segment, stretch.slot + i) == message->deliveries);
        message->state = OUT;
        message->seen = true;
    }
    if (keep > 0) {
        qsi_stretch_mark_seen(&stretch);
    }
}

/* Some of the messages that are out in one word of one segment, together. */
static void model_settle(struct model *model, bool requeue)
{
    uint64_t seq = model->count > 0 ? random_below(model, (uint32_t)model->count) : 0;
    uint64_t word_seq = seq / QSI_WORD_BITS * QSI_WORD_BITS;
    uint32_t word = (uint32_t)(word_seq % shared.entries) / QSI_WORD_BITS;
    struct qsi_segment *segment = NULL;
    uint64_t mask = 0;

    for (uint64_t i = 0; i < QSI_WORD_BITS && word_seq + i < model->count; i++) {
        struct model_message *message = &model->messages[word_seq + i];

        if (message->state == OUT && (random_below(model, 3) > 0 || mask == 0)) {
            mask |= UINT64_C(1) << i;
            message->state = requeue ? READY : SETTLED;
            message->deliveries += requeue && message->deliveries < 255 ? 1 : 0;
        }
    }
    if (mask == 0) {
        return;
    }
    segment = qsi_queue_find_segment(&model->queue, word_seq / shared.entries);
    QS_CHECK(segment != NULL);
    for (uint64_t bits = mask; bits != 0; bits &= bits - 1) { /* which are journalled */
        uint64_t bit = bits & ~(bits - 1);
        const struct model_message *message =
            &model->messages[word_seq + (uint32_t)__builtin_ctzll(bit)];
        QS_CHECK((qsi_segment_journalled(segment, word, bit) != 0) == message->journalled);
    }
    if (requeue) {
        qsi_queue_requeue(&model->queue.container, segment, word, mask);
    } else {
        qsi_queue_settle(&model->queue.container, segment, word, mask);
    }
}

static void visit_model(void *context, uint64_t first_seq, uint32_t count)
{
    struct model *model = context;

    for (uint32_t i = 0; i < count; i++) {
        struct model_message *message = &model->messages[first_seq + i];

        QS_CHECK(message->state != OUT);
        message->state = SETTLED;
    }
}

static void model_purge(struct model *model)
{
    uint64_t ready = model->queue.ready_count;

    QS_CHECK(qsi_queue_purge(&model->queue.container, visit_model, model) == ready);
    QS_CHECK(model_first_ready(model) == model->count); /* all of them were visited */
}

static void model_check(const struct model *model)
{
    const struct qsi_queue *queue = &model->queue;
    uint64_t ready = 0, out = 0, stored = 0, live = 0, segment_ready = 0, segment_out = 0;

    qsi_queue_check(queue);
    for (uint64_t seq = 0; seq < model->count; seq++) {
        const struct model_message *message = &model->messages[seq];

        ready += message->state == READY;
        out += message->state == OUT;
        stored += message->state != SETTLED && message->stored;
    }
    QS_CHECK(queue->ready_count == ready && queue->out_count == out);
    QS_CHECK(queue->container.ram_count == ready + out &&
             queue->container.next_seq == model->count);
    QS_CHECK(stored_count(queue) == stored);
    for (uint32_t i = 0; i < queue->run_count; i++) {
        const struct qsi_run *run = qsi_queue_run_at(queue, i);

        QS_CHECK(run->live_count > 0);
        live += run->live_count;
    }
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        segment_ready += qsi_queue_segment_at(queue, i)->ready_count;
        segment_out += qsi_queue_segment_at(queue, i)->out_count;
    }
    QS_CHECK(live == ready + out && segment_ready == ready && segment_out == out);
}

QS_SEED_TEST(test_a_queue_does_as_an_array_does)
{
    static struct model model;

    for (uint64_t turn = 0; turn < 12; turn++) {
        memset(&model, 0, sizeof model);
        model.random = seed + turn * 977;
        begin_with(&model.queue, 64u << turn % 4 * 2);
        for (int step = 0; step < 4000 && model.count < MODEL_MAX - 200; step++) {
            uint32_t choice = random_below(&model, 100);

            if (choice < 15 + turn) {
                model_push(&model);
            } else if (choice < 55) {
                model_take(&model);
            } else if (choice < 80) {
                model_settle(&model, false);
            } else if (choice < 99) {
                model_settle(&model, true);
            } else if (random_below(&model, 10) == 0) {
                model_purge(&model);
            }
            qsi_queue_check(&model.queue);
            if (step % 100 == 0) {
                model_check(&model);
            }
        }
        model_check(&model);
        end(&model.queue);
        drop_arena();
    }
}
