"""Memory for keys: which kind the kernel gives, what is said where it is not the best, and what happens when it is
full. In processes of their own, for there is one such memory in each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("programs") / "key_memory.py"
#: xts_proxy first: OpenSSL's memory is ours only in a process that has not used OpenSSL yet.
RUN = f"import xts_proxy, runpy; assert xts_proxy.WIPES_MEMORY; runpy.run_path({str(PROGRAM)!r})"
SECRET, LOCKED, PLAIN = "1", "2", "3"


def told(case: str) -> list[str]:
    run = subprocess.run([sys.executable, "-c", RUN, case], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip().split("|")


def test_the_best_that_the_kernel_gives() -> None:
    """No dump has it, and no child (dd, dc). There are flags of smaps(5)."""
    kind, flags, why = told("secret")
    if kind == SECRET:
        assert (flags, why) == ("dc dd lo", "")
    else:  # what the next tests make
        assert {"dd", "dc"} <= set(flags.split()) and why.startswith("keys are in ")


def test_a_kernel_without_secret_memory() -> None:
    kind, flags, why = told("locked")
    if kind == PLAIN:
        pytest.skip(f"this user may lock too little: {why}")
    assert (kind, flags) == (LOCKED, "dc dd lo")
    assert why == (
        "keys are in locked memory, which root can read: memfd_secret: the kernel has none "
        "(CONFIG_SECRETMEM; before Linux 6.5 secretmem.enable=1)"
    )


def test_a_user_who_may_lock_little() -> None:
    kind, flags, why = told("plain")
    assert (kind, flags) == (PLAIN, "dc dd")
    assert why == (
        "keys are in memory that may be swapped: 37888 KiB cannot be locked: Cannot allocate memory; "
        "RLIMIT_MEMLOCK is 64 KiB (LimitMEMLOCK=, or a smaller proxy.key_memory_mib)"
    )


def test_where_it_is_full_connections_stay_with_openssl() -> None:
    """They work, what was taken is given back, and each place says why."""
    carrier, counted, used = told("full")
    assert carrier == "openssl (the memory for keys is full: proxy.key_memory_mib)"
    assert (counted, used) == ("True", "0")


def test_an_idle_connection_has_no_contexts() -> None:
    """OpenSSL's contexts of its keys are made for the next record, and given back after a second without any."""
    working, soon, resting, again, half = map(int, told("rests"))
    assert working == soon == again
    assert working - 2000 > resting and resting + 1000 < half < working - 1000


def test_where_it_is_nearly_full_connections_share_contexts() -> None:
    """They go on by our records: a context takes another key for each."""
    used, refused = told("tight")
    assert int(used) < 3584 and refused == "True"


def test_where_it_is_full_keys_of_a_host_are_refused() -> None:
    assert told("pushed") == ["True", "tls_keys: the memory for keys is full (proxy.key_memory_mib)"]
