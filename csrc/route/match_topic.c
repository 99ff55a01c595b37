/* The topic type: a trie of the words between the dots of binding keys.
 *
 * An empty key has no words; any other has one more than it has dots, and words may be empty.  "*"
 * stands for one word and "#" for any number of words, including none; both are nodes besides the
 * literal ones.
 *
 * A lookup walks the words of the key once and keeps the set of nodes that the words so far lead
 * to, each node once.  So its cost is at most words times nodes, however many "#" a binding key
 * has.  Trying the alternatives one by one would take time exponential in their number.
 *
 * Results are cached by key until a binding is added or removed.
 *
 * Invariant: every node except the root has a binding in or below it. */
#include "match_topic.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

struct node {
    struct node *parent;     /* NULL: the root */
    struct qsi_map children; /* literal word to node */
    struct node *one;        /* the child "*", or NULL */
    struct node *any;        /* the child "#", or NULL */
    bool is_any;             /* is a child "#" */
    uint64_t step;           /* the last step of a walk that entered this node */
    struct qsi_binding_set set;
};

struct topic {
    struct node root;
    uint64_t step;          /* number of the last step of a walk */
    struct qsi_buf entered; /* node *: entered by this step */
    struct qsi_buf left;    /* node *: entered by the previous step */
    struct qsi_route_cache cache;
    void *extra; /* of a type that checks more than the key */
};

/* -- words ------------------------------------------------------------------------------------ */

struct words {
    struct qsi_slice rest;
    bool more;
};

static struct words split(struct qsi_slice key)
{
    return (struct words){key, key.bytes > 0};
}

static bool next_word(struct words *words, struct qsi_slice *word_out)
{
    struct qsi_slice rest = words->rest;
    const uint8_t *dot;

    if (!words->more) {
        return false;
    }
    dot = rest.bytes > 0 ? memchr(rest.data, '.', rest.bytes) : NULL;
    words->more = dot != NULL;
    if (dot == NULL) {
        *word_out = rest;
        return true;
    }
    *word_out = qsi_slice_make(rest.data, (uint32_t)(dot - rest.data));
    words->rest = qsi_slice_make(dot + 1, rest.bytes - word_out->bytes - 1);
    return true;
}

/* Removes the last word, and the dot before it, from a key that has words. */
static struct qsi_slice cut_last_word(struct qsi_slice *key)
{
    uint32_t start = key->bytes;
    struct qsi_slice word;

    while (start > 0 && key->data[start - 1] != '.') {
        start--;
    }
    QS_DCHECK(start <= key->bytes);
    word = qsi_slice_make(key->data + start, key->bytes - start);
    key->bytes = start > 0 ? start - 1 : 0;
    return word;
}

static bool is_word(struct qsi_slice word, char wildcard)
{
    return word.bytes == 1 && word.data[0] == (uint8_t)wildcard;
}

/* -- the trie --------------------------------------------------------------------------------- */

static struct node *child_of(const struct node *node, struct qsi_slice word)
{
    if (is_word(word, '*')) {
        return node->one;
    }
    if (is_word(word, '#')) {
        return node->any;
    }
    return qsi_map_get(&node->children, word.data, word.bytes);
}

static qs_status attach(struct node *parent, struct qsi_slice word, struct node *child)
{
    QS_DCHECK(child->parent == NULL && child_of(parent, word) == NULL);
    child->parent = parent;
    if (is_word(word, '*')) {
        parent->one = child;
    } else if (is_word(word, '#')) {
        parent->any = child;
        child->is_any = true;
    } else {
        QS_TRY(qsi_map_put(&parent->children, word.data, word.bytes, child));
    }
    return QS_OK;
}

static void detach(struct node *child, struct qsi_slice word)
{
    struct node *parent = child->parent;

    QS_ASSERT(child_of(parent, word) == child);
    if (is_word(word, '*')) {
        parent->one = NULL;
    } else if (is_word(word, '#')) {
        parent->any = NULL;
    } else {
        qsi_map_remove(&parent->children, word.data, word.bytes);
    }
}

