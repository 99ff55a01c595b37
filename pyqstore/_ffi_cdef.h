/* What Python calls of qstore/codec.h: stateless functions over buffers. */
typedef int... qs_status;
typedef struct qs_error {
    char text[...];
    ...;
} qs_error;
uint32_t qs_crc32c(uint32_t seed, const void *data, size_t data_bytes);
qs_status qs_properties_check(const void *blob, size_t blob_bytes, qs_error *error);
