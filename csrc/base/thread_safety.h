/* Annotations for the lock that a field or a function needs.  clang checks them: ./dev lint builds
 * csrc with -Wthread-safety.  For other compilers they are empty.
 *
 * clang identifies a lock by its class, not by the mutex of one object: in C an attribute cannot
 * name a sibling field, and a structure of a lower floor does not know the store whose lock
 * protects it.  A class is only a name, without storage.  So clang checks that some lock of the
 * class is held, and QS_ASSERT_HELD (lock.h) that it is the lock of this object. */
#ifndef QSI_THREAD_SAFETY_H
#define QSI_THREAD_SAFETY_H

#include "qstore/status.h"

#if defined(__clang__)
#define QSI_THREAD_SAFETY(...) __attribute__((__VA_ARGS__))
/* For a function that holds a lock if it returns QS_OK, clang follows comparisons of the result
 * with a literal, but not with an enumerator. */
#define QS_OK 0
#else
#define QSI_THREAD_SAFETY(...)
#endif

struct QSI_THREAD_SAFETY(capability("lock")) qsi_lock_class {
    char unused;
};
#define QSI_LOCK_CLASS(name) extern struct qsi_lock_class name

/* For a field: it is read and written with the lock held.  POINTEE: its target is. */
#define QSI_GUARDED_BY(lock) QSI_THREAD_SAFETY(guarded_by(lock))
#define QSI_POINTEE_GUARDED_BY(lock) QSI_THREAD_SAFETY(pt_guarded_by(lock))

/* For a function.  REQUIRES: the caller holds the lock, and holds it again when the function
 * returns; the function may release it meanwhile.  EXCLUDES: the caller does not hold it. */
#define QSI_REQUIRES(...) QSI_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define QSI_EXCLUDES(lock) QSI_THREAD_SAFETY(locks_excluded(lock))
#define QSI_ACQUIRES(lock) QSI_THREAD_SAFETY(acquire_capability(lock))
#define QSI_RELEASES(lock) QSI_THREAD_SAFETY(release_capability(lock))
/* The lock is held if the function returns QS_OK, which is 0. */
#define QSI_ACQUIRES_IF_OK(lock) QSI_THREAD_SAFETY(try_acquire_capability(0, lock))
/* After this call clang assumes that the lock is held.  None is needed, because no other thread
 * knows the object yet, or any more. */
#define QSI_ASSUMES(...) QSI_THREAD_SAFETY(assert_capability(__VA_ARGS__))
/* The body is not checked: for functions that lock and unlock a mutex, and for those that clang
 * cannot follow. */
#define QSI_UNCHECKED QSI_THREAD_SAFETY(no_thread_safety_analysis)

/* The lock of a store (struct qs_store.mutex), which covers all objects of the store in the floors
 * below: queues, journal, message counts, routes, channels. */
QSI_LOCK_CLASS(qsi_store_mutex);

#endif
