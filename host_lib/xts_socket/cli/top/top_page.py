"""One connection's page in `xts top`: both ends, TCP, and what it waits for, with a short history."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Sparkline, Static

from ..sockets.joined import Look, Row
from ..sockets.why import REASONS
from .top_columns import duration, rate

_HISTORY = 120  # number of looks
_BAR = 20


class ConnectionPage(Screen[None]):
    """Shows a row until it is left; `seen()` brings each new look."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "app.pop_screen", "back")]
    DEFAULT_CSS = """
    ConnectionPage Sparkline { height: 2; margin: 0 1; }
    ConnectionPage Static { margin: 0 1; }
    """

    def __init__(self, row: Row, route: Callable[[Row], str] = lambda row: "") -> None:
        """`route`: asks for the device's route of a socket, and may take long."""
        super().__init__()
        self.row: Row = row
        self.route = ""
        self._ask_route = route
        self.gone = False
        self.sent: deque[float] = deque(maxlen=_HISTORY)
        self.received: deque[float] = deque(maxlen=_HISTORY)
        self.waited: deque[float] = deque(maxlen=_HISTORY)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="head")
            yield Static(id="why")
            yield Static("waits (part of the time)")
            yield Sparkline(id="waited")
            yield Static("sent, received (bytes in a second)")
            yield Sparkline(id="sent")
            yield Sparkline(id="received")
            yield Static(id="ends")
        yield Footer()

    def on_mount(self) -> None:
        self._draw()
        self.run_worker(self._find_route, thread=True)

    def _find_route(self) -> None:
        """Runs in a thread of its own."""
        app, route = self.app, self._ask_route(self.row)
        app.call_from_thread(self._found_route, route)

    def _found_route(self, route: str) -> None:
        self.route = route
        if self.is_mounted:
            self._draw()

    def seen(self, look: Look) -> None:
        """Another look. A socket that no longer exists stays as it was last seen."""
        found = next((row for row in look.rows if row.key == self.row.key), None)
        self.gone = found is None
        if found is not None:
            self.row = found
            if found.sent_per_s is not None:
                self.sent.append(found.sent_per_s)
                self.received.append(found.received_per_s or 0.0)
                self.waited.append(min(1.0, max(found.wait_part.values(), default=0.0)))
        if self.is_mounted:
            self._draw()

    def _draw(self) -> None:
        row = self.row
        self.query_one("#head", Static).update(heading(row, self.gone, self.route))
        self.query_one("#why", Static).update(why_table(row))
        self.query_one("#ends", Static).update(ends_table(row))
        for name in ("sent", "received", "waited"):
            self.query_one(f"#{name}", Sparkline).data = list(getattr(self, name))


def heading(row: Row, gone: bool, route: str = "") -> Text:
    """The socket's process and addresses, in a line or two, and the device's route to the peer."""
    text = Text(
        f"{row.program or '?'} ({row.pid})  {row.local} → {row.peer}  {row.state or row.proxy_state or ''}", "bold"
    )
    text.append(
        "\nit has been closed" if gone else f"\nwaits for: {row.waits_for or 'nothing'}", "yellow" if gone else ""
    )
    if route:
        text.append(f"\nroute of the device: {route}")
    return text


def why_table(row: Row) -> Table:
    """Each reason, as far as known: since it was first measured, and since the last look."""
    table = Table(box=None, title="why it waits", title_justify="left", title_style="bold", pad_edge=False)
    for title in ("direction", "reason", "times", "time", "now"):
        table.add_column(title, justify="right" if title in ("times", "time") else "left", no_wrap=title != "reason")
    for reason in REASONS:
        ns = row.wait_ns.get(reason.name)
        if ns is None:
            continue
        times, part = row.wait_times.get(reason.name), row.wait_part.get(reason.name, 0.0)
        table.add_row(
            {"send": "sending", "receive": "receiving", "both": "both"}[reason.direction],
            Text(reason.text),
            "" if times is None else str(times),
            duration(ns),
            f"{'█' * round(part * _BAR)}{' ' if part else ''}{part:.0%}" if part >= 0.005 else "",
        )
    if not table.row_count:
        table.add_row("", Text("neither end says: both are of an older version"))
    return table


def ends_table(row: Row) -> Table:
    """What each end knows about it."""
    table = Table(box=None, title="both ends", title_justify="left", title_style="bold", pad_edge=False)
    for title in ("host", "", "proxy", " ", "TCP", "  "):
        table.add_column(title, justify="right" if not title.strip() else "left", no_wrap=True)
    known = row.tcp
    tcp = (
        [
            ("RTT", f"{known.rtt_us} us ± {known.rttvar_us}"),
            ("min RTT", f"{known.min_rtt_us} us"),
            ("retransmits", str(known.retransmits)),
            ("cwnd", f"{known.cwnd_segments} of {known.mss_bytes}"),
            ("unacked", f"{known.unacked_segments}"),
            ("unsent", rate(known.unsent_bytes)),
            ("delivers", f"{rate(known.delivery_bytes_per_s)} B/s"),
        ]
        if known
        else [("not known", "")]
    )
    host = [
        ("socket", f"{row.xts_socket:#x}"),
        ("epoch", row.epoch),
        ("unread", _known(row.recv_queue)),
        ("credits", _known(row.send_credits)),
        ("window", _known(row.recv_window)),
        ("sent", rate(row.sent_bytes)),
        ("received", rate(row.received_bytes)),
        ("polls for", _part(row.host_polling)),
    ]
    proxy = [
        ("socket", f"{row.proxy_id:#x}"),
        ("state", row.proxy_state or "?"),
        ("worker", _known(row.worker)),
        ("tenant", row.tenant or "?"),
        ("credits", _known(row.proxy_credits)),
        ("window", _known(row.window_bytes)),
        ("spilled", _known(row.spill_bytes)),
        ("polls for", _part(row.proxy_polling)),
    ]
    for ends in zip(host, proxy, tcp + [("", "")] * (len(host) - len(tcp)), strict=True):
        table.add_row(*(Text(cell) for end in ends for cell in end))
    return table


def _part(value: float | None) -> str:
    """Of the CPU time of a process or a worker."""
    return "?" if value is None else f"{value:.0%} of its CPU"


def _known(value: int | None) -> str:
    return "?" if value is None else rate(value)
