"""What `xts top` makes of both ends: joined rows, groups, filters, and its screen, without a terminal."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from textual.widgets import Static
from unit.cli.test_status_rates import entry, process
from xts_messages.attaching.waits import HOST_REASONS, Wait, Waits
from xts_socket.cli import main
from xts_socket.cli.device import device_routes, proxy_side
from xts_socket.cli.sockets import joined
from xts_socket.cli.sockets.grouped import grouped
from xts_socket.cli.sockets.why import NAMES, REASONS, cause
from xts_socket.cli.top.top_app import Top
from xts_socket.cli.top.top_columns import duration, matches, rate
from xts_socket.cli.top.top_network import NetworkPage, groups_table, routes_table, rules_table
from xts_socket.cli.top.top_page import ConnectionPage
from xts_socket.cli.top.top_table import Table
from xts_socket.cli.verbs import top

EPOCH = "00000000000000aa"
PROXY = {"version": "0.1.0", "state": "serving", "pid": 1, "more": {"than": "we know"}}


def waits(sending: str | None = None, receiving: str | None = None, **ns: int) -> Waits:
    return Waits({name: Wait(1, ns.get(name, 0)) for name in HOST_REASONS}, sending, receiving)


def connection(number: int = 1, **changed: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        **{"queue_id": 3, "xts_socket": number, "proxy_id": number, "state": "established", "epoch": EPOCH},
        **{"local": "198.18.0.1:1", "peer": "198.18.0.2:80", "worker": 0, "spill_bytes": 4096, "sent_bytes": 7},
        "waits": {"by_reason": {"tcp": {"times": 2, "ns": 10**9}}, "sending": "tcp", "receiving": None},
        "tcp": {"rtt_us": 120, "retransmits": 3, "peer_window_us": 5000},
    }
    return row | changed


def answer(*connections: dict[str, Any]) -> bytes:
    channel = {"queue_id": 3, "tenant": "red", "link_state": "up", "epoch": EPOCH, "pid": 4711, "program": "shop"}
    return (
        json.dumps({"proxy": PROXY, "workers": [], "channels": [channel], "connections": connections}).encode() + b"\n"
    )


def joined_rows(*connections: dict[str, Any], processes: Any = None) -> list[joined.Row]:
    found = proxy_side.decode("p", answer(*connections))
    return list(joined.join([process(entry())] if processes is None else processes, found))


# --- both ends -----------------------------------------------------------------------------------------------------


def test_a_reason_is_a_whole_sentence() -> None:
    """They stand alone on a connection's page. One was "none: the host is behind"."""
    for reason in REASONS:
        subject = reason.text.split()[0]
        assert subject not in ("it", "none") and len(reason.text.split()) >= 5, reason.text


def test_both_ends_are_one_row() -> None:
    (row,) = joined_rows(connection(), processes=[process(entry(waits=waits("post_credits", post_credits=5)))])
    assert (row.state, row.proxy_state, row.tenant, row.spill_bytes) == ("ESTAB", "established", "red", 4096)
    assert row.wait_ns["post_credits"] == 5 and row.wait_ns["tcp"] == 10**9
    assert row.wait_ns["peer_window"] == 5_000_000, "TCP_INFO has microseconds"
    assert row.waits_for == "TCP", "what is behind the missing post credits"
    assert row.tcp is not None and row.tcp.retransmits == 3


def test_an_end_alone_has_a_row() -> None:
    other = connection(2, epoch="00000000000000bb")
    host, proxys = joined_rows(other)
    assert (host.pid, host.proxy_state, host.tcp, host.spill_bytes) == (4711, None, None, None)
    assert (proxys.pid, proxys.state, proxys.proxy_state) == (0, "", "established")


def test_a_number_of_an_epoch_before_is_another_socket() -> None:
    rows = joined_rows(connection(epoch="00000000000000a9"))
    assert [row.proxy_state for row in rows] == [None, "established"]


def test_rates_and_parts_are_of_two_looks() -> None:
    (before,) = joined_rows(connection(), processes=[process(entry(sent_bytes=100))])
    (now,) = joined_rows(
        connection(waits={"by_reason": {"tcp": {"times": 2, "ns": 2 * 10**9}}}),
        processes=[process(entry(sent_bytes=300))],
    )
    seen = now.seen_since(before, 2.0)
    assert (seen.sent_per_s, seen.received_per_s, seen.wait_part["tcp"]) == (100.0, 0.0, 0.5)
    assert now.seen_since(None, 2.0).sent_per_s is None
    less = before.seen_since(now, 1.0)
    assert (less.sent_per_s, less.wait_part["tcp"]) == (0.0, 0.0), "a process may write anything"


