/* The registry of keys: what each key stands for, which worker keeps an object that no process holds, and how many
 * there may be. See share.h. */
#include <errno.h>

#include "common/keyed_hash.h"
#include "connection/unowned.h"
#include "processes/parked.h"
#include "processes/share.h"
#include "worker/common_lock.h"

#define BUCKET_BITS 10u
#define BUCKETS (1u << BUCKET_BITS)
#define EXPIRE_AT_ONCE 64u        /* objects expired at once, while others wait for the lock */
#define EXPIRE_AGAIN_NS 10000000u /* after a lack of memory */
/* After the last channel has moved: others may be about to, one after the other, or all at once after a crash. */
#define ELSEWHERE_NS UINT64_C(10000000000)
#define ELSEWHERE_CRASH_NS UINT64_C(1000000000)

static struct {
	pthread_mutex_t mutex;
	bool ready;
	uint64_t factor;
	struct list by_key[BUCKETS];
} registry = { .mutex = PTHREAD_MUTEX_INITIALIZER };

void registry_lock(void)
{
	common_lock(&registry.mutex);
	if (registry.ready)
		return;
	for (uint32_t i = 0; i < BUCKETS; i++)
		list_init(&registry.by_key[i]);
	registry.factor = keyed_hash_factor();
	registry.ready = true;
}

/* Hosts choose the keys. A search in a long bucket would delay all other tenants too, for it holds the lock. */
static struct list *bucket(uint64_t key)
{
	return &registry.by_key[keyed_hash(key, registry.factor) >> (64u - BUCKET_BITS)];
}

void registry_unlock(void)
{
	common_unlock(&registry.mutex);
}

static struct keyed *find(uint64_t key)
{
	const struct list *head = bucket(key);

	for (struct list *node = head->next; node != head; node = node->next) {
		struct keyed *k = list_entry(node, struct keyed, by_key);

		if (k->key == key)
			return k;
	}
	return NULL;
}

struct keyed *registry_find(const struct xts_tenant *t, uint64_t key, enum keyed_kind kind)
{
	struct keyed *k = find(key);

	return k && k->kind == kind && k->tenant == t ? k : NULL;
}

void registry_moves(struct xts_tenant *t, uint64_t now_ns, bool died)
{
	registry_lock();
	t->keys_elsewhere_until_ns = now_ns + (died ? ELSEWHERE_CRASH_NS : ELSEWHERE_NS);
	registry_unlock();
}

int registry_unknown(const struct xts_tenant *t, uint64_t now_ns)
{
	return now_ns < t->keys_elsewhere_until_ns ? EBUSY : ENOENT;
}

struct parked *registry_any_parked(const struct xts_tenant *t, bool (*is_wanted)(const struct parked *p))
{
	for (uint32_t i = 0; i < BUCKETS; i++) {
		for (struct list *node = registry.by_key[i].next; node != &registry.by_key[i]; node = node->next) {
			struct keyed *k = list_entry(node, struct keyed, by_key);
			struct parked *p = k->kind == KEYED_PARKED && k->tenant == t ? parked_of(k) : NULL;

			if (p && is_wanted(p))
				return p;
		}
	}
	return NULL;
}

/* Charges for the key of a listener, whose socket is kept for it. */
static bool take_name(struct xts_tenant *t)
{
	if (!tenant_take(t, XTS_USE_NAMES, 1))
		return false;
	if (tenant_take_socket(t))
		return true;
	tenant_give(t, XTS_USE_NAMES, 1);
	return false;
}

int registry_add(struct keyed *k, struct xts_tenant *t, uint64_t key, enum keyed_kind kind)
{
	if (!key)
		return EINVAL;
	if (find(key))
		return EEXIST;
	if (kind == KEYED_LISTENER && !take_name(t))
		return ENOBUFS; /* parked connections are charged together with their bytes */
	k->tenant = tenant_hold(t);
	k->key = key;
	k->kind = kind;
	list_init(&k->kept);
	list_append(bucket(key), &k->by_key);
	return 0;
}

int registry_rename(struct keyed *k, uint64_t key)
{
	if (!key)
		return EINVAL;
	if (list_empty(&k->by_key))
		return ENOENT; /* what it stands for is ending */
	if (find(key))
		return EEXIST;
	list_remove(&k->by_key);
	k->key = key;
	list_append(bucket(key), &k->by_key);
	return 0;
}

void registry_forget(struct keyed *k)
{
	list_remove(&k->by_key);
}

void registry_remove(struct keyed *k)
{
	registry_unkeep(k);
	registry_forget(k);
	if (!k->tenant)
		return;
	take_queue_free(k->queue, k->tenant);
	k->queue = NULL;
	if (k->kind == KEYED_LISTENER) {
		tenant_give(k->tenant, XTS_USE_NAMES, 1);
		tenant_give_socket(k->tenant);
	}
	xts_tenant_release(k->tenant);
	k->tenant = NULL;
}

/* --- keeping ------------------------------------------------------------------------------------------------------ */

