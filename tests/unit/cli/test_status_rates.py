"""Rates that `xts status` makes of two looks, and its CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from xts_socket.cli.sockets.attached import Entry, Process
from xts_socket.cli.sockets.status_rates import COLUMNS, Looks, text, write_csv
from xts_socket.cli.sockets.status_tables import print_tables


def entry(number: int = 1, **changed: Any) -> Entry:
    values: dict[str, Any] = {
        "state": "ESTAB",
        "xts_socket": number,
        "proxy_id": number,
        "local": "198.18.0.1:1",
        "peer": "198.18.0.2:80",
        "receive_layers": ("TLS",),
        "send_layers": ("TLS",),
        "tls": None,
        "reason": None,
    }
    numbers = (
        "recv_queue",
        "send_credits",
        "recv_window",
        "recv_unadvertised",
        "error",
        "sent_bytes",
        "received_bytes",
    )
    return Entry(**dict.fromkeys(numbers, 0) | values | changed)


def process(*entries: Entry, **changed: Any) -> Process:
    values: dict[str, Any] = {
        "pid": 4711,
        "uid": 1000,
        "program": "shop",
        "queue_kind": "afxdp",
        "queue_id": 3,
        "interface": "xts0",
        "relayed": None,
        "epoch": "00000000000000aa",
        "link_state": "up",
        "frame_credits": 64,
        "sockets": len(entries),
        "sleeps": 0,
        "spins": 0,
        "clock": None,
        "entries": entries,
    }
    return Process(**values | changed)


def test_rates_are_of_the_time_between_two_looks() -> None:
    looks = Looks()
    looks.look([process(entry(sent_bytes=1000), sleeps=5)], now=10.0)
    assert not looks.are_there
    now = process(entry(sent_bytes=5000, received_bytes=20), entry(2, sent_bytes=7), sleeps=25)
    looks.look([now], now=12.0)
    assert looks.of(now, now.entries[0]) == {"sent_bytes_per_s": 2000.0, "received_bytes_per_s": 10.0}
    assert looks.of(now, now.entries[1]) == {}, "it is new"
    assert looks.of(now)["sleeps_per_s"] == 10.0
    assert text(looks.of(now, now.entries[0]), "sent_bytes") == "2.0k"
    assert text({}, "sent_bytes") == ""


def test_a_number_that_another_process_has_now_has_no_rates() -> None:
    looks = Looks()
    looks.look([process(entry(sent_bytes=1000))], now=1.0)
    other = process(entry(sent_bytes=3), epoch="00000000000000bb")
    looks.look([other], now=2.0)
    assert looks.of(other, other.entries[0]) == {}
    less = process(entry(sent_bytes=1), epoch="00000000000000bb")
    looks.look([less], now=3.0)
    assert looks.of(less, less.entries[0])["sent_bytes_per_s"] == 0.0, "a process may write anything"


def test_csv_has_a_row_for_each_socket(capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks()
    shown = process(entry(sent_bytes=5), entry(2, state="LISTEN"), program='=a, "b"')
    write_csv([shown], looks, head=True, listening=False)
    write_csv([shown], looks, head=False, listening=True)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["state"] for row in rows] == ["ESTAB", "LISTEN", "LISTEN"]
    assert tuple(rows[0]) == COLUMNS
    assert (rows[0]["sent_bytes"], rows[0]["sent_bytes_per_s"], rows[0]["layers"]) == ("5", "", "tls")
    assert rows[0]["program"] == '\'=a, "b"', "no spreadsheet takes it for a formula"


def test_tables_show_what_people_look_for_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers and epochs of debuggers stood in the middle of it; -v shows them."""
    attached = [process(entry(0x100001), entry(0x100002, state="LISTEN", peer="*"))]
    print_tables(attached, Looks(), listening=False, verbose=False)
    sockets, processes = capsys.readouterr().out.split("\n\n")
    assert sockets.split()[:4] == ["Process", "State", "Local", "Peer"]
    assert processes.split()[:4] == ["Process", "Uid", "Queue", "Link"]
    for hidden in ("0x100001", "XTS", "Epoch", "aa", "credits", "clock", "Filter"):
        assert hidden not in sockets + processes
    print_tables(attached, Looks(), listening=True, verbose=True)
    sockets, processes = capsys.readouterr().out.split("\n\n")
    assert "0x100002" in sockets and "0x100001" not in sockets and "00000000000000aa" in sockets
    assert "Frame credits" in processes and "Sleeps/spins" in processes
