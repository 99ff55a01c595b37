/* SipHash-1-3 with a key of the process: a hash of names that come from outside.
 *
 * Without the key, colliding names cannot be chosen. */
#ifndef QSI_HASH_H
#define QSI_HASH_H

#include <stddef.h>
#include <stdint.h>

#define QSI_HASH_KEY_BYTES 16

/* The hash with the process's key.  For memory only: it differs between processes. */
uint64_t qsi_hash(const void *data, size_t bytes);

/* REQUIRES that nothing was hashed yet.  The io floor, which has random numbers, calls it when the
 * library is loaded; before that the key is zero. */
void qsi_hash_set_key(const uint8_t key[QSI_HASH_KEY_BYTES]);

#endif
