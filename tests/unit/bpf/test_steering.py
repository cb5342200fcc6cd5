"""How frames find their queue (xts_bpf.steering): addresses of queues, and rules that are looked after."""

from __future__ import annotations

import errno
import logging
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xts_bpf import steering
from xts_bpf.flow_rules import Ethtool, Rule, StandIn, of
from xts_bpf.interface_driver import driver_of
from xts_bpf.queue_addresses import MASK, of_queue
from xts_bpf.steering import SteeredInterface, Steering

BASE = bytes.fromhex("b8ce f600 1122")


class Rules:
    """A card's, in memory. `answer`: an errno for each new rule."""

    def __init__(self, answer: int = 0) -> None:
        self.rules: dict[int, Rule] = {}
        self.answer = answer

    def insert(self, rule: Rule) -> int:
        if self.answer:
            raise OSError(self.answer, "no")
        location = max(self.rules, default=-1) + 1
        self.rules[location] = rule
        return location

    def remove(self, location: int) -> None:
        del self.rules[location]

    def present(self) -> dict[int, Rule]:
        return dict(self.rules)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Rules:
    made = Rules()

    class Addresses:
        def __init__(self, *_: object) -> None:
            pass

        def announce(self, _: int) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(steering.flow_rules, "of", lambda *_: made)
    monkeypatch.setattr(steering, "QueueAddresses", Addresses)
    return made


def steered(queues: int = 4) -> SteeredInterface:
    return SteeredInterface("card0", BASE, range(queues), logging.getLogger("test"), how="ethtool", ethertype=0x855B)


@given(base=st.binary(min_size=6, max_size=6), queues=st.sets(st.integers(0, 255), min_size=2))
def test_addresses_are_different_and_of_the_interface(base: bytes, queues: set[int]) -> None:
    base = bytes((base[0] & 0xFE,)) + base[1:]  # no group
    made = {number: of_queue(base, number) for number in queues}
    assert len(set(made.values())) == len(queues)
    assert of_queue(base, 0) == base
    for address in made.values():
        assert not address[0] & 1
        assert all(not (a ^ b) & m for a, b, m in zip(address, base, MASK, strict=True))


def test_rules_for_all_but_queue_0(rules: Rules) -> None:
    interface = steered()
    assert interface.problem == ""
    assert set(rules.rules.values()) == {Rule(of_queue(BASE, n), n) for n in (1, 2, 3)}
    assert not interface.look()
    interface.close()
    assert rules.rules == {}
    interface.close()


def test_rules_that_are_gone_wrong_or_other_peoples(rules: Rules) -> None:
    """Missing ones are put back, and those that send our frames elsewhere go; others stay."""
    other = Rule(bytes(6), 3)
    rules.rules[7] = other
    interface = steered()
    wanted = set(rules.rules.values())
    (mine,) = (location for location, rule in rules.rules.items() if rule.queue_id == 2)
    rules.rules[mine] = Rule(of_queue(BASE, 2), 0)
    assert interface.look()
    assert set(rules.rules.values()) == wanted
    interface.close()
    assert rules.rules == {7: other}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (errno.EOPNOTSUPP, "its driver has no rules for received frames"),
        (errno.EINVAL, "its driver has no rules for destination addresses"),
        (errno.ENOSPC, "its card has no room for another rule"),
    ],
)
def test_cards_without_rules(rules: Rules, answer: int, says: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is no error; the log has it once, and again when it is over."""
    rules.answer = answer
    interface = steered()
    assert says in interface.problem
    assert not interface.look()
    assert caplog.text.count(says) == 1
    rules.answer = 0
    with caplog.at_level(logging.INFO):
        assert interface.look()
    assert interface.problem == ""
    assert "has a rule for each of its queues again" in caplog.text


def test_who_has_the_rules() -> None:
    assert isinstance(of("lo", "ethtool"), Ethtool)
    assert isinstance(of("lo", "unix:/run/card.sock"), StandIn)


def test_an_interface_whose_driver_has_none() -> None:
    """The kernel's own answer, for the loopback interface."""
    rules = of("lo", "ethtool")
    for ask in (rules.present, lambda: rules.insert(Rule(BASE, 1)), lambda: rules.remove(0)):
        with pytest.raises(OSError, match="of lo: ") as caught:
            ask()
        assert caught.value.errno in (errno.EOPNOTSUPP, errno.EPERM)


def test_what_auto_means() -> None:
    assert Steering.NONE.on("lo") is Steering.NONE
    assert Steering.ADDRESS.on("lo") is Steering.ADDRESS
    names = [name for _, name in socket.if_nameindex()]
    assert Steering.AUTO.on(names[0]) is Steering.ADDRESS if driver_of(names[0]) != "veth" else True
    assert Steering.ADDRESS.peer_mask == MASK
    assert Steering.NONE.peer_mask is None
    assert Steering.NONE.address(BASE, 3) == BASE
