/* Preloaded: the wall clock of a program is ahead by the seconds that the file $TEST_CLOCK says (a 64-bit number). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_s;

__attribute__((constructor)) static void at_start(void)
{
	const char *path = getenv("TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *found;

	if (fd < 0)
		return;
	found = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (found != MAP_FAILED)
		ahead_s = found;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
	int result = (int)syscall(SYS_clock_gettime, clock, out);

	if (!result && clock == CLOCK_REALTIME && ahead_s)
		out->tv_sec += *ahead_s;
	return result;
}
