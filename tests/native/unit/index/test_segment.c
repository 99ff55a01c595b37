/* Index segments while nothing fails: what was written reads back, whatever was asked for.
 *
 * Method: a model knows every message by a few numbers; each load is compared with it, field by field, and each record
 * has to pass the check that records from a file pass. */
#include "index_fixture.h"

static struct model model;
static uint64_t all[WORDS_MAX];

static struct message small(uint32_t seed)
{
    return (struct message){EMBEDDED, seed, 100, 3, 4, 5};
}

static void test_messages_read_back(uint32_t entries)
{
    struct fixture fixture;

    start_in_memory(&fixture, entries);
    QS_CHECK(qsi_index_entries(fixture.index) == entries);
    model_init(&model, entries, 7, 3);
    for (uint32_t i = 0; i < entries; i++) {
        model.messages[i] = small(i);
    }
    write_model(&fixture, &model, 0, entries, false);
    QS_CHECK(model.file.slot_count == entries && !model.file.packed);
    QS_CHECK(file_bytes(&fixture, &model.file) == model.file.heap_end);
    check_all(&fixture, &model, model.put, UINT64_MAX);
    check_all(&fixture, &model, model.put, 10000);
    QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, NULL, QS_ERROR));
    QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, model.put, QS_ERROR));
    stop_in_memory(&fixture);
}

static void fill_mixed(uint32_t seed)
{
    uint64_t random = seed;

    for (uint32_t i = 0; i < model.entries; i++) {
        uint64_t r = qsi_splitmix_next(&random);

        model.messages[i] = (struct message){
            .kind = r % 8 == 0   ? NOTHING
                    : r % 4 == 1 ? STORED
                                 : EMBEDDED,
            .seed = (uint32_t)r,
            .body_bytes = (uint32_t)(r >> 32 & 0xff) * (r % 3 != 0),
            .exchange = (uint8_t)(r >> 40 & 1),
            .key = (uint8_t)(r >> 44 & 7),
            .properties = (uint8_t)((r >> 48 & 15) == 0),
        };
    }
}

static void test_mixed_messages_with_gaps_read_back_from_anywhere(void)
{
    struct fixture fixture;
    uint64_t random = 5;

    start_in_memory(&fixture, 256);
    for (uint32_t round = 0; round < 50; round++) {
        uint64_t wanted[4];

        model_init(&model, 256, round, round * 1000);
        fill_mixed(round);
        write_model(&fixture, &model, 0, 128, round % 2 == 0);
        write_model(&fixture, &model, 128, 130, round % 3 == 0);
        write_model(&fixture, &model, 130, 256, round % 5 == 0);
        check_all(&fixture, &model, model.put, UINT64_MAX);
        check_all(&fixture, &model, model.put, 1);
        for (int i = 0; i < 4; i++) {
            wanted[i] = model.put[i] & qsi_splitmix_next(&random) & qsi_splitmix_next(&random);
        }
        check_all(&fixture, &model, wanted, 300);
        QS_CHECK_OK(qsi_segment_check(fixture.index, &model.file, NULL, QS_ERROR));
    }
    stop_in_memory(&fixture);
}

int main(void)
{
    memset(all, 0xff, sizeof all);
    for (uint32_t entries = 16; entries <= ENTRIES_MAX; entries *= 2) {
        test_messages_read_back(entries);
    }
    test_mixed_messages_with_gaps_read_back_from_anywhere();
    return 0;
}
