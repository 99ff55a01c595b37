/* A single pattern of a topic exchange, for few patterns and many keys. */
#ifndef QSI_TOPIC_PATTERN_H
#define QSI_TOPIC_PATTERN_H

#include "slice.h"

#include <stdbool.h>

/* Words are separated by dots; '*' matches one word, '#' any number of words. */
bool qsi_topic_pattern_matches(struct qsi_slice pattern, struct qsi_slice key);

#endif