/* Moves an expired object to the turns of its tenant. False: no memory. */
static bool expire(struct keyed *k)
{
	struct unowned *u = unowned_hold(k->keeper, k->tenant);

	if (!u)
		return false;
	if (u->expiring)
		unowned_release(u);
	u->expiring = true;
	list_remove(&k->kept);
	list_append(&u->expired, &k->kept);
	return true;
}

static void expired(struct timer *timer)
{
	struct keyed *k = list_entry(timer, struct keyed, expiry);

	if (!expire(k))
		timer_set(&k->keeper->kept_timers, timer, k->keeper->now_ns + EXPIRE_AGAIN_NS);
}

void registry_keep_for(struct keyed *k, uint32_t keep_ms)
{
	struct worker_state *w = k->keeper;

	timer_set(&w->kept_timers, &k->expiry, w->now_ns + (uint64_t)keep_ms * 1000000u);
	w->keep_deadline_ns = timers_next_ns(&w->kept_timers);
}

void registry_keep(struct keyed *k, struct worker_state *w, uint32_t keep_ms)
{
	k->keeper = w;
	k->expiry.expired = expired;
	registry_keep_for(k, keep_ms);
	list_append(&w->kept, &k->kept);
	w->kept_count[k->kind]++;
}

void registry_unkeep(struct keyed *k)
{
	if (list_empty(&k->kept))
		return;
	timer_cancel(&k->expiry);
	list_remove(&k->kept);
	k->keeper->kept_count[k->kind]--;
}

void registry_expire(struct worker_state *w)
{
	registry_lock();
	(void)timers_run(&w->kept_timers, w->now_ns, EXPIRE_AT_ONCE);
	w->keep_deadline_ns = timers_next_ns(&w->kept_timers);
	registry_unlock();
}

/* Ends a piece of an expired object. Returns how many connections that were which somebody might have taken. */
static uint32_t end_piece(struct keyed *k)
{
	bool over;

	if (k->kind == KEYED_LISTENER) {
		(void)shared_end_piece(list_entry(k, struct shared, keyed));
		return 0;
	}
	over = parked_of(k)->over;
	parked_end(k);
	return !over;
}

static void report_unclaimed(struct worker_state *w, struct xts_tenant *t, uint32_t count)
{
	uint32_t suppressed;

	w->stats.unclaimed += count;
	if (count && tenant_may_log(t, w->now_ns, &suppressed))
		log_line(&w->log,
			 "tenant %s: connections that no process took over in time, reset: %u (%u lines suppressed)",
			 t->name, count, suppressed);
}

void registry_end_some(struct unowned *u, struct worker_state *w)
{
	uint32_t unclaimed = 0;
	bool more;

	do {
		registry_lock();
		if (!list_empty(&u->expired))
			unclaimed += end_piece(list_entry(u->expired.next, struct keyed, kept));
		more = !list_empty(&u->expired);
		registry_unlock();
	} while (more && !worker_turn_is_over(w));
	report_unclaimed(w, u->tenant, unclaimed);
	if (more)
		return;
	u->expiring = false;
	unowned_release(u);
}

/* With the lock held. */
static void end_all(struct list *kept)
{
	while (!list_empty(kept)) {
		struct keyed *k = list_entry(kept->next, struct keyed, kept);

		if (k->kind == KEYED_LISTENER)
			shared_end(list_entry(k, struct shared, keyed));
		else
			parked_end(k);
	}
}

void registry_end_all(struct worker_state *w)
{
	registry_lock();
	end_all(&w->kept);
	for (struct list *node = w->unowned.next; node != &w->unowned; node = node->next) {
		struct unowned *u = list_entry(node, struct unowned, member);

		end_all(&u->expired);
		if (u->expiring)
			unowned_release(u);
		u->expiring = false;
	}
	registry_unlock();
}

/* --- how much there may be ---------------------------------------------------------------------------------------- */

bool registry_take_unowned(struct xts_tenant *t, uint64_t bytes)
{
	if (!tenant_take(t, XTS_USE_KEPT, 1))
		return false;
	if (!tenant_take(t, XTS_USE_KEPT_BYTES, bytes))
		goto no_bytes;
	if (tenant_take_socket(t))
		return true;
	tenant_give(t, XTS_USE_KEPT_BYTES, bytes);
no_bytes:
	tenant_give(t, XTS_USE_KEPT, 1);
	return false;
}

void registry_take_unowned_anyway(struct xts_tenant *t, uint64_t bytes)
{
	tenant_take_anyway(t, XTS_USE_KEPT, 1);
	tenant_take_anyway(t, XTS_USE_KEPT_BYTES, bytes);
	tenant_take_socket_anyway(t);
}

void registry_give_unowned(struct xts_tenant *t, uint64_t bytes)
{
	tenant_give(t, XTS_USE_KEPT, 1);
	tenant_give(t, XTS_USE_KEPT_BYTES, bytes);
	tenant_give_socket(t);
}

void registry_stats(struct worker_state *w, struct xts_worker_stats *out)
{
	out->kept_listeners = atomic_load_explicit(&w->kept_count[KEYED_LISTENER], memory_order_relaxed);
	out->parked_connections = atomic_load_explicit(&w->kept_count[KEYED_PARKED], memory_order_relaxed);
}
