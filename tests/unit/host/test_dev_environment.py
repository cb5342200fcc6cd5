"""What of a program's environment reaches the proxy that is started for it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xts_socket import _dev_environment
from xts_socket._dev_environment import for_proxy


class Native:
    """The native module: is it built with a sanitizer?"""

    def __init__(self, sanitized: bool) -> None:
        self.sanitized = sanitized

    def xts_calls_sanitized(self) -> int:
        return int(self.sanitized)


PROGRAMS = {
    name: "x"
    for name in (
        *("LD_PRELOAD", "LD_AUDIT", "LD_BIND_NOW", "LD_DEBUG", "LD_DEBUG_OUTPUT", "LD_PROFILE", "LD_SHOW_AUXV"),
        *("GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_CONF", "MALLOC_PERTURB_", "MALLOC_CHECK_", "HEAPPROFILE"),
        *("ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS", "MSAN_OPTIONS", "ASAN_SYMBOLIZER_PATH"),
        *("FAKETIME", "FAKETIME_SHARED", "DONT_FAKE_MONOTONIC", "PYTHONINSPECT", "PYTHONMALLOC", "XTS_RULES"),
    )
}
OURS = {"PATH": "/bin", "HOME": "/root", "LANG": "C", "PYTHONPATH": "/x", "TMPDIR": "/tmp", "SANE_OPTIONS": "1"}


def test_what_is_meant_for_the_program_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dev_environment, "lib", Native(sanitized=False))
    assert for_proxy(OURS | PROGRAMS | {"LD_PRELOAD": "libasan.so /x/libxts-preload.so"}) == OURS


def test_a_sanitized_build_keeps_its_sanitizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dev_environment, "lib", Native(sanitized=True))
    preload = "/a/libasan.so.8 libubsan.so:/x/libxts-preload.so /y/libclang_rt.asan-x86_64.so /z/libasan_of_mine.so"
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "x"}
    kept = {"LD_PRELOAD": "/a/libasan.so.8:libubsan.so:/y/libclang_rt.asan-x86_64.so"}
    assert for_proxy(OURS | options | {"LD_PRELOAD": preload, "MALLOC_CONF": "x"}) == OURS | options | kept


def test_directories_of_this_interpreters_libraries_are_kept(tmp_path: Path) -> None:
    maps = Path("/proc/self/maps").read_text().splitlines()
    libc = next(Path(line.split()[-1]).parent for line in maps if "/libc.so" in line)
    link = tmp_path / "link"
    link.symlink_to(libc)
    given = f"{tmp_path}:{libc}::/nowhere;{link}"
    assert for_proxy({"LD_LIBRARY_PATH": given}) == {"LD_LIBRARY_PATH": f"{libc}:{link}"}
    assert for_proxy({"LD_LIBRARY_PATH": f"{tmp_path}:."}) == {}


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_nothing_is_added_or_changed(environment: dict[str, str]) -> None:
    kept = for_proxy(environment)
    assert kept.items() <= environment.items()
    assert sys.executable and for_proxy(kept | {"LD_AUDIT": os.devnull}) == kept
