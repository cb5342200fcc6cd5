"""`xts status --processes`, from pages that the test makes: what is shown, and that a page is believed in nothing."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xts_socket import cli, generate_reasons
from xts_socket._native import ffi, lib
from xts_socket.cli.processes import interposed

STAYED, OFFLOADED = 2, 3  # enum descriptor_kind
TOP = Path(__file__).resolve().parents[3]
PAGE_BYTES = ffi.sizeof("struct xts_report_page")


@pytest.fixture(autouse=True)
def no_page_of_our_own() -> Iterator[None]:
    """A test before may have called install() in this process: its page is put out of sight, on its way between two
    sockets, where /proc does not show it."""
    pages = []
    for path in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # the descriptor that listed them
            if str(path.readlink()).startswith("/memfd:xts-preload"):
                pages.append(int(path.name))
    here, there = socket.socketpair()
    with here, there:
        if pages:
            socket.send_fds(here, [b"pages"], pages)
            for fd in pages:
                os.close(fd)
        yield
        if pages:
            _, back, _, _ = socket.recv_fds(there, 5, len(pages))
            for old, new in zip(pages, back, strict=True):
                if new != old:
                    os.dup2(new, old, inheritable=False)
                    os.close(new)


def page() -> Any:
    made = ffi.new("struct xts_report_page *")
    made.magic, made.version, made.entries = lib.XTS_REPORT_MAGIC, lib.XTS_REPORT_VERSION, lib.XTS_REPORT_ENTRIES
    made.pid = os.getpid()
    made.program, made.rules, made.strict = b"nginx", b"/etc/xts/web.conf", 1
    made.offloaded, made.unseen = 7, 2
    made.stayed[1], made.stayed[4] = 3, 1
    made.entry[5].kind, made.entry[5].reason, made.entry[5].rule_line = STAYED, 1, 12
    made.entry[5].peer.ip_version, made.entry[5].peer.port = 4, 53
    made.entry[5].peer.address = [10, 0, 0, 1, *[0] * 12]
    made.entry[6].kind, made.entry[6].number = OFFLOADED, 0x100001
    made.entry[6].local.ip_version, made.entry[6].local.port = 6, 443
    return made


@contextmanager
def memfd_with(data: bytes, name: str = "xts-preload") -> Iterator[None]:
    fd = os.memfd_create(name)
    try:
        os.write(fd, data)
        yield
    finally:
        os.close(fd)


def found_here() -> list[interposed.Interposed]:
    return [process for process in interposed.find() if process.pid == os.getpid()]


def test_what_a_page_says() -> None:
    with memfd_with(bytes(ffi.buffer(page()))):
        (process,) = found_here()
    assert (process.program, process.rules, process.strict) == ("nginx", "/etc/xts/web.conf", True)
    assert (process.offloaded, process.unseen) == (7, 2)
    assert [(r.number, r.name, r.count) for r in process.stayed] == [(1, "RULE", 3), (4, "NO_ENDPOINT", 1)]
    assert "XTS_ENDPOINT" in process.stayed[1].text
    kernel, offloaded = process.descriptors
    assert (kernel.fd, kernel.kind, kernel.reason_name, kernel.rule_line) == (5, "kernel", "RULE", 12)
    assert (kernel.local, kernel.peer) == ("*", "10.0.0.1:53")
    assert (offloaded.fd, offloaded.kind, offloaded.xts_socket) == (6, "offloaded", 0x100001)
    assert (offloaded.reason, offloaded.rule_line, offloaded.local) == (None, None, "[::]:443")


def test_shown(capsys: pytest.CaptureFixture[str]) -> None:
    pid = str(os.getpid())
    with memfd_with(bytes(ffi.buffer(page()))):
        assert cli.main(["status", "--processes", "-v", "--pid", pid]) == 0
        text = capsys.readouterr().out
        assert cli.main(["status", "--processes", "--pid", pid, "--json"]) == 0
        (process,) = json.loads(capsys.readouterr().out)["processes"]
    for word in (f"nginx ({pid})", "/etc/xts/web.conf", "NO_ENDPOINT", "1 RULE", "10.0.0.1:53", "0x100001"):
        assert word in text
    assert process["stayed"][0] == {
        "number": 1,
        "name": "RULE",
        "text": interposed.reason_text(1),
        "count": 3,
    }
    assert process["descriptors"][1]["xts_socket"] == 0x100001


def test_sockets_that_are_gone(capsys: pytest.CaptureFixture[str]) -> None:
    """Over fork they keep their XTS number, over exec they have none; they are not counted as the kernel's."""
    made = page()
    made.stayed[lib.XTS_REASON_ELSEWHERE], made.stayed[lib.XTS_REASON_LOST] = 20, 5
    made.entry[6].reason, made.entry[7].kind = lib.XTS_REASON_ELSEWHERE, STAYED
    made.entry[7].reason = lib.XTS_REASON_LOST
    with memfd_with(bytes(ffi.buffer(made))):
        (process,) = found_here()
        assert cli.main(["status", "--processes", "--pid", str(os.getpid())]) == 0
    kernel, over_fork, over_exec = process.descriptors
    assert kernel.kind == "kernel"
    assert (over_fork.kind, over_fork.reason_name, over_fork.xts_socket) == ("gone", "ELSEWHERE", 0x100001)
    assert (over_exec.kind, over_exec.reason_name, over_exec.xts_socket) == ("gone", "LOST", None)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "/etc/xts/web.conf" in line)
    assert line.split()[-4:] == ["7", "4", "25", "2"], "offloaded, kernel, gone, refused"


