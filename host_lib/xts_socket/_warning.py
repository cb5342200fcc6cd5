"""Warnings that name the line of the program, however many frames of this package are between (skip_file_prefixes of
Python 3.12)."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path

_OURS = str(Path(__file__).parent)
_BETWEEN = (_OURS, str(contextlib.__file__), "<frozen importlib")


def warn(text: str) -> None:
    """A RuntimeWarning at the nearest caller outside the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    warnings.warn_explicit(
        text,
        RuntimeWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )
