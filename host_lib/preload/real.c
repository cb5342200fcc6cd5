/* Finding the C library's own functions. */
#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

struct real real_calls;
_Atomic bool real_resolved;

/* Stands for a function this C library does not have. */
static int missing(void)
{
	errno = ENOSYS;
	return -1;
}

/* The names, and where in struct real each function's address goes. Holds no pointers: it needs no relocation. */
#define XTS_REAL_NAME(name) { #name, offsetof(struct real, name) },
static const struct {
	char name[40];
	size_t place;
} names[] = { XTS_REAL_CALLS(XTS_REAL_NAME) };
#undef XTS_REAL_NAME

/*
 * May run in several threads at once, which all write the same values. dlsym() allocates only if it does not find the
 * name (for dlerror()). An allocator that calls us at that point finds all names set, except the newest, which are
 * last.
 */
void real_resolve(void)
{
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		int (**function)(void) = (int (**)(void))((char *)&real_calls + names[i].place);

		*(void **)function = dlsym(RTLD_NEXT, names[i].name);
		if (!*function)
			*function = missing;
	}
	atomic_store_explicit(&real_resolved, true, memory_order_release);
}