def test_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--processes", "--pid", str(os.getpid())]) == 0
    assert "under `xts run`" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["magic", "version", "pid", "short", "name"])
def test_what_is_no_page_of_the_process_is_left_out(wrong: str) -> None:
    made = page()
    if wrong in ("magic", "version", "pid"):
        setattr(made, wrong, getattr(made, wrong) + 1)
    data = bytes(ffi.buffer(made))
    with memfd_with(data[:-1] if wrong == "short" else data, "other" if wrong == "name" else "xts-preload"):
        assert found_here() == []


def test_the_parents_page_does_not_hide_ours() -> None:
    parents = page()
    parents.pid, parents.program = 1, b"parent"
    with memfd_with(bytes(ffi.buffer(parents))), memfd_with(bytes(ffi.buffer(page()))):
        assert [process.program for process in found_here()] == ["nginx"]


@given(st.binary(min_size=64, max_size=64), st.integers(0, PAGE_BYTES - 64))
def test_any_bytes_can_be_shown(data: bytes, offset: int) -> None:
    torn = bytearray(ffi.buffer(page()))
    torn[offset : offset + 64] = data
    read = interposed.read_page(bytes(torn))
    if read is not None:
        process = interposed.describe(1, read)
        assert process.program.isprintable()
        assert len(process.descriptors) <= lib.XTS_REPORT_ENTRIES
        json.dumps([process.rules, [d.local for d in process.descriptors]])


def test_every_reason_has_a_name_and_a_text() -> None:
    for number in range(1, lib.XTS_REASON_COUNT):
        assert interposed.reason_name(number).isupper()
        assert len(interposed.reason_text(number)) > 10
    assert interposed.reason_name(0) == "0"
    assert interposed.reason_name(31) == "31"


@pytest.mark.skipif(not generate_reasons.TABLE.is_file(), reason="an installed package has no sources to read")
def test_reasons_are_documented_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate_reasons.main(["--check", "--top", str(TOP)]) == 0, capsys.readouterr().err
    assert generate_reasons.main(["--top", str(tmp_path)]) == 0
    written = tmp_path / "host_lib" / "REASONS.md"
    written.write_text(written.read_text().replace("NO_ENDPOINT", "NONE"))
    assert generate_reasons.main(["--check", "--top", str(tmp_path)]) == 1