def test_each_reason_has_words() -> None:
    assert {cause(frozenset([name])) for name in NAMES if name not in ("peer_window", "send_buffer", "turn")} == {
        *("TCP", "post credits", "frame credits", "application", "peer")
    }
    assert cause(frozenset()) == ""
    assert [duration(ns) for ns in (5, 1500, 2_500_000, 3e9)] == ["5 ns", "1.5 us", "2.5 ms", "3 s"]
    assert [rate(value) for value in (None, 0, 1234.0, 2e9)] == ["", "0", "1.2k", "2.0G"]


def test_groups_are_sums() -> None:
    rows = joined_rows(
        connection(1), connection(2), processes=[process(entry(1), entry(2, state="LISTEN", recv_queue=9))]
    )
    (group,) = grouped(rows, "tenant")
    assert (group.name, group.sockets, group.spill_bytes, group.retransmits) == ("red", 2, 8192, 6)
    assert (group.recv_queue, group.waits_for) == (0, "2 TCP")
    assert [group.name for group in grouped(rows, "process")] == ["shop (4711)"]
    assert [group.name for group in grouped(rows, "peer")] == ["198.18.0.2"]


def test_filters() -> None:
    (row,) = joined_rows(connection())
    for words in ("", "shop", "SHOP 4711", "state=estab", "peer=198.18.0.2:80 red", "tcp", "0x1"):
        assert matches(row, words), words
    for words in ("nobody", "shop nobody", "state=LISTEN", "peer=10."):
        assert not matches(row, words), words


# --- proxies that are not what they should be ----------------------------------------------------------------------


