/* Record batches that are refused, each with the text that it gives.
 *
 * The random part damages the offsets, views and codes of good batches; its seed is printed and
 * is the first argument. */
#include "arrow_read_fixture.h"
#include "columns.h"

/* A full batch with this change is refused with this text. */
#define REFUSED(change, text)            \
    do {                                 \
        make_full(&full);                \
        change;                          \
        check_refused(&full.root, text); \
    } while (0)

QS_TEST(test_wrong_types_are_refused_by_name)
{
    struct full_batch full;

    REFUSED(full.root.schema.format = "u",
            "record batch: Arrow's string cannot be used, expected a struct");
    REFUSED(full.body.schema.format = "l",
            "column \"body\": Arrow's int64 cannot be used, expected binary, a string, or a "
            "dictionary of these");
    REFUSED(full.routing_key.schema.format = "z",
            "column \"routing_key\": Arrow's binary cannot be used, expected a string or a "
            "dictionary of strings");
    REFUSED(full.exchange_names.schema.format = "l",
            "column \"exchange\" dictionary: Arrow's int64 cannot be used, expected a string "
            "or a dictionary of strings");
    REFUSED(full.priority.schema.format = "e",
            "column \"priority\": Arrow's float16 cannot be used, expected an integer");
    REFUSED(full.timestamp.schema.format = "tsx:",
            "column \"timestamp\": Arrow's timestamp cannot be used, expected "
            "a timestamp or an integer");
    REFUSED(full.headers.schema.format = "+L",
            "column \"headers\": Arrow's large_list cannot be used, expected a "
            "map of strings to strings, in pyarrow map_(string(), string()); or "
            "a struct, or lists of key and value");
    REFUSED((full.headers.schema.format = "+l", full.keys.schema.name = "name"),
            "column \"headers\": Arrow's list cannot be used, expected a "
            "map of strings to strings, in pyarrow map_(string(), string()); or "
            "a struct, or lists of key and value");
    REFUSED(full.values.schema.format = "i",
            "column \"headers\" value: Arrow's int32 cannot be used, expected a string or a "
            "dictionary of strings");
}

QS_TEST(test_wrong_columns_are_refused_by_name)
{
    char unknown[QS_ERROR_TEXT_BYTES] = "unknown column \"color\"; expected body";
    struct full_batch full;

    make_full(&full);
    full.message_id.schema.name = "color";
    for (int i = 0; i < QSI_COLUMN_COUNT; i++) {
        if (qsi_columns[i].published > QS_COLUMN_BODY && i != QSI_COLUMN_MESSAGE_TIMESTAMP) {
            strcat(strcat(unknown, ", "), qsi_columns[i].name);
        }
    }
    check_refused(&full.root, unknown);
    REFUSED(full.message_id.schema.name = "routing_key", "two columns are called \"routing_key\"");
    REFUSED(full.root.schema_children[0] = NULL, "record batch: column 0 is missing");
    REFUSED(full.body.schema.name = "app_id",
            "column \"app_id\": Arrow's binary cannot be used, expected a string or a dictionary "
            "of strings");
    full.body.schema.format = "u";
    check_refused(&full.root, "no column is called \"body\", which is to hold the bodies");
}

QS_TEST(test_wrong_structure_is_refused)
{
    struct full_batch full;

    REFUSED(full.root.array.release = NULL,
            "record batch: its Arrow schema or array was released already");
    REFUSED(full.root.array.n_children = 3, "record batch: 3 children, expected 10");
    REFUSED(full.root.array.length = -1, "record batch: length -1 at offset 0 is impossible");
    REFUSED(full.root.array.offset = 1,
            "column \"body\": length 2 is less than the 3 that are needed");
    REFUSED((full.root.array.null_count = 1, full.root.buffers[0] = first_only), "row 1 is null");
    REFUSED(full.body.array.offset = -1, "column \"body\": offset -1 is impossible");
    REFUSED(full.body.array.n_buffers = 2, "column \"body\": 2 buffers, expected 3");
    REFUSED(full.body.array.null_count = 1, "column \"body\": 1 nulls, but no validity buffer");
    REFUSED(full.body.buffers[1] = NULL, "column \"body\": no offsets buffer");
    REFUSED(full.body.buffers[2] = NULL, "column \"body\": no data buffer");
    REFUSED(full.priority.buffers[1] = NULL, "column \"priority\": no values buffer");
    REFUSED(full.exchange.array.dictionary = NULL,
            "column \"exchange\": no dictionary came with the array");
    REFUSED(full.entries.array.length = 1,
            "column \"headers\" entries: length 1 is less than the 2 that are needed");
    REFUSED(full.keys.array.length = 1,
            "column \"headers\" key: length 1 is less than the 2 that are needed");
    REFUSED(full.headers.array_children[0] = NULL,
            "column \"headers\": the map's entries are missing");
    REFUSED(full.headers.buffers[1] = NULL, "column \"headers\": no offsets buffer");
}

