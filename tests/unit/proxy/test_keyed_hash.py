"""Where tables look for a number that a peer has chosen (messages/native/common/keyed_hash.h)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from beds.native_core import TOP, compiler
from cffi import FFI

COUNT, PLACES, FACTORS = 8192, 1024, 5000
NATIVE = TOP / "dpu_proxy" / "native"
#: How many numbers, so far apart, are in the longest place, with the worst of so many factors.
SHIM = """
#include <string.h>
#include "common/keyed_hash.h"
unsigned longest(uint64_t step, unsigned shift, unsigned count, unsigned factors)
{
	static unsigned in[1024];
	uint64_t seed = 1;
	unsigned most = 0;

	for (; factors; factors--) {
		uint64_t factor = (seed = seed * 6364136223846793005u + 1442695040888963407u) ^ seed >> 29;

		memset(in, 0, sizeof in);
		for (unsigned i = 0; i < count; i++) {
			unsigned *n = &in[keyed_hash(7 + i * step, factor | 1u) >> shift & 1023u];

			most = ++*n > most ? *n : most;
		}
	}
	return most;
}
"""


@pytest.mark.parametrize("shift", [0, 32, 54], ids=["the lowest bits", "those in the middle", "the highest"])
@pytest.mark.parametrize("step", [1, PLACES, 1 << 20, 1 << 32, 3 << 50], ids=hex)
def test_numbers_at_equal_distances_do_not_share_a_place(tmp_path: Path, step: int, shift: int) -> None:
    """A search takes as long as the place is."""
    if shutil.which(compiler()) is None:
        pytest.skip("no C compiler is installed")
    (tmp_path / "shim.c").write_text(SHIM)
    places = [f"-I{TOP / 'messages' / 'native'}"]
    command = [compiler(), "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", *places, "-o", "shim.so", "shim.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    ffi = FFI()
    ffi.cdef("unsigned longest(uint64_t step, unsigned shift, unsigned count, unsigned factors);")
    library = ffi.dlopen(str(tmp_path / "shim.so"), ffi.RTLD_LAZY)
    assert library.longest(step, shift, COUNT, FACTORS) <= 8 * COUNT // PLACES


def test_every_table_of_numbers_from_peers_uses_it() -> None:
    """Each secret of a hash in the proxy is made by it."""
    users = [path.name for path in NATIVE.rglob("*.c") if "keyed_hash_factor()" in path.read_text()]
    assert sorted(users) == ["accepting.c", "multicast_groups.c", "registry.c", "unnamed.c"]
