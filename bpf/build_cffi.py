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
void xdp_multiprog__close(struct xdp_multiprog *mp);

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
int bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags);
int bpf_map_lookup_elem(int fd, const void *key, void *value);
int bpf_map_delete_elem(int fd, const void *key);
int libbpf_num_possible_cpus(void);

int xts_bpf_attach(int ifindex, int program_fd, int old_fd);
int xts_bpf_detach(int ifindex, int program_fd);
int xts_bpf_reuse_map(struct bpf_object *object, int program_fd, const char *name);
int xts_bpf_hold_map(int program_fd, int map_fd);
uint32_t xts_bpf_program_id(int program_fd);
int xts_bpf_run_parser(int program_fd);
struct ethtool_channels { uint32_t max_rx, max_tx, max_combined, rx_count, tx_count, combined_count; ...; };
int xts_bpf_channels(const char *interface, struct ethtool_channels *channels, bool set);
void xts_bpf_catch_messages(void);
const char *xts_bpf_messages(void);
"""

PRELUDE = r"""
#include <stdarg.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <linux/ethtool.h>
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

/* Reads or sets how many queues an interface has. Any socket will do for that, and a service may not be allowed to make
 * one of the Internet. 0 or -errno. */
static int xts_bpf_channels(const char *interface, struct ethtool_channels *channels, bool set)
{
	struct ifreq request = { .ifr_data = (char *)channels };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int error;

	if (fd < 0)
		return -errno;
	strncpy(request.ifr_name, interface, sizeof request.ifr_name - 1);
	channels->cmd = set ? ETHTOOL_SCHANNELS : ETHTOOL_GCHANNELS;
	error = ioctl(fd, SIOCETHTOOL, &request) < 0 ? -errno : 0;
	close(fd);
	return error;
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
