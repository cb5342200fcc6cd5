"""Where the registry of keys looks for a key (dpu_proxy/native/processes/registry.c)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from beds.native_core import TOP, compiler
from cffi import FFI

COUNT, BUCKETS = 8192, 1024
SHIM = """
#include "processes/registry.c"
#include "worker/worker_state.c"
unsigned longest(uint64_t first, uint64_t step, unsigned count)
{
	static unsigned in[BUCKETS];
	unsigned most = 0;

	registry_lock();
	memset(in, 0, sizeof in);
	for (unsigned i = 0; i < count; i++) {
		unsigned *n = &in[bucket(first + i * step) - registry.by_key];

		most = ++*n > most ? *n : most;
	}
	registry_unlock();
	return most;
}
"""


@pytest.mark.parametrize("step", [1, BUCKETS, 1 << 20, 1 << 40, 3 << 50], ids=hex)
def test_keys_that_a_host_has_chosen_do_not_share_a_bucket(tmp_path: Path, step: int) -> None:
    """A search takes as long as the bucket is, with the lock that all workers use."""
    if shutil.which(compiler()) is None:
        pytest.skip("no C compiler is installed")
    native = TOP / "dpu_proxy" / "native"
    (tmp_path / "shim.c").write_text(f"#include <string.h>\n{SHIM}")
    places = [f"-I{native}", f"-I{TOP / 'messages' / 'native'}"]
    command = [compiler(), "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", *places, "-o", "shim.so", "shim.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    ffi = FFI()
    ffi.cdef("unsigned longest(uint64_t first, uint64_t step, unsigned count);")
    library = ffi.dlopen(str(tmp_path / "shim.so"), ffi.RTLD_LAZY)
    assert library.longest(7, step, COUNT) <= 16 * COUNT // BUCKETS
