"""Tables on standard output: as wide as necessary, with cells wrapped if the terminal is narrower.

The package rich does this too, but takes longer to import than all of `xts status`. The same variables of the
environment count (xts_messages/terminal/terminal.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from . import terminal

_GAP = "  "
_CODES = {"green": "\x1b[32m", "yellow": "\x1b[33m", "red": "\x1b[31m", "bold": "\x1b[1m"}
_NARROWEST = 8  # width of a column that is wrapped
_WHOLE = 22  # words up to here are not broken: addresses, numbers. Rather lines are longer than the terminal.


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    numeric: Iterable[str] = (),
    styles: Mapping[str, str] | None = None,
    empty: str = "",
    *,
    piped_columns: int | None = None,
) -> None:
    """Prints a table, or `empty` if it has no rows.

    `styles`: colours, where there are any, for cells with exactly this text. `numeric`: columns that are aligned to the
    right. `piped_columns`: the greatest width without a terminal and COLUMNS; without it each row stays on one line.
    """
    cells = [tuple(row) for row in rows]
    if not cells and empty:
        print(empty)
        return
    coloured = terminal.has_colours()
    widths = [max(len(row[i]) for row in (columns, *cells)) for i in range(len(columns))]
    if room := terminal.columns(piped=piped_columns):
        words = [max(_longest_word(row[i]) for row in (columns, *cells)) for i in range(len(columns))]
        _shrink(widths, room, [max(word, _NARROWEST) for word in words])  # whole words, where that is possible
        _shrink(widths, room, [max(min(word, _WHOLE), _NARROWEST) for word in words])
    right = [column in set(numeric) for column in columns]
    lines = [*_lines(columns, widths, right, {"": "bold"} if coloured else {}, True)]
    lines.append(_GAP.join("─" * width for width in widths))
    for row in cells:
        lines += _lines(row, widths, right, (styles or {}) if coloured else {}, False)
    print("\n".join(line.rstrip() for line in lines))


def _longest_word(text: str) -> int:
    """Of a path that is long the longest part, for it can be broken after each slash (_fold)."""
    words = text.split()
    parts = (part for word in words for part in (word.split("/") if len(word) > _WHOLE else [word]))
    return max((len(part) + 1 for part in parts), default=1) - 1


def _shrink(widths: list[int], room: int, least: Sequence[int]) -> None:
    """Narrows the widest columns until all fit, as far as possible: none below its least width."""
    while sum(widths) + len(_GAP) * (len(widths) - 1) > room:
        able = [i for i in range(len(widths)) if widths[i] > least[i]]
        if not able:
            return
        widths[max(able, key=widths.__getitem__)] -= 1


def _lines(
    row: Sequence[str], widths: Sequence[int], right: Sequence[bool], styles: Mapping[str, str], head: bool
) -> list[str]:
    folded = [_fold(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for parts in zip_longest(*folded, fillvalue=""):
        out = []
        for part, cell, width, aligned in zip(parts, row, widths, right, strict=True):
            text = part.rjust(width) if aligned else part.ljust(width)
            code = _CODES.get(styles.get("" if head else cell, ""), "")
            out.append(f"{code}{text}\x1b[0m" if code else text)
        lines.append(_GAP.join(out))
    return lines


def _fold(text: str, width: int) -> list[str]:
    """Splits a text into pieces of at most this width: at spaces if possible, else after a slash of a path."""
    pieces = []
    while len(text) > width:
        space = text.rfind(" ", 1, width + 1)
        slash = text.rfind("/", width // 2, width)
        at = space if space > 0 else slash + 1 if slash > 0 else width
        pieces.append(text[:at].rstrip())
        text = text[at:].lstrip()
    return [*pieces, text]
