"""Text that another process wrote, safe to show."""

from __future__ import annotations


def printable(text: str) -> str:
    """Without characters that would control a terminal or forge a line."""
    return "".join(char if char.isprintable() else "?" for char in text)