static void destroy_node(struct node *node)
{
    qsi_map_fini(&node->children);
    qsi_binding_set_fini(&node->set);
    qsi_free(node);
}

static qs_status add_child(struct node *parent, struct qsi_slice word, struct node **child_out)
{
    struct node *child = qsi_zalloc(sizeof *child);

    if (child == NULL) {
        return QS_ENOMEM;
    }
    qsi_binding_set_init(&child->set);
    if (attach(parent, word, child) != QS_OK) {
        destroy_node(child);
        return QS_ENOMEM;
    }
    *child_out = child;
    return QS_OK;
}

static bool is_bare(const struct node *node)
{
    return qsi_list_is_empty(&node->set.bindings) && node->children.count == 0 &&
           node->one == NULL && node->any == NULL;
}

/* Removes the node at the end of path, and its ancestors, while they have no bindings and no
 * children. */
static void prune(struct node *node, struct qsi_slice path)
{
    while (node->parent != NULL && is_bare(node)) {
        struct node *parent = node->parent;

        detach(node, cut_last_word(&path));
        destroy_node(node);
        node = parent;
    }
}

/* Finds the node of a binding key, or adds it; on failure added nodes are removed. */
static qs_status find_or_add(struct node *root, struct qsi_slice key, struct node **node_out)
{
    struct words words = split(key);
    struct node *node = root;
    struct qsi_slice word;

    while (next_word(&words, &word)) {
        struct node *child = child_of(node, word);

        if (child == NULL && add_child(node, word, &child) != QS_OK) {
            uint32_t walked = (uint32_t)(word.data - key.data); /* words, each with its dot */

            prune(node, qsi_slice_make(key.data, walked > 0 ? walked - 1 : 0));
            return QS_ENOMEM;
        }
        node = child;
    }
    *node_out = node;
    return QS_OK;
}

/* -- matching --------------------------------------------------------------------------------- */

/* Enters node and the "#" below it, since "#" may stand for no word. */
static qs_status enter(struct topic *topic, struct node *node)
{
    for (; node != NULL && node->step != topic->step; node = node->any) {
        QS_TRY(qsi_buf_append(&topic->entered, &node, sizeof node));
        QS_DCHECK(node->step < topic->step);
        node->step = topic->step;
    }
    return QS_OK;
}

static void begin_step(struct topic *topic)
{
    struct qsi_buf left = topic->left;

    topic->left = topic->entered;
    topic->entered = left;
    qsi_buf_clear(&topic->entered);
    topic->step++;
}

static qs_status walk_word(struct topic *topic, struct qsi_slice word)
{
    struct node **left;
    size_t left_count;

    begin_step(topic);
    left = (struct node **)(void *)topic->left.data;
    left_count = topic->left.bytes / sizeof *left;
    QS_DCHECK(left_count > 0 && topic->entered.bytes == 0);
    for (size_t i = 0; i < left_count; i++) {
        if (left[i]->is_any) {
            QS_TRY(enter(topic, left[i]));
        }
        QS_TRY(enter(topic, qsi_map_get(&left[i]->children, word.data, word.bytes)));
        QS_TRY(enter(topic, left[i]->one));
    }
    return QS_OK;
}

/* Finds the nodes that match key, in topic->entered. */
qs_status qsi_topic_walk(void *matcher, struct qsi_slice key, uint32_t *count_out)
{
    struct topic *topic = matcher;
    struct words words = split(key);
    struct qsi_slice word;

    begin_step(topic);
    QS_TRY(enter(topic, &topic->root));
    while (topic->entered.bytes > 0 && next_word(&words, &word)) {
        QS_TRY(walk_word(topic, word));
    }
    *count_out = (uint32_t)(topic->entered.bytes / sizeof(struct node *));
    return QS_OK;
}

