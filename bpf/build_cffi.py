"""Writes the C source of `xts_bpf._native` (cffi, API mode) to the path given as the only argument."""

from __future__ import annotations

import sys
from pathlib import Path

from cffi import FFI

CDEF = """
struct xdp_program;
struct xdp_multiprog;
struct bpf_object;
enum xdp_attach_mode { XDP_MODE_UNSPEC, XDP_MODE_NATIVE, XDP_MODE_SKB, XDP_MODE_HW, ... };

struct xdp_program *xdp_program__open_file(const char *filename, const char *section_name, void *opts);
long libxdp_get_error(const void *ptr);
int xdp_program__set_xdp_frags_support(struct xdp_program *prog, bool frags);
int xdp_program__attach(struct xdp_program *prog, int ifindex, enum xdp_attach_mode mode, unsigned int flags);
int xdp_program__detach(struct xdp_program *prog, int ifindex, enum xdp_attach_mode mode, unsigned int flags);
void xdp_program__close(struct xdp_program *prog);
struct bpf_object *xdp_program__bpf_obj(struct xdp_program *prog);
const char *xdp_program__name(const struct xdp_program *prog);
uint32_t xdp_program__id(const struct xdp_program *prog);

struct xdp_multiprog *xdp_multiprog__get_from_ifindex(int ifindex);
struct xdp_program *xdp_multiprog__main_prog(const struct xdp_multiprog *mp);
enum xdp_attach_mode xdp_multiprog__attach_mode(const struct xdp_multiprog *mp);
int xdp_multiprog__detach(struct xdp_multiprog *mp);
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

int xts_bpf_run_parser(int program_fd);
void xts_bpf_catch_messages(void);
const char *xts_bpf_messages(void);
"""

PRELUDE = r"""
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
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

/* Runs a parser on one byte, to see that this kernel runs programs so. 0 or -errno. */
static int xts_bpf_run_parser(int program_fd)
{
	unsigned char frame[15] = { 0 };
	LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = sizeof frame, .repeat = 1);

	return bpf_prog_test_run_opts(program_fd, &options);
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
