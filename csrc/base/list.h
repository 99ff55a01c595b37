/* An intrusive doubly linked list.  A list is a node that is its own neighbour when empty. */
#ifndef QSI_LIST_H
#define QSI_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct qsi_list {
    struct qsi_list *previous;
    struct qsi_list *next;
};
#define QSI_LIST_OWNER(node, type, member) \
    ((type *)(void *)((char *)(node) - offsetof(type, member)))

static inline void qsi_list_init(struct qsi_list *list)
{
    list->previous = list;
    list->next = list;
}

static inline bool qsi_list_is_empty(const struct qsi_list *list)
{
    return list->next == list;
}

static inline bool qsi_list_is_single(const struct qsi_list *list)
{
    return list->next != list && list->next == list->previous;
}

static inline void qsi_list_insert_before(struct qsi_list *place, struct qsi_list *node)
{
    node->previous = place->previous;
    node->next = place;
    place->previous->next = node;
    place->previous = node;
}

static inline void qsi_list_push_back(struct qsi_list *list, struct qsi_list *node)
{
    qsi_list_insert_before(list, node);
}

/* Removes node and makes it empty, so removing it twice is harmless. */
static inline void qsi_list_remove(struct qsi_list *node)
{
    node->previous->next = node->next;
    node->next->previous = node->previous;
    qsi_list_init(node);
}

#endif
