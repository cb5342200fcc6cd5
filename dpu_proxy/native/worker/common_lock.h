/*
 * Mutexes that all workers share.
 *
 * A worker does not take any of them between two messages, because it would wait for another worker, and all its
 * channels with it. They are for rare operations: sockets that go to another process, names and groups, evictions. What
 * a worker has to know in between is in an atomic flag or counter next to the data, and it takes the mutex only when
 * that has changed.
 *
 * Each thread counts how often it takes one, so that tests and operators can verify this (common_locks in a worker's
 * statistics). Not counted are those of TLS's configuration and of the handshake threads (ulp/), which are taken while
 * a connection with TLS begins or ends. tests/unit/proxy/test_worker_sources.py has the list of all other mutexes.
 */
#ifndef XTS_COMMON_LOCK_H
#define XTS_COMMON_LOCK_H

#include <pthread.h>
#include <stdint.h>

extern _Thread_local uint64_t common_locks;

static inline void common_lock(pthread_mutex_t *mutex)
{
	common_locks++;
	pthread_mutex_lock(mutex);
}

static inline void common_unlock(pthread_mutex_t *mutex)
{
	pthread_mutex_unlock(mutex);
}

#endif
