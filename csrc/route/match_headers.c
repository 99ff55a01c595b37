/* The headers type: a binding's arguments are a pattern of header fields.
 *
 * A pattern of type any is in the buckets of all its fields, so finding it is matching it.  A
 * pattern of type all is in the bucket of the one field with the fewest other patterns, and its
 * other fields are compared when it is found.  A message makes one probe for each of its fields,
 * and one more, for the value, for each field that patterns name.  So only bindings that agree in a
 * field are examined, however many there are.
 *
 * A pattern without fields is matched by every message (all) or by none (any); headers_pattern.h
 * describes which fields count.
 *
 * Invariant: each field of a pattern that has a bucket is in it, and every bucket has a field. */
#include "alloc.h"
#include "check.h"
#include "headers_pattern.h"
#include "match.h"

#define KEY_BYTES_MAX 16 /* of a key, besides the bytes of the field */

struct qsi_headers_bucket {
    struct qsi_list fields; /* of qsi_pattern_field.in_bucket */
    uint32_t count;
};

/* The buckets of fields with one name (and occurrence). */
struct name {
    struct qsi_headers_bucket presence;
    struct qsi_map values; /* value to bucket */
};

struct headers {
    struct qsi_map names;          /* occurrence and name to struct name */
    struct qsi_list always;        /* list of qsi_headers_pattern: matched by every message */
    struct qsi_header_fields read; /* of the current message */
    struct qsi_buf key;            /* while it is built */
};

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

/* *bucket_out NULL: no pattern has this value. */
static qs_status find_value(struct headers *headers, const struct name *name,
                            const struct qsi_header_value *value,
                            struct qsi_headers_bucket **bucket_out)
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
                           const struct qsi_header_value *value,
                           struct qsi_headers_bucket **bucket_out)
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

/* Makes room for every key of these arguments, so that none of them can fail later. */
static qs_status reserve_keys(struct headers *headers, struct qsi_slice arguments)
{
    uint8_t *room;

    qsi_buf_clear(&headers->key);
    return qsi_buf_reserve(&headers->key, (size_t)arguments.bytes + KEY_BYTES_MAX, &room);
}

