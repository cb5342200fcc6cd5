"""A queue and a lock for each thread, or for each endpoint, on both kinds of queue; and two endpoints by rules."""

from __future__ import annotations

import contextlib
import os
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from beds.lab import raise_or_skip
from beds.preload import PreloadBed, preload_library, preloaded
from beds.script_outcomes import Outcomes
from beds.scripts import RUN_S
from beds.shm_proxy import SYSTEM, ShmProxy, library
from system.sockets.programs.stack_scripts import SETTINGS
from xts_lab.lab import Lab

DEADLINE_S = 60.0
PROGRAM = str(SYSTEM / "sockets" / "programs" / "stack_scripts.py")
NOT_ON_AFXDP = {"two_endpoints"}  # the lab has one agent


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := self.request.recv(65536):
                self.request.sendall(data)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextlib.contextmanager
def serving(address: str) -> Iterator[int]:
    with Server((address, 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(scope="module")
def echo_port() -> Iterator[int]:
    with serving("127.0.0.1") as port:
        yield port


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShmProxy]:
    """A second proxy, at an endpoint of its own."""
    with ShmProxy(tmp_path_factory.mktemp("other")) as made:
        yield made


@pytest.fixture(scope="module")
def on_shm(request: pytest.FixtureRequest, proxy: ShmProxy, other: ShmProxy, echo_port: int) -> Outcomes:
    arguments = ("127.0.0.1", str(echo_port), library(), "shm", str(other.endpoint))

    def run(names: str, value: str) -> str:
        return proxy.run("sockets/programs/stack_scripts.py", names, *arguments, XTS_STACKS=value)

    return Outcomes(request, run, SETTINGS.__getitem__)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_shm(name: str, on_shm: Outcomes) -> None:
    on_shm.check("test_shm", name)


@pytest.fixture(scope="module")
def locks_of_threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("locks") / "locks_of_threads"
    source = Path(PROGRAM).with_name("locks_of_threads.c")
    headers = [f"-I{SYSTEM.parents[1] / folder / 'native'}" for folder in ("host_lib", "messages")]
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread", "-rdynamic", *headers]
    # A library with sanitizers needs theirs, which the program finds when it runs.
    linked = [library(), f"-Wl,-rpath,{Path(library()).parent},--allow-shlib-undefined", "-ldl"]
    subprocess.run([compiler, *options, "-o", made, source, *linked], check=True)
    return made


@pytest.mark.parametrize(("value", "in_common"), [("thread", 0), ("process", 1)])
def test_mutexes_that_threads_have_in_common(
    value: str, in_common: int, locks_of_threads: Path, proxy: ShmProxy, echo_port: int
) -> None:
    """With a stack for each thread there is none, of a stack or of the process, also where connections come and go."""
    command = [str(locks_of_threads), "127.0.0.1", str(echo_port)]
    environment = proxy.environment(XTS_STACKS=value)
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    locked, shared = map(int, done.stdout.split())
    assert (locked >= 1, shared) == (True, in_common), done.stderr


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = raise_or_skip("afxdp", "stacks")
    yield made
    made.down()


@pytest.fixture(scope="module")
def on_afxdp(request: pytest.FixtureRequest, lab: Lab) -> Outcomes:
    def run(names: str, value: str) -> str:
        with contextlib.ExitStack() as stack:
            with lab.inside("net"):
                port = stack.enter_context(serving("198.18.0.2"))
            command = [sys.executable, PROGRAM, names, "198.18.0.2", str(port), library(), "afxdp"]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            with lab.popen("host", command, environment={"XTS_STACKS": value}, **pipes) as process:
                output, said = process.communicate(timeout=RUN_S)
        assert process.returncode == 0, said
        return str(output)

    return Outcomes(request, run, SETTINGS.__getitem__)


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("name", sorted(set(SETTINGS) - NOT_ON_AFXDP))
def test_afxdp(name: str, on_afxdp: Outcomes) -> None:
    on_afxdp.check("test_afxdp", name)


@pytest.mark.parametrize("value", ["0", "two", "1025", "process2"])
def test_a_wrong_setting_is_refused(value: str, proxy: ShmProxy) -> None:
    code = "import xts_socket; xts_socket.socket()"
    command = [sys.executable, "-c", code]
    env = proxy.environment(XTS_STACKS=value)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert "XTS_STACKS" in done.stderr


#: Connects to each address, and talks by all at once. XTS_STRICT has those fail that are not offloaded.
SEVERAL_ENDPOINTS = """
import socket, sys
if sys.argv[1] == "install":
    import xts_socket
    xts_socket.install(strict=True)
made = [socket.create_connection(peer.split(":"), 10) for peer in sys.argv[2:]]
for n in range(20):
    for s in made:
        s.sendall(b"x")
        assert s.recv(10) == b"x"
"""
WAYS = ["interposer", "install"]


def two_endpoints(folder: Path, way: str, endpoints: Sequence[Path | str], peers: Sequence[str]) -> dict[str, str]:
    """The environment for a program whose rules name these endpoints, each for one peer."""
    rules = folder / "two.rules"
    names = ("east", "west")
    lines = [f"endpoint {name} {path}\n" for name, path in zip(names, endpoints, strict=True)]
    lines += [f"use xts@{name} tcp_client {peer}\n" for name, peer in zip(names, peers, strict=True)]
    rules.write_text("".join(lines))
    preload = [os.environ.get("LD_PRELOAD"), preload_library() if way == "interposer" else None]
    return {"XTS_RULES": str(rules), "XTS_STRICT": "1", "LD_PRELOAD": ":".join(filter(None, preload))}


@pytest.mark.parametrize("way", WAYS)
def test_rules_name_two_endpoints(way: str, proxy: ShmProxy, other: ShmProxy, tmp_path: Path) -> None:
    with serving("127.0.0.1") as first, serving("127.0.0.1") as second:
        peers = [f"127.0.0.1:{port}" for port in (first, second)]
        environment = two_endpoints(tmp_path, way, [proxy.endpoint, other.endpoint], peers)
        command = [sys.executable, "-c", SEVERAL_ENDPOINTS, way, *peers]
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    assert done.returncode == 0, done.stderr


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("way", WAYS)
def test_rules_name_a_device_and_another_endpoint(
    way: str, lab: Lab, other: ShmProxy, echo_port: int, tmp_path: Path
) -> None:
    """The lab's agent, and a proxy on the machine that it runs on, by shared memory."""
    with contextlib.ExitStack() as stack:
        with lab.inside("net"):
            port = stack.enter_context(serving("198.18.0.2"))
        peers = [f"198.18.0.2:{port}", f"127.0.0.1:{echo_port}"]
        environment = two_endpoints(tmp_path, way, [lab.endpoint, other.endpoint], peers)
        command = [sys.executable, "-c", SEVERAL_ENDPOINTS, way, *peers]
        with lab.popen("host", command, stderr=subprocess.PIPE, text=True, environment=environment) as done:
            _, said = done.communicate(timeout=DEADLINE_S)
        assert done.returncode == 0, said


ENDPOINT_GONE = """
import socket, sys
if sys.argv[1] == "install":
    import xts_socket
    xts_socket.install()
for peer in sys.argv[2:]:
    socket.create_connection(peer.split(":"), 10).sendall(b"x")
"""


@pytest.mark.parametrize("way", WAYS)
def test_the_notice_is_of_the_endpoint_that_fails(way: str, proxy: ShmProxy, echo_port: int, tmp_path: Path) -> None:
    with serving("127.0.0.1") as second:
        peers = [f"127.0.0.1:{port}" for port in (echo_port, second)]
        environment = two_endpoints(tmp_path, way, [proxy.endpoint, tmp_path / "gone.sock"], peers)
        environment["XTS_STRICT"] = "0"
        command = [sys.executable, "-c", ENDPOINT_GONE, way, *peers]
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "(NO_ENDPOINT): " in done.stderr and str(tmp_path / "gone.sock") in done.stderr, done.stderr


FORKED = """
import os, socket, sys, threading
address = ("127.0.0.1", int(sys.argv[1]))
made = []
held = threading.Event()
def connect():
    made.append(socket.create_connection(address, 10))
    held.wait()
def echo(s):
    s.sendall(b"x")
    assert s.recv(10) == b"x"
threads = [threading.Thread(target=connect, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
while len(made) < 2:
    pass
made.append(socket.create_connection(address, 10))
for s in made:
    echo(s)
if not (pid := os.fork()):
    for s in made[:2]:
        echo(s)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
echo(made[2])
held.set()
"""


def test_a_child_takes_connections_of_several_stacks(bed: PreloadBed, echo_port: int) -> None:
    bed.run([sys.executable, "-c", FORKED, str(echo_port)], env={"XTS_STACKS": "thread"}, strict=True)


#: The main thread waits in one set for connections that other threads have made: one of them lives, one has exited.
WATCHED = """
import select, socket, sys, threading
made = []
go = threading.Event()
def connect(stays):
    made.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), 10))
    if stays:
        go.wait()
for stays in (False, True):
    threading.Thread(target=connect, args=(stays,), daemon=True).start()
while len(made) < 2:
    pass
made.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), 10))
for way in (0, select.EPOLLET):
    with select.epoll() as waiting:
        for s in made:
            waiting.register(s, select.EPOLLIN | way)
        for s in made * 3:
            s.sendall(b"x")
            assert waiting.poll(10) == [(s.fileno(), select.EPOLLIN)]
            assert s.recv(10) == b"x"
            assert not waiting.poll(0)
        waiting.unregister(made[0])
go.set()
"""


def test_a_set_of_the_kernels_holds_sockets_of_several_stacks(bed: PreloadBed, echo_port: int) -> None:
    command = [sys.executable, "-c", WATCHED, "127.0.0.1", str(echo_port)]
    bed.run(command, env={"XTS_STACKS": "thread"}, strict=True)


@pytest.mark.root
@pytest.mark.afxdp
def test_a_set_of_the_kernels_holds_sockets_of_several_queues(lab: Lab) -> None:
    with contextlib.ExitStack() as stack:
        with lab.inside("net"):
            port = stack.enter_context(serving("198.18.0.2"))
        command = [sys.executable, "-c", WATCHED, "198.18.0.2", str(port)]
        environment = {"LD_PRELOAD": preloaded(), "XTS_STACKS": "thread", "XTS_STRICT": "1"}
        with lab.popen("host", command, stderr=subprocess.PIPE, text=True, environment=environment) as done:
            _, said = done.communicate(timeout=DEADLINE_S)
        assert done.returncode == 0, said
