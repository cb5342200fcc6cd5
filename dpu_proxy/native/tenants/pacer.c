/* Keeps a rate by giving out times: see pacer.h. */
#include "tenants/pacer.h"
#include "common/time_units.h"

#define CHUNK_MIN 1448u /* a segment of TCP on Ethernet */
#define CHUNK_MAX 65536u

void pacer_configure(struct pacer *p, uint64_t bytes_s)
{
	if (atomic_exchange(&p->bytes_s, bytes_s) != bytes_s)
		atomic_store(&p->next_ns, 0);
}

uint32_t pacer_chunk(uint64_t bytes_s)
{
	uint64_t in_a_ms = bytes_s / 1000u;

	if (in_a_ms < CHUNK_MIN)
		return CHUNK_MIN;
	return in_a_ms < CHUNK_MAX ? (uint32_t)in_a_ms : CHUNK_MAX;
}

/* How long so many bytes take. */
static uint64_t takes_ns(uint64_t bytes, uint64_t bytes_s)
{
	if (bytes >= bytes_s) /* a second or more; and the product below cannot overflow */
		return PACER_LONGEST_NS;
	return bytes > UINT64_MAX / NS_PER_S ? PACER_LONGEST_NS : bytes * NS_PER_S / bytes_s;
}

uint64_t pacer_reserve(struct pacer *p, uint64_t bytes, uint64_t now_ns)
{
	uint64_t bytes_s = pacer_rate(p), next_ns = atomic_load(&p->next_ns), from_ns, took_ns;

	if (!bytes_s)
		return 0;
	took_ns = takes_ns(bytes, bytes_s);
	do {
		from_ns = next_ns + PACER_CATCH_UP_NS < now_ns ? now_ns - PACER_CATCH_UP_NS : next_ns;
	} while (!atomic_compare_exchange_weak(&p->next_ns, &next_ns, from_ns + took_ns));
	return from_ns;
}
