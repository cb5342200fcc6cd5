"""redis: the server on the host with clients outside, and the clients on the host with the server outside."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from beds.real_programs import NET4, Bed, need, wait_until

pytestmark = [pytest.mark.root]


@contextmanager
def server(bed: Bed, role: str, address: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    program = need("redis-server")
    # Why it closes a connection is in its log at this level only.
    settings = ["--port", "6379", "--protected-mode", "no", "--save", "", "--loglevel", "verbose"]
    command = [program, *settings, "--dir", str(bed.folder), *options]
    with bed.program(role, *command, name="redis") as process:
        bed.wait_for_port("net", address, 6379, process)
        yield process


def benchmark(bed: Bed, role: str, address: str, *options: str) -> str:
    need("redis-benchmark")
    output = bed.run(
        role, "redis-benchmark", "-h", address, "--csv", "-n", "5000", "-t", "get,set,lpush,incr", *options
    )
    assert "ERR" not in output and "rror" not in output, output
    return output


@pytest.mark.parametrize(
    "options", [("-c", "50"), ("-c", "1", "-n", "500"), ("-P", "16", "-c", "20"), ("-d", "20000")], ids=str
)
def test_server_on_the_host(bed: Bed, options: tuple[str, ...]) -> None:
    with server(bed, "host", bed.here4):
        output = benchmark(bed, "net", bed.here4, *options)
        assert output.count("\n") >= 5, output


def test_client_on_the_host(bed: Bed) -> None:
    with server(bed, "net", NET4):
        output = benchmark(bed, "host", NET4, "-c", "30", "-P", "4")
        assert output.count("\n") >= 5, output


def test_values_come_back_as_they_went(bed: Bed) -> None:
    value = os.urandom(3_000_000).hex()
    with server(bed, "host", bed.here4):
        bed.run("net", "redis-cli", "-h", bed.here4, "-x", "set", "key", input=value)
        back = bed.run("net", "redis-cli", "-h", bed.here4, "get", "key").rstrip("\n")
    assert hashlib.sha256(back.encode()).digest() == hashlib.sha256(value.encode()).digest()


def test_saving_in_the_background_leaves_the_connections_alone(bed: Bed) -> None:
    """BGSAVE forks a child that has all sockets of the server and uses none."""
    with server(bed, "host", bed.here4, "--dbfilename", "dump.rdb"):
        commands = "".join(f"set key{n} {'v' * 1000}\n" for n in range(2000)) + "bgsave\n" + "get key7\n" * 2000
        output = bed.run("net", "redis-cli", "-h", bed.here4, input=commands)
        assert output.count("v" * 1000) == 2000
        assert "Background saving started" in output
        bed.run("net", "redis-cli", "-h", bed.here4, "ping")
        wait_until(lambda: "rdb_bgsave_in_progress:0" in persistence(bed), "the end of the child that saves", 10)
        assert "rdb_last_bgsave_status:ok" in persistence(bed)


def persistence(bed: Bed) -> str:
    return bed.run("net", "redis-cli", "-h", bed.here4, "info", "persistence")


def test_a_killed_server_ends_its_connections(bed: Bed) -> None:
    with server(bed, "host", bed.here4) as process:
        client = bed.lab.popen(
            "net",
            ["redis-cli", "-h", bed.here4, "blpop", "nothing", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            bed.run("net", "redis-cli", "-h", bed.here4, "ping")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            client.communicate(timeout=10)
