/* The headers type: a binding's arguments are a pattern of header fields.
 *
 * A binding that wants any of its fields is kept under each of them, so finding it is matching it.
 * One that wants all is kept under the one that fewest others are kept under, and the rest is
 * compared when it is found there.  A message probes once for each of its fields, and for each of
 * those that patterns name, once for its value; so only bindings are looked at that agree in a
 * field, however many there are.
 *
 * As in RabbitMQ: x-match is all (the default), any, all-with-x or any-with-x; the first two pass
 * over fields whose name begins with "x-", and none takes x-match itself for a field.  A field with
 * a void value wants presence.  A pattern without fields is matched by everything (all) or nothing
 * (any).
 *
 * Invariant: each field of a pattern that has a bucket is in it, and every bucket has a field. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "field_print.h"
#include "header_fields.h"
#include "match.h"

#include <string.h>

#define KEY_BYTES_MAX 16 /* of a key, besides the bytes of the field */
#define X_MATCH QSI_SLICE_LITERAL("x-match")

struct bucket {
    struct qsi_list fields; /* of pattern_field.in_bucket */
    uint32_t count;
};

/* What patterns say of fields of one name (and occurrence). */
struct name {
    struct bucket presence;
    struct qsi_map values; /* value -> bucket */
};

struct pattern_field {
    struct qsi_header_field field;
    struct qsi_headers_pattern *pattern;
    struct bucket *bucket; /* NULL: the pattern is kept under another field */
    struct qsi_list in_bucket;
};

struct qsi_headers_pattern {
    struct qsi_binding *binding;
    struct qsi_list in_always; /* headers.always */
    struct qsi_buf copies; /* what values of fields point into, beside the binding's arguments */
    bool is_any;
    uint32_t count;
    struct pattern_field fields[]; /* sorted */
};

struct headers {
    struct qsi_map names;          /* occurrence and name -> name */
    struct qsi_list always;        /* of qsi_headers_pattern: matched by everything */
    struct qsi_header_fields read; /* of the message at hand */
    struct qsi_buf key;            /* under construction */
};

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

static qs_status check(struct qsi_slice arguments, qs_error *error)
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

/* REQUIRES arguments that were checked. */
static struct mode mode_of(struct qsi_slice arguments)
{
    struct mode mode = {0};
    struct qsi_field field;

