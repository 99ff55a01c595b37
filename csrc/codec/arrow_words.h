/* What Arrow calls its types, for errors. */
#ifndef QSI_ARROW_WORDS_H
#define QSI_ARROW_WORDS_H

#include "qstore/arrow.h"

#include <stddef.h>

/* Puts words such as "int64" or "dictionary of large_string" for the type; cut if they do not
 * fit. */
void qsi_arrow_type_words(const struct ArrowSchema *schema, char *text, size_t bytes);

#endif
