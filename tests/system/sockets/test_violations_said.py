"""A link ends since one side has broken the protocol: the library says which rule, in one line that people read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from beds.caller import Caller
from beds.one_process_proxy import OneProcessProxy
from beds.shm_proxy import library
from xts_messages.native import ffi, lib

HOST = "says that this process has broken the protocol: its log says how"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[OneProcessProxy]:
    with OneProcessProxy(tmp_path) as made:
        yield made


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "stderr"


@pytest.fixture
def caller(proxy: OneProcessProxy, log: Path) -> Iterator[Caller]:
    """Its standard error is the file."""
    before = os.dup(2)
    with log.open("w") as file:
        os.dup2(file.fileno(), 2)
    try:
        made = Caller(proxy, library())
    finally:
        os.dup2(before, 2)
        os.close(before)
    with made:
        yield made


def too_much(proxy: OneProcessProxy, number: int) -> None:
    proxy.link.sent += 1
    proxy.send("XTS_REPLY_RECV", b"x", id=number)


def nothing_sent(proxy: OneProcessProxy, number: int) -> None:
    proxy.link.recycled += 1
    proxy.send("XTS_REPLY_RECV", b"x", id=number)


def behind_the_end(proxy: OneProcessProxy, number: int) -> None:
    proxy.send("XTS_REPLY_RECV", id=number, flags=lib.XTS_FLAG_EOS)
    proxy.send("XTS_REPLY_RECV", b"x", id=number)


def not_closed(proxy: OneProcessProxy, number: int) -> None:
    proxy.send("XTS_REPLY_RECV", id=number, flags=lib.XTS_FLAG_CLOSED)


def goodbye(proxy: OneProcessProxy, number: int) -> None:
    lib.xts_link_violated(proxy.link, ffi.NULL)


RULES: dict[str, tuple[Callable[[OneProcessProxy, int], None], str]] = {
    "order": (too_much, "has broken the protocol: a message out of order"),
    "acknowledgement": (nothing_sent, "has broken the protocol: an acknowledgement of what was never sent"),
    "end": (behind_the_end, "has broken the protocol: data beyond the credits, or behind the end"),
    "closed": (not_closed, "has broken the protocol: the end of a socket that was not closed"),
    "goodbye": (goodbye, HOST),
}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_which_rule_was_broken_is_said(rule: str, proxy: OneProcessProxy, caller: Caller, log: Path) -> None:
    breaks, said = RULES[rule]
    number, _ = caller.connected()
    other = caller.call("socket")
    caller.start("connect", other)
    proxy.expect("XTS_CMD_CONNECT")
    breaks(proxy, number)
    assert caller.result() in ("ECONNABORTED", "ENETDOWN")
    proxy.until(lambda: log.read_text().endswith("\n"), "nothing is said")
    assert log.read_text() == f"libxts: the proxy at {proxy.path} {said}\n"
