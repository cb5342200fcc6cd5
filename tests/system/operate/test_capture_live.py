"""`xts capture` of real connections, over both kinds of queue: what Wireshark reads of it, rings, and a disk that
fills."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.lab import raise_or_skip
from unit.messages.test_dissector import TSHARK, run_tshark
from xts_lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")]

#: Two connections of one process, both ends offloaded: a request to port 8080, and so many bytes to another port.
CLIENT = """
import sys
import xts_socket as socket
def connection(port):
    listener = socket.create_server(("198.18.0.1", port))
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]
client, server = connection(8080)
client.sendall(b"GET /shop HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
assert server.recv(1000).startswith(b"GET")
server.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
assert client.recv(1000).endswith(b"ok")
client, server = connection(9999)
for _ in range(int(sys.argv[1]) // 50_000):
    client.sendall(bytes(50_000))
    assert len(server.recv(50_000, socket.MSG_WAITALL)) == 50_000
print("all is there")
"""


@pytest.fixture(scope="module", params=["shm", pytest.param("afxdp", marks=pytest.mark.afxdp)])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    raised = raise_or_skip(request.param, "capture", queues=4)
    try:
        yield raised
    finally:
        assert not raised.down()


def capture(
    lab: Lab, output: Path, *options: str, size: int = 100_000, command: Sequence[str] = ("python", "-c", CLIENT)
) -> str:
    """What it says of itself. The command's work is done, whatever becomes of the capture."""
    xts = ["python", "-m", "xts_socket.cli", "capture", "--output", str(output), *options]
    done = lab.run("host", [*xts, "--", *command, str(size)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "all is there\n"), done.stderr
    return str(done.stderr)


def fields(path: Path, *names: str, only: str = "") -> list[list[str]]:
    options = [part for name in names for part in ("-e", name)]
    shown = run_tshark(path, *(["-Y", only] if only else []), "-T", "fields", *options)
    return [line.split("\t") for line in shown.splitlines()]


def test_wireshark_reads_it_with_sockets(lab: Lab, tmp_path: Path) -> None:
    said = capture(lab, tmp_path / "out.pcapng")
    assert "ends early" not in said
    rows = fields(tmp_path / "out.pcapng", "frame.comment", "http.request.uri", "xts.stream")
    assert f"xts: {len(rows)} packets" in said
    requests = [row for row in rows if row[1]]
    assert requests and all(row[1] == "/shop" for row in requests)
    request = requests[0]
    assert "198.18.0.1:8080" in request[0] and "socket 0x" in request[0]
    # Both directions of a socket are one stream: that of the request has its response, too.
    answers = fields(tmp_path / "out.pcapng", "http.response.code", only=f"xts.stream == {request[2]}")
    assert ["200"] in answers


def test_who_has_ended_before_it_is_looked_at(lab: Lab, tmp_path: Path) -> None:
    """A program's frames have its name, however soon it ends: the capture is stopped for as long as it runs."""
    stopped = 'kill -STOP $PPID; python -c "$@"; status=$?; kill -CONT $PPID; exit $status'
    capture(lab, tmp_path / "out.pcapng", command=("sh", "-c", stopped, "sh", CLIENT))
    who = {row[0] for row in fields(tmp_path / "out.pcapng", "frame.interface_name")}
    assert len(who) == 1 and re.fullmatch(r"python \([0-9]+\)", who.pop())


def test_one_socket_of_two(lab: Lab, tmp_path: Path) -> None:
    capture(lab, tmp_path / "all.pcapng")
    capture(lab, tmp_path / "some.pcapng", "--socket", ":8080")
    every, some = (fields(tmp_path / name, "frame.comment") for name in ("all.pcapng", "some.pcapng"))
    assert 2 < len(some) < len(every)
    assert any(":8080" in row[0] for row in some) and not any(":9999" in row[0] for row in some)
    assert any(":9999" in row[0] for row in every)


def test_a_ring(lab: Lab, tmp_path: Path) -> None:
    capture(lab, tmp_path / "out.pcapng", "--ring-files", "2", "--ring-mib", "1", size=8_000_000)
    kept = sorted(tmp_path.glob("out-*.pcapng"))
    assert len(kept) == 2 and kept[0].name > "out-00001.pcapng"
    for path in kept:
        assert path.stat().st_size <= 1 << 20
        assert fields(path, "frame.number")


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills(lab: Lab, tmp_path: Path) -> None:
    """The capture ends, with whole packets. The command goes on to its end, and is not told."""
    with small_disk(tmp_path / "disk") as disk:
        said = capture(lab, disk / "out.pcapng", size=2_000_000)
        assert "the capture ends early" in said and os.strerror(errno.ENOSPC) in said
        packets = len(fields(disk / "out.pcapng", "frame.number"))
        assert packets > 4 and f"xts: {packets} packets in" in said


def test_a_disk_of_frames_that_fills(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library itself writes to: sockets go on all the same."""
    with small_disk(tmp_path / "disk") as disk:
        monkeypatch.setenv("TMPDIR", str(disk))
        capture(lab, tmp_path / "out.pcapng", size=2_000_000)
        assert fields(tmp_path / "out.pcapng", "frame.number")
