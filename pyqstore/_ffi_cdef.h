/* What Python calls of qstore/codec.h: stateless functions over buffers. */
typedef int... qs_status;
typedef struct qs_error {
    char text[...];
    ...;
} qs_error;
uint32_t qs_crc32c(uint32_t seed, const void *data, size_t data_bytes);
qs_status qs_properties_check(const void *blob, size_t blob_bytes, qs_error *error);
typedef struct qs_strings {
    const int32_t *offsets;
    const void *data;
    size_t data_bytes;
    size_t count;
} qs_strings;
qs_status qs_crc32c_column(const qs_strings *column, uint32_t *crcs_out, qs_error *error);
qs_status qs_shard_column(const qs_strings *column, uint32_t shard_count, uint32_t *shards_out,
                          qs_error *error);
typedef struct qs_journal_walk {
    uint64_t salt;
    uint64_t from_lsn;
    uint64_t upto_lsn;
    uint64_t lsn;
    uint32_t file;
    uint32_t next_file;
    uint64_t walked_bytes;
    uint64_t wanted_bytes;
    uint64_t ref_count;
    uint64_t wanted_refs;
    bool is_elsewhere;
    ...;
} qs_journal_walk;
qs_status qs_journal_walk_blocks(const void *data, size_t data_bytes, void *refs_out,
                                 size_t refs_room, qs_journal_walk *walk_io, qs_error *error);