    if (qsi_table_find(arguments, X_MATCH, &field)) {
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

static bool wants_presence(const struct qsi_header_field *field)
{
    return field->value.kind == QSI_HEADER_VOID;
}

static void destroy_pattern(struct qsi_headers_pattern *pattern)
{
    qsi_buf_fini(&pattern->copies);
    qsi_free(pattern);
}

static struct qsi_headers_pattern *create_pattern(struct qsi_binding *binding)
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
            struct pattern_field *field = &pattern->fields[pattern->count++];

            *field = (struct pattern_field){.field = read.items[i], .pattern = pattern};
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

/* Do the fields of a message agree with all of the pattern's?  Both are sorted. */
static bool agrees(const struct qsi_headers_pattern *pattern,
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
        if (!wants_presence(wanted) &&
            !qsi_header_equals(&message->items[at].value, &wanted->value)) {
            return false;
        }
    }
    return true;
}

/* -- buckets ---------------------------------------------------------------------------------- */

static qs_status make_name_key(struct qsi_buf *key, const struct qsi_header_field *field)
{
    qsi_buf_clear(key);
    QS_TRY(qsi_buf_append(key, &field->occurrence, sizeof field->occurrence));
    return qsi_buf_append(key, field->name.data, field->name.bytes);
}

static qs_status make_value_key(struct qsi_buf *key, const struct qsi_header_value *value)
{
    qsi_buf_clear(key);
    QS_TRY(qsi_buf_append(key, &value->kind, sizeof value->kind));
    QS_TRY(qsi_buf_append(key, &value->bits, sizeof value->bits));
    return value->bytes.bytes > 0 ? qsi_buf_append(key, value->bytes.data, value->bytes.bytes)
                                  : QS_OK;
}

static qs_status find_name(struct headers *headers, const struct qsi_header_field *field,
                           struct name **name_out)
{
    QS_TRY(make_name_key(&headers->key, field));
    *name_out = qsi_map_get(&headers->names, headers->key.data, headers->key.bytes);
    return QS_OK;
}

/* *bucket_out NULL: no pattern is kept under this value. */
static qs_status find_value(struct headers *headers, const struct name *name,
                            const struct qsi_header_value *value, struct bucket **bucket_out)
{
    QS_TRY(make_value_key(&headers->key, value));
    *bucket_out = qsi_map_get(&name->values, headers->key.data, headers->key.bytes);
    return QS_OK;
}

static qs_status add_name(struct headers *headers, const struct qsi_header_field *field,
                          struct name **name_out)
{
    QS_TRY(find_name(headers, field, name_out));
    if (*name_out != NULL) {
        return QS_OK;
    }
    *name_out = qsi_zalloc(sizeof **name_out);
    if (*name_out == NULL) {
        return QS_ENOMEM;
    }
    qsi_list_init(&(*name_out)->presence.fields);
    if (qsi_map_put(&headers->names, headers->key.data, headers->key.bytes, *name_out) != QS_OK) {
        qsi_free(*name_out);
        return QS_ENOMEM;
    }
    return QS_OK;
}

static qs_status add_value(struct headers *headers, struct name *name,
                           const struct qsi_header_value *value, struct bucket **bucket_out)
{
    QS_TRY(find_value(headers, name, value, bucket_out));
    if (*bucket_out != NULL) {
        return QS_OK;
    }
    *bucket_out = qsi_zalloc(sizeof **bucket_out);
    if (*bucket_out == NULL) {
        return QS_ENOMEM;
    }
    qsi_list_init(&(*bucket_out)->fields);
    if (qsi_map_put(&name->values, headers->key.data, headers->key.bytes, *bucket_out) != QS_OK) {
        qsi_free(*bucket_out);
        return QS_ENOMEM;
    }
    return QS_OK;
}

/* Room for any key of these arguments: none of them fails for want of memory afterwards. */
static qs_status reserve_keys(struct headers *headers, struct qsi_slice arguments)
{
    uint8_t *room;

    qsi_buf_clear(&headers->key);
    return qsi_buf_reserve(&headers->key, (size_t)arguments.bytes + KEY_BYTES_MAX, &room);
}

/* Removes what no pattern is kept under any more. */
static void prune(struct headers *headers, const struct qsi_header_field *field)
{
    struct name *name = NULL;
    struct bucket *bucket = NULL;
    qs_status status = find_name(headers, field, &name);

    QS_ASSERT(status == QS_OK);
    if (name == NULL) {
        return;
    }
    status = find_value(headers, name, &field->value, &bucket);
    QS_ASSERT(status == QS_OK);
    if (bucket != NULL && bucket->count == 0) {
        qsi_map_remove(&name->values, headers->key.data, headers->key.bytes);
        qsi_free(bucket);
    }
    if (name->presence.count == 0 && name->values.count == 0) {
        status = make_name_key(&headers->key, field);
        QS_ASSERT(status == QS_OK);
        qsi_map_remove(&headers->names, headers->key.data, headers->key.bytes);
        qsi_map_fini(&name->values);
        qsi_free(name);
    }
}

static qs_status keep_under(struct headers *headers, struct pattern_field *field)
{
    struct bucket *bucket;
    struct name *name;
    qs_status status = add_name(headers, &field->field, &name);

    QS_TRY(status);
    bucket = &name->presence;
    if (!wants_presence(&field->field)) {
        status = add_value(headers, name, &field->field.value, &bucket);
    }
    if (status != QS_OK) {
        prune(headers, &field->field);
        return status;
    }
    qsi_list_push_back(&bucket->fields, &field->in_bucket);
    bucket->count++;
    field->bucket = bucket;
    return QS_OK;
}

static void let_go(struct headers *headers, struct pattern_field *field)
{
    if (field->bucket != NULL) {
        qsi_list_remove(&field->in_bucket);
        field->bucket->count--;
        field->bucket = NULL;
        prune(headers, &field->field);
    }
}

/* -- which field a pattern is kept under ------------------------------------------------------ */

/* How many others are kept under the same. */
static qs_status count_others(struct headers *headers, const struct qsi_header_field *field,
                              uint32_t *count_out)
{
    const struct bucket *bucket = NULL;
    struct bucket *found = NULL;
    struct name *name = NULL;

    QS_TRY(find_name(headers, field, &name));
    if (name != NULL && wants_presence(field)) {
        bucket = &name->presence;
    } else if (name != NULL) {
        QS_TRY(find_value(headers, name, &field->value, &found));
        bucket = found;
    }
    *count_out = bucket != NULL ? bucket->count : 0;
    return QS_OK;
}

/* Values before presence: more messages have a field than have it with one value. */
static qs_status choose(struct headers *headers, struct qsi_headers_pattern *pattern,
                        struct pattern_field **field_out)
{
    bool is_presence = true;
    uint32_t fewest = 0;

