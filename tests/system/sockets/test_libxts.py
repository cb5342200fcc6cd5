"""The host library as a process has it: mirrors, contexts, threads, fork, exit, death of the proxy, idleness."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from beds.patience import SLOWER
from beds.script_outcomes import Outcomes
from beds.shm_proxy import ShmProxy, library
from system.sockets.programs.library_scripts import SCRIPTS
from xts_messages.settings.environment import BY_NAME

APART = {"proxy_dies", "no_proxy", "exit_delivers"}
PROGRAM = "sockets/programs/library_scripts.py"


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, proxy: ShmProxy) -> Outcomes:
    return Outcomes(request, lambda names, _: proxy.run(PROGRAM, library(), names))


@pytest.mark.parametrize("name", sorted(set(SCRIPTS) - APART))
def test_program(name: str, outcomes: Outcomes) -> None:
    outcomes.check("test_program", name)


@pytest.mark.parametrize(
    "settings",
    [
        {"XTS_FRAME_WINDOW": "4"},
        {"XTS_WINDOW_BYTES": "100", "XTS_WINDOW_BYTES_MAX": "3000"},
        {"XTS_FRAME_WINDOW": "4", "XTS_WINDOW_BYTES": "1000", "XTS_SPIN_US": "0", "BATCH": "1"},
        {"BATCH": "1", "SEED": "2"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "name", ["many_connections_under_random_use", "slow_reader_stalls_nobody", "threads_share_a_channel"]
)
def test_small_windows(name: str, settings: dict[str, str], proxy: ShmProxy) -> None:
    proxy.run(PROGRAM, library(), name, **settings)


def test_exit_delivers_what_was_sent(proxy: ShmProxy) -> None:
    received: list[bytes] = []

    def read(peer: socket.socket) -> None:
        with peer:
            data = b""
            while part := peer.recv(65536):
                data += part
            received.append(data)

    with socket.create_server(("127.0.0.1", 0)) as server:
        readers = []

        def serve() -> None:
            server.accept()[0].close()
            for _ in range(20):
                readers.append(threading.Thread(target=read, args=(server.accept()[0],)))
                readers[-1].start()

        serving = threading.Thread(target=serve)
        serving.start()
        proxy.run(PROGRAM, library(), "exit_delivers", PORT=str(server.getsockname()[1]))
        serving.join(10)
        for reader in readers:
            reader.join(10)
    assert received == [b"x" * 30_000] * 20


def test_without_a_proxy_a_socket_says_so(tmp_path: Path) -> None:
    ShmProxy(tmp_path).run(PROGRAM, library(), "no_proxy")


def test_death_of_the_proxy_ends_every_call_and_it_can_come_back(tmp_path: Path) -> None:
    with ShmProxy(tmp_path) as proxy:
        process = subprocess.Popen(
            proxy.command(PROGRAM, library(), "proxy_dies"), env=proxy.environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        with process:
            assert process.stdin and process.stdout and process.stderr
            try:
                assert process.stdout.readline() == "ready\n", process.stderr.read()
                proxy.kill()
                process.stdin.write("killed\n")
                process.stdin.flush()
                assert process.stdout.readline() == "dead\n", process.stderr.read()
                proxy.start()
                _, complaint = process.communicate("back\n", timeout=30 * SLOWER)
                assert process.returncode == 0, complaint
            finally:
                process.kill()


@pytest.mark.parametrize(
    ("name", "value"),
    [("XTS_WINDOW_BYTES", "many"), ("XTS_FRAME_WINDOW", "3"), ("XTS_SPIN_US", "-1"), ("XTS_QUEUE", "afxdp:eth0:0"),
     ("XTS_WINDOW_BYTES_MAX", "4294967295"), ("XTS_DEAD_MS", "499"), ("XTS_FAULTS", "drop_ppm=many"),
     ("XTS_ENDPOINT", 108 * "x")],
)  # fmt: skip
def test_a_bad_setting_is_named_once(name: str, value: str, proxy: ShmProxy) -> None:
    program = f"""
import ctypes, errno
library = ctypes.CDLL({library()!r}, use_errno=True)
for _ in range(2):
    assert library.xts_socket(2, 1, 0) == -1 and ctypes.get_errno() == {errno.EINVAL}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=proxy.environment(**{name: value}),
        capture_output=True, text=True, timeout=20 * SLOWER, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"libxts: {name}={value}: must be {BY_NAME[name].allowed}\n"
