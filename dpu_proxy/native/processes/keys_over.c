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
 *
 * Channels come from another process of the proxy one after the other, and what is said on one may be about a
 * connection of the next. So keys that nobody has here are remembered for a while (keys_are_over()).
 */
#include "processes/held_arrived.h"
#include "processes/parked.h"
#include "processes/share.h"

#include <unistd.h>

#define EARLY 512u
#define EARLY_NS UINT64_C(10000000000)

/* Under the registry's lock; the newest take the places of the oldest. */
static struct {
	uint64_t key, said_ns;
	uint32_t tenant;
} early[EARLY];
static uint32_t early_next;

static void remember(const struct xts_tenant *t, uint64_t key, uint64_t now_ns)
{
	uint32_t i = early_next++ % EARLY;

	early[i].key = key;
	early[i].said_ns = now_ns;
	early[i].tenant = t->id;
}

bool keys_are_over(const struct xts_tenant *t, uint64_t key, uint64_t now_ns)
{
	for (uint32_t i = 0; i < EARLY; i++)
		if (early[i].key == key && key && early[i].tenant == t->id && now_ns - early[i].said_ns < EARLY_NS)
			return true;
	return false;
}

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
	    p->tcp.out.spill.bytes || p->heard.torn)
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

/* With the lock held. */
static void key_over(struct worker_state *w, const struct xts_tenant *t, uint64_t key)
{
	struct keyed *k = registry_find(t, key, KEYED_PARKED);

	if (k && k->keeper == w) {
		parked_of(k)->over = true;
		parked_ends_soon(parked_of(k));
	} else if (k) {
		leave_to_keeper(k);
	} else if ((k = registry_find(t, key, KEYED_HELD))) {
		atomic_store(&list_entry(k, struct held, keyed)->keep_ms, 0);
	} else if ((k = registry_find(t, key, KEYED_ARRIVED))) {
		held_is_over(k);
	} else {
		remember(t, key, w->now_ns);
	}
}

void keys_over(struct worker_state *w, const struct xts_tenant *t, const uint64_t *keys, uint32_t count)
{
	registry_lock();
	for (uint32_t i = 0; i < count; i++)
		key_over(w, t, keys[i]);
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
