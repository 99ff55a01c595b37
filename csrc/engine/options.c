/* The options of opening a store. */
#include "error.h"
#include "message_rules.h"
#include "store_internal.h"

#define FILE_BYTES_MIN (64u << 10)
/* A place in a message file, in units of 8 bytes, fits 32 bits. */
#define MESSAGE_FILE_BYTES_MAX (UINT64_C(16) << 30)
#define MEMORY_BUDGET_MIN (64u << 10)

/* ---- options ---- */

void qs_options_default(qs_options *options_out)
{
    *options_out = (qs_options){
        .memory_budget = UINT64_C(256) << 20,
        .embed_below = 4096,
        .checkpoint_bytes = UINT64_C(256) << 20,
        .checkpoint_interval_ms = 60000,
        .journal_file_bytes = UINT64_C(64) << 20,
        .message_file_bytes = UINT64_C(64) << 20,
        .body_bytes_max = QSI_BODY_BYTES_MAX,
        .sync = QS_SYNC_FDATASYNC,
        .recovery = QS_RECOVERY_STRICT,
        .create = true,
        .background = true,
    };
}

static bool is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

qs_status qsi_check_options(const qs_options *options, qs_error *error)
{
    if (!is_power_of_two(options->journal_file_bytes) ||
        options->journal_file_bytes < FILE_BYTES_MIN || options->journal_file_bytes > UINT32_MAX) {
        return qsi_fail(error, QS_EINVAL,
                        "journal_file_bytes is %llu: a power of two from 64 KiB to 2 GiB is needed",
                        (unsigned long long)options->journal_file_bytes);
    }
    if (!is_power_of_two(options->message_file_bytes) ||
        options->message_file_bytes < FILE_BYTES_MIN ||
        options->message_file_bytes > MESSAGE_FILE_BYTES_MAX) {
        return qsi_fail(
            error, QS_EINVAL,
            "message_file_bytes is %llu: a power of two from 64 KiB to 16 GiB is needed",
            (unsigned long long)options->message_file_bytes);
    }
    if (options->segment_entries != 0 &&
        !qsi_segment_entries_are_possible(options->segment_entries)) {
        return qsi_fail(error, QS_EINVAL,
                        "segment_entries is %u: a power of two from %u to %u is needed",
                        options->segment_entries, QSI_SEGMENT_ENTRIES_MIN, QSI_SEGMENT_ENTRIES_MAX);
    }
    if (options->memory_budget < MEMORY_BUDGET_MIN) {
        return qsi_fail(error, QS_EINVAL, "memory_budget is %llu: 64 KiB at least is needed",
                        (unsigned long long)options->memory_budget);
    }
    if (options->body_bytes_max == 0 || options->body_bytes_max > UINT64_C(1) << 30) {
        return qsi_fail(error, QS_EINVAL, "body_bytes_max is %llu: 1 to 1 GiB is needed",
                        (unsigned long long)options->body_bytes_max);
    }
    if (options->sync > QS_SYNC_NONE || options->recovery > QS_RECOVERY_SALVAGE) {
        return qsi_fail(error, QS_EINVAL, "sync %u, recovery %u: unknown value", options->sync,
                        options->recovery);
    }
    return QS_OK;
}
