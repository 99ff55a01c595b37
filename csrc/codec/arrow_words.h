/* Names of Arrow's types, for error texts. */
#ifndef QSI_ARROW_WORDS_H
#define QSI_ARROW_WORDS_H

#include "qstore/arrow.h"

#include <stddef.h>

/* Writes the name of the type, such as "int64" or "dictionary of large_string"; cut if it does not
 * fit. */
void qsi_arrow_type_words(const struct ArrowSchema *schema, char *text, size_t bytes);

#endif
