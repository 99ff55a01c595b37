/* Assertions (on in every build) and checked arithmetic. */
#ifndef QSI_CHECK_H
#define QSI_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Noreturn void qsi_assert_failed(const char *file, int line, const char *condition);
#define QS_ASSERT(condition) \
    ((condition) ? (void)0 : qsi_assert_failed(__FILE__, __LINE__, #condition))
#ifdef NDEBUG
#define QS_DCHECK(condition) ((void)0)
#else
#define QS_DCHECK(condition) QS_ASSERT(condition)
#endif
/* Returns early on an error; only for functions that hold nothing. */
#define QS_TRY(expression)                      \
    do {                                        \
        qs_status qs_try_status = (expression); \
        if (qs_try_status != QS_OK) {           \
            return qs_try_status;               \
        }                                       \
    } while (0)
#define QS_LIKELY(x) __builtin_expect(!!(x), 1)
#define QS_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* True if the result overflows. */
static inline bool qsi_add_overflows(uint64_t a, uint64_t b, uint64_t *sum_out)
{
    return __builtin_add_overflow(a, b, sum_out);
}

static inline bool qsi_mul_overflows(uint64_t a, uint64_t b, uint64_t *product_out)
{
    return __builtin_mul_overflow(a, b, product_out);
}

static inline uint64_t qsi_round_up(uint64_t value, uint64_t power_of_two)
{
    return (value + power_of_two - 1) & ~(power_of_two - 1);
}

#endif
