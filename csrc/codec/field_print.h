/* Values of field tables in error texts, as RabbitMQ words them. */
#ifndef QSI_FIELD_PRINT_H
#define QSI_FIELD_PRINT_H

#include "properties.h"

#define QSI_FIELD_PRINT_BYTES 128 /* longer values are cut */

/* RabbitMQ's name of a field type, "longstr"; "unknown" for a letter that is none. */
const char *qsi_field_type_name(uint8_t type);

/* The value: text as it is, numbers in decimal, "true", "undefined" for void; arrays and tables as
 * "[...]".  NUL-terminated; a NULL field is "". */
void qsi_field_print_value(char text_out[QSI_FIELD_PRINT_BYTES], const struct qsi_field *field);

/* The same as a term of RabbitMQ's language, where text is <<"quoted">>. */
void qsi_field_print_term(char text_out[QSI_FIELD_PRINT_BYTES], const struct qsi_field *field);

#endif
