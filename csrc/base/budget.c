#include "budget.h"

#include "alloc.h"
#include "check.h"

struct qsi_budget *qsi_budget_create(void)
{
    struct qsi_budget *budget = qsi_zalloc(sizeof *budget);

    if (budget != NULL) {
        budget->refs = 1;
    }
    return budget;
}

struct qsi_budget *qsi_budget_ref(struct qsi_budget *budget)
{
    QS_DCHECK(__atomic_load_n(&budget->refs, __ATOMIC_RELAXED) > 0);
    __atomic_fetch_add(&budget->refs, 1, __ATOMIC_RELAXED);
    return budget;
}

void qsi_budget_drop_spares(struct qsi_budget *budget)
{
    for (uint32_t i = 0; i < QSI_BUDGET_SPARES; i++) {
        qsi_free(__atomic_exchange_n(&budget->spares[i], NULL, __ATOMIC_SEQ_CST));
    }
}

void qsi_budget_close(struct qsi_budget *budget)
{
    if (budget != NULL) {
        __atomic_store_n(&budget->is_closed, 1, __ATOMIC_SEQ_CST);
        qsi_budget_drop_spares(budget);
        qsi_budget_unref(budget);
    }
}

void qsi_budget_unref(struct qsi_budget *budget)
{
    if (budget != NULL && __atomic_fetch_sub(&budget->refs, 1, __ATOMIC_ACQ_REL) == 1) {
        qsi_budget_drop_spares(budget);
        qsi_free(budget);
    }
}
