"""Another XDP program on an interface, which passes every frame and counts it: attached through libxdp, as xdp-loader
does, or alone."""

from __future__ import annotations

import atexit
import os
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xts_bpf.bpf_object import descriptor_of, map_of, open_object, programs
from xts_bpf.native import ffi, lib

SOURCE = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");
SEC("xdp.frags") int pass_all(struct xdp_md *context)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&seen, &zero);

	if (count)
		__sync_fetch_and_add(count, 1);
	return XDP_PASS;
}
char _license[] SEC("license") = "GPL";
"""
BPFFS = "/sys/fs/bpf"
DISPATCHED, ALONE = "through libxdp", "alone"


@cache
def need_bpffs() -> None:
    """Where libxdp pins what a dispatcher calls: until this process ends, for libxdp makes its folder there once."""
    mounted = any(line.split()[1] == BPFFS for line in Path("/proc/mounts").read_text().splitlines())
    if mounted:
        return
    if subprocess.run(["mount", "-t", "bpf", "bpf", BPFFS], check=False).returncode:
        pytest.skip("bpffs cannot be mounted here")
    atexit.register(subprocess.run, ["umount", "--lazy", BPFFS], check=False)


def built(folder: Path) -> Path:
    """The object of the program."""
    clang = shutil.which("clang") or pytest.skip("there is no clang")
    source, made = folder / "pass_all.bpf.c", folder / "pass_all.bpf.o"
    source.write_text(SOURCE)
    include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
    subprocess.run([clang, "-target", "bpf", "-O2", "-g", include, "-c", source, "-o", made], check=True)
    return made


class OtherProgram:
    """One that is attached; it stays when this object is closed."""

    def __init__(self, path: Path, index: int, how: str = DISPATCHED) -> None:
        """In the current network namespace. OSError: the kernel has no dispatcher."""
        self._object: Any = open_object(path, f"opening {path}")
        if how == DISPATCHED:
            joined = ffi.new("struct xdp_program **")
            result = int(lib.xts_bpf_join(index, self._object, 50, joined))
            self.number = int(lib.xdp_program__id(joined[0])) if result >= 0 else 0
        else:
            result = int(lib.bpf_object__load(self._object))
            (program,) = programs(self._object).values()
            result = result or int(lib.xts_bpf_attach(index, descriptor_of(program), -1))
            self.number = int(lib.xts_bpf_program_id(descriptor_of(program)))
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        self._seen = map_of(self._object, "seen")

    def seen(self) -> int:
        """How many frames."""
        value = ffi.new("uint64_t *")
        assert lib.bpf_map_lookup_elem(self._seen, struct.pack("=I", 0), value) == 0
        return int(value[0])
