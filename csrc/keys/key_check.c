/* Debug builds: checks that the data of a key file in memory agrees with its header. */
#include "check.h"
#include "key_file.h"

#ifndef NDEBUG

void qsi_key_file_memory_check(const struct qsi_key_file *file)
{
    const struct qsi_key_header *header = &file->header;
    uint64_t bits = 0;

    QS_DCHECK(header->number > 0 && header->number <= UINT32_MAX);
    QS_DCHECK(header->page_count > 0 && header->page_count <= header->key_count);
    QS_DCHECK(header->filter_bytes > 0 && (header->filter_bytes & (header->filter_bytes - 1)) == 0);
    QS_DCHECK(file->filter_bytes > 0 && (file->filter_bytes & (file->filter_bytes - 1)) == 0);
    QS_DCHECK(file->filter_bytes <= header->filter_bytes);
    for (uint64_t i = 0; i < file->filter_bytes; i++) {
        bits += (uint64_t)__builtin_popcount(file->filter[i]);
    }
    QS_DCHECK(bits > 0); /* an empty filter would exclude every key */
}

#endif
