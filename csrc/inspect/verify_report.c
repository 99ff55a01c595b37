/* What a verification reports while it runs: damage and progress. */
#include "check.h"
#include "error.h"
#include "verify_internal.h"

qs_status qsi_verify_found(struct qsi_verify *verify, qs_status status, const qs_error *detail,
                           qs_error *error)
{
    if (status == QS_OK || status == QS_ECORRUPT) {
        if (status == QS_ECORRUPT) {
            if (verify->verified->damages == 0) {
                verify->first = *detail;
            }
            verify->verified->damages += 1;
            if (verify->callbacks->damage != NULL) {
                verify->callbacks->damage(verify->callbacks->context, detail);
            }
        }
        QS_DCHECK(verify->verified->damages > 0 || status == QS_OK);
        return verify->stopped ? qsi_fail(error, QS_EINTR, "stopped") : QS_OK;
    }
    if (error != NULL) {
        *error = *detail;
    }
    return status;
}

void qsi_verify_report(struct qsi_verify *verify, uint64_t bytes_min)
{
    uint64_t done =
        verify->bytes_done < verify->bytes_total ? verify->bytes_done : verify->bytes_total;

    if (verify->callbacks->progress == NULL || verify->stopped ||
        done < verify->bytes_reported + bytes_min) {
        return;
    }
    QS_DCHECK(done >= verify->bytes_reported && done <= verify->bytes_total);
    verify->bytes_reported = done;
    verify->stopped =
        !verify->callbacks->progress(verify->callbacks->context, done, verify->bytes_total);
}

void qsi_verify_progress(struct qsi_verify *verify, uint64_t bytes)
{
    verify->bytes_done += bytes;
    qsi_verify_report(verify, QSI_VERIFY_REPORT_BYTES);
}
