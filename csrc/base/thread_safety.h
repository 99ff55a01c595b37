/* Which lock a field or a function needs, in words that clang checks: ./dev lint builds csrc with
 * -Wthread-safety.  For any other compiler the words are empty.
 *
 * A lock is known to clang by its class, not by the mutex of one object: in C an attribute cannot
 * name a field beside the one that it stands on, and a structure of a lower floor does not know
 * the store whose lock protects it.  A class is a name and nothing else; it has no storage.  So
 * clang checks that some lock of the class is held, and QS_ASSERT_HELD (lock.h) that it is the
 * one of this object. */
#ifndef QSI_THREAD_SAFETY_H
#define QSI_THREAD_SAFETY_H

#include "qstore/status.h"

#if defined(__clang__)
#define QSI_THREAD_SAFETY(...) __attribute__((__VA_ARGS__))
/* Of a function that holds a lock when it returns QS_OK, clang follows what it returned to a
 * comparison with a literal, and not to one with an enumerator. */
#define QS_OK 0
#else
#define QSI_THREAD_SAFETY(...)
#endif

struct QSI_THREAD_SAFETY(capability("lock")) qsi_lock_class {
    char unused;
};
#define QSI_LOCK_CLASS(name) extern struct qsi_lock_class name

/* Of a field: read and written with the lock held.  POINTEE: what the field points to is. */
#define QSI_GUARDED_BY(lock) QSI_THREAD_SAFETY(guarded_by(lock))
#define QSI_POINTEE_GUARDED_BY(lock) QSI_THREAD_SAFETY(pt_guarded_by(lock))

/* Of a function.  REQUIRES: the caller holds the lock, and holds it again when the function
 * returns, which may release it meanwhile.  EXCLUDES: the caller does not hold it. */
#define QSI_REQUIRES(...) QSI_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define QSI_EXCLUDES(lock) QSI_THREAD_SAFETY(locks_excluded(lock))
#define QSI_ACQUIRES(lock) QSI_THREAD_SAFETY(acquire_capability(lock))
#define QSI_RELEASES(lock) QSI_THREAD_SAFETY(release_capability(lock))
/* Holds the lock when it returns QS_OK, which is 0. */
#define QSI_ACQUIRES_IF_OK(lock) QSI_THREAD_SAFETY(try_acquire_capability(0, lock))
/* From this call on the caller is taken to hold the lock, since it needs none: no other thread
 * knows of the object yet, or any more. */
#define QSI_ASSUMES(...) QSI_THREAD_SAFETY(assert_capability(__VA_ARGS__))
/* The body is not looked at: what takes and gives back a mutex, and what clang cannot follow. */
#define QSI_UNCHECKED QSI_THREAD_SAFETY(no_thread_safety_analysis)

/* The lock of a store (struct qs_store.mutex), which covers everything that the store has made of
 * the floors below: queues, journal, message counts, routes, channels. */
QSI_LOCK_CLASS(qsi_store_mutex);

#endif
