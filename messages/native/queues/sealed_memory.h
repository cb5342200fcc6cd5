/*
 * The size of shared memory that another process has made. Without a seal, another holder could shrink it while it is
 * mapped, and a process that then accesses it gets SIGBUS.
 */
#ifndef XTS_SEALED_MEMORY_H
#define XTS_SEALED_MEMORY_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 0: it can be shrunk, or is not such memory. The system call is made by its number, because fstat() of some C
 * libraries calls newfstatat(2), which can look at any file and which the filters of system calls therefore refuse. */
static inline uint64_t xts_sealed_bytes(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat memory;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || syscall(SYS_fstat, fd, &memory) < 0 || memory.st_size < 0)
		return 0;
	return (uint64_t)memory.st_size;
}

/* A number that no other such memory has; 0: it has none. */
static inline uint64_t xts_memory_number(int fd)
{
	struct stat memory;

	return syscall(SYS_fstat, fd, &memory) < 0 ? 0 : (uint64_t)memory.st_ino;
}

#endif
