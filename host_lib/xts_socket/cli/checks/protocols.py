"""What the attached proxy can do above TCP: the protocols that can be pushed onto sockets, with versions."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from ... import Offer, ulps
from . import Check

_SIDES = {(True, True): "", (True, False): " (receive)", (False, True): " (send)"}


def offered() -> list[Offer]:
    """What the proxy offers; empty if it cannot be asked."""
    try:
        return ulps()
    except OSError:
        return []


def checks() -> Iterator[Check]:
    try:
        offers = ulps()
    except OSError as failure:
        if failure.errno != errno.ENETDOWN:  # which another check reports
            yield Check("protocols", "warn", failure.strerror or str(failure), "look at the log of xts-proxy")
        return
    if not offers:
        yield Check("protocols", "warn", "the proxy offers none to be pushed onto sockets", "a newer xts-proxy")
        return
    names = (
        f"{offer.name or offer.number} {offer.version}{_SIDES.get((offer.receive, offer.send), '')}" for offer in offers
    )
    yield Check("protocols", "ok", ", ".join(names))
