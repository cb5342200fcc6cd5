/*
 * Connections that no process has any more, though their time has not passed: all that had them have been killed, or
 * the last one just after the others had closed them. Who attaches processes knows (relatives_files.py of
 * xts_messages), and tells a worker the keys. What another worker keeps it leaves to that one, at the beginning of its
 * list.
 *
 * The end of the last holder may be known here already, or not yet. If not, its key is as that of a connection that the
 * holder has alone, and all goes on as at the end of any process. If it is parked by now, it is closed as the kernel
 * closes the sockets of a process that ends: what the host had sent is delivered first, and it is reset if a program
 * has left data unread, or if it has protocols.
 */
#include "processes/parked.h"
#include "processes/share.h"

#include <unistd.h>

static bool has_nothing_to_deliver(const struct parked *p)
{
	return !p->tcp.out.spill.bytes || p->tcp.error || p->tcp.pushed;
}

void parked_ends_soon(struct parked *p)
{
	if (p->over && has_nothing_to_deliver(p) && timer_is_set(&p->keyed.expiry))
		registry_keep_for(&p->keyed, 0);
}

void parked_close(struct parked *p)
{
	if (!p->over || p->tcp.fd < 0 || p->tcp.error || p->tcp.pushed || p->tcp.returned.last || p->coming.last ||
	    p->tcp.out.spill.bytes)
		return;
	close(p->tcp.fd); /* the kernel resets it, if there is data that was never sent to a host */
	p->tcp.fd = -1;
}

/* With the lock held. One that is expiring ends without this. */
static void leave_to_keeper(struct keyed *k)
{
	struct parked *p = parked_of(k);

	p->over = true;
	if (!timer_is_set(&k->expiry))
		return;
	p->over_is_new = true;
	list_remove(&k->kept);
	list_append(k->keeper->kept.next, &k->kept);
	worker_poke(k->keeper);
}

void keys_over(struct worker_state *w, const struct xts_tenant *t, const uint64_t *keys, uint32_t count)
{
	registry_lock();
	for (uint32_t i = 0; i < count; i++) {
		struct keyed *k = registry_find(t, keys[i], KEYED_PARKED);

		if (k && k->keeper == w) {
			parked_of(k)->over = true;
			parked_ends_soon(parked_of(k));
		} else if (k) {
			leave_to_keeper(k);
		}
		k = registry_find(t, keys[i], KEYED_HELD);
		if (k)
			atomic_store(&list_entry(k, struct held, keyed)->keep_ms, 0);
	}
	registry_unlock();
}

void keys_over_poked(struct worker_state *w)
{
	registry_lock();
	while (!list_empty(&w->kept)) {
		struct parked *p = parked_of(list_entry(w->kept.next, struct keyed, kept));

		if (p->keyed.kind != KEYED_PARKED || !p->over_is_new)
			break;
		p->over_is_new = false;
		list_append(&w->kept, list_pop(&w->kept));
		parked_ends_soon(p);
	}
	registry_unlock();
}
