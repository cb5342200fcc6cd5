/* O_NONBLOCK and time-outs of a socket that several processes have. shared_status.h has the theory of operation. */
#include "processes/shared_status.h"

#include <stddef.h>

#include "core/socket.h"

void shared_status_follow(struct xts_sock *s)
{
	struct shared_status *shared = s->cold->sharing.status;
	uint32_t changes = shared ? atomic_load(&shared->changes) : 0, linger;

	if (!shared || changes == s->cold->sharing.status_seen)
		return;
	s->cold->sharing.status_seen = changes;
	s->nonblocking = atomic_load(&shared->nonblocking) != 0;
	if (s->receive_lowat != atomic_load(&shared->receive_lowat))
		socket_set_lowat(s, atomic_load(&shared->receive_lowat));
	linger = atomic_load(&shared->linger);
	s->linger = linger != 0;
	s->linger_s = linger ? (int32_t)(linger - 1) : s->linger_s;
	s->receive_timeout_ns = atomic_load(&shared->receive_timeout_ns);
	s->send_timeout_ns = atomic_load(&shared->send_timeout_ns);
}

void shared_status_changed(struct xts_sock *s)
{
	struct shared_status *shared = s->cold->sharing.status;

	if (!shared)
		return;
	atomic_store(&shared->nonblocking, s->nonblocking);
	atomic_store(&shared->receive_lowat, s->receive_lowat);
	atomic_store(&shared->linger, s->linger ? (uint32_t)s->linger_s + 1 : 0);
	atomic_store(&shared->receive_timeout_ns, s->receive_timeout_ns);
	atomic_store(&shared->send_timeout_ns, s->send_timeout_ns);
	s->cold->sharing.status_seen = atomic_fetch_add(&shared->changes, 1) + 1;
}

void shared_status_is(struct xts_sock *s, struct shared_status *status)
{
	if (s->cold->sharing.status == status)
		return;
	shared_status_follow(s); /* who has changed something may have left since */
	s->cold->sharing.status = status;
	s->cold->sharing.status_seen = 0;
}
