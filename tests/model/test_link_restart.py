"""What the link knows of a proxy whose place another one takes (PROTOCOL.md, "Upgrade")."""

from __future__ import annotations

import errno

import pytest
from beds.link_pair import CLOSED, HOST, PROXY, Pair, config, core


@pytest.mark.parametrize("error", [errno.ERESTART, 0])
def test_goodbye_tells_what_had_come(error: int) -> None:
    """A host that has nothing under way then goes on with the next proxy."""
    pair = Pair().open()
    for number in range(1, 4):
        assert pair.host.send(number)
    pair.settle()
    pair.proxy.recycle(3)
    assert core.xts_link_unacknowledged(pair.host.link) == 3
    core.xts_link_goodbye(pair.proxy.link, error)
    pair.proxy.pump(pair.now_ns)
    assert CLOSED in [pair.host.receive(pair.now_ns) for _ in range(len(pair.host.inbox))]
    assert core.xts_link_unacknowledged(pair.host.link) == (0 if error else 3)
    assert pair.host.error == (error or errno.ESHUTDOWN)


def test_a_proxy_expects_the_epoch_of_the_one_before() -> None:
    pair = Pair(config(HOST, epoch=77), config(PROXY))
    core.xts_link_expect(pair.proxy.link, 77)
    assert pair.proxy.link.epoch == 77
    core.xts_link_expect(pair.proxy.link, 78)
    assert pair.proxy.link.epoch == 77, "it expects one already"
    pair.open()
    core.xts_link_expect(pair.proxy.link, 79)
    assert pair.proxy.link.epoch == 77, "the link is up"
