/* Another library that is preloaded, after the interposer: it counts writes, and looks up the C library's in one of two
 * ways. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#ifndef FROM
#error "the library to look in"
#endif

static int count;

ssize_t write(int fd, const void *data, size_t bytes)
{
	static ssize_t (*next)(int, const void *, size_t);

	if (!next)
		*(void **)&next = dlsym(FROM, "write");
	count++;
	return next(fd, data, bytes);
}

__attribute__((destructor)) static void tell(void)
{
	printf("%s\n", count ? "counted" : "not called");
	fflush(stdout);
}
