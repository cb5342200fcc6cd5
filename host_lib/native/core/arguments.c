/* Checking arguments, where it is no matter of one comparison. arguments.h has the theory of operation. */
#include "core/arguments.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux 5.14; not in the headers of every distribution we build on. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* --- where memory ends -------------------------------------------------------------------------------------------- */

uintptr_t xts_argument_end = (uintptr_t)1 << 56; /* on no machine is there more */

/* May a process have no memory at this address? It may also be that it has some. By number: ThreadSanitizer's mmap()
 * changes an address that it does not like to NULL, which is then the address that is asked for. */
static bool is_beyond(uintptr_t address, uintptr_t page_bytes)
{
	long at = syscall(SYS_mmap, address, page_bytes, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (at == -1)
		return errno == ENOMEM;
	(void)syscall(SYS_munmap, at, page_bytes);
	return false;
}

/* The sizes are those of x86-64, arm64 and riscv64. x86-64 leaves out the last page, too. */
__attribute__((constructor)) static void find_end(void)
{
	static const unsigned char bits[] = { 47, 48, 52, 56 };
	uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	int before = errno;

	for (size_t i = 0; i < sizeof bits; i++) {
		uintptr_t end = (uintptr_t)1 << bits[i];

		if (is_beyond(end, page_bytes)) {
			xts_argument_end = is_beyond(end - page_bytes, page_bytes) ? end - page_bytes : end;
			break;
		}
	}
	errno = before;
}

/* --- what is accessible ------------------------------------------------------------------------------------------- */

/* Makes the page of this address present, for reading or for writing, as an access would. False: an access would be a
 * fault. */
static bool populates(uintptr_t address, uintptr_t page_bytes, int advice)
{
	uintptr_t page = address & ~(page_bytes - 1);

	return madvise((void *)page, page_bytes, advice) == 0; /* NOLINT(performance-no-int-to-ptr) */
}

/* Not if the kernel is older, or a sandbox forbids it. */
static bool kernel_tells(uintptr_t page_bytes)
{
	static _Atomic int known; /* 1: it does, -1: it does not */
	char here = 0;

	if (!atomic_load_explicit(&known, memory_order_relaxed))
		atomic_store_explicit(&known, populates((uintptr_t)&here, page_bytes, MADV_POPULATE_WRITE) ? 1 : -1,
				      memory_order_relaxed);
	return atomic_load_explicit(&known, memory_order_relaxed) > 0;
}

/* On the caller's stack, not far above this frame: it is there, and may be read and written. Most arguments are such
 * ones, and to ask the kernel is a system call (0.3 to 0.5 us here), which one of connect() noticed. */
#define NEAR_BYTES 4096u

static inline bool is_near_on_stack(uintptr_t first, size_t bytes)
{
	uintptr_t above = first - (uintptr_t)__builtin_frame_address(0);

	return above < NEAR_BYTES && bytes <= NEAR_BYTES - above;
}

static bool is_accessible(const void *data, size_t bytes, int advice)
{
	uintptr_t page_bytes, first = (uintptr_t)data, last = first + bytes - 1;
	int before = errno;
	bool accessible;

	if (!bytes || is_near_on_stack(first, bytes))
		return true;
	if (argument_is_bad(data, bytes))
		return false;
	page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	accessible = !kernel_tells(page_bytes) ||
		     (populates(first, page_bytes, advice) &&
		      (first / page_bytes == last / page_bytes || populates(last, page_bytes, advice)));
	errno = before;
	return accessible;
}

bool xts_argument_is_readable(const void *data, size_t bytes)
{
	return is_accessible(data, bytes, MADV_POPULATE_READ);
}

bool xts_argument_is_writable(void *data, size_t bytes)
{
	return is_accessible(data, bytes, MADV_POPULATE_WRITE);
}

/* --- arguments of calls ------------------------------------------------------------------------------------------- */

#define CONTROLS_BYTES_MAX 131072u /* net.core.optmem_max, if nobody has changed it */

int xts_argument_address(const struct sockaddr *address, socklen_t length)
{
	if (length > sizeof(struct sockaddr_storage))
		return -EINVAL;
	return xts_argument_is_readable(address, length) ? 0 : -EFAULT;
}

int xts_argument_result(void *value, socklen_t *length)
{
	if (!xts_argument_is_writable(length, sizeof *length))
		return -EFAULT;
	if ((int)*length < 0)
		return -EINVAL;
	/* The length may be larger than what is there: the result is shorter, mostly. */
	return xts_argument_is_writable(value, *length ? 1 : 0) ? 0 : -EFAULT;
}

bool xts_argument_controls_are_whole(const struct msghdr *message)
{
	struct msghdr m = *message; /* the macros take no const pointer */
	const char *end = (const char *)m.msg_control + m.msg_controllen;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_len < sizeof *c || c->cmsg_len > (size_t)(end - (const char *)c))
			return false;
	return true;
}

int xts_argument_outgoing(const struct msghdr *message)
{
	int r = argument_message(message);

	if (r && r != -EMSGSIZE)
		return r;
	if (message->msg_name && argument_is_bad(message->msg_name, message->msg_namelen))
		return -EFAULT;
	if (r)
		return r;
	if (message->msg_controllen > CONTROLS_BYTES_MAX)
		return -ENOBUFS;
	return argument_is_bad(message->msg_control, message->msg_controllen) ? -EFAULT : 0;
}
