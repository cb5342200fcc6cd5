"""The C examples: each is compiled as its first lines say, with nothing but what pkg-config tells, and run."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.authority import Authority, tls_tables
from beds.native_core import compiler
from beds.proxy_process import ProxyProcess, running_proxy
from beds.ulp_tls import server_context

TOP = Path(__file__).resolve().parents[3]
FOLDER = TOP / "host_lib" / "native" / "examples"
DEADLINE_S = 30
PAGE = b"HTTP/1.0 200 OK\r\n\r\nhello\n"
NAMES = sorted(path.stem for path in FOLDER.glob("*.c"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[ProxyProcess]:
    folder = tmp_path_factory.mktemp("proxy")
    with running_proxy(folder, tls_tables(folder, authority)) as found:
        yield found


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, compiled in a folder that is not the checkout."""
    folder = tmp_path_factory.mktemp("programs")
    flags = subprocess.run(
        [sys.executable, "-m", "xts_socket.cli", "build-flags"], capture_output=True, text=True, check=True
    ).stdout.split()
    running = []
    for name in NAMES:
        warnings = ["-std=gnu11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pthread"]
        command = [compiler(), *warnings, str(FOLDER / f"{name}.c"), "-o", str(folder / name), *flags]
        running.append(subprocess.Popen(command, cwd=folder))
    assert [process.wait() for process in running] == [0] * len(NAMES)
    return folder