QS_TEST(test_wrong_contents_name_the_row)
{
    static const int32_t descending[] = {0, 2, 1};
    static const int32_t negative[] = {-4, 0, 1};
    static const int64_t far64[] = {0, 1, INT64_C(1) << 33};
    static const int8_t code2[] = {1, 2};
    static const int8_t code_negative[] = {-1, 0};
    static const int16_t priority256[] = {5, 256};
    static const uint8_t mode3[] = {2, 3};
    static const uint64_t huge[] = {UINT64_MAX, 0};
    static const uint8_t no_keys[1] = {2};
    struct full_batch full;

    REFUSED(set_nulls(&full.body, first_only), "row 1: body is null");
    REFUSED(full.body.buffers[1] = descending, "row 1: body has impossible offsets 2 to 1");
    REFUSED(full.body.buffers[1] = negative, "row 0: body has impossible offsets -4 to 0");
    REFUSED((full.body.schema.format = "Z", full.body.buffers[1] = far64),
            "row 1: body has 8589934591 bytes, at most 4294967295 are possible");
    REFUSED((full.exchange.array.null_count = 0, full.exchange.buffers[1] = code2),
            "row 1: exchange has dictionary index 2, there are 2 entries");
    full.exchange.buffers[1] = code_negative;
    check_refused(&full.root, "row 0: exchange has dictionary index -1, there are 2 entries");
    REFUSED((full.priority.schema.format = "s", full.priority.array.null_count = 0,
             full.priority.buffers[1] = priority256),
            "row 1: priority is 256, must be 0 to 255");
    REFUSED((full.delivery_mode.schema.format = "C", full.delivery_mode.array.null_count = 0,
             full.delivery_mode.buffers[1] = mode3),
            "row 1: delivery_mode is 3, must be 1 to 2");
    REFUSED(full.expiration_ms.array.null_count = 0,
            "row 1: expiration_ms is -1, must be 0 to 9223372036854775807");
    full.expiration_ms.schema.format = "L";
    full.expiration_ms.buffers[1] = huge;
    check_refused(&full.root,
                  "row 0: expiration_ms is 18446744073709551615, must be 0 to 9223372036854775807");
    REFUSED(full.timestamp.array.null_count = 0,
            "row 1: timestamp is -5, must be 0 to 9223372036854775807");
    REFUSED(full.headers.buffers[1] = descending, "row 1: headers has impossible offsets 2 to 1");
    REFUSED(set_nulls(&full.keys, no_keys), "row 0: headers has a null key");
    REFUSED(set_nulls(&full.entries, first_only), "row 0: headers has a null entry");
    REFUSED(full.values.buffers[1] = descending,
            "entry 1: headers value has impossible offsets 2 to 1");
}

QS_TEST(test_long_names_are_refused_where_they_are_used)
{
    static char data[300];
    static const int32_t offsets[] = {0, 0, 256};
    static const int8_t used[] = {0, 1};
    static const int8_t unused[] = {0, 0};
    struct full_batch full;
    struct qsi_arrow_batch batch;

    make_full(&full);
    full.message_id.buffers[1] = offsets;
    full.message_id.buffers[2] = data;
    QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK); /* the long one is null */
    full.message_id.array.null_count = 0;
    check_refused(&full.root, "row 1: message_id has 256 bytes, at most 255 are possible");
    make_full(&full);
    full.exchange_names.buffers[1] = offsets;
    full.exchange_names.buffers[2] = data;
    full.exchange.array.null_count = 0;
    full.exchange.buffers[1] = unused;
    QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK);
    full.exchange.buffers[1] = used;
    check_refused(&full.root, "row 1: exchange has 256 bytes, at most 255 are possible");
    REFUSED((full.keys.buffers[1] = offsets, full.keys.buffers[2] = data),
            "row 0: headers has a key of 256 bytes, at most 255 are possible");
}

