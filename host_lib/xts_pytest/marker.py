"""What a marker `xts_offloaded` may say."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from xts_socket import Reason

_NAMES = [reason.name for reason in Reason if reason is not Reason.NONE]


def allowed_reasons(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> frozenset[str]:
    """The names in `allow`. ValueError, with a sentence: a marker that would not do what it seems to say."""
    if arguments:
        raise ValueError(f"xts_offloaded takes names by a keyword: allow=[...]; found {arguments[0]!r}")
    for keyword in keywords:
        if keyword != "allow":
            raise ValueError(f"xts_offloaded has no {keyword}={_near(keyword, ['allow'])}")
    allow = keywords.get("allow", ())
    if isinstance(allow, str):
        raise ValueError(f'xts_offloaded: allow is a list of names: allow=["{allow}"]')
    for name in allow:
        if name not in _NAMES:
            raise ValueError(f"xts_offloaded: no reason is named {name}{_near(str(name), _NAMES)}")
    return frozenset(allow)


def _near(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f": did you mean {close[0]}?" if close else f"; it may be one of {', '.join(known)}"
