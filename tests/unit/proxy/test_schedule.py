"""Whose turn it is in a worker (dpu_proxy/native/worker/schedule.c), with made-up costs: no clock is read."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from beds.native_core import TOP, compiler
from cffi import FFI

NATIVE = TOP / "dpu_proxy" / "native"
US, MS = 1000, 1_000_000
ROUND, LEAST, ALONE, ACTIVE = 100 * US, 25 * US, 500 * US, 100 * MS

SHIM = """
#include "worker/schedule.h"
static struct schedule s;
static struct account a[64];
static _Atomic uint32_t weights[8], one = 1;
void start(void) { schedule_init(&s); }
void group(int i, unsigned weight) { weights[i] = weight; }
int open_account(int i, int group) { return account_open(&s, &a[i], group < 0 ? &one : &weights[group]); }
void close_account(int i) { account_close(&a[i]); }
void move(int i, int group) { account_move(&s, &a[i], &weights[group]); }
void begin(uint64_t now_ns) { schedule_round(&s, now_ns); }
int64_t turn(int i) { return a[i].has_turn ? a[i].left_ns : 0; }
void charge(int i, uint64_t now_ns, uint64_t took_ns) { account_charge(&s, &a[i], now_ns, took_ns); }
uint64_t used(int i) { return a[i].used_ns; }
unsigned frames(int i, uint64_t left_ns, unsigned max) { return schedule_fits(a[i].frame_ns, left_ns, max); }
void note(int i, unsigned count, uint64_t took_ns) { schedule_learn(&a[i].frame_ns, count, took_ns); }
"""
CDEF = """
void start(void); void group(int i, unsigned weight); int open_account(int i, int group); void close_account(int i);
void move(int i, int group);
void begin(uint64_t now_ns); int64_t turn(int i); void charge(int i, uint64_t now_ns, uint64_t took_ns);
uint64_t used(int i); unsigned frames(int i, uint64_t left_ns, unsigned max);
void note(int i, unsigned count, uint64_t took_ns);
"""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if shutil.which(compiler()) is None:
        pytest.skip("no C compiler is installed")
    directory: Path = tmp_path_factory.mktemp("schedule")
    (directory / "shim.c").write_text(SHIM)
    sources = [f"-I{NATIVE}", "-o", "shim.so", "shim.c", NATIVE / "worker" / "schedule.c"]
    subprocess.run([compiler(), "-O1", "-g", "-shared", "-fPIC", *sources], cwd=directory, check=True, timeout=60)
    ffi = FFI()
    ffi.cdef(CDEF)
    library = ffi.dlopen(str(directory / "shim.so"))
    library.start()
    return library


@dataclass
class Host:
    """Always has work, in pieces of `cost_ns`, from `begins_ns` on, every `pause_ns` after the last one."""

    account: int
    cost_ns: int
    pause_ns: int = 0
    group: int = -1
    begins_ns: int = 0
    pieces: int = 0
    waited_ns: int = 0


def play(native: Any, hosts: list[Host], duration_ns: int, weights: tuple[int, ...] = ()) -> int:
    """Rounds as the worker makes them, an idle one taking 1 us; returns the time of those."""
    native.start()
    for number, weight in enumerate(weights):
        native.group(number, weight)
    for host in hosts:
        native.open_account(host.account, host.group)
    now = idle = 0
    while now < duration_ns:
        native.begin(now)
        begun = now
        for host in hosts:
            left = end = native.turn(host.account)
            while end > 0 and left > 0 and now >= host.begins_ns:
                if now > 100 * MS and host.begins_ns:
                    host.waited_ns = max(host.waited_ns, now - host.begins_ns)
                now += host.cost_ns
                left -= host.cost_ns
                host.pieces += 1
                native.charge(host.account, now, host.cost_ns)
                host.begins_ns = now + host.pause_ns if host.pause_ns else 0
        if now == begun:
            now += US
            idle += US
    for host in hosts:
        assert native.used(host.account) == host.pieces * host.cost_ns
        native.close_account(host.account)
    return idle


def test_who_is_alone_has_the_whole_worker(native: Any) -> None:
    assert play(native, [Host(0, 480 * US)], 100 * MS) == 0
    assert play(native, [Host(0, 3 * US)], 100 * MS) == 0
    busy, silent = Host(0, 3 * US), Host(1, US, begins_ns=10**15)
    assert play(native, [busy, silent], 100 * MS) == 0


@pytest.mark.parametrize("cost_ns", [2 * US, 40 * US, 480 * US])
def test_time_is_shared_equally_whatever_the_messages_cost(native: Any, cost_ns: int) -> None:
    attacker, other = Host(0, cost_ns), Host(1, 5 * US)
    idle = play(native, [attacker, other], 100 * MS)
    assert idle < 2 * MS
    share = attacker.pieces * attacker.cost_ns / (other.pieces * other.cost_ns)
    assert 0.9 < share < 1.15  # the first turns of each were those of one alone


@pytest.mark.parametrize("cost_ns", [2 * US, 40 * US, 480 * US])
@pytest.mark.parametrize("attackers", [1, 3, 30])
def test_a_bystander_waits_a_round_at_most(native: Any, cost_ns: int, attackers: int) -> None:
    """What an attacker may overrun by is one piece of its work, and then it is not its turn for a while."""
    bystander = Host(0, 5 * US, pause_ns=300 * US)
    play(native, [bystander, *(Host(1 + i, cost_ns) for i in range(attackers))], 200 * MS)
    quantum = max(LEAST, ROUND // (attackers + 1))
    short = attackers * (quantum + cost_ns) if cost_ns < quantum else 0
    assert bystander.waited_ns <= max(short, ROUND, cost_ns) + quantum


def test_a_round_of_an_attacker_that_is_not_alone_is_short(native: Any) -> None:
    native.start()
    native.open_account(0, -1)
    native.open_account(1, -1)
    native.begin(0)
    assert native.turn(0) == ALONE
    native.charge(0, MS, 10 * US)
    native.charge(1, MS, 10 * US)  # a newcomer
    native.begin(MS)
    assert native.turn(0) == ROUND // 2
    native.begin(MS + ACTIVE)  # nobody has been active for so long
    assert native.turn(0) == ALONE


def test_what_was_overrun_is_paid_in_rounds(native: Any) -> None:
    native.start()
    for account in (0, 1):
        native.open_account(account, -1)
        native.charge(account, 1, 0)
    native.begin(2)
    assert native.turn(0) == ROUND // 2
    native.charge(0, 2, 10 * ROUND)
    for _ in range(19):
        native.begin(2)
        assert native.turn(0) == 0
        assert native.turn(1) == ROUND // 2  # nothing is saved up
    native.begin(2)
    assert native.turn(0) == ROUND // 2


def test_groups_have_time_by_their_weights_and_their_accounts_equally(native: Any) -> None:
    many = [Host(i, 5 * US, group=0) for i in range(3)]
    one = Host(3, 5 * US, group=1)
    play(native, [*many, one], 100 * MS, weights=(1, 1))
    assert 0.8 < sum(host.pieces for host in many) / one.pieces < 3.1  # below LEAST all turns are as long
    hosts = [Host(0, US, group=0), Host(1, US, group=1)]
    play(native, hosts, 100 * MS, weights=(3, 1))
    assert 2.8 < hosts[0].pieces / hosts[1].pieces < 3.2


def test_no_more_frames_are_taken_than_there_is_time_for(native: Any) -> None:
    native.start()
    native.open_account(0, -1)
    assert native.frames(0, 50 * US, 32) == 32
    native.note(0, 2, 80 * US)
    assert native.frames(0, 50 * US, 32) == 1
    assert native.frames(0, 10 * US, 32) == 1
    for _ in range(40):
        native.note(0, 32, 32 * US)
    assert native.frames(0, 20 * US, 32) >= 15
    native.note(0, 1, 10 * MS)  # dear at once
    assert native.frames(0, 500 * US, 32) == 1


def test_who_took_long_and_has_nothing_to_do_keeps_nobody_awake(native: Any) -> None:
    """Two of them once left each other without a turn for ever, and a worker with such an account does not sleep."""
    native.start()
    now = 0
    for account in (0, 1):
        native.open_account(account, -1)
    for _ in range(20):
        now += MS
        native.begin(now)
        for account in (0, 1):
            if native.turn(account) > 0:
                native.charge(account, now, MS)
    for _ in range(200):
        now += MS
        native.begin(now)
    assert all(native.turn(account) > 0 for account in (0, 1))


def test_an_account_that_goes_to_another_group_has_its_part(native: Any) -> None:
    native.start()
    for group, weight in enumerate((1, 3)):
        native.group(group, weight)
        native.open_account(group, group)
    native.open_account(2, 0)
    native.move(2, 1)  # in the group of account 1, not of account 0
    now = 0
    for _ in range(3):
        for account in range(3):
            native.charge(account, now, 1)
        now += 2 * MS
        native.begin(now)
    quarter = ROUND // 4
    assert [native.turn(account) for account in range(3)] == [quarter, 3 * quarter // 2, 3 * quarter // 2]
    for account in range(3):
        native.close_account(account)