/* Removes bucket and name if they have no patterns any more. */
static void prune(struct headers *headers, const struct qsi_header_field *field)
{
    struct name *name = NULL;
    struct qsi_headers_bucket *bucket = NULL;
    qs_status status = find_name(headers, field, &name);

    QS_ASSERT(status == QS_OK);
    if (name == NULL) {
        return;
    }
    status = find_value(headers, name, &field->value, &bucket);
    QS_ASSERT(status == QS_OK);
    QS_DCHECK(bucket == NULL || (bucket->count == 0) == qsi_list_is_empty(&bucket->fields));
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

static qs_status keep_under(struct headers *headers, struct qsi_pattern_field *field)
{
    struct qsi_headers_bucket *bucket;
    struct name *name;
    qs_status status = add_name(headers, &field->field, &name);

    QS_TRY(status);
    bucket = &name->presence;
    if (!qsi_header_wants_presence(&field->field)) {
        status = add_value(headers, name, &field->field.value, &bucket);
    }
    if (status != QS_OK) {
        prune(headers, &field->field);
        return status;
    }
    QS_DCHECK(field->bucket == NULL);
    qsi_list_push_back(&bucket->fields, &field->in_bucket);
    bucket->count++;
    field->bucket = bucket;
    return QS_OK;
}

static void let_go(struct headers *headers, struct qsi_pattern_field *field)
{
    if (field->bucket != NULL) {
        qsi_list_remove(&field->in_bucket);
        QS_ASSERT(field->bucket->count > 0);
        field->bucket->count--;
        field->bucket = NULL;
        prune(headers, &field->field);
    }
}

/* -- choosing the bucket of a pattern --------------------------------------------------------- */

/* Counts the other patterns in the bucket. */
static qs_status count_others(struct headers *headers, const struct qsi_header_field *field,
                              uint32_t *count_out)
{
    const struct qsi_headers_bucket *bucket = NULL;
    struct qsi_headers_bucket *found = NULL;
    struct name *name = NULL;

    QS_TRY(find_name(headers, field, &name));
    if (name != NULL && qsi_header_wants_presence(field)) {
        bucket = &name->presence;
    } else if (name != NULL) {
        QS_TRY(find_value(headers, name, &field->value, &found));
        bucket = found;
    }
    *count_out = bucket != NULL ? bucket->count : 0;
    return QS_OK;
}

/* Chooses values before presence: fewer messages have a field with one value than have the
 * field. */
static qs_status choose(struct headers *headers, struct qsi_headers_pattern *pattern,
                        struct qsi_pattern_field **field_out)
{
    bool is_presence = true;
    uint32_t fewest = 0;

    *field_out = NULL;
    for (uint32_t i = 0; i < pattern->count; i++) {
        bool presence = qsi_header_wants_presence(&pattern->fields[i].field);
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
    qsi_headers_pattern_destroy(pattern);
}

static qs_status keep(struct headers *headers, struct qsi_headers_pattern *pattern)
{
    struct qsi_pattern_field *field;

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
    QS_ASSERT(field != NULL); /* a pattern with fields has one */
    return keep_under(headers, field);
}

/* -- matching --------------------------------------------------------------------------------- */

static qs_status collect_pattern(struct qsi_collection *collection, struct headers *headers,
                                 const struct qsi_headers_pattern *pattern)
{
    QS_DCHECK(pattern->count > 0);
    if (pattern->is_any || qsi_headers_pattern_agrees(pattern, &headers->read)) {
        return qsi_collect_destination(collection, pattern->binding->destination);
    }
    return QS_OK;
}

static qs_status collect_bucket(struct qsi_collection *collection, struct headers *headers,
                                const struct qsi_headers_bucket *bucket)
{
    for (const struct qsi_list *node = bucket->fields.next; node != &bucket->fields;
         node = node->next) {
        QS_TRY(collect_pattern(
            collection, headers,
            QSI_LIST_OWNER(node, const struct qsi_pattern_field, in_bucket)->pattern));
    }
    return QS_OK;
}

static qs_status collect_always(struct qsi_collection *collection, struct headers *headers)
{
    for (const struct qsi_list *node = headers->always.next; node != &headers->always;
         node = node->next) {
        const struct qsi_headers_pattern *pattern =
            QSI_LIST_OWNER(node, const struct qsi_headers_pattern, in_always);

        QS_TRY(qsi_collect_destination(collection, pattern->binding->destination));
    }
    return QS_OK;
}

static qs_status collect_field(struct qsi_collection *collection, struct headers *headers,
                               const struct qsi_header_field *field)
{
    struct qsi_headers_bucket *bucket = NULL;
    struct name *name = NULL;

    QS_TRY(find_name(headers, field, &name));
    if (name == NULL) {
        return QS_OK;
    }
    QS_TRY(collect_bucket(collection, headers, &name->presence));
    if (field->value.kind == QSI_HEADER_NOTHING) {
        return QS_OK;
    }
    QS_TRY(find_value(headers, name, &field->value, &bucket));
    return bucket != NULL ? collect_bucket(collection, headers, bucket) : QS_OK;
}

static qs_status collect(struct qsi_collection *collection, struct qsi_exchange *exchange,
                         const struct qsi_routing *routing)
{
    struct headers *headers = exchange->matcher;

    QS_TRY(collect_always(collection, headers));
    if (headers->names.count == 0 || routing->headers.bytes == 0) {
        return QS_OK;
    }
    QS_TRY(qsi_header_fields_read(&headers->read, routing->headers));
    for (uint32_t i = 0; i < headers->read.count; i++) {
        QS_TRY(collect_field(collection, headers, &headers->read.items[i]));
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
    struct qsi_headers_pattern *pattern = qsi_headers_pattern_create(binding);

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

static qs_status check(struct qsi_slice key, struct qsi_slice arguments, qs_error *error)
{
    (void)key;
    return qsi_headers_pattern_check(arguments, error);
}

static bool looks_at_headers(struct qsi_slice arguments)
{
    (void)arguments;
    return true;
}

/* No lookup: the route never depends on the key. */
const struct qsi_exchange_type qsi_match_headers = {
    .name = {(const uint8_t *)"headers", 7},
    .create = create,
    .destroy = destroy,
    .add = add,
    .remove = remove_binding,
    .collect = collect,
    .check = check,
    .looks_at_headers = looks_at_headers,
};
