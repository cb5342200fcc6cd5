"""Pages of the documents, parts of which are made from measurements."""

from __future__ import annotations

from pathlib import Path


def put_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replaces what is between two lines of a page. ValueError when it does not have them."""
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{page}: no place for the figures: lines {begin!r} and {end!r} are needed")
    page.write_text(f"{before}{begin}\n\n{text}\n{end}{after}", encoding="utf-8")