    *field_out = NULL;
    for (uint32_t i = 0; i < pattern->count; i++) {
        bool presence = wants_presence(&pattern->fields[i].field);
        uint32_t count;

        QS_TRY(count_others(headers, &pattern->fields[i].field, &count));
        if (*field_out == NULL || (is_presence && !presence) ||
            (is_presence == presence && count < fewest)) {
            *field_out = &pattern->fields[i];
            is_presence = presence;
            fewest = count;
        }
    }
    return QS_OK;
}

static void remove_pattern(struct headers *headers, struct qsi_headers_pattern *pattern)
{
    qsi_list_remove(&pattern->in_always);
    for (uint32_t i = 0; i < pattern->count; i++) {
        let_go(headers, &pattern->fields[i]);
    }
    destroy_pattern(pattern);
}

static qs_status keep(struct headers *headers, struct qsi_headers_pattern *pattern)
{
    struct pattern_field *field;

    if (pattern->is_any) {
        for (uint32_t i = 0; i < pattern->count; i++) {
            QS_TRY(keep_under(headers, &pattern->fields[i]));
        }
        return QS_OK;
    }
    if (pattern->count == 0) {
        qsi_list_push_back(&headers->always, &pattern->in_always);
        return QS_OK;
    }
    QS_TRY(choose(headers, pattern, &field));
    return keep_under(headers, field);
}

/* -- matching --------------------------------------------------------------------------------- */

static qs_status collect_pattern(struct qsi_router *router, struct headers *headers,
                                 const struct qsi_headers_pattern *pattern)
{
    if (pattern->is_any || agrees(pattern, &headers->read)) {
        return qsi_collect_destination(router, pattern->binding->destination);
    }
    return QS_OK;
}

static qs_status collect_bucket(struct qsi_router *router, struct headers *headers,
                                const struct bucket *bucket)
{
    for (const struct qsi_list *node = bucket->fields.next; node != &bucket->fields;
         node = node->next) {
        QS_TRY(collect_pattern(
            router, headers, QSI_LIST_OWNER(node, const struct pattern_field, in_bucket)->pattern));
    }
    return QS_OK;
}

static qs_status collect_always(struct qsi_router *router, struct headers *headers)
{
    for (const struct qsi_list *node = headers->always.next; node != &headers->always;
         node = node->next) {
        const struct qsi_headers_pattern *pattern =
            QSI_LIST_OWNER(node, const struct qsi_headers_pattern, in_always);

        QS_TRY(qsi_collect_destination(router, pattern->binding->destination));
    }
    return QS_OK;
}

static qs_status collect_field(struct qsi_router *router, struct headers *headers,
                               const struct qsi_header_field *field)
{
    struct bucket *bucket = NULL;
    struct name *name = NULL;

    QS_TRY(find_name(headers, field, &name));
    if (name == NULL) {
        return QS_OK;
    }
    QS_TRY(collect_bucket(router, headers, &name->presence));
    if (field->value.kind == QSI_HEADER_NOTHING) {
        return QS_OK;
    }
    QS_TRY(find_value(headers, name, &field->value, &bucket));
    return bucket != NULL ? collect_bucket(router, headers, bucket) : QS_OK;
}

static qs_status collect(struct qsi_router *router, struct qsi_exchange *exchange,
                         const struct qsi_routing *routing)
{
    struct headers *headers = exchange->matcher;

    QS_TRY(collect_always(router, headers));
    if (headers->names.count == 0 || routing->headers.bytes == 0) {
        return QS_OK;
    }
    QS_TRY(qsi_header_fields_read(&headers->read, routing->headers));
    for (uint32_t i = 0; i < headers->read.count; i++) {
        QS_TRY(collect_field(router, headers, &headers->read.items[i]));
    }
    return QS_OK;
}

/* -- the type --------------------------------------------------------------------------------- */

static qs_status create(void **matcher_out)
{
    struct headers *headers = qsi_zalloc(sizeof *headers);

    if (headers == NULL) {
        return QS_ENOMEM;
    }
    qsi_list_init(&headers->always);
    *matcher_out = headers;
    return QS_OK;
}

static void destroy(struct qsi_router *router, void *matcher)
{
    struct headers *headers = matcher;

    (void)router;
    QS_ASSERT(headers->names.count == 0 && qsi_list_is_empty(&headers->always));
    qsi_map_fini(&headers->names);
    qsi_header_fields_fini(&headers->read);
    qsi_buf_fini(&headers->key);
    qsi_free(headers);
}

static qs_status add(struct qsi_router *router, struct qsi_binding *binding)
{
    struct headers *headers = binding->exchange->matcher;
    struct qsi_headers_pattern *pattern = create_pattern(binding);

    (void)router;
    if (pattern == NULL) {
        return QS_ENOMEM;
    }
    if (reserve_keys(headers, binding->arguments) != QS_OK || keep(headers, pattern) != QS_OK) {
        remove_pattern(headers, pattern);
        return QS_ENOMEM;
    }
    binding->pattern = pattern;
    return QS_OK;
}

static void remove_binding(struct qsi_router *router, struct qsi_binding *binding)
{
    (void)router;
    remove_pattern(binding->exchange->matcher, binding->pattern);
    binding->pattern = NULL;
}

/* No lookup: what a message leads to is never a matter of its key. */
const struct qsi_exchange_type qsi_match_headers = {
    .name = {(const uint8_t *)"headers", 7},
    .create = create,
    .destroy = destroy,
    .add = add,
    .remove = remove_binding,
    .collect = collect,
    .check = check,
};
