/* The key of a listener, kept in the kernel's half of it. listener_key.h says where, and why. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>

#include "processes/listener_key.h"
#include "processes/wipe.h"
#include "core/wait.h"
#include "xts_private.h"

#define KEY_BYTES 16u /* of each of the kernel's two keys */

/* What the backup key says besides, so that another one is not taken for it. */
static const uint8_t mark[KEY_BYTES - sizeof(uint64_t)] = { 'x', 't', 's', '-', 'k', 'e', 'y', '1' };

struct fastopen_keys {
	uint8_t first[KEY_BYTES];
	uint64_t key;
	uint8_t mark[sizeof mark];
};
_Static_assert(sizeof(struct fastopen_keys) == 2 * KEY_BYTES, "as the option has them");

/* Returns the number of bytes; -errno. A direct system call, so that an interposer does not see the descriptor. */
static int get(int fd, struct fastopen_keys *out)
{
	socklen_t length = sizeof *out;

	if (kernel_calls.syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, out, &length) < 0)
		return -errno;
	return (int)length;
}

int listener_key_write(int fd, uint64_t key)
{
	struct fastopen_keys keys;
	int r = get(fd, &keys);

	if (r < 0)
		return r;
	/* The first key stays the listener's or the network namespace's, so that clients' cookies stay valid. */
	if (r < (int)KEY_BYTES && getrandom(keys.first, KEY_BYTES, 0) != (ssize_t)KEY_BYTES)
		return -EIO;
	keys.key = key;
	memcpy(keys.mark, mark, sizeof mark);
	r = kernel_calls.syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, &keys, sizeof keys) < 0 ? -errno : 0;
	wipe(&keys, sizeof keys);
	return r;
}

uint64_t listener_key_read(int fd)
{
	struct fastopen_keys keys;
	uint64_t key = 0;

	if (get(fd, &keys) == (int)sizeof keys && memcmp(keys.mark, mark, sizeof mark) == 0)
		key = keys.key;
	wipe(&keys, sizeof keys);
	return key;
}
