"""pyverbs, as far as verbs.py uses it: loaded only where it is, and replaced by a recording in tests."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

#: Debian 12 has version 44, whose numbers are in pyverbs.enums; newer ones have them elsewhere.
_ENUMS = ("pyverbs.libibverbs_enums", "pyverbs.enums")
_PARTS = ("device", "pd", "cq", "qp", "flow", "spec")


def load() -> Any:
    """The modules by their names, with `enums` and `Error`. ImportError: there is no pyverbs."""
    found = SimpleNamespace(**{name: import_module(f"pyverbs.{name}") for name in _PARTS})
    found.Error = import_module("pyverbs.pyverbs_error").PyverbsError
    for name in _ENUMS:
        try:
            found.enums = import_module(name)
        except ImportError:
            continue
        return found
    raise ImportError("pyverbs has no numbers of verbs in a place that is known")
