/* Reads DNS answers. The message comes from a name server, and is not trusted: ns_initparse() and ns_parserr() check
 * that each record is within it; this file checks only that addresses have the right length and that names are host
 * names. */
#include "answer.h"

#include <netdb.h>
#include <string.h>
#include <strings.h>

static int result_of(const ns_msg *message)
{
	switch (ns_msg_getflag(*message, ns_f_rcode)) {
	case ns_r_noerror:
		return 0;
	case ns_r_nxdomain:
		return HOST_NOT_FOUND;
	case ns_r_servfail:
	case ns_r_notimpl:
	case ns_r_refused:
		/* the result of the C library, which at this point has tried the next server in vain */
		return TRY_AGAIN;
	default:
		return NO_RECOVERY;
	}
}

/* The name in the data of a CNAME or PTR. */
static int name_in(const ns_msg *message, const ns_rr *record, char out[NS_MAXDNAME])
{
	return ns_name_uncompress(ns_msg_base(*message), ns_msg_end(*message), ns_rr_rdata(*record), out, NS_MAXDNAME) <
			       0 ?
		       -1 :
		       0;
}

/* An alias of the name that is looked for: from here on the target of the alias is looked for. */
static int follow(struct answer *answer, const ns_msg *message, const ns_rr *record)
{
	if (answer->alias_count == ANSWER_ALIASES_MAX)
		return NO_RECOVERY;
	strcpy(answer->aliases[answer->alias_count++], answer->name);
	if (name_in(message, record, answer->name) || !res_hnok(answer->name))
		return NO_RECOVERY;
	return 0;
}

static int take(struct answer *answer, const ns_msg *message, const ns_rr *record, ns_type type)
{
	unsigned bytes = type == ns_t_a ? 4 : 16;

	if (type == ns_t_ptr) {
		if (!answer->count && (name_in(message, record, answer->host) || !res_dnok(answer->host)))
			return NO_RECOVERY;
		answer->count++;
		return 0;
	}
	if (ns_rr_rdlen(*record) != bytes || answer->count == ANSWER_ADDRESSES_MAX)
		return 0; /* the C library leaves it out, too */
	memcpy(answer->addresses[answer->count++], ns_rr_rdata(*record), bytes);
	return 0;
}

static int read_record(struct answer *answer, const ns_msg *message, const ns_rr *record, ns_type type)
{
	if (ns_rr_class(*record) != ns_c_in || strcasecmp(ns_rr_name(*record), answer->name))
		return 0;
	if (ns_rr_type(*record) != type && ns_rr_type(*record) != ns_t_cname)
		return 0;
	if (ns_rr_ttl(*record) < answer->ttl)
		answer->ttl = ns_rr_ttl(*record);
	return ns_rr_type(*record) == ns_t_cname ? follow(answer, message, record) : take(answer, message, record, type);
}

int answer_read(struct answer *answer, const uint8_t *bytes, int count, ns_type type, const char *name)
{
	ns_msg message;
	int r;

	answer->alias_count = answer->count = 0;
	answer->ttl = INT32_MAX;
	if (strlen(name) >= sizeof answer->name || ns_initparse(bytes, count, &message))
		return NO_RECOVERY;
	strcpy(answer->name, name);
	r = result_of(&message);
	for (int i = 0; !r && i < ns_msg_count(message, ns_s_an); i++) {
		ns_rr record;

		if (ns_parserr(&message, ns_s_an, i, &record))
			return NO_RECOVERY;
		r = read_record(answer, &message, &record, type);
	}
	return r ? r : answer->count ? 0 : NO_DATA;
}
