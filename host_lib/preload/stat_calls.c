/*
 * fstat(2) and similar calls: the number of an offloaded connection's file. Programs compare st_ino to see whether a
 * descriptor that one process has passed is what another one has got, as Dovecot's do. The kernel's socket that keeps
 * the place of an offloaded one cannot tell: it is a new one after passing, and one for all connections that a
 * process has accepted. So the number is made of the connection's two addresses, which all who have it know. All else
 * is the kernel's answer for that socket, which is right.
 */
#include "preload.h"

#include <netinet/in.h>
#include <sys/stat.h>

#define PLACES_OF_CONNECTIONS (UINT64_C(1) << 62) /* the kernel counts its own sockets from 1 */

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout, whichever name a program was built with");

static uint64_t add(uint64_t hash, const void *data, size_t bytes) /* FNV-1a: nobody gains by two equal numbers */
{
	for (const uint8_t *at = data; at < (const uint8_t *)data + bytes; at++)
		hash = (hash ^ *at) * UINT64_C(0x100000001b3);
	return hash;
}

static uint64_t add_address(uint64_t hash, const struct sockaddr_storage *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

	if (address->ss_family == AF_INET6)
		return add(add(hash, &v6->sin6_addr, sizeof v6->sin6_addr), &v6->sin6_port, sizeof v6->sin6_port);
	return add(add(hash, &v4->sin_addr, sizeof v4->sin_addr), &v4->sin_port, sizeof v4->sin_port);
}

/* 0: it is not a connection, or has ended, or libxts itself asks (a notice on standard error). */
static uint64_t number_of(int fd)
{
	struct descriptor d = descriptor_get(fd);
	struct sockaddr_storage local = { 0 }, peer = { 0 };
	socklen_t local_bytes = sizeof local, peer_bytes = sizeof peer;
	int before = errno;
	uint64_t number = 0;

	if (d.kind != DESCRIPTOR_OFFLOADED || d.flags & (DESCRIPTOR_LISTENS | DESCRIPTOR_DATAGRAM) || xts_inside.locked)
		return 0;
	if (XTS(xts_getsockname((int)d.number, (struct sockaddr *)&local, &local_bytes)) == 0 &&
	    XTS(xts_getpeername((int)d.number, (struct sockaddr *)&peer, &peer_bytes)) == 0)
		number = add_address(add_address(UINT64_C(0xcbf29ce484222325), &local), &peer) | PLACES_OF_CONNECTIONS;
	errno = before;
	return number & INT64_MAX;
}

static int with_number(int r, int fd, struct stat *status)
{
	uint64_t number = r == 0 && S_ISSOCK(status->st_mode) ? number_of(fd) : 0;

	if (number)
		status->st_ino = number;
	return r;
}

static bool is_the_descriptor(const char *path, int flags)
{
	return flags & AT_EMPTY_PATH && (!path || !*path);
}

EXPORT int fstat(int fd, struct stat *status)
{
	return with_number(real()->fstat(fd, status), fd, status);
}

EXPORT int fstat64(int fd, struct stat64 *status)
{
	return fstat(fd, (struct stat *)status);
}

EXPORT int fstatat(int fd, const char *path, struct stat *status, int flags)
{
	int r = real()->fstatat(fd, path, status, flags);

	return r == 0 && is_the_descriptor(path, flags) ? with_number(r, fd, status) : r;
}

EXPORT int fstatat64(int fd, const char *path, struct stat64 *status, int flags)
{
	return fstatat(fd, path, (struct stat *)status, flags);
}

EXPORT int statx(int fd, const char *path, int flags, unsigned wanted, struct statx *status)
{
	int r = real()->statx(fd, path, flags, wanted, status);
	uint64_t number = r == 0 && is_the_descriptor(path, flags) && S_ISSOCK(status->stx_mode) ? number_of(fd) : 0;

	if (number)
		status->stx_ino = number;
	return r;
}

/* Programs that were linked with a C library of before 2.33 call these. */
EXPORT int __fxstat(int version, int fd, struct stat *status)
{
	return with_number(real()->__fxstat(version, fd, status), fd, status);
}

EXPORT int __fxstat64(int version, int fd, struct stat64 *status)
{
	return __fxstat(version, fd, (struct stat *)status);
}

EXPORT int __fxstatat(int version, int fd, const char *path, struct stat *status, int flags)
{
	int r = real()->__fxstatat(version, fd, path, status, flags);

	return r == 0 && is_the_descriptor(path, flags) ? with_number(r, fd, status) : r;
}

EXPORT int __fxstatat64(int version, int fd, const char *path, struct stat64 *status, int flags)
{
	return __fxstatat(version, fd, path, (struct stat *)status, flags);
}
