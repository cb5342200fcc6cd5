/*
 * The size of shared memory that another process has made. Unsealed, another holder could make it shorter while it is
 * mapped, and whoever touches it then gets SIGBUS.
 */
#ifndef XTS_SEALED_MEMORY_H
#define XTS_SEALED_MEMORY_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 0: it can become shorter, or is no memory. The call is made by its number, because fstat() of some C libraries makes
 * newfstatat(2), which can ask about any file: the filters of system calls let nobody make that one. */
static inline uint64_t xts_sealed_bytes(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat memory;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || syscall(SYS_fstat, fd, &memory) < 0 || memory.st_size < 0)
		return 0;
	return (uint64_t)memory.st_size;
}

#endif
