"""What exec() leaves in a program that is not under the interposer: no record of the sockets, which has their keys."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.compiled import compile_program
from beds.preload import PreloadBed
from beds.worker import receive_exactly

STARTER = str(Path(__file__).with_name("programs") / "leave_by_exec.py")
WAIT_S = 20.0
#: How many records it has, and whether it is told of one.
SHOW = """
import os
places = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
links = [os.readlink(place) for place in places if os.path.islink(place)]
print(sum("xts-sockets" in link for link in links), int("XTS_INHERITED" in os.environ), flush=True)
"""
NOTHING = "0 0\n"
#: A program into which nothing can be preloaded, and which starts another one.
WRAPPER = """
#include <unistd.h>

int main(int count, char *arguments[])
{
	return count < 2 || execv(arguments[1], arguments + 1);
}
"""
SEND = "import os, socket; socket.socket(fileno=int(os.environ['FD'])).sendall(b'!')"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(WAIT_S)
        yield made


def left(bed: PreloadBed, server: socket.socket, change: str, *argv: str) -> tuple[str, str]:
    """What the program shows, and what was said."""
    command = [sys.executable, STARTER, "127.0.0.1", str(server.getsockname()[1]), change, *argv]
    done = bed.run(command, env={"XTS_LOG": "1"})
    return done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    "change",
    ["del env['LD_PRELOAD']", "env['LD_PRELOAD'] = ''", "env = {'PATH': env['PATH']}"],
    ids=["not set", "empty", "no variable of ours"],
)
def test_an_environment_without_the_interposer(bed: PreloadBed, server: socket.socket, change: str) -> None:
    shown, said = left(bed, server, change, sys.executable, "-c", SHOW)
    assert shown == NOTHING
    assert "cannot use its 2 offloaded sockets: its environment does not name it" in said
    assert f"{sys.executable}, which it executes, cannot serve the 1 offloaded listeners that it gets" in said
    with server.accept()[0] as peer:
        peer.settimeout(WAIT_S)
        assert (peer.recv(10), peer.recv(10)) == (b"hello", b""), "the connection has ended with its program"


#: As a server's master: it starts a program in a child whose standard error goes to a file of its own.
MASTER = """
import os
if os.fork():
    os.wait()
    os.write(2, b"after\\n")
    os._exit(0)
os.dup2(os.open(os.environ["OWN"], os.O_WRONLY | os.O_CREAT), 2)
env = {"PATH": env["PATH"]}
"""


@pytest.mark.parametrize("kind", ["pipe", "file", "replaced", "first"])
def test_a_child_that_has_replaced_its_standard_error(
    bed: PreloadBed, server: socket.socket, tmp_path: Path, kind: str
) -> None:
    """It is told on that of its parent, or of the run's first process, and in no other file."""
    program, own, said = tmp_path / "sleeper", tmp_path / "own", tmp_path / "said"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    own.touch()
    replace, write = "os.dup2(os.open(os.environ['OWN'], os.O_WRONLY), 2)\n", "os.write(2, b'before\\n')\n"
    first = replace if kind == "replaced" else write + replace if kind == "first" else write
    starting = [sys.executable, STARTER, "127.0.0.1", str(server.getsockname()[1]), first + MASTER, str(program)]
    where = f' 2>"{said}"' if kind == "file" else ""
    run = '"$@"; exit 0' if kind == "first" else f'exec "$@"{where}'
    command = ["sh", "-c", f"XTS_ROOT_PID=$$; export XTS_ROOT_PID; {run}", "sh", *starting]
    done = bed.run(command, env={"OWN": str(own)})
    lines = (said.read_text() if kind == "file" else done.stderr.decode()).splitlines()
    if kind == "replaced":
        assert (lines, own.read_text()) == ([], "after\n"), "nobody is told where another file is standard error now"
        return
    assert (lines[0], own.read_text()) == ("before", "after\n" if kind == "first" else "")
    assert kind == "first" or lines[-1] == "after"
    told = [line for line in lines if f"{program}, which it executes, cannot serve the 1 offloaded listeners" in line]
    assert len(told) == 1, lines


#: The child ends if it calls pidfd_open() or pidfd_getfd(), which have these numbers on all machines.
CONFINE = """
import ctypes, struct
code = struct.pack("HBBI", 0x20, 0, 0, 0)
for number in 434, 438:
    code += struct.pack("HBBI", 0x15, 0, 1, number) + struct.pack("HBBI", 0x06, 0, 0, 0x80000000)
text = ctypes.create_string_buffer(code + struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000))
program = struct.pack("HxxxxxxQ", len(text) // 8, ctypes.addressof(text))
libc = ctypes.CDLL(None)
assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, program, 0, 0)
"""


def test_a_child_that_has_confined_itself_too(bed: PreloadBed, server: socket.socket, tmp_path: Path) -> None:
    """No system call is made for the line that could end it."""
    program, mark = tmp_path / "marker", tmp_path / "mark"
    program.write_text(f'#!/bin/sh\n: >"{mark}"\n')
    program.chmod(0o755)
    words = [sys.executable, STARTER, "127.0.0.1", str(server.getsockname()[1]), MASTER + CONFINE, str(program)]
    assert bed.run(words, env={"OWN": str(tmp_path / "own")}).stderr.decode().endswith("after\n")
    assert mark.exists()


def test_a_program_that_cannot_be_started_changes_nothing(bed: PreloadBed, server: socket.socket) -> None:
    change = "try:\\n os.execve('/nowhere', ['x'], {})\\nexcept OSError:\\n s.sendall(b'!')\\n os._exit(0)"
    left(bed, server, change.encode().decode("unicode_escape"), "none")
    with server.accept()[0] as peer:
        peer.settimeout(WAIT_S)
        assert receive_exactly(peer, 6) == b"hello!"


@pytest.mark.root
def test_a_program_that_gains_privilege(bed: PreloadBed, server: socket.socket, tmp_path: Path) -> None:
    """The loader takes LD_PRELOAD out of its environment, and so what it starts is not under the interposer either."""
    if os.geteuid():
        pytest.skip("needs root, who may give a file away")
    if os.statvfs(tmp_path).f_flag & os.ST_NOSUID:
        pytest.skip("set-uid has no effect there")
    program = tmp_path / "ls"
    shutil.copy(shutil.which("ls") or "/bin/ls", program)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    shown, said = left(bed, server, "pass", str(program), "-l", "/proc/self/fd")
    assert "xts-sockets" not in shown and "socket:" in shown
    assert "cannot use its 2 offloaded sockets: it is set-uid" in said


def test_what_a_static_program_starts_may_take_them(bed: PreloadBed, server: socket.socket, tmp_path: Path) -> None:
    """That is why such a program has a record, which it cannot use itself."""
    source = tmp_path / "wrapper.c"
    source.write_text(WRAPPER)
    wrapper = compile_program(source, tmp_path, "-static")
    left(bed, server, "env['FD'] = str(s.fileno())", wrapper, sys.executable, "-c", SEND)
    with server.accept()[0] as peer:
        peer.settimeout(WAIT_S)
        assert receive_exactly(peer, 6) == b"hello!"


def test_one_that_is_under_it_takes_them(bed: PreloadBed, server: socket.socket) -> None:
    """And leaves no record either."""
    shown, _ = left(bed, server, "pass", sys.executable, "-c", SHOW)
    assert shown == NOTHING
