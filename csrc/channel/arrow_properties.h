/* Properties of messages as columns of a batch. */
#ifndef QSI_ARROW_PROPERTIES_H
#define QSI_ARROW_PROPERTIES_H

#include "arrow_builder.h"

/* Sets the properties of the last rows, [first, first + count), if the run has none.  Rows ascend
 * from call to call. */
qs_status qsi_arrow_builder_properties(struct qsi_arrow_builder *builder, uint64_t first,
                                       uint64_t count, struct qsi_slice properties,
                                       qs_error *error) QS_MUST_CHECK;

#endif
