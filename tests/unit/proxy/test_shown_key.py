"""Who asks for a proxy's place shows the key, and so does who has the place; neither tells it."""

from __future__ import annotations

import errno
import os

import msgspec
import pytest
from xts_proxy.upgrade.shown_key import Challenge, Demand, draw, show

KEY, OTHER = os.urandom(32), os.urandom(32)


def exchange(running: bytes, new: bytes) -> list[bytes]:
    """What is said. OSError: one end does not believe the other."""
    nonce = draw()
    demand, said = Demand(running, nonce), []
    said.append(demand.challenge())
    show(new, nonce, said[0], said.append)
    demand.check(said[1])
    return said


def test_both_have_it() -> None:
    said = exchange(KEY, KEY)
    assert len(said) == 2
    assert not any(KEY in line or KEY.hex().encode() in line for line in said)


def test_the_running_one_has_another() -> None:
    with pytest.raises(OSError, match="it has another") as refused:
        exchange(OTHER, KEY)
    assert refused.value.errno == errno.EPERM


@pytest.mark.parametrize("line", [b"", b"{}\n", b'{"upgrade":"granted"}\n', b"\xff\xff", b'{"nonce":"","proof":""}\n'])
def test_something_else_listens_there(line: bytes) -> None:
    said: list[bytes] = []
    with pytest.raises(OSError, match="upgrade_key"):
        show(KEY, draw(), line, said.append)
    assert said == []


@pytest.mark.parametrize("line", [b"", b"{}\n", b"[]", b"\xff", b'{"proof":""}\n', b'{"proof":"!"}\n'])
def test_no_proof(line: bytes) -> None:
    with pytest.raises(OSError, match=r"another proxy\.upgrade_key"):
        Demand(KEY, draw()).check(line)


@pytest.mark.parametrize(("key", "nonce"), [(KEY, b""), (b"", b"nonce")], ids=["new", "running"])
def test_one_of_both_has_no_key(key: bytes, nonce: bytes) -> None:
    with pytest.raises(OSError, match="has to be the same for both"):
        Demand(key, nonce)


def test_what_was_said_before_proves_nothing() -> None:
    """Nor does what the other end has said."""
    before = exchange(KEY, KEY)
    nonce = draw()
    demand = Demand(KEY, nonce)
    challenge = msgspec.json.decode(demand.challenge(), type=Challenge)
    for line in (before[1], msgspec.json.encode({"proof": challenge.proof})):
        with pytest.raises(OSError, match=r"another proxy\.upgrade_key"):
            demand.check(line)
    with pytest.raises(OSError, match="it has another"):
        show(KEY, nonce, before[0], lambda _: None)
