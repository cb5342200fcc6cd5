"""A table that draws only the visible lines: tens of thousands of rows cost as much as a screenful.

textual's DataTable keeps a cell for each value, and takes seconds to replace 10,000 rows, which happens once a second.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from .top_columns import Column

_GAP = 1
_HEAD = Style(bold=True, reverse=True)
_SORTED = Style(bold=True, reverse=True, underline=True)
_PLAIN = Style.null()
_CURSOR = Style(bold=True, bgcolor="blue", color="white")


class Table(ScrollView, can_focus=True):
    """Rows of objects; when rows change, the cursor stays on its object, which is found by key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "end(0)", show=False),
        Binding("end", "end(1)", show=False),
        Binding("enter", "choose", "details"),
    ]
    DEFAULT_CSS = "Table { height: 1fr; }"

    class Chosen(Message):
        """Enter, or a click on the cursor's row."""

        def __init__(self, item: Any) -> None:
            super().__init__()
            self.item = item

    class Sorted(Message):
        """A click on a column's heading."""

        def __init__(self, column: int) -> None:
            super().__init__()
            self.column = column

    def __init__(self, key: Callable[[Any], Hashable], **options: Any) -> None:
        super().__init__(**options)
        self._key = key
        self.columns: Sequence[Column] = ()
        self.items: Sequence[Any] = ()
        self.sorted_by = 0
        self.cursor = 0

    def show(
        self, columns: Sequence[Column], items: Sequence[Any], sorted_by: int, key: Callable[[Any], Hashable]
    ) -> None:
        """Replaces the whole content."""
        old = self._key(self.items[self.cursor]) if self.items else None
        changed = columns is not self.columns
        self._key = key
        self.columns, self.items, self.sorted_by = columns, items, sorted_by
        if changed:
            self.cursor = 0
        elif old is not None and not (self.cursor < len(items) and key(items[self.cursor]) == old):
            self.cursor = next((i for i, item in enumerate(items) if key(item) == old), self.cursor)
        self.cursor = max(0, min(self.cursor, len(items) - 1))
        width = sum(column.width + _GAP for column in columns)
        self.virtual_size = Size(width, len(items) + 1)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The heading stays at the top."""
        left, top = self.scroll_offset
        if y == 0:
            segments = [
                Segment(
                    (c.title[: c.width].rjust(c.width) if c.number else c.title[: c.width].ljust(c.width)) + " " * _GAP,
                    _SORTED if i == self.sorted_by else _HEAD,
                )
                for i, c in enumerate(self.columns)
            ]
            return Strip(segments).crop_extend(left, left + self.size.width, _HEAD)
        index = top + y - 1
        if index >= len(self.items):
            return Strip.blank(self.size.width, _PLAIN)
        style = _CURSOR if index == self.cursor else _PLAIN
        text = "".join(_cell(column, self.items[index]) for column in self.columns)
        return Strip([Segment(text, style)]).crop_extend(left, left + self.size.width, style)

    @property
    def chosen(self) -> Any:
        """The object under the cursor; None: there are none."""
        return self.items[self.cursor] if self.items else None

    def action_move(self, by: int) -> None:
        self._go_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._go_to(self.cursor + by * max(1, self.size.height - 2))

    def action_end(self, last: int) -> None:
        self._go_to(len(self.items) - 1 if last else 0)

    def action_choose(self) -> None:
        if self.items:
            self.post_message(self.Chosen(self.chosen))

    def on_click(self, event: Click) -> None:
        if event.y == 0:
            self._click_heading(event.x + self.scroll_offset.x)
            return
        index = self.scroll_offset.y + event.y - 1
        if index >= len(self.items):
            return
        if index == self.cursor:
            self.action_choose()
        self._go_to(index)

    def _click_heading(self, x: int) -> None:
        for i, column in enumerate(self.columns):
            if x < column.width + _GAP:
                self.post_message(self.Sorted(i))
                return
            x -= column.width + _GAP

    def _go_to(self, index: int) -> None:
        self.cursor = max(0, min(index, len(self.items) - 1))
        # The heading takes the first visible line.
        self.scroll_to_region(Region(self.scroll_offset.x, self.cursor, 1, 2), animate=False, force=True)
        self.refresh()


def _cell(column: Column, item: Any) -> str:
    text = column.text(item)
    if len(text) > column.width:
        text = text[: column.width - 1] + "…"
    return (text.rjust(column.width) if column.number else text.ljust(column.width)) + " " * _GAP
