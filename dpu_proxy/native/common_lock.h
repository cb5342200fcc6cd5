/*
 * Mutexes that all workers have in common.
 *
 * Between two messages a worker takes none of them: one worker would wait there for another, and with it all its
 * channels. They are for what is rare: sockets that change hands, names and groups, evictions. What a worker has to know
 * of it in between stands in an atomic flag or counter next to the data, and the mutex is taken when that has changed.
 *
 * Each thread counts how often it takes one, so that tests and operators see whether that is so (common_locks of a
 * worker's statistics).
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
