/*
 * Deeds: files that say who has a socket. deed.h has the theory of operation.
 *
 * How a deed travels. Over a Unix socket one descriptor is sent in place of the socket's, and that one has to be a
 * socket. So it is one end of a pair, with a message of no bytes in its queue, which brings the deed. Everybody looks
 * at the message (MSG_PEEK), and nobody takes it out. The other end has been closed, and had something unread: a
 * program without this library finds a connection that was reset.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "processes/deed.h"
#include "common/file_limit.h"
#include "processes/shared_status.h"
#include "core/wait.h"
#include "xts_private.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* What is in the file. */
struct deed {
	struct deed_id id;
	uint64_t key;
	uint32_t left, without;
	/* not in deeds of older versions: */
	uint32_t shut, reserved;
	struct shared_status status;
};

#define DEED_BYTES_LEAST offsetof(struct deed, shut)

/* System calls that an interposer must not see. */
static long file_control(int fd, int command, void *argument)
{
	long r = kernel_calls.syscall(SYS_fcntl, fd, command, argument);

	return r < 0 ? -errno : r;
}

static int try_lock(int fd, short kind, int command, struct flock *lock)
{
	*lock = (struct flock){ .l_type = kind, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };
	return (int)file_control(fd, command, lock);
}

/* If another process excludes all others, it has the deed: what a lock would say is true without it. */
static void lock(int fd)
{
	struct flock ours;

	(void)try_lock(fd, F_RDLCK, F_OFD_SETLK, &ours);
}

uint64_t deed_key(int fd)
{
	uint64_t key;

	return pread(fd, &key, sizeof key, offsetof(struct deed, key)) == (ssize_t)sizeof key ? key : 0;
}

static void put(int fd, const void *data, size_t bytes, size_t at)
{
	ssize_t written = xts_limited_pwrite(fd, data, bytes, (off_t)at);

	(void)written; /* it is memory, and its size is sealed: an older version's has no room for what it does not know */
}

void deed_put_key(int fd, uint64_t key)
{
	put(fd, &key, sizeof key, offsetof(struct deed, key));
}

void deed_note_leaving(int fd)
{
	const uint32_t left = 1;

	put(fd, &left, sizeof left, offsetof(struct deed, left));
}

bool deed_was_left(int fd)
{
	uint32_t left = 0;

	if (pread(fd, &left, sizeof left, offsetof(struct deed, left)) != (ssize_t)sizeof left || !left)
		return false;
	left = 0;
	put(fd, &left, sizeof left, offsetof(struct deed, left));
	return true;
}

void deed_put_without(int fd, bool without)
{
	const uint32_t value = without;

	put(fd, &value, sizeof value, offsetof(struct deed, without));
}

bool deed_is_without(int fd)
{
	uint32_t without = 0;

	return pread(fd, &without, sizeof without, offsetof(struct deed, without)) != (ssize_t)sizeof without || without;
}

void deed_put_shut(int fd, bool shut)
{
	const uint32_t value = shut;

	put(fd, &value, sizeof value, offsetof(struct deed, shut));
}

bool deed_is_shut(int fd)
{
	uint32_t shut = 0;

	return pread(fd, &shut, sizeof shut, offsetof(struct deed, shut)) == (ssize_t)sizeof shut && shut;
}

struct shared_status *deed_map(int fd)
{
	struct stat file;
	uint8_t *at;

	if (fstat(fd, &file) || file.st_size < (off_t)sizeof(struct deed))
		return NULL;
	at = mmap(NULL, sizeof(struct deed), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return at == MAP_FAILED ? NULL : (struct shared_status *)(void *)(at + offsetof(struct deed, status));
}

void deed_unmap(struct shared_status *status)
{
	if (status)
		munmap((uint8_t *)status - offsetof(struct deed, status), sizeof(struct deed));
}

int deed_make(struct deed_id *id)
{
	struct deed deed = { 0 };
	int fd = memfd_create("xts-deed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	while (getrandom(id->bytes, sizeof id->bytes, 0) != (ssize_t)sizeof id->bytes)
		;
	deed.id = *id;
	if (xts_limited_pwrite(fd, &deed, sizeof deed, 0) != (ssize_t)sizeof deed || fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
		close(fd);
		return -EIO;
	}
	lock(fd);
	return fd;
}

int deed_again(int fd)
{
	char path[sizeof "/proc/self/fd/" + 11];
	int made;

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	made = (int)kernel_calls.syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
	if (made < 0)
		return -errno;
	lock(made);
	return made;
}

bool deed_seems(int fd)
{
	struct stat file;

	return file_control(fd, F_GET_SEALS, NULL) == SEALS && fstat(fd, &file) == 0 &&
	       file.st_size >= (off_t)DEED_BYTES_LEAST;
}

bool deed_is(int fd, const struct deed_id *id)
{
	struct deed_id found;

	return deed_seems(fd) && pread(fd, found.bytes, sizeof found.bytes, 0) == (ssize_t)sizeof found.bytes &&
	       memcmp(&found, id, sizeof found) == 0;
}

bool deed_others_have(int fd)
{
	struct flock theirs;

	return try_lock(fd, F_WRLCK, F_OFD_GETLK, &theirs) < 0 || theirs.l_type != F_UNLCK;
}

bool deed_leave(int fd)
{
	struct flock none;

	(void)try_lock(fd, F_UNLCK, F_OFD_SETLK, &none);
	return deed_others_have(fd);
}

/* --- inside a socket ---------------------------------------------------------------------------------------------- */

static int send_it(int to, int fd)
{
	union {
		struct cmsghdr head;
		uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec nothing = { .iov_base = control.bytes, .iov_len = 0 };
	struct msghdr message = {
		.msg_iov = &nothing, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
	};

	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	return kernel_calls.syscall(SYS_sendmsg, to, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* The descriptor that the message brings, or -errno. */
static int look_at_it(int from)
{
	union {
		struct cmsghdr head;
		uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec nothing = { .iov_base = control.bytes, .iov_len = 0 };
	struct msghdr message = {
		.msg_iov = &nothing, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
	};
	int fd;

	if (kernel_calls.syscall(SYS_recvmsg, from, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
		return -errno;
	if (message.msg_controllen < CMSG_LEN(sizeof fd) || control.head.cmsg_level != SOL_SOCKET ||
	    control.head.cmsg_type != SCM_RIGHTS)
		return -ENOENT;
	memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
	return fd;
}

int deed_wrap(int fd)
{
	int ends[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	r = send_it(ends[1], fd);
	if (!r && kernel_calls.syscall(SYS_sendto, ends[0], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) < 0)
		r = -errno;
	close(ends[1]);
	if (!r)
		return ends[0];
	close(ends[0]);
	return r;
}

int deed_unwrap(int carrier, const struct deed_id *id)
{
	int fd = look_at_it(carrier);

	if (fd == -ECONNRESET)
		fd = look_at_it(carrier); /* the kernel tells it once */
	if (fd >= 0 && !deed_is(fd, id)) {
		close(fd);
		fd = -ENOENT;
	}
	return fd;
}
