/* Records: the content of a commit block (docs/FORMAT.md, "Records").
 *
 * Each kind has a header of its own; these are of the kinds that most code uses.  Readers get bytes
 * with a correct block checksum, and still check them, because a record is data from a file. */
#ifndef QSI_RECORD_H
#define QSI_RECORD_H

#include "message_file_record.h"
#include "messages_record.h"
#include "messages_write.h"
#include "record_head.h"
#include "settle_record.h"
#include "topology_record.h"

#endif
