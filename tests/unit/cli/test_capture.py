"""`xts capture`: frames of several processes in one file of Wireshark, with names; rings, filters, full disks."""

from __future__ import annotations

import json
import resource
import struct
import sys
import tempfile
from pathlib import Path

import pytest
from unit.messages.test_dissector import TSHARK, run_tshark
from unit.messages.test_dissector_payload import ANSWER, REQUEST, connected, host, recv, send
from xts_socket.cli import main
from xts_socket.cli.capturing.capture_filter import Channel, wanted, who_writes
from xts_socket.cli.capturing.pcapng import Writer
from xts_socket.cli.verbs.capture import Capture

HEAD = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)


def record(frame: bytes, at_s: int = 5) -> bytes:
    return struct.pack("=IIII", at_s, 7, len(frame), len(frame)) + frame


def hello(pid: int) -> bytes:
    return host("XTS_LINK_HELLO", pid=pid)


def conversation(pid: int = 4711, port: int = 80) -> list[bytes]:
    return [hello(pid), *connected(port=port), send(REQUEST), recv(ANSWER)]


def captured(folder: Path, frames: list[bytes], words: str = "", **options: int) -> Writer:
    (folder / "raw").mkdir()
    (folder / "raw" / "4711-the shop-").write_bytes(HEAD + b"".join(map(record, frames)))
    writer = Writer(folder / "out.pcapng", **options)
    capture = Capture(folder / "raw", writer, words)
    while capture.look():
        pass
    writer.close()
    return writer


@pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")
def test_wireshark_reads_it_with_names(tmp_path: Path) -> None:
    assert captured(tmp_path, conversation()).written == 5
    fields = ("frame.interface_name", "frame.comment", "http.request.uri", "frame.time_epoch")
    rows = run_tshark(
        tmp_path / "out.pcapng", "-T", "fields", *(part for field in fields for part in ("-e", field))
    ).splitlines()
    shown = [row.split("\t") for row in rows]
    assert shown[3][0] == "the shop (4711)"
    assert shown[3][1] == "the shop (4711); socket 0x1 198.18.0.1:40000 → 198.18.0.2:80"
    assert (shown[3][2], shown[3][3]) == ("/shop", "5.000000007")


@pytest.mark.parametrize(
    ("file_name", "who"),
    [
        ("47-curl-", "curl (47)"),
        ("47-curl-.7", "curl (47)"),  # another file of the same process
        ("47-a-b.2-", "a-b.2 (47)"),
        ("47-a-.2-", "a-.2 (47)"),
        ("47-\x1b[2J\n-", "?[2J? (47)"),  # a program names itself
        ("47--", "?"),
        ("frames", "?"),
    ],
)
def test_a_file_names_its_process(file_name: str, who: str) -> None:
    assert who_writes(file_name) == who


def test_only_some_sockets(tmp_path: Path) -> None:
    frames = [*conversation(), *(frame for frame in connected(2, port=443))]
    assert captured(tmp_path, frames, "198.18.0.2:443").written == 1 + 2, "HELLO, and what is of the socket"
    channel = Channel("shop (4711)")
    for frame in conversation():
        sockets = channel.sockets(frame)
    assert wanted(channel, sockets, "SHOP 4711 :80") and not wanted(channel, sockets, "shop :443")


def test_a_ring_keeps_the_last_files(tmp_path: Path) -> None:
    frames = [hello(1), *connected(), *(send(bytes(1000)) for _ in range(50))]
    captured(tmp_path, frames, files=3, file_bytes=8192)
    kept = sorted(path.name for path in tmp_path.glob("out-*.pcapng"))
    assert len(kept) == 3 and kept[0] != "out-00001.pcapng"
    for name in kept:
        data = (tmp_path / name).read_bytes()
        assert len(data) <= 8192 and data.startswith(struct.pack("=I", 0x0A0D0D0A))
        if TSHARK:
            assert "SEND" in run_tshark(tmp_path / name)


def test_a_full_disk_ends_the_capture_alone(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = Writer(tmp_path / "out.pcapng")
    number = writer.add_interface("shop")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        for _ in range(10):
            writer.write(number, 1, send(bytes(1000)), "")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.close()
    assert 0 < writer.written < 10 and writer.lost == 10 - writer.written
    assert "File too large" in writer.failure
    if TSHARK:
        assert len(run_tshark(tmp_path / "out.pcapng").splitlines()) == writer.written, "whole blocks"


def test_more_processes_than_descriptors(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for pid in range(1, 101):
        (tmp_path / "raw" / f"{pid}-shop-").write_bytes(HEAD + record(hello(pid)))
    writer = Writer(tmp_path / "out.pcapng")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        in_use = max(int(path.name) for path in Path("/proc/self/fd").iterdir())  # other tests may have left some
        resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 50, before[1]))
        capture = Capture(tmp_path / "raw", writer)
        while capture.look():
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    writer.close()
    assert writer.written == 100


def test_half_a_record_waits(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    path = tmp_path / "raw" / "frames"
    whole = HEAD + record(hello(1)) + record(send(b"x"))
    writer = Writer(tmp_path / "out.pcapng")
    capture = Capture(tmp_path / "raw", writer)
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        capture.look()
    writer.close()
    assert writer.written == 2


def test_what_is_no_capture(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "frames").write_bytes(HEAD + b"\xff" * 64)
    writer = Writer(tmp_path / "out.pcapng")
    capture = Capture(tmp_path / "raw", writer)
    with pytest.raises(OSError, match="a record of"):
        capture.look()
    writer.close()


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exit status, its environment, and files that are there already."""
    output = tmp_path / "out.pcapng"
    (folder := tmp_path / "100%e").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    script = "import os,sys,json; print(json.dumps(os.environ['XTS_PCAP'])); sys.exit(3)"
    assert main(["capture", "--output", str(output), "--", sys.executable, "-c", script]) == 3
    said = capfd.readouterr()
    frames = Path(json.loads(said.out))
    assert frames.parent.parent == Path(f"{tmp_path}/100%%e"), "its own % is told apart"
    assert not list(folder.iterdir()), "nothing of it is left"
    assert "0 packets" in said.err and output.stat().st_mode & 0o777 == 0o600
    assert main(["capture", "--output", str(output), "--", "true"]) == 1
    assert "File exists" in capfd.readouterr().err
    assert main(["capture", "--output", str(tmp_path / "b"), "--", "/nowhere"]) == 1
    assert "/nowhere: No such file" in capfd.readouterr().err
    assert main(["capture", "--output", str(tmp_path / "c")]) == 1
