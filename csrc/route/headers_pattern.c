/* The pattern of a binding to a headers exchange, read from its arguments. */
#include "headers_pattern.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "field_print.h"
#include "field_table.h"

#include <string.h>

#define X_MATCH QSI_SLICE_LITERAL("x-match")

/* -- x-match ---------------------------------------------------------------------------------- */

struct mode {
    bool is_any;
    bool has_x; /* fields whose name begins with "x-" count */
};

/* False: there is no such mode. */
static bool parse_mode(struct qsi_slice text, struct mode *mode_out)
{
    static const struct {
        struct qsi_slice text;
        struct mode mode;
    } modes[] = {
        {{(const uint8_t *)"all", 3}, {false, false}},
        {{(const uint8_t *)"any", 3}, {true, false}},
        {{(const uint8_t *)"all-with-x", 10}, {false, true}},
        {{(const uint8_t *)"any-with-x", 10}, {true, true}},
    };

    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (qsi_slice_equals(text, modes[i].text)) {
            *mode_out = modes[i].mode;
            return true;
        }
    }
    return false;
}

qs_status qsi_headers_pattern_check(struct qsi_slice arguments, qs_error *error)
{
    char text[QSI_FIELD_PRINT_BYTES];
    struct qsi_field field;
    struct mode mode;

    if (!qsi_table_find(arguments, X_MATCH, &field) ||
        (field.type == 'S' && parse_mode(field.value, &mode))) {
        return QS_OK;
    }
    qsi_field_print_term(text, &field);
    if (field.type == 'S') {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "Invalid x-match field value %s; expected all, any, all-with-x, or "
                        "any-with-x",
                        text);
    }
    return qsi_fail(error, QS_PRECONDITION_FAILED,
                    "Invalid x-match field type %s (value %s); expected longstr",
                    qsi_field_type_name(field.type), text);
}

/* An unknown mode, from a binding of another build, counts as all. */
static struct mode mode_of(struct qsi_slice arguments)
{
    struct mode mode = {0};
    struct qsi_field field;

    if (qsi_table_find(arguments, X_MATCH, &field) && field.type == 'S') {
        parse_mode(field.value, &mode);
    }
    return mode;
}

static bool counts(const struct qsi_header_field *field, struct mode mode)
{
    if (field->name.bytes < 2 || memcmp(field->name.data, "x-", 2) != 0) {
        return true;
    }
    return mode.has_x && !qsi_slice_equals(field->name, X_MATCH);
}

/* -- patterns --------------------------------------------------------------------------------- */

void qsi_headers_pattern_destroy(struct qsi_headers_pattern *pattern)
{
    qsi_buf_fini(&pattern->copies);
    qsi_free(pattern);
}

struct qsi_headers_pattern *qsi_headers_pattern_create(struct qsi_binding *binding)
{
    struct mode mode = mode_of(binding->arguments);
    struct qsi_header_fields read = {0};
    struct qsi_headers_pattern *pattern = NULL;

    if (qsi_header_fields_read(&read, binding->arguments) == QS_OK) {
        pattern = qsi_zalloc(sizeof *pattern + read.count * sizeof pattern->fields[0]);
    }
    if (pattern == NULL) {
        qsi_header_fields_fini(&read);
        return NULL;
    }
    pattern->binding = binding;
    pattern->is_any = mode.is_any;
    qsi_list_init(&pattern->in_always);
    for (uint32_t i = 0; i < read.count; i++) {
        if (counts(&read.items[i], mode)) {
            struct qsi_pattern_field *field = &pattern->fields[pattern->count++];

            *field = (struct qsi_pattern_field){.field = read.items[i], .pattern = pattern};
            qsi_list_init(&field->in_bucket);
        }
    }
    if (read.copies.bytes > 0) {
        pattern->copies = read.copies;
        read.copies = (struct qsi_buf){0};
    }
    qsi_header_fields_fini(&read);
    return pattern;
}

bool qsi_headers_pattern_agrees(const struct qsi_headers_pattern *pattern,
                                const struct qsi_header_fields *message)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < pattern->count; i++) {
        const struct qsi_header_field *wanted = &pattern->fields[i].field;

        while (at < message->count && qsi_header_compare(&message->items[at], wanted) < 0) {
            at++;
        }
        if (at == message->count || qsi_header_compare(&message->items[at], wanted) != 0) {
            return false;
        }
        if (!qsi_header_wants_presence(wanted) &&
            !qsi_header_equals(&message->items[at].value, &wanted->value)) {
            return false;
        }
    }
    return true;
}
