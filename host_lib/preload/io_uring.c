/*
 * io_uring would use our descriptors where the interposer cannot see it. So the program sees a kernel without io_uring
 * (ENOSYS), which is counted, and falls back to epoll. XTS_IO_URING=allow lets it through, for programs that use it on
 * files: operations on offloaded sockets in a ring fail (ENOTCONN), and the sockets look hung up.
 */
#include "preload.h"

#include <dlfcn.h>
#include <string.h>

#include "settings/environment.h"

bool preload_allows_io_uring(void)
{
	const char *setting = xts_environment(XTS_ENV_IO_URING);

	return setting && !strcmp(setting, "allow");
}

bool preload_may_use_io_uring(void)
{
	if (xts_inside.locked || preload_allows_io_uring())
		return true;
	preload_refused();
	preload_log("io_uring is refused: it would bypass offloaded sockets (XTS_IO_URING=allow lets it through)");
	return false;
}

/* --- liburing: makes its system calls by instruction, and returns -errno ------------------------------------------ */

struct io_uring;
struct io_uring_params;

int io_uring_setup(unsigned entries, struct io_uring_params *params);
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int io_uring_queue_init_params(unsigned entries, struct io_uring *ring, struct io_uring_params *params);
int io_uring_queue_init_mem(unsigned entries, struct io_uring *ring, struct io_uring_params *params, void *memory,
			    size_t bytes);

/* liburing's own function of this name, if the program may call it; else NULL. */
static void *allowed(const char *name)
{
	return preload_may_use_io_uring() ? dlsym(RTLD_NEXT, name) : NULL;
}

EXPORT int io_uring_setup(unsigned entries, struct io_uring_params *params)
{
	__typeof__(&io_uring_setup) next = allowed("io_uring_setup");

	return next ? next(entries, params) : -ENOSYS;
}

EXPORT int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
	__typeof__(&io_uring_queue_init) next = allowed("io_uring_queue_init");

	return next ? next(entries, ring, flags) : -ENOSYS;
}

EXPORT int io_uring_queue_init_params(unsigned entries, struct io_uring *ring, struct io_uring_params *params)
{
	__typeof__(&io_uring_queue_init_params) next = allowed("io_uring_queue_init_params");

	return next ? next(entries, ring, params) : -ENOSYS;
}

EXPORT int io_uring_queue_init_mem(unsigned entries, struct io_uring *ring, struct io_uring_params *params,
				   void *memory, size_t bytes)
{
	__typeof__(&io_uring_queue_init_mem) next = allowed("io_uring_queue_init_mem");

	return next ? next(entries, ring, params, memory, bytes) : -ENOSYS;
}
