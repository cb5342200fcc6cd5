/* Giving up capabilities; see privilege.h. With system calls, since libcap is not installed everywhere. */
#include "common/privilege.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int capabilities_get(struct __user_cap_data_struct *data)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &header, data) < 0 ? -errno : 0;
}

static int option_set(int option, unsigned long value)
{
	return prctl(option, value, 0, 0, 0) < 0 ? -errno : 0;
}

int xts_privilege_bound(uint64_t keep)
{
	struct __user_cap_data_struct held[2];
	int error = capabilities_get(held);

	if (error || !(held[0].effective & (1u << CAP_SETPCAP)))
		return error;
	for (unsigned int number = 0; number < 64 && prctl(PR_CAPBSET_READ, (unsigned long)number, 0, 0, 0) >= 0;
	     number++) {
		if (!(keep >> number & 1))
			error = option_set(PR_CAPBSET_DROP, number);
		if (error)
			return error;
	}
	return 0;
}

int xts_privilege_keep(uint64_t keep)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	int error = capabilities_get(data);

	if (error)
		return error;
	for (unsigned int i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(keep >> (32 * i));
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &header, data) < 0)
		return -errno;
	error = option_set(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL);
	if (!error)
		error = option_set(PR_SET_NO_NEW_PRIVS, 1);
	if (!error)
		error = option_set(PR_SET_DUMPABLE, 0);
	if (!error)
		error = capabilities_get(data);
	if (error)
		return error;
	return (data[0].permitted & ~(uint32_t)keep) || (data[1].permitted & ~(uint32_t)(keep >> 32)) ? -EPERM : 0;
}
