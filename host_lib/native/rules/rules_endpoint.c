/* Reading an address, its prefix and its ports: 192.0.2.0/24:80-89, [2001:db8::]/32:443, *:*. */
#include "rules/rule.h"
#include "rules/rules_scan.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const char endpoint_expected[] = "an endpoint such as 192.0.2.0/24:80-89, [2001:db8::]/32:443 or *:*";

static bool clear_host_bits(struct rule_endpoint *e)
{
	bool any = false;

	for (unsigned i = 0; i < sizeof e->address; i++) {
		unsigned kept = e->prefix > 8 * i ? e->prefix - 8 * i : 0;
		uint8_t host = kept < 8 ? (uint8_t)(0xffu >> kept) : 0;

		any = any || (e->address[i] & host);
		e->address[i] = (uint8_t)(e->address[i] & ~host);
	}
	return any;
}

/* A network must have no bits beyond its prefix, as in the proxy's policy: 10.0.0.7/8 may have been meant as one
 * host. */
static int check_network(struct scan *scan, const char *start, struct rule_endpoint *e)
{
	char address[INET6_ADDRSTRLEN], meant[INET6_ADDRSTRLEN + 8];

	if (!clear_host_bits(e))
		return 0;
	inet_ntop(e->family == 4 ? AF_INET : AF_INET6, e->address, address, sizeof address);
	snprintf(meant, sizeof meant, e->family == 4 ? "%s/%u" : "[%s]/%u", address, e->prefix);
	return scan_fail_at(scan, start, (size_t)(scan->at - start), "a network without bits beyond its prefix", meant);
}

/* Turns a mapped address into IPv4, since that is how it is matched. */
static void unmap(struct rule_endpoint *e)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (e->family == 6 && e->prefix >= 96 && !memcmp(e->address, mapped, sizeof mapped)) {
		e->family = 4;
		e->prefix = (uint8_t)(e->prefix - 96);
		memmove(e->address, e->address + 12, 4);
		memset(e->address + 4, 0, 12);
	}
}

static int read_ipv6(struct scan *scan, struct rule_endpoint *e)
{
	struct word word = scan_peek(scan);
	const char *bracket = memchr(word.text, ']', word.bytes);
	size_t bytes = bracket ? (size_t)(bracket - word.text) : word.bytes;
	char text[INET6_ADDRSTRLEN];

	if (!bracket)
		return scan_fail_at(scan, word.text, word.bytes, "an IPv6 address and ']'", NULL);
	if (memchr(word.text, '/', bytes))
		return scan_fail_at(scan, word.text, bytes, "the prefix after the bracket, as in [2001:db8::]/32", NULL);
	if (memchr(word.text, '%', bytes))
		return scan_fail_at(scan, word.text, bytes, "an IPv6 address without a scope", NULL);
	if (bytes >= sizeof text || !bytes)
		return scan_fail_at(scan, word.text, bytes + 1, "an IPv6 address", NULL);
	memcpy(text, word.text, bytes);
	text[bytes] = 0;
	if (inet_pton(AF_INET6, text, e->address) != 1)
		return scan_fail_at(scan, word.text, bytes, "an IPv6 address", NULL);
	scan->at = bracket + 1;
	e->family = 6;
	e->prefix = 128;
	return 0;
}

static int read_ipv4(struct scan *scan, struct rule_endpoint *e)
{
	struct word word = scan_peek(scan);
	const char *bracket = memchr(word.text, '[', word.bytes); /* the bracket of a second endpoint */
	size_t bytes = bracket ? (size_t)(bracket - word.text) : word.bytes;
	unsigned colons = 0, octet;
	int r;

	for (size_t i = 0; i < bytes; i++)
		colons += word.text[i] == ':';
	if (colons > 3 || memmem(word.text, bytes, "::", 2))
		return scan_fail_at(scan, word.text, word.bytes,
				    "an IPv6 address in brackets, as in [2001:db8::]/32:443", NULL);
	if (!word.bytes || word.text[0] < '0' || word.text[0] > '9')
		return scan_fail(scan, endpoint_expected);
	for (unsigned i = 0; i < 4; i++) {
		if (i && !scan_take(scan, '.'))
			return scan_fail(scan, "'.' and the rest of an IPv4 address");
		r = scan_number(scan, 0, 255, "a part of an IPv4 address", &octet);
		if (r)
			return r;
		e->address[i] = (uint8_t)octet;
	}
	e->family = 4;
	e->prefix = 32;
	return 0;
}

static int read_ports(struct scan *scan, struct rule_endpoint *e)
{
	unsigned first, last;
	int r;

	e->port_last = PORT_MAX;
	e->any_port = scan_take(scan, '*');
	if (e->any_port)
		return 0;
	r = scan_number(scan, 0, PORT_MAX, "* or a port", &first);
	if (r)
		return r;
	last = first;
	if (scan_take(scan, '-')) {
		r = scan_number(scan, first, PORT_MAX, "the last port of the range", &last);
		if (r)
			return r;
	}
	e->port_first = (uint16_t)first;
	e->port_last = (uint16_t)last;
	return 0;
}

int rule_endpoint_read(struct scan *scan, struct rule_endpoint *e)
{
	const char *start = scan_peek(scan).text;
	unsigned prefix;
	int r = 0;

	memset(e, 0, sizeof *e);
	if (!scan_take(scan, '*'))
		r = scan_take(scan, '[') ? read_ipv6(scan, e) : read_ipv4(scan, e);
	if (!r && e->family && scan_take(scan, '/')) {
		r = scan_number(scan, 0, e->prefix, "a prefix length", &prefix);
		if (!r)
			e->prefix = (uint8_t)prefix;
		if (!r)
			r = check_network(scan, start, e);
	}
	if (r)
		return r;
	unmap(e);
	if (!scan_take(scan, ':'))
		return scan_fail(scan, e->family ? "'/' and a prefix length, or ':' and ports" : "':' and ports");
	return read_ports(scan, e);
}
