"""The functions that look up names while install() or offload() is in force: by the device for sockets that are to be
offloaded, else as the standard module's."""

from __future__ import annotations

import socket as _standard
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from ._names import FUNCTIONS
from ._scope import current


def where_offloaded(name: str) -> Callable[..., Any]:
    """The function of this name that asks the device if install() or offload() is in force for the caller, and
    otherwise is the standard module's."""
    return _look_up(FUNCTIONS[name], getattr(_standard, name))


@cache
def _look_up(ours: Callable[..., Any], standard: Callable[..., Any]) -> Callable[..., Any]:
    """Made once: a block of offload() asks for all of them."""

    @wraps(standard)
    def look_up(*arguments: Any, **named: Any) -> Any:
        return (ours if current() else standard)(*arguments, **named)

    return look_up
