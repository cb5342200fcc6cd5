"""The page of the device's network in `xts top`: rules of policy routing, routes, and multicast groups."""

from __future__ import annotations

from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static
from xts_messages.terminal.printable import printable

from ..device.proxy_side import Network
from ..sockets.joined import Look


class NetworkPage(Screen[None]):
    """Shows the network of the last look; `seen()` brings each new one."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,n", "app.pop_screen", "back")]
    DEFAULT_CSS = "NetworkPage Static { margin: 0 1; }"

    def __init__(self, look: Look | None) -> None:
        super().__init__()
        self._network = _network_of(look)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="rules")
            yield Static(id="routes")
            yield Static(id="groups")
        yield Footer()

    def on_mount(self) -> None:
        self._draw()

    def seen(self, look: Look) -> None:
        """Another look."""
        self._network = _network_of(look)
        if self.is_mounted:
            self._draw()

    def _draw(self) -> None:
        rules = rules_table(self._network)
        self.query_one("#rules", Static).display = rules is not None
        self.query_one("#rules", Static).update(rules or "")
        self.query_one("#routes", Static).update(routes_table(self._network))
        self.query_one("#groups", Static).update(groups_table(self._network))


def _network_of(look: Look | None) -> Network | None:
    return look.proxy.network if look and look.proxy else None


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def rules_table(network: Network | None) -> Table | None:
    """The device's rules; None: they are those that every kernel begins with, or not known."""
    if network is None or not network.rules:
        return None
    table = _table("rules of policy routing", "priority", "of", "rule", "action")
    for one in network.rules:
        cells = (str(one.priority), f"IPv{one.ip_version}", one.conditions, one.action)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    if network.rules_more:
        table.add_row(f"and {network.rules_more} more")
    return table


def routes_table(network: Network | None) -> Table | Text:
    """The device's routes."""
    if network is None:
        return Text("the proxy does not say: it cannot be asked, or is older")
    table = _table("routes of the device", "destination", "gateway", "interface", "table", "metric")
    for one in network.routes:
        cells = (one.destination, one.gateway or "-", one.interface, one.table, str(one.metric))
        table.add_row(*(Text(printable(cell)) for cell in cells))
    if network.routes_more:
        table.add_row(f"and {network.routes_more} more")
    return table


def groups_table(network: Network | None) -> Table | Text:
    """The device's groups."""
    if network is None:
        return Text()
    table = _table("multicast groups", "group", "interface", "members")
    for one in network.groups:
        table.add_row(*(Text(printable(cell)) for cell in (one.group, one.interface, str(one.members))))
    if network.groups_more:
        table.add_row(f"and {network.groups_more} more")
    return table if network.groups else Text("nobody has joined a multicast group")
