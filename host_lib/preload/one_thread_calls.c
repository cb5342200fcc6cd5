/* Calls for which the library's own threads must not be in the way: native/waiting/own_threads.c says why. */
#include "preload.h"

#include <grp.h>
#include <sched.h>

static bool before(bool always)
{
	return !xts_inside.locked && !preload_shares_memory() && xts_threads_pause(always);
}

static int after(bool paused, int r)
{
	if (paused)
		xts_threads_resume();
	return r;
}

/* --- who a process is: the C library does it in each thread ------------------------------------------------------- */

EXPORT int setuid(uid_t uid)
{
	bool paused = before(false);

	return after(paused, real()->setuid(uid));
}

EXPORT int seteuid(uid_t uid)
{
	bool paused = before(false);

	return after(paused, real()->seteuid(uid));
}

EXPORT int setreuid(uid_t uid, uid_t effective)
{
	bool paused = before(false);

	return after(paused, real()->setreuid(uid, effective));
}

EXPORT int setresuid(uid_t uid, uid_t effective, uid_t saved)
{
	bool paused = before(false);

	return after(paused, real()->setresuid(uid, effective, saved));
}

EXPORT int setgid(gid_t gid)
{
	bool paused = before(false);

	return after(paused, real()->setgid(gid));
}

EXPORT int setegid(gid_t gid)
{
	bool paused = before(false);

	return after(paused, real()->setegid(gid));
}

EXPORT int setregid(gid_t gid, gid_t effective)
{
	bool paused = before(false);

	return after(paused, real()->setregid(gid, effective));
}

EXPORT int setresgid(gid_t gid, gid_t effective, gid_t saved)
{
	bool paused = before(false);

	return after(paused, real()->setresgid(gid, effective, saved));
}

EXPORT int setgroups(size_t count, const gid_t *groups)
{
	bool paused = before(false);

	return after(paused, real()->setgroups(count, groups));
}

EXPORT int initgroups(const char *user, gid_t group)
{
	bool paused = before(false);

	return after(paused, real()->initgroups(user, group));
}

/* --- which namespaces it is in: the kernel refuses some of them to a process with threads ------------------------- */

EXPORT int unshare(int flags)
{
	bool paused = before(true);

	return after(paused, real()->unshare(flags));
}

EXPORT int setns(int fd, int type)
{
	bool paused = before(true);

	return after(paused, real()->setns(fd, type));
}

long preload_alone(long number, const long a[2])
{
	bool paused = before(true);
	long r = real()->syscall(number, a[0], a[1]);

	return after(paused, (int)r);
}
