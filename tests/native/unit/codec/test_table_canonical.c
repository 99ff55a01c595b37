/* Tables with their names in order: whatever order they came in, and whatever lies in them. */
#include "field_table.h"
#include "le.h"
#include "qs_test_alloc.h"
#include "table_canonical.h"

struct table {
    uint8_t bytes[16384];
    uint32_t used;
};

static void put(struct table *table, const char *name, uint8_t type, const void *value,
                uint32_t bytes)
{
    size_t length = strlen(name);

    table->bytes[table->used++] = (uint8_t)length;
    memcpy(table->bytes + table->used, name, length);
    table->used += (uint32_t)length;
    table->bytes[table->used++] = type;
    if (type == 'S' || type == 'F' || type == 'A') {
        qsi_put_be32(table->bytes + table->used, bytes);
        table->used += 4;
    }
    memcpy(table->bytes + table->used, value, bytes);
    table->used += bytes;
}

static void put_text(struct table *table, const char *name, const char *text)
{
    put(table, name, 'S', text, (uint32_t)strlen(text));
}

static void put_table(struct table *table, const char *name, const struct table *nested)
{
    put(table, name, 'F', nested->bytes, nested->used);
}

static struct qsi_slice slice_of(const struct table *table)
{
    return qsi_slice_make(table->bytes, table->used);
}

static void check_becomes(const struct table *from, const struct table *to)
{
    struct qsi_buf out = {0};

    QS_CHECK_OK(qsi_buf_append(&out, "front", 5));
    QS_CHECK(qsi_table_check(slice_of(from)));
    QS_CHECK_OK(qsi_table_canonical(&out, slice_of(from), QS_ERROR));
    QS_CHECK(out.bytes == 5 + (size_t)to->used && memcmp(out.data, "front", 5) == 0);
    QS_CHECK(memcmp(out.data + 5, to->bytes, to->used) == 0);
    qsi_buf_fini(&out);
}

QS_TEST(test_names_come_in_byte_order)
{
    struct table from = {.used = 0}, to = {.used = 0}, empty = {.used = 0};

    put_text(&from, "b", "2");
    put_text(&from, "ab", "3");
    put(&from, "a", 't', "\x01", 1);
    put(&from, "", 'V', "", 0);
    put(&to, "", 'V', "", 0);
    put(&to, "a", 't', "\x01", 1);
    put_text(&to, "ab", "3");
    put_text(&to, "b", "2");
    check_becomes(&from, &to);
    check_becomes(&to, &to);
    check_becomes(&empty, &empty);
    QS_CHECK(!qsi_table_is_canonical(slice_of(&from)) && qsi_table_is_canonical(slice_of(&to)) &&
             qsi_table_is_canonical(slice_of(&empty)));
}

QS_TEST(test_of_equal_names_the_last_stays)
{
    struct table from = {.used = 0}, to = {.used = 0}, inner = {.used = 0};

    put_text(&inner, "k", "long enough to change a length");
    put_text(&inner, "k", "1");
    put_table(&from, "a", &inner);
    put_text(&from, "a", "2");
    put_table(&from, "a", &inner);
    QS_CHECK(!qsi_table_is_canonical(slice_of(&from)));
    inner.used = 0;
    put_text(&inner, "k", "1");
    put_table(&to, "a", &inner);
    check_becomes(&from, &to);
}

QS_TEST(test_tables_in_tables_and_arrays_are_ordered_too)
{
    struct table inner = {.used = 0}, sorted = {.used = 0}, array = {.used = 0};
    struct table from = {.used = 0}, to = {.used = 0};

    put_text(&inner, "y", "1");
    put_text(&inner, "x", "2");
    put_text(&sorted, "x", "2");
    put_text(&sorted, "y", "1");
    put_text(&from, "z", "behind");
    put_table(&from, "f", &inner);
    for (int pass = 0; pass < 2; pass++) { /* an array's elements stay where they are */
        const struct table *element = pass == 0 ? &inner : &sorted;
        array.used = 0;
        array.bytes[array.used++] = 'F';
        qsi_put_be32(array.bytes + array.used, element->used);
        memcpy(array.bytes + array.used + 4, element->bytes, element->used);
        array.used += 4 + element->used;
        array.bytes[array.used++] = 't';
        array.bytes[array.used++] = 0;
        put(pass == 0 ? &from : &to, "a", 'A', array.bytes, array.used);
    }
    put_table(&to, "f", &sorted);
    put_text(&to, "z", "behind");
    check_becomes(&from, &to);
}

/* Tables inside each other, as deep as they may be, with two names out of order in each. */
QS_TEST(test_the_deepest_table_is_ordered)
{
    struct table *from = calloc(2, sizeof *from), *to = from + 1;
    QS_TEST_FREED struct table *next = calloc(1, sizeof *next);
    struct qsi_buf out = {0};

    QS_CHECK(from != NULL && next != NULL);
    for (int depth = 0; depth < QSI_FIELD_DEPTH_MAX; depth++) {
        next->used = 0;
        put(next, "b", 't', "\x01", 1);
        if (depth > 0) {
            put_table(next, "a", from);
        }
        *from = *next;
        next->used = 0;
        if (depth > 0) {
            put_table(next, "a", to);
        }
        put(next, "b", 't', "\x01", 1);
        *to = *next;
    }
    check_becomes(from, to);
    next->used = 0;
    put_table(next, "a", from);
    QS_CHECK_STATUS(QS_EINVAL, qsi_table_canonical(&out, slice_of(next), QS_ERROR));
    QS_CHECK(out.bytes == 0);
    free(from);
}

QS_TEST(test_thousands_of_names_are_ordered)
{
    struct table *from = calloc(2, sizeof *from), *to = from + 1;
    char name[12];

    QS_CHECK(from != NULL);
    for (int i = 0; i < 2000; i++) {
        (void)snprintf(name, sizeof name, "%04d", 1999 - i);
        put(from, name, 'V', "", 0);
        (void)snprintf(name, sizeof name, "%04d", i);
        put(to, name, 'V', "", 0);
    }
    check_becomes(from, to);
    free(from);
}

QS_TEST(test_without_memory_the_buffer_is_as_it_was)
{
    struct table from = {.used = 0}, inner = {.used = 0};
    struct qs_test_alloc state;
    uint64_t failures = 0;

    put_text(&inner, "y", "1");
    put_text(&inner, "x", "2");
    put_table(&from, "b", &inner);
    put_text(&from, "a", "2");
    qs_test_alloc_install(&state);
    for (bool done = false; !done; failures++) {
        struct qsi_buf out = {0};
        qs_error error = {0};
        qs_status status;
        QS_CHECK_OK(qsi_buf_append(&out, "front", 5));
        qs_test_alloc_arm(&state, failures + 1, false);
        status = qsi_table_canonical(&out, slice_of(&from), &error);
        done = status == QS_OK;
        QS_CHECK(done || (status == QS_ENOMEM && out.bytes == 5));
        qsi_buf_fini(&out);
    }
    QS_CHECK(failures > 1 && state.alive == 0);
    qs_allocator_set(NULL);
}