const struct qsi_binding_set *qsi_topic_found(const void *matcher, uint32_t index)
{
    const struct topic *topic = matcher;
    struct node *const *entered = (struct node *const *)(void *)topic->entered.data;

    QS_DCHECK(index < topic->entered.bytes / sizeof *entered);
    return &entered[index]->set;
}

static qs_status match(struct qsi_collection *collection, void *topic, struct qsi_slice key)
{
    uint32_t count;

    QS_TRY(qsi_topic_walk(topic, key, &count));
    for (uint32_t i = 0; i < count; i++) {
        QS_TRY(qsi_collect_add(collection, qsi_topic_found(topic, i)));
    }
    return QS_OK;
}

/* -- looking up ------------------------------------------------------------------------------- */

static qs_status collect(struct qsi_collection *collection, struct qsi_exchange *exchange,
                         const struct qsi_routing *routing)
{
    QS_TRY(match(collection, exchange->matcher, routing->key));
    for (uint32_t i = 0; i < routing->copy_count; i++) {
        QS_TRY(match(collection, exchange->matcher, routing->copies[i]));
    }
    return QS_OK;
}

qs_status qsi_topic_lookup(struct qsi_router *router, struct qsi_exchange *exchange,
                           struct qsi_slice key, const struct qsi_route **route_out)
{
    struct topic *topic = exchange->matcher;
    struct qsi_collection collection;
    struct qsi_route collected;

    *route_out = qsi_route_cache_get(&topic->cache, key);
    if (QS_LIKELY(*route_out != NULL)) {
        return QS_OK;
    }
    qsi_collect_begin(&collection, router);
    QS_TRY(match(&collection, topic, key));
    collected = qsi_collect_finish(&collection);
    return qsi_route_cache_put(router, &topic->cache, key, &collected, route_out);
}

void qsi_topic_forget(struct qsi_router *router, void *matcher)
{
    struct topic *topic = matcher;

    qsi_route_cache_forget(router, &topic->cache);
}

/* -- adding and removing ---------------------------------------------------------------------- */

qs_status qsi_topic_create(void **matcher_out)
{
    struct topic *topic = qsi_zalloc(sizeof *topic);

    if (topic == NULL) {
        return QS_ENOMEM;
    }
    qsi_binding_set_init(&topic->root.set);
    *matcher_out = topic;
    return QS_OK;
}

void **qsi_topic_extra(void *matcher)
{
    return &((struct topic *)matcher)->extra;
}

void qsi_topic_destroy(struct qsi_router *router, void *matcher)
{
    struct topic *topic = matcher;

    QS_ASSERT(is_bare(&topic->root));
    qsi_topic_forget(router, topic);
    qsi_map_fini(&topic->root.children);
    qsi_binding_set_fini(&topic->root.set);
    qsi_buf_fini(&topic->entered);
    qsi_buf_fini(&topic->left);
    qsi_free(topic);
}

qs_status qsi_topic_add(struct qsi_router *router, struct qsi_binding *binding)
{
    struct topic *topic = binding->exchange->matcher;
    struct node *node;

    QS_TRY(find_or_add(&topic->root, binding->key, &node));
    qsi_binding_set_add(&node->set, binding);
    qsi_topic_forget(router, topic);
    return QS_OK;
}

static struct node *node_of(struct qsi_binding_set *set)
{
    return (struct node *)(void *)((char *)set - offsetof(struct node, set));
}

void qsi_topic_remove(struct qsi_router *router, struct qsi_binding *binding)
{
    struct node *node = node_of(binding->set);

    qsi_binding_set_remove(binding);
    prune(node, binding->key);
    qsi_topic_forget(router, binding->exchange->matcher);
}

const struct qsi_exchange_type qsi_match_topic = {
    .name = {(const uint8_t *)"topic", 5},
    .create = qsi_topic_create,
    .destroy = qsi_topic_destroy,
    .add = qsi_topic_add,
    .remove = qsi_topic_remove,
    .lookup = qsi_topic_lookup,
    .collect = collect,
    .forget = qsi_topic_forget,
};
