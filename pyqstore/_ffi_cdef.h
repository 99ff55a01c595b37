/* What Python calls of qstore/codec.h: stateless functions over buffers and Arrow arrays. */
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
static const int QS_RECEIVED_DELIVERED, QS_RECEIVED_BROWSED, QS_RECEIVED_STREAM, QS_RECEIVED_POLLED;
static const int QS_COLUMN_IGNORED, QS_COLUMN_BODY, QS_COLUMN_TEXT, QS_COLUMN_HEADERS;
static const int QS_COLUMN_INTEGER, QS_COLUMN_TIMESTAMP, QS_COLUMN_INSTANT;
typedef int... qs_column_kind;
typedef struct qs_column {
    const char *name;
    const char *format;
    const char *meaning;
    uint32_t received;
    uint32_t part;
    qs_column_kind published;
    int64_t low, high;
} qs_column;
const qs_column *qs_column_at(size_t index);
struct ArrowSchema {
    void (*release)(struct ArrowSchema *);
    ...;
};
struct ArrowArray {
    void (*release)(struct ArrowArray *);
    ...;
};
qs_status qs_columns_schema(uint32_t received, uint32_t parts, struct ArrowSchema *schema_out,
                            qs_error *error);
qs_status qs_rows_check(const struct ArrowSchema *schema, const struct ArrowArray *array,
                        uint64_t rows_before, uint64_t now_us, qs_error *error);
static const int QS_ENOMEM, QS_PRECONDITION_FAILED;
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
