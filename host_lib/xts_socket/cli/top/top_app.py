"""The screen of `xts top`: sockets or groups of them, live. A thread takes the looks, so that the user can leave even
if a proxy does not answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Input, Static

from ..sockets.grouped import BY, Group, grouped
from ..sockets.joined import Look, Row
from .top_columns import GROUPS, SOCKETS, Column, key_of, matches
from .top_network import NetworkPage
from .top_page import ConnectionPage
from .top_table import Table

_VIEWS = ("socket", *BY)
_LONGEST_PART = 0.25  # the share of the time that looks may take


class Top(App[None]):
    """`take`: takes a look, given the last one; OSError says why it cannot. `route`: asks for a socket's route."""

    TITLE = "xts top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("g", "view", "group"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", "sort", show=False),
        Binding("r", "reverse", "reverse"),
        Binding("slash", "filter", "filter"),
        Binding("n", "network", "network"),
        Binding("p", "pause", "pause"),
        Binding("escape", "no_filter", show=False),
    ]
    CSS = """
    #line { height: auto; }
    #missing { height: auto; color: $warning; }
    #filter { display: none; height: 3; }
    """

    def __init__(
        self,
        take: Callable[[Look | None], Look],
        interval_s: float,
        view: str = "socket",
        words: str = "",
        route: Callable[[Row], str] = lambda row: "",
    ) -> None:
        super().__init__()
        self._take, self._route = take, route
        self._interval_s = interval_s
        self.view = view
        self.words = words
        self.sorted_by = 0 if view != "socket" else 4
        self.reversed = False
        self.paused = False
        self.last: Look | None = None
        self.problem = ""

    def compose(self) -> ComposeResult:
        yield Static(id="line")
        yield Static(id="missing")
        yield Table(key_of, id="table")
        yield Input(placeholder="words, or field=value: state=ESTAB peer=198.18.", id="filter", value=self.words)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Table).focus()
        self._look()

    # --- looks ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self.run_worker(self._look_once, thread=True, exclusive=True, exit_on_error=True)

    def _look_once(self) -> None:
        """Runs in a thread of its own."""
        try:
            found: Look | OSError = self._take(self.last)
        except OSError as error:
            found = error
        self.call_from_thread(self.seen, found)

    def seen(self, found: Look | OSError) -> None:
        """Handles the result of a look. The next one comes after the interval, or later if looks take long."""
        took_s = 0.0
        if isinstance(found, OSError):
            self.problem = found.strerror or str(found)
        else:
            self.problem, took_s = "", found.took_s
            if not self.paused:
                self.last = found
                for screen in self.screen_stack:
                    if isinstance(screen, ConnectionPage | NetworkPage):
                        screen.seen(found)
        self.draw()
        self.set_timer(max(self._interval_s, took_s / _LONGEST_PART - took_s), self._look)

    # --- drawing ----------------------------------------------------------------------------------------------------

    def shown(self) -> tuple[Sequence[Column], list[Any]]:
        """The columns of the view, and its rows in their order."""
        rows = [row for row in (self.last.rows if self.last else ()) if matches(row, self.words)]
        columns = SOCKETS if self.view == "socket" else GROUPS[self.view]
        items: list[Row] | list[Group] = rows if self.view == "socket" else grouped(rows, self.view)
        column = columns[self.sorted_by]
        return columns, sorted(items, key=column.order, reverse=column.number != self.reversed)

    def draw(self) -> None:
        """Draws the whole main screen."""
        base = self.screen_stack[0]
        columns, items = self.shown()
        base.query_one("#line", Static).update(self._line(columns))
        missing = self.problem or "\n".join(self.last.missing if self.last else ())
        base.query_one("#missing", Static).update(missing.replace("[", r"\["))
        base.query_one("#missing", Static).display = bool(missing)
        base.query_one(Table).show(columns, items, self.sorted_by, key_of)

    def _line(self, columns: Sequence[Column]) -> str:
        parts = [f"by {self.view}", f"sorted by {columns[self.sorted_by].title}"]
        if self.last:
            sockets, processes = len(self.last.rows), len(self.last.processes)
            text = f"{sockets} socket{'s' * (sockets != 1)} of {processes} process{'es' * (processes != 1)}"
            parts.insert(0, text)
            for one in self.last.interfaces:
                if dropped := sum(one.drops.values()):
                    parts.append(f"{dropped} frame{'s' * (dropped != 1)} dropped at {one.interface} (xts status)")
        if self.words:
            parts.append(f"only {self.words}".replace("[", r"\["))
        if self.paused:
            parts.append("paused")
        return "xts top: " + ", ".join(parts)

    # --- keys -------------------------------------------------------------------------------------------------------

    def action_view(self) -> None:
        self.view = _VIEWS[(_VIEWS.index(self.view) + 1) % len(_VIEWS)]
        self.sorted_by = 4 if self.view == "socket" else 1
        self.draw()

    def action_sort(self, by: int) -> None:
        columns = SOCKETS if self.view == "socket" else GROUPS[self.view]
        self.sorted_by = (self.sorted_by + by) % len(columns)
        self.draw()

    def on_table_sorted(self, message: Table.Sorted) -> None:
        if message.column == self.sorted_by:
            self.reversed = not self.reversed
        self.sorted_by = message.column
        self.draw()

    def action_reverse(self) -> None:
        self.reversed = not self.reversed
        self.draw()

    def action_pause(self) -> None:
        self.paused = not self.paused
        self.draw()

    def action_network(self) -> None:
        self.push_screen(NetworkPage(self.last))

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def action_no_filter(self) -> None:
        self.query_one("#filter", Input).value = ""
        self._end_filter("")

    def on_input_changed(self, message: Input.Changed) -> None:
        self.words = message.value
        self.draw()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self._end_filter(message.value)

    def _end_filter(self, words: str) -> None:
        self.words = words
        self.query_one("#filter", Input).display = False
        self.query_one(Table).focus()
        self.draw()

    def on_table_chosen(self, message: Table.Chosen) -> None:
        """Shows a socket's page; for a group, its sockets."""
        if isinstance(message.item, Row):
            self.push_screen(ConnectionPage(message.item, self._route))
            return
        fields = {"process": "pid", "queue": "queue", "tenant": "tenant", "worker": "worker", "peer": "peer"}
        name = message.item.name
        value = name.rpartition("(")[2].rstrip(")") if self.view == "process" else name.rpartition(" ")[2]
        self.words = f"{fields[self.view]}={value}"
        self.view, self.sorted_by = "socket", 4
        self.query_one("#filter", Input).value = self.words
        self.draw()
