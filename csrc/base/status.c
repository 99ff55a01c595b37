/* Names and texts of statuses, generated from status.def. */
#include "qstore/status.h"

const char *qs_status_name(qs_status status)
{
    switch (status) {
#define QS_STATUS(name, number, text) \
    case name:                        \
        return #name;
#include "qstore/status.def"
#undef QS_STATUS
    }
    return "QS_UNKNOWN";
}

const char *qs_status_text(qs_status status)
{
    switch (status) {
#define QS_STATUS(name, number, text) \
    case name:                        \
        return text;
#include "qstore/status.def"
#undef QS_STATUS
    }
    return "unknown status";
}
