"""How long a relay waits for a proxy that says nothing: for ever, or as long as it was told (silent_ms)."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from beds.ready import readable
from beds.relay_in_thread import RelayInThread
from beds.third_kind import KINDS
from xts_messages._native import lib

#: More than a ping later: the relay pings after 500 ms without a word.
SILENT_MS = 700


@pytest.fixture(params=[(kind, SILENT_MS) for kind in KINDS] + [(KINDS[0], 0)])
def relayed(request: pytest.FixtureRequest) -> Iterator[RelayInThread]:
    kind, silent_ms = request.param
    made = RelayInThread(kind, silent_ms=silent_ms)
    try:
        made.comes_up()
        yield made
    finally:
        made.close()


def test_a_proxy_that_has_gone_without_a_word(relayed: RelayInThread) -> None:
    """Over RDMA nothing else may show it: a connection of iWARP lasts for as long as its TCP repeats. One that answers
    is there."""
    relayed.serve(2.0 * SILENT_MS / 1000)
    assert not readable(relayed.agent, 0)
    if relayed.config.silent_ms:
        assert relayed.report() == (lib.XTS_RELAY_DOWN, errno.ETIMEDOUT)
    else:
        assert not readable(relayed.agent, 0.5 + 2.0 * SILENT_MS / 1000)
