/* Finding the C library's own functions. */
#include "real.h"

#include <dlfcn.h>
#include <errno.h>

struct real real_calls;
_Atomic bool real_resolved;

/* Stands for a function this C library does not have. */
static int missing(void)
{
	errno = ENOSYS;
	return -1;
}

static void find(void **function, const char *name)
{
	*function = dlsym(RTLD_NEXT, name);
	if (!*function)
		*(int (**)(void))function = missing;
}

/*
 * May run in several threads at once, which all write the same values. dlsym() allocates only if it does not find the
 * name (for dlerror()). An allocator that calls us at that point finds all names set, except the newest, which are
 * last.
 */
void real_resolve(void)
{
#define XTS_REAL_FIND(name) find((void **)&real_calls.name, #name);
	XTS_REAL_CALLS(XTS_REAL_FIND)
#undef XTS_REAL_FIND
	atomic_store_explicit(&real_resolved, true, memory_order_release);
}
