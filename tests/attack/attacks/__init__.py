"""The attacks, a module each; `ATTACKS` has all of them in the order of the documentation."""

from __future__ import annotations

import importlib
import pkgutil

from .attack import Attack, Part

__all__ = ["ATTACKS", "Attack", "Part", "find"]


def _all() -> list[Attack]:
    found: list[Attack] = []
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        found += getattr(importlib.import_module(f"{__name__}.{module}"), "ATTACKS", [])
    return found


ATTACKS = _all()


def find(name: str) -> Attack:
    """By its name. KeyError: there is none."""
    return {attack.name: attack for attack in ATTACKS}[name]
