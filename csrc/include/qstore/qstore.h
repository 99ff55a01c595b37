/* pyqstore's engine: a store (one directory, one owner) and channels on it.  store.h has the rules
 * for every function. */
#ifndef QSTORE_QSTORE_H
#define QSTORE_QSTORE_H

#include "qstore/admin.h"
#include "qstore/adopt.h"
#include "qstore/batch.h"
#include "qstore/channel.h"
#include "qstore/clients.h"
#include "qstore/events.h"
#include "qstore/server.h"
#include "qstore/store.h"
#include "qstore/stream.h"
#include "qstore/trace.h"
#include "qstore/transaction.h"

#endif
