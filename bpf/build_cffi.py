"""Writes the C source of `xts_bpf._native` (cffi, API mode) to the path given as the only argument."""

from __future__ import annotations

import sys
from pathlib import Path

from cffi import FFI

CDEF = """
struct xdp_program;
struct xdp_multiprog;
struct bpf_object;

long libxdp_get_error(const void *ptr);
const char *xdp_program__name(const struct xdp_program *prog);
int xdp_program__fd(const struct xdp_program *prog);
struct xdp_multiprog *xdp_multiprog__get_from_ifindex(int ifindex);
struct xdp_program *xdp_multiprog__main_prog(const struct xdp_multiprog *mp);
struct xdp_program *xdp_multiprog__next_prog(const struct xdp_program *prog, const struct xdp_multiprog *mp);
bool xdp_multiprog__is_legacy(const struct xdp_multiprog *mp);
void xdp_multiprog__close(struct xdp_multiprog *mp);
uint32_t xdp_program__id(const struct xdp_program *prog);
void xdp_program__close(struct xdp_program *prog);

struct bpf_program;
enum bpf_prog_type { BPF_PROG_TYPE_SOCKET_FILTER, ... };
struct bpf_object *bpf_object__open_file(const char *path, void *opts);
int bpf_object__load(struct bpf_object *obj);
void bpf_object__close(struct bpf_object *obj);
struct bpf_program *bpf_object__next_program(const struct bpf_object *obj, struct bpf_program *prog);
const char *bpf_program__name(const struct bpf_program *prog);
const char *bpf_program__section_name(const struct bpf_program *prog);
int bpf_program__set_autoload(struct bpf_program *prog, bool autoload);
int bpf_program__set_type(struct bpf_program *prog, enum bpf_prog_type type);
int bpf_program__set_expected_attach_type(struct bpf_program *prog, int type);
int bpf_program__fd(const struct bpf_program *prog);

int bpf_object__find_map_fd_by_name(const struct bpf_object *obj, const char *name);
int bpf_prog_get_fd_by_id(uint32_t id);
int bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags);
int bpf_map_lookup_elem(int fd, const void *key, void *value);
int bpf_map_delete_elem(int fd, const void *key);
int libbpf_num_possible_cpus(void);

int xts_bpf_attach(int ifindex, int program_fd, int old_fd);
int xts_bpf_detach(int ifindex, int program_fd);
int xts_bpf_attached(int ifindex, uint32_t *id);
int xts_bpf_join(int ifindex, struct bpf_object *object, uint32_t priority, struct xdp_program **joined);
int xts_bpf_part(int ifindex, struct xdp_program *member);
int xts_bpf_reuse_map(struct bpf_object *object, int program_fd, const char *name);
int xts_bpf_hold_map(int program_fd, int map_fd);
uint32_t xts_bpf_program_id(int program_fd);
int xts_bpf_link(int ifindex, int program_fd, const char *name);
int xts_bpf_run_parser(int program_fd);
struct ethtool_channels { uint32_t max_rx, max_tx, max_combined, rx_count, tx_count, combined_count; ...; };
int xts_bpf_channels(const char *interface, struct ethtool_channels *channels, bool set);
int xts_bpf_driver(const char *interface, char name[32]);
int xts_bpf_rule_insert(const char *interface, const char *address, uint32_t queue, uint32_t *location);
int xts_bpf_rule_remove(const char *interface, uint32_t location);
int xts_bpf_rule_get(const char *interface, uint32_t location, uint8_t *address, uint32_t *queue);
int xts_bpf_rule_locations(const char *interface, uint32_t *locations, uint32_t room);
void xts_bpf_catch_messages(void);
const char *xts_bpf_messages(void);
"""

