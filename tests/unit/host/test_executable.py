"""What `xts run` sees in a program's file before it starts it."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xts_socket.cli.checks import interposer
from xts_socket.cli.processes.executable import find, look_at, preload_value, read_elf

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler")

#: The note that Go's linker leaves.
GO_NOTE = (
    'asm(".section .note.go.buildid,\\"a\\",@note\\n.long 4, 4, 4\\n.asciz \\"Go\\\\0\\"\\n.long 0\\n.previous");\n'
)


def compiled(folder: Path, *options: str, before: str = "") -> Path:
    source, program = folder / "program.c", folder / "program"
    source.write_text(before + "int main(void) { return 0; }\n")
    subprocess.run([str(CC), *options, "-o", str(program), str(source)], check=True, capture_output=True)
    return program


def executable(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def obstacle(path: Path) -> str:
    found = look_at(str(path)).obstacle
    assert found is not None
    return found


@needs_cc
def test_an_ordinary_program_has_no_obstacle(tmp_path: Path) -> None:
    assert look_at(str(compiled(tmp_path))).obstacle is None
    assert look_at(find("cat")).obstacle is None


@needs_cc
@pytest.mark.parametrize("name", ["sshd", "vsftpd"])
def test_one_that_works_in_a_sandbox(name: str, tmp_path: Path) -> None:
    server = executable(tmp_path / name, compiled(tmp_path).read_bytes())
    assert "sandbox" in obstacle(server) and look_at(str(server)).sandboxed
    assert not look_at(find("cat")).sandboxed


@needs_cc
@pytest.mark.parametrize("option", ["-static", "-static-pie"])
def test_statically_linked(tmp_path: Path, option: str) -> None:
    assert "statically linked" in obstacle(compiled(tmp_path, option))


@needs_cc
@pytest.mark.parametrize("options", [(), ("-static",)])
def test_go(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert "Go program" in obstacle(compiled(tmp_path, *options, before=GO_NOTE))


@needs_cc
def test_another_c_library(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    with program.open("rb") as file:
        loader = read_elf(file).loader
    assert loader
    other = "/lib/ld-musl.so.1"
    data = program.read_bytes().replace(loader.encode(), other.encode().ljust(len(loader), b"\0"))
    assert other in obstacle(executable(tmp_path / "musl", data))


@pytest.mark.parametrize(
    ("bits", "order", "machine", "words"),
    [(1, "<", 3, "32-bit"), (2, "<", 0xFFFE, "another architecture"), (2, ">", 62, "another architecture")],
)
def test_another_machine(tmp_path: Path, bits: int, order: str, machine: int, words: str) -> None:
    ident = bytes([0x7F, *b"ELF", bits, 1 if order == "<" else 2, 1]).ljust(16, b"\0")
    header = struct.pack(order + ("HHIQQQIHHH" if bits == 2 else "HHIIIIIHHH"), 2, machine, 1, 0, 64, 0, 0, 64, 56, 0)
    assert words in obstacle(executable(tmp_path / "other", ident + header))


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to somebody else")
def test_set_uid_and_set_gid(tmp_path: Path) -> None:
    program = executable(tmp_path / "program", Path(find("true")).read_bytes())
    program.chmod(0o4755)
    assert look_at(str(program)).obstacle is None  # no privilege gained: its owner starts it
    os.chown(program, 65534, 0)
    program.chmod(0o4755)
    assert "set-uid" in obstacle(program)
    os.chown(program, 0, 65534)
    program.chmod(0o2755)
    assert "set-gid" in obstacle(program)


@needs_cc
def test_a_script_is_its_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(tmp_path, "-static")
    script = executable(tmp_path / "script", f"#!{program} -x\n".encode())
    second = executable(tmp_path / "second", f"#! {script}\n".encode())
    assert look_at(str(second)).runs == str(program)
    assert "statically" in obstacle(second)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    by_env = executable(tmp_path / "by_env", b"#!/usr/bin/env -S A=1 program -x\n")
    assert look_at(str(by_env)).runs == str(program)
    assert look_at(str(executable(tmp_path / "sh", b"#!/bin/sh\n"))).obstacle is None


def test_what_cannot_be_started(tmp_path: Path) -> None:
    itself = executable(tmp_path / "itself", f"#!{tmp_path}/itself\n".encode())
    for path, words in (
        (itself, "deep"),
        (executable(tmp_path / "text", b"hello\n"), "neither"),
        (executable(tmp_path / "empty", b""), "neither"),
        (executable(tmp_path / "bare", b"#!\n"), "no interpreter"),
        (executable(tmp_path / "cut", b"\x7fELF\x02\x01\x01" + bytes(20)), "cut short"),
        (executable(tmp_path / "short", b"\x7fELF"), "not an ELF"),
    ):
        with pytest.raises(OSError, match=words):
            look_at(str(path))
    with pytest.raises(FileNotFoundError):
        look_at(str(executable(tmp_path / "lost", b"#!/nowhere/sh\n")))
    with pytest.raises(FileNotFoundError, match="PATH"):
        find("no-such-program-anywhere")
    with pytest.raises(PermissionError):
        find(str(tmp_path))
    (tmp_path / "plain").write_text("x")
    with pytest.raises(PermissionError):
        find(str(tmp_path / "plain"))


@given(st.binary(min_size=1, max_size=8), st.integers(0, 600))
def test_any_bytes_in_the_headers(data: bytes, offset: int) -> None:
    torn = bytearray(Path(find("true")).read_bytes()[:8192])
    torn[offset : offset + len(data)] = data
    with Path(f"/proc/self/fd/{memfd(bytes(torn))}").open("rb") as file:
        os.close(int(file.name.rpartition("/")[2]))
        try:
            read_elf(file)
        except OSError as failure:
            assert "ELF" in str(failure)


def memfd(data: bytes) -> int:
    fd = os.memfd_create("elf")
    os.write(fd, data)
    return fd


@pytest.mark.parametrize(
    ("present", "value"),
    [(None, "/x/ours.so"), ("", "/x/ours.so"), ("/a.so", "/a.so:/x/ours.so"), ("/x/ours.so /a.so", "/x/ours.so /a.so")],
)
def test_preload_value(present: str | None, value: str) -> None:
    assert preload_value({} if present is None else {"LD_PRELOAD": present}, "/x/ours.so") == value


def test_preload_value_of_a_path_that_it_cannot_hold() -> None:
    with pytest.raises(OSError, match="blanks"):
        preload_value({}, "/my libraries/ours.so")


@needs_cc
def test_doctor_tries_the_interposer(tmp_path: Path) -> None:
    missing = interposer.check(tmp_path / "none.so")
    assert (missing.level, "is not there" in missing.found) == ("warn", True)
    broken = interposer.check(executable(tmp_path / "broken.so", b"no library"))
    assert (broken.level, "cannot be loaded" in broken.found) == ("warn", True)
    library = tmp_path / "empty.so"
    subprocess.run([str(CC), "-shared", "-o", str(library), "-x", "c", "/dev/null"], check=True)
    assert interposer.check(library).level == "ok"