@contextmanager
def serving(handle: object, count: int = 1) -> Iterator[str]:
    """A server of the kernel's: handle(connection) for so many connections; yields its port."""
    assert callable(handle)

    def serve(listener: socket.socket) -> None:
        threads = []
        for _ in range(count):
            try:
                accepted, _ = listener.accept()
            except OSError:
                break
            threads.append(threading.Thread(target=handle, args=(accepted,)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        listener.settimeout(DEADLINE_S)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield str(listener.getsockname()[1])
        finally:
            thread.join()


def echo(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data)


def sink(connection: socket.socket) -> None:
    with connection:
        while connection.recv(65536):
            pass


def answer(data: bytes) -> object:
    def handle(connection: socket.socket) -> None:
        with connection:
            connection.sendall(data)

    return handle


def http(connection: socket.socket) -> None:
    with connection:
        connection.recv(65536)
        connection.sendall(PAGE)


class Bed:
    def __init__(self, proxy: ProxyProcess, programs: Path) -> None:
        self.folder = programs
        self.environment = {n: v for n, v in os.environ.items() if not n.startswith("XTS_")}
        self.environment |= {"XTS_ENDPOINT": proxy.endpoint}
        self.proxy = proxy

    def run(self, name: str, *arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [str(self.folder / name), *arguments], env=self.environment, cwd="/", capture_output=True, text=True,
            timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        return done.stdout if not status else done.stderr

    @contextmanager
    def server(self, name: str, connections: int) -> Iterator[tuple[str, int]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with subprocess.Popen(
            [str(self.folder / name), str(port), str(connections)],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() in ("listening\n", "bound\n")
            yield "127.0.0.1", port
            assert process.wait(DEADLINE_S) == 0


@pytest.fixture
def bed(proxy: ProxyProcess, programs: Path) -> Bed:
    return Bed(proxy, programs)


def test_fetch(bed: Bed) -> None:
    with serving(http) as port:
        assert bed.run("fetch", "127.0.0.1", port, "/") == PAGE.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(("name", "connections"), [("echo_server", 2), ("epoll_echo", 5)])
def test_servers(name: str, connections: int, bed: Bed) -> None:
    with bed.server(name, connections) as address:
        for i in range(connections):
            with socket.create_connection(address, timeout=DEADLINE_S) as client:
                client.sendall(b"%d hello" % i)
                assert client.recv(100) == b"%d hello" % i


def test_udp_echo(bed: Bed) -> None:
    with bed.server("udp_echo", 3) as address, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(DEADLINE_S)
        client.connect(address)
        for data in (b"hello", b"", b"x" * 60_000):
            client.send(data)
            assert client.recv(65_536) == data


def test_early_filter(bed: Bed) -> None:
    with bed.server("early_filter", 3) as address, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        for data in (b"a flood?", b"quiet", b"q1?", b"", b"qq", b"q2?", b"spam", b"q3?"):
            client.sendto(data, address)


def test_event_loop(bed: Bed) -> None:
    with serving(echo) as port:
        assert bed.run("event_loop", "127.0.0.1", port) == 4 * "tick\n"


def test_nonblocking(bed: Bed) -> None:
    with serving(echo) as port:
        assert bed.run("nonblocking", "127.0.0.1", port, "10000") == "connected\n"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = str(closed.getsockname()[1])
        assert bed.run("nonblocking", "127.0.0.1", port, "10000") == "Connection refused\n"


def test_two_servers(bed: Bed) -> None:
    with serving(answer(b"one")) as first, serving(answer(b"two")) as second:
        assert sorted(bed.run("two_servers", "127.0.0.1", first, second).splitlines()) == ["1: one", "2: two"]


def test_threads(bed: Bed) -> None:
    with serving(echo, 4) as port:
        assert bed.run("threads", "127.0.0.1", port) == "400 rounds\n"


def test_tls_fetch(bed: Bed, authority: Authority) -> None:
    context = server_context(authority.issue("localhost", "127.0.0.1"))

    def handle(connection: socket.socket) -> None:
        try:
            with context.wrap_socket(connection, server_side=True) as secure:
                secure.recv(65536)
                secure.sendall(PAGE)
                secure.unwrap()
        except OSError:
            connection.close()

    with serving(handle, 2) as port:
        assert bed.run("tls_fetch", "127.0.0.1", port, "localhost", "default").endswith("hello\n")
        refused = bed.run("tls_fetch", "127.0.0.1", port, "elsewhere.example", "default", status=1)
    assert "xts_ulp_connect: " in refused and "hostname mismatch" in refused


def test_lines(bed: Bed) -> None:
    with serving(answer(b"one\n\ntwo\n")) as port:
        assert bed.run("lines", "127.0.0.1", port).splitlines()[0] == "[one]"


def test_attachment(bed: Bed) -> None:
    told = bed.run("attachment", bed.proxy.endpoint)
    assert re.match(r"shm queue \d+, messages of up to \d+ bytes\n(protocol \d+ version \d+\n)+$", told)
    bed.environment["XTS_ENDPOINT"] = "/nowhere"
    assert "not attached: no offload proxy can be reached at /nowhere" in bed.run("attachment", status=1)


def test_options(bed: Bed) -> None:
    with serving(sink) as port:
        told = dict(line.split(": ", 1) for line in bed.run("options", "127.0.0.1", port).splitlines())
    assert (told["SO_KEEPALIVE"], told["TCP_KEEPIDLE"], told["TCP_NODELAY"]) == ("1", "30", "1")
    assert told["SIOCOUTQ"] == "at most what was sent"
    assert "SO_MARK" in told


def test_gather(bed: Bed) -> None:
    with serving(echo) as port:
        assert bed.run("gather", "127.0.0.1", port) == "length 11\nhello world\n"


def test_there_are_as_many_as_for_python() -> None:
    """Except for socket options that stand for what a network card does: options.c shows how C sets them."""
    of_python = [path for path in (TOP / "host_lib" / "examples").glob("*.py") if not path.name.startswith("nic_")]
    assert len(NAMES) >= len(of_python)


def test_build_flags_and_pkg_config_work_from_any_folder(tmp_path: Path) -> None:
    """A relative RUNPATH made programs start from one folder only."""
    flags = subprocess.run(
        [sys.executable, "-m", "xts_socket.cli", "build-flags"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout.split()
    paths = [flag[len(prefix) :] for flag in flags for prefix in ("-I", "-L", "-Wl,-rpath,") if flag.startswith(prefix)]
    assert len(paths) == 3 and all(Path(path).is_absolute() and Path(path).is_dir() for path in paths)
    pc = Path(sysconfig.get_path("data")) / "lib" / "pkgconfig"
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "xts"], capture_output=True, text=True, check=True, cwd=pc.parents[1],
        env=os.environ | {"PKG_CONFIG_PATH": "lib/pkgconfig"},
    )  # fmt: skip
    (rpath,) = (flag.removeprefix("-Wl,-rpath,") for flag in found.stdout.split() if flag.startswith("-Wl,-rpath,"))
    assert Path(rpath).is_absolute(), "deploy/setup writes where the package is into xts.pc"
    assert list(Path(rpath).glob("libxts.so*"))