PRELUDE = r"""
#include <stdarg.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <xdp/libxdp.h>

/* What libbpf and libxdp would print, the kernel's extended acknowledgement included, kept for the text of an error.
 * One thread loads programs at a time. */
static char messages[8192];

static void keep(const char *format, va_list arguments)
{
	size_t used = strlen(messages);

	vsnprintf(messages + used, sizeof messages - used, format, arguments);
}

static int keep_libbpf(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (level <= LIBBPF_WARN)
		keep(format, arguments);
	return 0;
}

static int keep_libxdp(enum libxdp_print_level level, const char *format, va_list arguments)
{
	if (level <= LIBXDP_WARN)
		keep(format, arguments);
	return 0;
}

/* Attaches in native mode, in one step in place of old_fd; -1: there must be none. */
static int xts_bpf_attach(int ifindex, int program_fd, int old_fd)
{
	LIBBPF_OPTS(bpf_xdp_attach_opts, options, .old_prog_fd = old_fd);

	if (old_fd < 0)
		return bpf_xdp_attach(ifindex, program_fd, XDP_FLAGS_DRV_MODE | XDP_FLAGS_UPDATE_IF_NOEXIST, NULL);
	return bpf_xdp_attach(ifindex, program_fd, XDP_FLAGS_DRV_MODE | XDP_FLAGS_REPLACE, &options);
}

/* Detaches this program, and no other that has taken its place. */
static int xts_bpf_detach(int ifindex, int program_fd)
{
	LIBBPF_OPTS(bpf_xdp_attach_opts, options, .old_prog_fd = program_fd);

	return bpf_xdp_detach(ifindex, XDP_FLAGS_DRV_MODE | XDP_FLAGS_REPLACE, &options);
}

/* The number of the program that an interface has, in whatever mode; 0: none. 0 or -errno. */
static int xts_bpf_attached(int ifindex, __u32 *id)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, found);
	int error = bpf_xdp_query(ifindex, 0, &found);

	*id = found.drv_prog_id ? found.drv_prog_id : found.hw_prog_id ? found.hw_prog_id : found.skb_prog_id;
	return error;
}

/* Loads the object and attaches its program next to others, in libxdp's dispatcher. Returns the program's descriptor,
 * which is the object's, or -errno. */
static int xts_bpf_join(int ifindex, struct bpf_object *object, __u32 priority, struct xdp_program **joined)
{
	DECLARE_LIBXDP_OPTS(xdp_program_opts, options, .obj = object);
	struct xdp_program *program = xdp_program__create(&options);
	int error = (int)libxdp_get_error(program);

	if (error)
		return error;
	error = xdp_program__set_run_prio(program, priority);
	if (!error)
		error = xdp_program__set_chain_call_enabled(program, XDP_PASS, true);
	if (!error)
		error = xdp_program__set_xdp_frags_support(program, true);
	if (!error)
		error = xdp_program__attach(program, ifindex, XDP_MODE_NATIVE, 0);
	if (error) {
		xdp_program__close(program);
		return error;
	}
	*joined = program;
	return xdp_program__fd(program);
}

/* Takes a program out of the dispatcher. 0 or -errno. */
static int xts_bpf_part(int ifindex, struct xdp_program *member)
{
	return xdp_program__detach(member, ifindex, XDP_MODE_NATIVE, 0);
}

static int map_of(const struct bpf_prog_info *info, const __u32 *ids, const char *name, struct bpf_map_info *map)
{
	for (__u32 i = 0; i < info->nr_map_ids; i++) {
		__u32 bytes = sizeof *map;
		int fd = bpf_map_get_fd_by_id(ids[i]);

		if (fd < 0)
			return -errno;
		memset(map, 0, sizeof *map);
		if (bpf_obj_get_info_by_fd(fd, map, &bytes) == 0 && strcmp(map->name, name) == 0)
			return fd;
		close(fd);
	}
	return -ENOENT;
}

/* Makes an object that is not loaded yet use the map of this name of a loaded program. 1; 0: that has none like it, and
 * the object will make its own; or -errno. */
static int xts_bpf_reuse_map(struct bpf_object *object, int program_fd, const char *name)
{
	struct bpf_map *own = bpf_object__find_map_by_name(object, name);
	struct bpf_map_info m;
	__u32 ids[16], bytes = sizeof(struct bpf_prog_info);
	struct bpf_prog_info info = { .nr_map_ids = 16, .map_ids = (__u64)(unsigned long)ids };
	int error = 0, fd;

	if (!own)
		return -EINVAL;
	if (bpf_obj_get_info_by_fd(program_fd, &info, &bytes) < 0)
		return -errno;
	if (info.nr_map_ids > 16)
		info.nr_map_ids = 16;
	fd = map_of(&info, ids, name, &m);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (m.type == bpf_map__type(own) && m.key_size == bpf_map__key_size(own) &&
			m.value_size == bpf_map__value_size(own) && m.max_entries == bpf_map__max_entries(own)) {
		error = bpf_map__reuse_fd(own, fd); /* duplicates it */
		if (!error)
			error = 1;
	}
	close(fd);
	return error;
}

/* A map that the program does not use lives as long as the program all the same. 0 or -errno. */
static int xts_bpf_hold_map(int program_fd, int map_fd)
{
	return bpf_prog_bind_map(program_fd, map_fd, NULL);
}

/* Has the program with this number this name? */
static bool is_named(__u32 program, const char *name)
{
	struct bpf_prog_info info = { 0 };
	__u32 bytes = sizeof info;
	int fd = bpf_prog_get_fd_by_id(program);
	bool is = fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 && strcmp(info.name, name) == 0;

	if (fd >= 0)
		close(fd);
	return is;
}

/* The link by which a process has attached a program of this name to this interface, or -ENOENT. The number of the
 * program tells it from a link to an interface of the same number in another network namespace. */
static int found_link(int ifindex, const char *name)
{
	__u32 id = 0, program = 0;

	if (xts_bpf_attached(ifindex, &program) < 0 || !program || !is_named(program, name))
		return -ENOENT;
	while (bpf_link_get_next_id(id, &id) == 0) {
		struct bpf_link_info info = { 0 };
		__u32 bytes = sizeof info;
		int link = bpf_link_get_fd_by_id(id);

		if (link < 0)
			continue;
		if (bpf_obj_get_info_by_fd(link, &info, &bytes) == 0 && info.type == BPF_LINK_TYPE_XDP &&
				info.prog_id == program)
			return link;
		close(link);
	}
	return -ENOENT;
}

/* Attaches a program in native mode until the descriptor that this returns is closed; its duplicates too. A program of
 * this name that another process has attached so is replaced, in one step, and the link is shared with that process.
 * Returns -errno. */
static int xts_bpf_link(int ifindex, int program_fd, const char *name)
{
	LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
	int link = bpf_link_create(program_fd, ifindex, BPF_XDP, &options);
	int error = link < 0 ? -errno : 0;

	if (error != -EBUSY)
		return error ? error : link;
	link = found_link(ifindex, name);
	if (link < 0)
		return -EBUSY;
	if (bpf_link_update(link, program_fd, NULL) == 0)
		return link;
	error = -errno;
	close(link);
	return error;
}

/* 0: not known. */
static __u32 xts_bpf_program_id(int program_fd)
{
	struct bpf_prog_info info = { 0 };
	__u32 bytes = sizeof info;

	return bpf_obj_get_info_by_fd(program_fd, &info, &bytes) < 0 ? 0 : info.id;
}

/* Runs a parser on one byte, to see that this kernel runs programs so. 0 or -errno. */
static int xts_bpf_run_parser(int program_fd)
{
	unsigned char frame[15] = { 0 };
	LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = sizeof frame, .repeat = 1);

	return bpf_prog_test_run_opts(program_fd, &options);
}

/* A request of ethtool. Any socket will do for that, and a service may not be allowed to make one of the Internet. 0 or
 * -errno. */
static int ethtool_request(const char *interface, void *request)
{
	struct ifreq asked = { .ifr_data = request };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int error;

	if (fd < 0)
		return -errno;
	strncpy(asked.ifr_name, interface, sizeof asked.ifr_name - 1);
	error = ioctl(fd, SIOCETHTOOL, &asked) < 0 ? -errno : 0;
	close(fd);
	return error;
}

/* Reads or sets how many queues an interface has. 0 or -errno. */
static int xts_bpf_channels(const char *interface, struct ethtool_channels *channels, bool set)
{
	channels->cmd = set ? ETHTOOL_SCHANNELS : ETHTOOL_GCHANNELS;
	return ethtool_request(interface, channels);
}

/* The name of an interface's driver. 0 or -errno. */
static int xts_bpf_driver(const char *interface, char name[32])
{
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };
	int error = ethtool_request(interface, &driver);

	memcpy(name, driver.driver, 32);
	name[31] = 0;
	return error;
}

/* One about rules. The locations of all rules follow the struct. 0 or -errno. */
static int rules_request(const char *interface, struct ethtool_rxnfc *request)
{
	int error = ethtool_request(interface, request);

	/* mlx5 answers ENOTSUPP of the kernel's own numbers */
	return error == -524 ? -EOPNOTSUPP : error;
}

/* The locations of the rules: how many, or -errno. *size: how many locations there are; 0: the driver chooses. */
static int rule_locations(const char *interface, __u32 *locations, __u32 room, __u32 *size)
{
	struct ethtool_rxnfc *all;
	struct ethtool_rxnfc count = { .cmd = ETHTOOL_GRXCLSRLCNT };
	int error = rules_request(interface, &count);

	if (error)
		return error;
	if (count.rule_cnt > room)
		return -ENOSPC;
	all = calloc(1, sizeof *all + count.rule_cnt * sizeof(__u32));
	if (!all)
		return -ENOMEM;
	all->cmd = ETHTOOL_GRXCLSRLALL;
	all->rule_cnt = count.rule_cnt;
	error = rules_request(interface, all);
	if (!error) {
		*size = count.data & RX_CLS_LOC_SPECIAL ? 0 : (__u32)all->data;
		error = (int)(all->rule_cnt < count.rule_cnt ? all->rule_cnt : count.rule_cnt);
		memcpy(locations, all->rule_locs, (size_t)error * sizeof(__u32));
	}
	free(all);
	return error;
}

static int xts_bpf_rule_locations(const char *interface, __u32 *locations, __u32 room)
{
	__u32 size;

	return rule_locations(interface, locations, room, &size);
}

/* The last location that is free: the first ones have precedence, and are other people's. */
static int free_location(const char *interface, __u32 *location)
{
	static __u32 used[4096];
	__u32 size;
	int count = rule_locations(interface, used, 4096, &size);

	if (count < 0)
		return count;
	*location = RX_CLS_LOC_ANY;
	if (!size)
		return 0;
	for (__u32 at = size; at-- > 0;) {
		int i = 0;

		while (i < count && used[i] != at)
			i++;
		if (i == count) {
			*location = at;
			return 0;
		}
	}
	return -ENOSPC;
}

static int xts_bpf_rule_insert(const char *interface, const char *address, __u32 queue, __u32 *location)
{
	struct ethtool_rxnfc request = { .cmd = ETHTOOL_SRXCLSRLINS };
	int error;

	request.fs.flow_type = ETHER_FLOW;
	memcpy(request.fs.h_u.ether_spec.h_dest, address, ETH_ALEN);
	memset(request.fs.m_u.ether_spec.h_dest, 0xff, ETH_ALEN);
	request.fs.ring_cookie = queue;
	error = free_location(interface, &request.fs.location);
	if (!error)
		error = rules_request(interface, &request);
	*location = request.fs.location;
	return error;
}

static int xts_bpf_rule_remove(const char *interface, __u32 location)
{
	struct ethtool_rxnfc request = { .cmd = ETHTOOL_SRXCLSRLDEL };

	request.fs.location = location;
	return rules_request(interface, &request);
}

/* ENOENT: the rule there is of another kind. */
static int xts_bpf_rule_get(const char *interface, __u32 location, unsigned char *address, __u32 *queue)
{
	struct ethtool_rxnfc request = { .cmd = ETHTOOL_GRXCLSRULE };
	const unsigned char *mask = request.fs.m_u.ether_spec.h_dest;
	int error;

	request.fs.location = location;
	error = rules_request(interface, &request);
	if (error)
		return error;
	if ((request.fs.flow_type & ~(__u32)FLOW_EXT) != ETHER_FLOW || (mask[0] & mask[1] & mask[5]) != 0xff)
		return -ENOENT;
	memcpy(address, request.fs.h_u.ether_spec.h_dest, ETH_ALEN);
	*queue = (__u32)request.fs.ring_cookie;
	return 0;
}

static void xts_bpf_catch_messages(void)
{
	messages[0] = 0;
	libbpf_set_print(keep_libbpf);
	libxdp_set_print(keep_libxdp);
}

static const char *xts_bpf_messages(void)
{
	return messages;
}
"""


def main(output: str) -> None:
    """Generates the module's C source; compiling it is CMake's."""
    ffi = FFI()
    ffi.cdef(CDEF)
    ffi.set_source("xts_bpf._native", PRELUDE)
    ffi.emit_c_code(output)
    assert Path(output).exists()


if __name__ == "__main__":
    main(sys.argv[1])
