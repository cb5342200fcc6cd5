"""Random scripts of socket calls go the same way on kernel sockets and under the interposer."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.stack_modes import MODES
from system.interposer.programs.edge_scripts import CAUSES, edges
from system.interposer.programs.random_calls import Comparison, comparison, search
from system.interposer.programs.random_scripts import EXCLUSIONS, Script

SEARCH_S = 15.0
SETTLE_S = 10.0
DIFFERENCES = Path(__file__).parents[3] / "host_lib" / "DIFFERENCES.md"

# Slot 1 is connected, which it has not been told, to slot 2 of listener 0; and has an option.
NOBODY_HAS_ASKED: Script = [
    ["socket", 0, 4, 0],
    ["bind", 0, "127.0.0.1", 0],
    ["listen", 0, 5],
    ["socket", 1, 4, 2048],
    ["set", 1, "TCP_KEEPIDLE", [77]],
    ["connect", 1, 0],
    ["accept", 0, 2, 0],
]

# Scripts that once went another way, as small as they could be made.
FOUND: dict[str, Script] = {
    "splice_of_nothing_looks_at_nothing": [["pair", 0, 1, "::1"], ["splice", 8, 0, 0]],
    "splice_to_no_descriptor": [["pair", 0, 1, "127.0.0.1"], ["splice", 0, 9, 7]],
    "splice_to_the_wrong_end_of_a_pipe": [["pair", 0, 1, "127.0.0.1"], ["pipe", 8, 9], ["splice", 0, 8, 7]],
    "splice_from_the_wrong_end_of_a_pipe": [["pair", 0, 1, "127.0.0.1"], ["pipe", 8, 9], ["splice", 9, 0, 7]],
    "writev_of_nothing_looks_at_nothing": [["socket", 0, 4, 0], ["listen", 0, 5], ["writev", 0, [0]]],
    "recv_of_nothing_when_its_time_is_over": [
        ["pair", 0, 1, "127.0.0.1"],
        ["set", 0, "SO_RCVTIMEO", [0, 20_000]],
        ["recv", 0, 0, 0],
    ],
    "bind_again_to_a_foreign_address": [["pair", 0, 1, "127.0.0.1"], ["bind", 1, "192.0.2.1", 0]],
    "bind_after_a_reset": [["pair", 0, 1, "127.0.0.1"], ["reset", 0], ["bind", 1, "127.0.0.3", 0]],
    "recvmsg_without_room_for_a_name": [["pair", 0, 1, "127.0.0.1"], ["send", 0, 7, 0], ["recvmsg", 1, [7], 0]],
    "disconnect_after_both_ends": [
        ["pair", 0, 1, "127.0.0.1"],
        ["shutdown", 0, 1],
        ["shutdown", 1, 1],
        ["disconnect", 0],
    ],
    "disconnect_leaves_an_error": [["pair", 0, 1, "127.0.0.1"], ["reset", 1], ["disconnect", 0]],
    "shutdown_ends_the_connecting": [
        ["socket", 0, 4, 0],
        ["listen", 0, 5],
        ["socket", 1, 4, 2048],
        ["connect", 1, 0],
        ["shutdown", 1, 2],
        ["connect", 1, 1],
    ],
    "shutdown_of_a_failed_connect": [
        ["socket", 0, 4, 0],
        ["bind", 0, "127.0.0.1", 0],
        ["socket", 1, 4, 2048],
        ["connect", 1, 0],
        ["shutdown", 1, 2],
        ["connect", 1, 0],
        ["get", 1, "SO_ERROR", 4],
        ["listen", 1, 5],
    ],
    "recvmmsg_tells_an_error_first": [
        ["pair", 0, 1, "::1"],
        ["send", 1, 2, 0],
        ["reset", 1],
        ["recvmmsg", 0, [100], 64],
    ],
    "connection_reset_and_connected_to_where_the_kernel_is": [
        ["pair", 0, 1, "127.0.0.1"],
        ["reset", 1],
        ["get", 0, "SO_ERROR", 4],
        ["socket", 2, 4, 0],
        ["bind", 2, "127.0.0.3", 0],
        ["listen", 2, 5],
        ["connect", 0, 2],
    ],
    "connect_after_a_reset_that_nobody_asked_about": [
        *NOBODY_HAS_ASKED,
        ["reset", 2],
        ["name", "getsockname", 1, 28],
        ["connect", 1, 0],
        ["name", "getsockname", 1, 28],
        ["connect", 1, 0],
        ["connect", 1, 0],
        ["accept", 0, 2, 0],
        ["get", 1, "TCP_KEEPIDLE", 4],
        ["send", 1, 100, 0],
        ["send", 2, 7, 0],
        ["recv", 2, 100, 0],
        ["recv", 1, 100, 0],
    ],
    "connect_after_a_reset_whose_error_was_read": [
        *NOBODY_HAS_ASKED,
        ["send", 2, 7, 0],
        ["reset", 2],
        ["get", 1, "SO_ERROR", 4],
        ["connect", 1, 0],
        ["connect", 1, 0],
        ["connect", 1, 0],
    ],
    "connect_after_a_reset_and_a_shutdown": [
        *NOBODY_HAS_ASKED,
        ["reset", 2],
        ["shutdown", 1, 2],
        ["connect", 1, 0],
        ["get", 1, "SO_ERROR", 4],
        ["connect", 1, 0],
    ],
    "name_of_who_was_refused": [
        ["socket", 0, 4, 0],
        ["bind", 0, "127.0.0.1", 0],
        ["socket", 1, 4, 0],
        ["connect", 1, 0],
        ["name", "getsockname", 1, 28],
        ["connect", 1, 0],
        ["name", "getsockname", 1, 28],
    ],
}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    with comparison(tmp_path_factory.mktemp("random"), SETTLE_S) as made:
        yield made


@pytest.fixture(scope="module", params=MODES)
def in_several_stacks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    with comparison(tmp_path_factory.mktemp("several"), SETTLE_S, MODES[request.param]) as made:
        yield made


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str, compared: Comparison) -> None:
    assert not (difference := compared.difference(FOUND[name])), difference


@pytest.mark.parametrize("cause", CAUSES)
def test_edges(cause: str, compared: Comparison) -> None:
    for script in edges(cause):
        assert not (difference := compared.difference(script)), difference


@pytest.mark.parametrize("cause", CAUSES)
def test_edges_in_several_stacks(cause: str, in_several_stacks: Comparison) -> None:
    test_edges(cause, in_several_stacks)


@pytest.mark.parametrize("name", FOUND)
def test_found_in_several_stacks(name: str, in_several_stacks: Comparison) -> None:
    test_found(name, in_several_stacks)


@pytest.mark.long  # looks where none has looked: what it finds is new, and no verdict on a change
def test_random_scripts(compared: Comparison) -> None:
    number = random.SystemRandom().randrange(1 << 32)
    end, before = time.monotonic() + SEARCH_S, compared.scripts
    print(f"seed {number}")
    while time.monotonic() < end:
        difference = search(compared, number, 50)
        assert not difference, f"seed {number}: {difference}"
        number += 1
    assert compared.scripts > before


def test_what_is_left_out_is_in_the_manual() -> None:
    """The generator's exclusions and the manual's list have the same keys."""
    listed = re.findall(r"^- \*\*`([a-z-]+)`\*\*", DIFFERENCES.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(EXCLUSIONS)
