/* One pattern of a topic exchange by itself, for who has few of them and many keys. */
#ifndef QSI_TOPIC_PATTERN_H
#define QSI_TOPIC_PATTERN_H

#include "slice.h"

#include <stdbool.h>

/* Words are parted by dots; '*' stands for one word, '#' for any number of them. */
bool qsi_topic_pattern_matches(struct qsi_slice pattern, struct qsi_slice key);

#endif
