/* Values of field tables in error texts, as in RabbitMQ. */
#ifndef QSI_FIELD_PRINT_H
#define QSI_FIELD_PRINT_H

#include "field_table.h"

#define QSI_FIELD_PRINT_BYTES 128 /* longer values are cut */

/* RabbitMQ's name of a field type, "longstr"; "unknown" for other letters. */
const char *qsi_field_type_name(uint8_t type);

/* Prints the value: text unchanged, numbers in decimal, "true", "undefined" for void; arrays and
 * tables as "[...]".  NUL-terminated; a NULL field is "". */
void qsi_field_print_value(char text_out[QSI_FIELD_PRINT_BYTES], const struct qsi_field *field);

/* The same as an Erlang term, with text as <<"quoted">>. */
void qsi_field_print_term(char text_out[QSI_FIELD_PRINT_BYTES], const struct qsi_field *field);

#endif