@contextmanager
def listening(path: Path, say: Callable[[socket.socket], None]) -> Iterator[str]:
    """Somebody at the control socket: takes a question, and says what it likes."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    taken = listener.accept()[0]
                except OSError:
                    return
                with taken:
                    taken.recv(4096)
                    with suppress(OSError):
                        say(taken)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield str(path)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"", "only a part of an answer"),
        (b'{"proxy": ', "only a part of an answer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is no xts-proxy, or one of another version"),
        (b"[" * 100_000 + b"\n", "is no xts-proxy, or one of another version"),
        (b'{"error": "not a question: no"}\n', "refuses: not a question: no"),
        (answer(connection(peer=5)), "Expected `str`, got `int` - at `$.connections[0].peer`"),
        (answer(connection(tcp={"rtt_us": "fast"})), "`$.connections[0].tcp.rtt_us`"),
    ],
)
def test_who_is_no_proxy_is_named(tmp_path: Path, said: bytes, sentence: str) -> None:
    with listening(tmp_path / "s", lambda peer: peer.sendall(said)) as path:
        with pytest.raises(OSError) as caught:
            proxy_side.ask(path)
    assert sentence in str(caught.value) and path in str(caught.value)


def wait_for(event: threading.Event) -> None:
    event.wait(60)


def test_a_proxy_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_side, "_PATIENCE_S", 0.2)
    ended = threading.Event()
    with listening(tmp_path / "s", lambda _: wait_for(ended)) as path:
        with pytest.raises(OSError, match="does not answer within"):
            proxy_side.ask(path)
        ended.set()


def test_a_proxy_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_side, "_ANSWER_BYTES_MAX", 1 << 20)

    def flood(peer: socket.socket) -> None:
        while True:
            peer.sendall(bytes(65536))

    with listening(tmp_path / "s", flood) as path:
        with pytest.raises(OSError, match="more than we read"):
            proxy_side.ask(path)


def test_an_older_proxy_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {name: value for name, value in connection().items() if name not in ("epoch", "waits", "tcp")}
    monkeypatch.setattr(joined.attached, "ask", lambda _: [process(entry())])
    with listening(tmp_path / "s", lambda peer: peer.sendall(answer(old))) as path:
        look = joined.look("endpoint", path)
    assert len(look.rows) == 2
    assert look.missing == ("proxy: version 0.1.0 names no epochs: its sockets stand alone",)


def test_text_of_a_proxy_forges_no_line() -> None:
    (_, row) = joined_rows(connection(2, peer="\x1b[2J\n", epoch="00000000000000bb"))
    assert row.peer == "?[2J?"


def test_nobody_there(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTS_ENDPOINT", str(tmp_path / "e"))
    monkeypatch.delenv("XTS_QUEUE", raising=False)
    assert main(["top", "--json", "--control", str(tmp_path / "c")]) == 1
    said = capsys.readouterr().err
    assert "no agent or proxy at" in said and "no proxy at" in said
    assert main(["top"]) == 1
    assert "--json or --csv" in capsys.readouterr().err


# --- for programs --------------------------------------------------------------------------------------------------


@pytest.fixture
def one_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        joined.attached, "ask", lambda _: [process(entry(sent_bytes=3, waits=waits("post_credits")), program="=a")]
    )
    monkeypatch.setattr(proxy_side, "ask", lambda path: proxy_side.decode(path, answer(connection())))
    monkeypatch.setattr(top, "_LOOK_S", 0.0)


@pytest.mark.usefixtures("one_socket")
def test_json_and_csv_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["sockets"]
    assert main(["top", "--csv"]) == 0
    (cells,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert set(cells) == {"time", *row} and set(row) == set(joined.COLUMNS)
    assert cells["program"] == "'=a", "no spreadsheet takes it for a formula"
    for name in set(row) - {"program", "sent_per_s", "received_per_s"} - {f"wait_{name}_part" for name in NAMES}:
        assert cells[name] == ("" if row[name] is None else str(row[name])), name


@pytest.mark.usefixtures("one_socket")
def test_groups_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--json", "--by", "process"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["processes"]
    assert (group["sockets"], group["waiting"]) == (1, "1 TCP")
    assert main(["top", "--csv", "--by", "tenant", "--filter", "nobody"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1, "the names of the columns"


# --- the screen ----------------------------------------------------------------------------------------------------


def look_of(rows: list[joined.Row], *missing: str) -> joined.Look:
    return joined.Look(1.0, tuple(rows), (), None, missing)


def many(count: int) -> list[joined.Row]:
    found = proxy_side.decode("p", answer(*(connection(i, sent_bytes=i) for i in range(1, count + 1))))
    rows = joined.join([process(*(entry(i, sent_bytes=i, peer=f"198.18.0.2:{i}") for i in range(1, count + 1)))], found)
    return [row.seen_since(rows_before(row), 1.0) for row in rows]


def rows_before(row: joined.Row) -> joined.Row:
    values = {name: getattr(row, name) for name in joined.Row.__dataclass_fields__}
    return joined.Row(**values | {"sent_bytes": 0})


def lines(app: Top) -> list[str]:
    table = app.screen_stack[0].query_one(Table)
    return ["".join(segment.text for segment in table.render_line(y)) for y in range(table.size.height)]


def run_screen(
    take: Callable[[joined.Look | None], joined.Look],
    script: Callable[[Top, Any], Any],
    route: Callable[[joined.Row], str] = lambda row: "",
) -> None:
    async def run() -> None:
        app = Top(take, 3600.0, route=route)
        async with app.run_test(size=(160, 24)) as pilot:
            while app.last is None and not app.problem:
                await pilot.pause(0.01)
            await pilot.pause()
            await script(app, pilot)

    asyncio.run(run())


def test_ten_thousand_sockets() -> None:
    """Only what is in sight is drawn; sorting, filtering and the last row work."""
    rows = many(10_000)

    async def script(app: Top, pilot: Any) -> None:
        assert "10000 sockets" in str(app.screen_stack[0].query_one("#line").render())
        assert "198.18.0.2:10000" in lines(app)[1], "sorted by what is sent"
        await pilot.press("end")
        assert app.query_one(Table).chosen.sent_bytes == 1
        await pilot.pause()
        assert any("198.18.0.2:1 " in line for line in lines(app))
        await pilot.press("home", "r")
        await pilot.pause()
        assert "198.18.0.2:1 " in lines(app)[1]
        await pilot.press("slash", *"peer=198.18.0.2:77", "enter")
        await pilot.pause()
        assert len(app.query_one(Table).items) == 1 + 10 + 100
        await pilot.press("escape")
        assert len(app.query_one(Table).items) == 10_000

    run_screen(lambda _: look_of(rows), script)


def test_groups_on_the_screen() -> None:
    async def script(app: Top, pilot: Any) -> None:
        await pilot.press("g")
        assert app.view == "process" and "shop (4711)" in lines(app)[1]
        await pilot.press("enter")
        await pilot.pause()
        assert (app.view, app.words, len(app.query_one(Table).items)) == ("socket", "pid=4711", 3)
        await pilot.press("s", "s")
        assert app.sorted_by == 6

    run_screen(lambda _: look_of(many(3)), script)


def test_a_connections_page() -> None:
    async def script(app: Top, pilot: Any) -> None:
        await pilot.press("enter")
        await pilot.pause()
        page = app.screen
        assert isinstance(page, ConnectionPage)
        assert page.row.waits_for == "TCP"
        app.seen(look_of(many(2)))
        assert list(page.sent) == [2.0], "the history grows with each look"
        app.seen(look_of([]))
        assert page.gone
        await pilot.press("escape")
        assert not isinstance(app.screen, ConnectionPage)

    run_screen(lambda _: look_of(many(2)), script)


NETWORK: dict[str, Any] = {
    "routes": [
        {"destination": "0.0.0.0/0", "gateway": "10.0.0.1", "interface": "uplink0", "metric": 100},
        {"destination": "198.18.0.0/15", "gateway": "", "interface": "fabric0", "metric": 20},
        {"destination": "198.18.0.0/15", "gateway": "10.9.9.9", "interface": "spare0", "metric": 30, "table": "100"},
        {"destination": "2001:db8::/32", "gateway": "", "interface": "fabric0", "metric": 0},
    ],
    "rules": [{"priority": 50, "ip_version": 4, "conditions": "from 10.0.0.0/8", "action": "table 100"}],
    "groups": [{"interface": "fabric0", "group": "239.1.2.3", "members": 2}],
    "groups_more": 5,
}


ROUTE = {"destination": "198.18.0.2", "interface": "fabric0", "gateway": "198.18.0.9", "table": "100"}


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ({"route": ROUTE}, "fabric0 via 198.18.0.9, table 100"),
        ({"route": ROUTE | {"gateway": "", "table": "main"}}, "fabric0"),
        ({"route": ROUTE | {"interface": "a\x1b[2J"}}, "a?[2J via 198.18.0.9, table 100"),
        ({"route": None, "problem": "Network is unreachable"}, "none: Network is unreachable"),
        ({"error": "not a question"}, "not known: the proxy at "),  # an older one
        ({"route": 5}, "not known: who listens at "),
    ],
)
def test_the_route_to_a_peer(tmp_path: Path, told: dict[str, Any], shown: str) -> None:
    with listening(tmp_path / "s", lambda peer: peer.sendall(json.dumps(told).encode() + b"\n")) as path:
        assert device_routes.route_text(path, "198.18.0.1:1", "198.18.0.2:80").startswith(shown)
        assert device_routes.route_text(path, "198.18.0.1:1", "*") == "", "a listener has none"


def test_the_devices_network() -> None:
    """Its page, and the route on a connection's page; of an older proxy that it does not say."""
    old, new = proxy_side.decode("p", answer()), msgspec.json.decode(answer())
    told = proxy_side.decode("p", json.dumps(new | {"network": NETWORK}).encode())

    def seen(proxy: proxy_side.Answer) -> joined.Look:
        return joined.Look(1.0, tuple(many(1)), (), proxy, ())

    async def script(app: Top, pilot: Any) -> None:
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        assert "route of the device: to 198.18.0.2:" in str(app.screen.query_one("#head", Static).render())
        await pilot.press("escape", "n")
        await pilot.pause()
        assert isinstance(app.screen, NetworkPage)
        shown = text_of(routes_table(told.network)) + text_of(groups_table(told.network))
        assert "198.18.0.0/15" in shown and "239.1.2.3" in shown and "and 5 more" in shown
        assert "from 10.0.0.0/8" in text_of(rules_table(told.network))
        assert app.screen.query_one("#rules").display
        app.seen(seen(old))
        assert not app.screen.query_one("#rules").display
        assert "does not say" in str(app.screen.query_one("#routes", Static).render())
        await pilot.press("n")
        assert not isinstance(app.screen, NetworkPage)

    run_screen(lambda _: seen(told), script, route=lambda row: f"to {row.peer}")


def text_of(table: Any) -> str:
    console = Console(width=100, file=io.StringIO())
    console.print(table)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_proxy_that_goes_away_is_said_and_comes_back() -> None:
    async def script(app: Top, pilot: Any) -> None:
        app.seen(OSError(2, "no proxy at [there]"))
        await pilot.pause()
        shown = app.query_one("#missing")
        assert shown.display and "no proxy at [there]" in str(shown.render())
        assert len(app.query_one(Table).items) == 2, "what was seen last stays"
        app.seen(look_of(many(1)))
        await pilot.pause()
        assert not shown.display and len(app.query_one(Table).items) == 1

    run_screen(lambda _: look_of(many(2)), script)
