/* Checks four rows in parallel: the instruction takes a word in each cycle, but its result is
 * available only after three cycles. */
#include "crc32c_rows.h"

#include "qstore/codec.h"

#include "check.h"
#include "crc32c_hardware.h"
#include "le.h"

#define LANES 4u
#define LANE_BYTES_MAX 2048u /* longer rows are faster alone, in three parts */

static bool row_matches(const struct qsi_crc32c_row *row, const uint8_t *prefix,
                        uint32_t prefix_bytes, const uint8_t *data, uint32_t begin)
{
    uint32_t crc = qs_crc32c(row->seed, prefix, prefix_bytes);

    QS_DCHECK(begin <= row->end);
    return qs_crc32c(crc, data + begin, row->end - begin) == row->crc;
}

static bool cell_matches(const uint8_t *cell, uint32_t seed)
{
    uint32_t bytes = QSI_CRC32C_CELL_BYTES - 4;

    return qs_crc32c(seed, cell, bytes) == qsi_get_u32(cell + bytes);
}

static uint32_t seed_of(uint32_t seed, uint64_t number)
{
    uint8_t bytes[8];

    qsi_put_u64(bytes, number);
    return qs_crc32c(seed, bytes, sizeof bytes);
}

#ifdef HARDWARE

HARDWARE static inline uint32_t steps(uint32_t crc, const uint8_t *p, uint32_t bytes)
{
    for (; bytes >= 8; bytes -= 8, p += 8) {
        crc = step_u64(crc, qsi_get_u64(p));
    }
    if (bytes >= 4) {
        crc = step_u32(crc, qsi_get_u32(p));
        bytes -= 4;
        p += 4;
    }
    for (; bytes > 0; bytes--, p++) {
        crc = step_u8(crc, *p);
    }
    return crc;
}

/* Four rows, the first of which begins at begin. */
HARDWARE static inline bool four_match(const struct qsi_crc32c_row rows[LANES],
                                       const uint8_t *prefix, uint32_t prefix_bytes,
                                       const uint8_t *data, uint32_t begin, uint32_t bytes_least)
{
    uint32_t words = bytes_least & ~7u;
    const uint8_t *p0 = data + begin, *p1 = data + rows[0].end;
    const uint8_t *p2 = data + rows[1].end, *p3 = data + rows[2].end;
    uint32_t crc0 = steps(~rows[0].seed, prefix, prefix_bytes);
    uint32_t crc1 = steps(~rows[1].seed, prefix, prefix_bytes);
    uint32_t crc2 = steps(~rows[2].seed, prefix, prefix_bytes);
    uint32_t crc3 = steps(~rows[3].seed, prefix, prefix_bytes);

    for (uint32_t at = 0; at < words; at += 8) {
        crc0 = step_u64(crc0, qsi_get_u64(p0 + at));
        crc1 = step_u64(crc1, qsi_get_u64(p1 + at));
        crc2 = step_u64(crc2, qsi_get_u64(p2 + at));
        crc3 = step_u64(crc3, qsi_get_u64(p3 + at));
    }
    crc0 = steps(crc0, p0 + words, rows[0].end - begin - words);
    crc1 = steps(crc1, p1 + words, rows[1].end - rows[0].end - words);
    crc2 = steps(crc2, p2 + words, rows[2].end - rows[1].end - words);
    crc3 = steps(crc3, p3 + words, rows[3].end - rows[2].end - words);
    return ~crc0 == rows[0].crc && ~crc1 == rows[1].crc && ~crc2 == rows[2].crc &&
           ~crc3 == rows[3].crc;
}

/* Returns how many of the rows were checked, four at a time; *matches_out: whether they match. */
HARDWARE static uint32_t lanes_match(const struct qsi_crc32c_row *rows, uint32_t count,
                                     const uint8_t *prefix, uint32_t prefix_bytes,
                                     const uint8_t *data, uint32_t begin, bool *matches_out)
{
    uint32_t done = 0;

    *matches_out = true;
    for (; *matches_out && count - done >= LANES; done += LANES, begin = rows[done - 1].end) {
        uint32_t from = begin, least = UINT32_MAX;
        for (uint32_t i = done; i < done + LANES; i++) {
            QS_DCHECK(rows[i].end >= from);
            uint32_t bytes = rows[i].end - from;
            least = bytes < least ? bytes : least;
            from = rows[i].end;
        }
        if (from - begin > LANES * LANE_BYTES_MAX) {
            break;
        }
        *matches_out = four_match(rows + done, prefix, prefix_bytes, data, begin, least);
    }
    QS_DCHECK(done <= count);
    return done;
}

HARDWARE static uint32_t cells_match(const uint8_t *cells, uint32_t count, uint32_t seed,
                                     uint64_t number, uint32_t *seeds_out)
{
    for (uint32_t i = 0; i < count; i++, cells += QSI_CRC32C_CELL_BYTES) {
        uint32_t crc = step_u64(~seed, number + i);

        seeds_out[i] = ~crc;
        crc = step_u64(crc, qsi_get_u64(cells));
        crc = step_u64(crc, qsi_get_u64(cells + 8));
        crc = step_u64(crc, qsi_get_u64(cells + 16));
        crc = step_u32(crc, qsi_get_u32(cells + 24));
        if (~crc != qsi_get_u32(cells + 28)) {
            return i;
        }
    }
    return count;
}

#endif

bool qsi_crc32c_rows_match(const struct qsi_crc32c_row *rows, uint32_t count, const uint8_t *prefix,
                           uint32_t prefix_bytes, const uint8_t *data, uint32_t begin)
{
    for (uint32_t i = 0; i < count;) {
#ifdef HARDWARE
        if (HAVE_HARDWARE) {
            bool matches;
            uint32_t done =
                lanes_match(rows + i, count - i, prefix, prefix_bytes, data, begin, &matches);
            if (!matches) {
                return false;
            }
            begin = done > 0 ? rows[i + done - 1].end : begin;
            i += done;
            if (i == count) {
                return true;
            }
        }
#endif
        if (!row_matches(&rows[i], prefix, prefix_bytes, data, begin)) {
            return false;
        }
        begin = rows[i++].end;
    }
    return true;
}

uint32_t qsi_crc32c_cells_match(const uint8_t *cells, uint32_t count, uint32_t seed,
                                uint64_t first_number, uint32_t *seeds_out)
{
#ifdef HARDWARE
    if (HAVE_HARDWARE) {
        return cells_match(cells, count, seed, first_number, seeds_out);
    }
#endif
    for (uint32_t i = 0; i < count; i++) {
        seeds_out[i] = seed_of(seed, first_number + i);
        if (!cell_matches(cells + (size_t)i * QSI_CRC32C_CELL_BYTES, seeds_out[i])) {
            return i;
        }
    }
    return count;
}
