/* Data attached to a kernel socket. label.h explains how. */
#include <errno.h>
#include <linux/filter.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "label.h"
#include "core/wait.h"
#include "xts_private.h"

#define WORDS_MAX (LABEL_BYTES_MAX / 4)
#define AROUND 2u /* instructions besides the data: the jump, and the one that accepts a packet */

#define ACCEPT_ALL 0xffffffffu

/* A direct system call, so that an interposer does not see the descriptor. */
static long kernel_call(long number, int fd, int option, void *value, size_t length_or_pointer)
{
	long r = kernel_calls.syscall(number, fd, SOL_SOCKET, option, value, length_or_pointer);

	return r < 0 ? -errno : r;
}

int label_write(int fd, const void *data, size_t bytes)
{
	size_t words = (bytes + 3) / 4;
	struct sock_filter program[WORDS_MAX + AROUND];
	struct sock_fprog whole = { .len = (unsigned short)(words + AROUND), .filter = program };
	const uint8_t *from = data;

	if (bytes > LABEL_BYTES_MAX)
		return -EMSGSIZE;
	program[0] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)words);
	for (size_t i = 0; i < words; i++) {
		uint32_t word = 0;
		size_t left = bytes - 4 * i;

		memcpy(&word, from + 4 * i, left < 4 ? left : 4);
		program[1 + i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, word);
	}
	program[1 + words] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, ACCEPT_ALL);
	return (int)kernel_call(SYS_setsockopt, fd, SO_ATTACH_FILTER, &whole, sizeof whole);
}

int label_read(int fd, void *data, size_t room)
{
	struct sock_filter program[WORDS_MAX + AROUND];
	socklen_t count = 0; /* counted in instructions */
	uint8_t *to = data;
	size_t words;
	long r = kernel_call(SYS_getsockopt, fd, SO_GET_FILTER, NULL, (size_t)&count);

	if (r < 0)
		return (int)r;
	if (count <= AROUND || count > WORDS_MAX + AROUND)
		return 0;
	words = count - AROUND;
	if (words * 4 > room)
		return 0;
	r = kernel_call(SYS_getsockopt, fd, SO_GET_FILTER, program, (size_t)&count);
	if (r < 0)
		return (int)r;
	if (count != words + AROUND || program[0].code != (BPF_JMP | BPF_JA) || program[0].k != words)
		return 0;
	for (size_t i = 0; i < words; i++)
		memcpy(to + 4 * i, &program[1 + i].k, 4);
	return (int)(words * 4);
}
