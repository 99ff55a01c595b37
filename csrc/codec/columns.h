/* The Arrow columns of messages by number, and the tree of arrays of a received batch. */
#ifndef QSI_COLUMNS_H
#define QSI_COLUMNS_H

#include "qstore/codec.h"
#include "qstore/stream.h"

enum qsi_column {
#define QSI_COLUMN(id, ...) QSI_COLUMN_##id,
#include "columns.def"
    QSI_COLUMN_COUNT,
    /* Nodes below columns, and the batch itself. */
    QSI_NODE_ENTRIES = QSI_COLUMN_COUNT, /* inside headers */
    QSI_NODE_KEY,
    QSI_NODE_VALUE,
    QSI_NODE_EXCHANGES, /* dictionaries */
    QSI_NODE_ROUTING_KEYS,
    QSI_NODE_ROOT,
    QSI_NODE_COUNT
};

/* The properties that have columns. */
enum qsi_column_text {
#define QSI_TEXT_COLUMN(id, name) QSI_COLUMN_TEXT_##id,
#include "columns.def"
    QSI_COLUMN_TEXT_COUNT
};
enum qsi_column_number {
#define QSI_NUMBER_COLUMN(id, ...) QSI_COLUMN_NUMBER_##id,
#include "columns.def"
    QSI_COLUMN_NUMBER_COUNT
};

extern const qs_column qsi_columns[QSI_COLUMN_COUNT];

/* Whether such a batch has the column.  Arguments as of qs_columns_schema. */
static inline bool qsi_column_is_in(int column, uint32_t received, uint32_t parts)
{
    const qs_column *row = &qsi_columns[column];

    return (row->received & received) != 0 &&
           (received != QS_RECEIVED_STREAM || row->part == 0 || (row->part & parts) != 0);
}

/* The size of a value in a numeric column. */
static inline uint64_t qsi_column_number_bytes(int number)
{
    switch (number) {
#define QSI_NUMBER_COLUMN(id, name, format, ...) \
    case QSI_COLUMN_NUMBER_##id:                 \
        return (format)[0] == 'C' ? 1 : 8;
#include "columns.def"
    }
    return 8;
}

/* A tree of ArrowSchema or of ArrowArray.  refs: the number of nodes that are not released yet;
 * accessed only with atomics. */
#define QSI_COLUMN_TREE(type)                   \
    struct {                                    \
        uint32_t refs;                          \
        struct type nodes[QSI_NODE_COUNT];      \
        struct type *columns[QSI_COLUMN_COUNT]; \
        struct type *entries[1];                \
        struct type *key_value[2];              \
    }

/* Links the nodes of a batch, whose other members are set before. */
#define QSI_COLUMN_TREE_LINK(tree, received, parts)                                               \
    do {                                                                                          \
        uint32_t column_count = 0;                                                                \
        (tree)->refs = 1;                                                                         \
        for (int i = 0; i < QSI_COLUMN_COUNT; i++) {                                              \
            if (qsi_column_is_in(i, received, parts)) {                                           \
                (tree)->columns[column_count++] = &(tree)->nodes[i];                              \
                (tree)->refs += 1 + qsi_column_inner_count(i);                                    \
            }                                                                                     \
        }                                                                                         \
        (tree)->nodes[QSI_NODE_ROOT].n_children = column_count;                                   \
        (tree)->nodes[QSI_NODE_ROOT].children = (tree)->columns;                                  \
        (tree)->entries[0] = &(tree)->nodes[QSI_NODE_ENTRIES];                                    \
        (tree)->nodes[QSI_COLUMN_HEADERS].n_children = 1;                                         \
        (tree)->nodes[QSI_COLUMN_HEADERS].children = (tree)->entries;                             \
        (tree)->key_value[0] = &(tree)->nodes[QSI_NODE_KEY];                                      \
        (tree)->key_value[1] = &(tree)->nodes[QSI_NODE_VALUE];                                    \
        (tree)->nodes[QSI_NODE_ENTRIES].n_children = 2;                                           \
        (tree)->nodes[QSI_NODE_ENTRIES].children = (tree)->key_value;                             \
        (tree)->nodes[QSI_COLUMN_EXCHANGE].dictionary = &(tree)->nodes[QSI_NODE_EXCHANGES];       \
        (tree)->nodes[QSI_COLUMN_ROUTING_KEY].dictionary = &(tree)->nodes[QSI_NODE_ROUTING_KEYS]; \
    } while (0)

/* The number of nodes below a column. */
static inline uint32_t qsi_column_inner_count(int column)
{
    return column == QSI_COLUMN_HEADERS                                        ? 3
           : column == QSI_COLUMN_EXCHANGE || column == QSI_COLUMN_ROUTING_KEY ? 1
                                                                               : 0;
}

/* Releases the children and the dictionary of a node, except those that were moved out or released
 * separately. */
#define QSI_COLUMN_TREE_RELEASE_BELOW(node)                                      \
    do {                                                                         \
        for (int64_t i = 0; i < (node)->n_children; i++) {                       \
            if ((node)->children[i]->release != NULL) {                          \
                (node)->children[i]->release((node)->children[i]);               \
            }                                                                    \
        }                                                                        \
        if ((node)->dictionary != NULL && (node)->dictionary->release != NULL) { \
            (node)->dictionary->release((node)->dictionary);                     \
        }                                                                        \
        (node)->release = NULL;                                                  \
    } while (0)

#endif
