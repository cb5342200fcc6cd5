"""The proxy's file with a line for each connection that has ended."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.operated_proxy import Proxy, running, wait
from beds.scripted_host import ScriptedHost
from xts_lab.free_ports import free_port
from xts_proxy._native import ffi
from xts_proxy.status import connection_log
from xts_proxy.status.connection_log import BEGIN, END, ConnectionLog

LOOPBACK = "127.0.0.1"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        made.settimeout(5)
        yield made


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def connected(host: ScriptedHost, server: socket.socket) -> tuple[int, int, socket.socket]:
    number, ack = host.connect(LOOPBACK, server.getsockname()[1])
    assert ack.error == 0
    peer, _ = server.accept()
    peer.settimeout(5)
    return number, int(ack.fields["proxy_id"]), peer


def logged(proxy: Proxy, path: Path, count: int) -> list[dict[str, Any]]:
    wait(lambda: len(lines(path)) >= count, f"{count} lines", 10)
    found = lines(path)
    assert len(found) == count
    return found


def test_how_connections_have_ended(tmp_path: Path, server: socket.socket) -> None:
    path = tmp_path / "closed.jsonl"
    with running(tmp_path, connection_log=str(path)) as proxy:
        with proxy.host() as (_, host):
            number, id, peer = connected(host, server)
            address = f"{LOOPBACK}:{server.getsockname()[1]}"
            host.send("XTS_CMD_SEND", b"question", id=id)
            assert peer.recv(64) == b"question"
            peer.sendall(b"answer!")
            assert host.expect("XTS_REPLY_RECV").payload == b"answer!"
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()  # by reset
            assert host.expect("XTS_REPLY_RECV").error == errno.ECONNRESET
            port = free_port()
            assert host.connect(LOOPBACK, port)[1].error == errno.ECONNREFUSED
            _, _, left = connected(host, server)
        found = logged(proxy, path, 3)
        left.close()
    by_end = {one["end"]: one for one in found}
    assert set(by_end) == {"failed", "unconnected", "host_gone"}
    failed = by_end["failed"]
    assert (failed["peer"], failed["begin"], failed["error"]) == (address, "connect", "ECONNRESET")
    assert (failed["sent_bytes"], failed["host_bytes"], failed["received_bytes"]) == (8, 8, 7)
    assert (failed["accepted"], failed["fin_wanted"], failed["spill_bytes"]) == (False, False, 0)
    assert (failed["xts_socket"], failed["tenant"], failed["pid"]) == (number, "default", os.getpid())
    assert failed["local"].startswith(f"{LOOPBACK}:") and failed["rtt_us"] >= 0
    assert failed["begun"] < failed["ended"] and 0 < failed["connect_s"] < failed["seconds"] < 60
    refused = by_end["unconnected"]
    assert (refused["error"], refused["connect_s"], refused["peer"]) == ("ECONNREFUSED", None, f"{LOOPBACK}:{port}")
    assert by_end["host_gone"]["sent_bytes"] == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert "question" not in path.read_text(), "no payload"


def test_one_of_so_many_and_another_file_after_a_reload(tmp_path: Path, server: socket.socket) -> None:
    path = tmp_path / "closed.jsonl"

    def some(host: ScriptedHost, count: int) -> None:
        peers.extend(connected(host, server)[2] for _ in range(count))

    peers: list[socket.socket] = []

    with running(tmp_path, connection_log=str(path), connection_log_sample=4) as proxy:
        with proxy.host() as (_, host):
            some(host, 9)
        logged(proxy, path, 2)
        path.rename(tmp_path / "closed.jsonl.1")
        proxy.write_config(connection_log=str(path), connection_log_sample=1)
        proxy.hang_up("taken")
        with proxy.host() as (_, host):
            some(host, 3)
        logged(proxy, path, 3)
        assert len(lines(tmp_path / "closed.jsonl.1")) == 2
    for peer in peers:
        peer.close()


def test_it_is_off_by_default(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path) as proxy, proxy.host() as (_, host):
        connected(host, server)[2].close()
        assert not list(tmp_path.glob("*.jsonl"))
        assert proxy.status()["workers"][0]["closed_lost"] == 0


# --- the file ------------------------------------------------------------------------------------------


class Ended:
    """A worker of which connections have ended."""

    index = 0

    def __init__(self, *batches: int) -> None:
        self._batches = list(batches)

    def pulse(self) -> tuple[float, str]:
        return 0.0, ""

    def closed(self) -> list[dict[str, Any]]:
        if not self._batches:
            return []
        kinds = ("struct xts_closed_stats", "struct xts_tcp_view")
        fields = [name for kind in kinds for name, _ in ffi.typeof(kind).fields]
        return [dict.fromkeys(fields, 0) for _ in range(self._batches.pop(0))]


def test_a_disk_that_fills_costs_records_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    log = ConnectionLog(str(path), [Ended(1)], os.geteuid())
    log.fetch()
    (whole,) = path.read_text().splitlines()
    write = os.write

    def part(fd: int, data: bytes) -> int:
        return write(fd, data[: len(whole) + 11])

    def none(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for failing in (part, none):
        with monkeypatch.context() as patch:
            patch.setattr(connection_log.os, "write", failing)
            log._workers = [Ended(3)]
            log.fetch()
    log._workers = [Ended(2)]
    log.fetch()
    log.close()
    found = path.read_text().splitlines()
    assert len(found) == 5 and found[2] == whole[:10], "the broken line ends where the next begins"
    assert [bool(json.loads(one)) for one in (*found[:2], *found[3:])] == [True] * 4


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("fifo", "link", "none/log"):
        with pytest.raises(OSError, match=r"proxy\.connection_log"):
            ConnectionLog(str(tmp_path / name), [], os.geteuid())
    assert not (tmp_path / "elsewhere").exists()


def test_names_are_as_many_as_in_c() -> None:
    for names, enum in ((BEGIN, "xts_closed_begin"), (END, "xts_closed_end")):
        of_c = ffi.typeof(f"enum {enum}").elements
        assert [of_c[i].split("_", 2)[2].lower() for i in sorted(of_c)] == list(names)