QS_TEST(test_wrong_views_name_the_row)
{
    struct node body;
    struct node root;
    struct view good = views[3];

    make_views(&body, "body", BODY_COUNT);
    make_batch(&root, BODY_COUNT, &body);
    views[3].bytes = -1;
    check_refused(&root, "row 3: body has impossible length -1");
    views[3] = good;
    views[3].u.far.buffer = 2;
    check_refused(&root, "row 3: body lies in data buffer 2 of 2");
    views[3].u.far.buffer = -1;
    check_refused(&root, "row 3: body lies in data buffer -1 of 2");
    views[3] = good;
    views[3].u.far.offset = 15;
    check_refused(&root, "row 3: body lies outside data buffer 1: 39 bytes at 15 of 53");
    views[3].u.far.offset = -1;
    check_refused(&root, "row 3: body lies outside data buffer 1: 39 bytes at -1 of 53");
    views[3] = good;
    body.buffers[4] = NULL;
    check_refused(&root, "column \"body\": no views buffer, or no sizes of the data buffers");
}

QS_TEST(test_nulls_are_found_at_every_place)
{
    enum { ROWS = 200, SHIFT = 5 };
    static int32_t offsets[ROWS + SHIFT + 1];
    struct node body;
    struct node root;
    struct qsi_arrow_batch batch;
    qs_error error;
    char text[64];

    make_strings(&body, "body", "z", ROWS, offsets, "");
    body.array.offset = SHIFT;
    make_batch(&root, ROWS, &body);
    for (int row = 0; row < ROWS; row++) {
        size_t bytes = (ROWS + SHIFT + 7) / 8;
        uint8_t *validity =
            malloc(bytes); /* of its own size, so that the address sanitizer sees overreading */

        QS_CHECK(validity != NULL);
        memset(validity, 0xff, bytes);
        set_nulls(&body, validity);
        QS_CHECK(open_batch(&batch, &root, NULL) == QS_OK);
        validity[(row + SHIFT) / 8] &= (uint8_t)~(1 << (row + SHIFT) % 8);
        QS_CHECK(open_batch(&batch, &root, &error) == QS_EINVAL);
        (void)snprintf(text, sizeof text, "row %d: body is null", row);
        QS_CHECK(strcmp(error.text, text) == 0);
        free(validity);
    }
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Mostly small numbers near the valid ones. */
static int32_t damaged_number(uint64_t *seed)
{
    return next_random(seed) % 8 == 0 ? (int32_t)next_random(seed) - INT32_MAX
                                      : (int32_t)(next_random(seed) % 60) - 4;
}

static void read_everything(const struct qsi_arrow_batch *batch)
{
    uint64_t row;
    uint64_t sum = 0;

    (void)qsi_arrow_body_max(batch, &row);
    for (row = 0; row < batch->rows; row++) {
        struct qsi_slice body = qsi_arrow_bytes(&batch->body, row);

        for (uint32_t i = 0; i < body.bytes; i++) {
            sum += body.data[i];
        }
    }
    QS_CHECK(sum < UINT64_MAX);
}

/* Views and codes are fully checked, so whatever opens can be read.  (The last of plain offsets
 * is believed.) */
static void test_damaged_views_and_codes_never_read_outside(uint64_t seed)
{
    struct view saved[BODY_COUNT];
    uint32_t opened = 0;

    memcpy(saved, views, sizeof saved);
    for (int round = 0; round < 20000; round++) {
        struct node body;
        struct node root;
        struct node codes;
        struct qsi_arrow_batch batch;
        int32_t numbers[3] = {damaged_number(&seed) % 6, damaged_number(&seed) % 6,
                              damaged_number(&seed) % 6};
        struct view *view = &views[next_random(&seed) % BODY_COUNT];

        view->bytes = damaged_number(&seed);
        view->u.far.buffer = damaged_number(&seed) % 3;
        view->u.far.offset = damaged_number(&seed);
        make_views(&body, "body", BODY_COUNT);
        make_column(&codes, "body", "i", 3, numbers);
        node_set_dictionary(&codes, &body);
        make_batch(&root, round % 2 == 0 ? 3 : BODY_COUNT, round % 2 == 0 ? &codes : &body);
        if (open_batch(&batch, &root, NULL) == QS_OK) {
            opened++;
            read_everything(&batch);
        }
        memcpy(views, saved, sizeof saved);
    }
    QS_CHECK(opened > 0);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    qs_test_run_all();
    test_damaged_views_and_codes_never_read_outside(seed);
    (void)open_batch(NULL, NULL, NULL);
    return 0;
}
