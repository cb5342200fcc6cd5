/* Programs that do not work with offloaded sockets. `xts run` knows a program's file, the interposer its name. */
#include "decision/sandboxed.h"

#include <stddef.h>
#include <string.h>

static const struct {
	const char *program, *why;
} sandboxed[] = {
	{ "sshd", "reads from each connection in a sandbox (chroot, seccomp), in which nothing can attach to a proxy" },
	{ "vsftpd",
	  "greets each client in a sandbox (chroot, no new descriptors), in which nothing can attach to a proxy" },
};

const char *xts_sandboxed(const char *program)
{
	for (size_t i = 0; i < sizeof sandboxed / sizeof *sandboxed; i++)
		if (!strcmp(sandboxed[i].program, program))
			return sandboxed[i].why;
	return NULL;
}
