"""The exit status under `--strict` of `xts run` and `xts dev`: 3 if the rules offload sockets and not a single one was.

A test that passes because everything went over the kernel has tested nothing.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds.dev import XTS, DevBed, dev_bed
from xts_socket._dev_proxy import DevProxy

#: The port names the rule: 7001 is refused (there is nobody at that endpoint), 7002 stays with the kernel, the rest is
#: offloaded.
RULES = "endpoint far {folder}/nobody.sock\nuse xts@far tcp_client *:7001\nuse os tcp_client *:7002\n"
PROGRAM = (sys.executable, str(Path(__file__).with_name("programs") / "opens_sockets.py"))


@dataclass(frozen=True, slots=True)
class Case:
    code: str
    status: int


CASES = {
    "refused": Case("refused()", 3),
    "refused, and it fails itself": Case("refused(); sys.exit(5)", 3),
    "refused, and it ends by _exit()": Case("refused(); os._exit(0)", 3),
    "refused, and it ends by quick_exit()": Case("refused(); ctypes.CDLL(None).quick_exit(0)", 3),
    "offloaded, and it ends by quick_exit()": Case("offloaded(); ctypes.CDLL(None).quick_exit(5)", 5),
    "no socket": Case("pass", 0),
    "no socket, and it fails itself": Case("sys.exit(5)", 5),
    "a rule keeps it, on purpose": Case("kept()", 0),
    "not connected, so never decided": Case("socket.socket().close()", 0),
    "UDP, which no rule offloads": Case("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))", 0),
    "one of each": Case("refused(); kept(); offloaded()", 0),
    "a child is refused": Case("child(refused)", 3),
    "a child of a child by exec is refused": Case("child(lambda: execute('child(refused)'))", 3),
    "a child is refused, another one offloaded": Case("child(refused); child(offloaded)", 0),
    "one is refused, and it executes another program": Case("refused(); execute('pass')", 3),
    "offloaded before exec, refused after it": Case("offloaded(); execute('refused()')", 0),
    "it executes a program that is refused": Case("execute('refused()')", 3),
    "an exec that fails": Case("refused()\ntry: os.execv('/nowhere', ['x'])\nexcept OSError: pass", 3),
    "a daemon that is refused later": Case("if not os.fork(): os.setsid(); time.sleep(0.5); refused()", 0),
    "killed by a signal": Case("refused(); os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
}
Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def bed() -> Iterator[DevBed]:
    with dev_bed() as made:
        yield made


@pytest.fixture(scope="module")
def proxy() -> Iterator[DevProxy]:
    with DevProxy() as running:
        yield running


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server.getsockname()[1]


@pytest.fixture(params=["dev", "run"])
def run(request: pytest.FixtureRequest, bed: DevBed, proxy: DevProxy, tmp_path: Path) -> Run:
    (tmp_path / "rules").write_text(RULES.format(folder=tmp_path))
    options = ["--rules", str(tmp_path / "rules"), "--strict", "--"]
    there = {} if request.param == "dev" else {"XTS_ENDPOINT": proxy.endpoint, "XTS_LOOPBACK": "1"}
    return lambda command: bed.run(*XTS, request.param, *options, *command, **there)


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if "no socket was offloaded" in line]


@pytest.mark.parametrize("name", CASES)
def test_status(name: str, run: Run, port: int) -> None:
    case = CASES[name]
    done = run([*PROGRAM, str(port), case.code])
    killed = (case.status, 128 - case.status)  # under `xts run`, and as `xts dev` tells it
    assert done.returncode in (killed if case.status < 0 else (case.status,)), done.stderr
    assert len(told(done)) == (case.status == 3), done.stderr
    for line in told(done):
        assert "--strict: no socket was offloaded, and 1 that the rules offload was refused (NO_ENDPOINT)" in line


def test_what_a_program_has_buffered_is_written(run: Run) -> None:
    done = run(["curl", "-s", "-w", "code %{http_code}", "http://127.0.0.1:7001/"])
    assert (done.returncode, done.stdout, len(told(done))) == (3, "code 000", 1)
    assert "exit status 3 instead of 7" in done.stderr


def test_through_a_shell(run: Run) -> None:
    done = run(["sh", "-c", "curl -s http://127.0.0.1:7001/ || curl -s http://127.0.0.1:7001/; echo end"])
    assert (done.returncode, done.stdout) == (3, "end\n")
    assert "and 2 that the rules offload were refused" in done.stderr


def test_without_strict_it_is_as_it_was(bed: DevBed, tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(RULES.format(folder=tmp_path))
    command = [*PROGRAM, "1", "refused()"]
    done = bed.dev("--rules", str(tmp_path / "rules"), "--", *command)
    assert (done.returncode, told(done)) == (0, [])
    quiet = bed.dev("-q", "--strict", "--rules", str(tmp_path / "rules"), "--", *command)
    assert (quiet.returncode, quiet.stderr) == (3, "")


def test_under_install(bed: DevBed, tmp_path: Path, port: int) -> None:
    """Without the interposer install() is strict by the same option, and its sockets count, too."""
    (tmp_path / "rules").write_text(RULES.format(folder=tmp_path))
    options = ("--no-preload", "--strict", "--rules", str(tmp_path / "rules"), "--", *PROGRAM, str(port))
    for code, status in (("refused()", 3), ("refused(); offloaded()", 0), ("kept()", 0)):
        done = bed.dev(*options, "import xts_socket; xts_socket.install()\n" + code)
        assert (done.returncode, len(told(done))) == (status, status == 3), done.stderr
