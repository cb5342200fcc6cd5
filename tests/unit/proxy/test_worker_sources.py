"""What a reader of dpu_proxy/native may rely on: one path to TCP, which mutexes there are, no files. Files are known by
their names, wherever they are."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import pytest

WORKER = Path(__file__).resolve().parents[3] / "dpu_proxy" / "native"
KEYS = WORKER / "keys"  # a process of its own, and requests to it

#: function -> the files that call it. A connection, an orphan (a connection without a host) and a parked connection
#: drain what waits by the same function; datagrams have records in the buffer, and a path of their own. What is
#: received again after a crash waits in a buffer of its own until the host says how much of it TCP has (replay.h).
CALLERS = {
    "outgoing_drain": {"to_tcp.c", "park.c"},
    "outgoing_offer": {"to_tcp.c", "outgoing.c"},
    "outgoing_append": {"to_tcp.c", "replay.c"},
    "ulp_stack_write": {"outgoing.c"},
    "spill_peek": {"outgoing.c", "datagram_send.c", "spill.c"},
    "spill_drop": {"outgoing.c", "datagram_send.c", "spill.c", "parked_spilled.c"},
    "spill_append": {"outgoing.c", "datagram_send.c", "spill.c", "tcp_record.c", "replay.c", "parked_spilled.c"},
    # System calls. Handshakes of TLS are done by other threads, the kernel's TLS takes the type of a record, and a
    # lookup has a socket of its own.
    "sendmsg": {"outgoing.c", "bottom.c", "tls_keys_kernel.c", "lookup.c"},
    "send": {"tls_handshake.c", "lookup.c"},
    "write": {"private_bytes.c"},  # into memory, not to TCP
    "writev": set(),
    "sendto": set(),
}
#: Mutexes that are not counted as common to all workers (common_lock.h), and whose they are.
MUTEXES = {
    "log.c": "a worker's, shared with its supervisor",
    "run_in_worker.c": "a worker's, shared with its supervisor",
    "multicast.c": "a datagram socket's",
    "multicast_option.c": "a datagram socket's",
    "resource_pool.c": "a tenant's: taken when something is opened or closed",
    "filter_totals.c": "the process's: taken when a filter is attached",
    "idle.c": "nobody's: for a condition that never holds, to sleep for microseconds",
    "handshake_pool.c": "the process's: taken for what a thread of the pool computes",
    "tls_about.c": "the process's: taken at the beginning and the end of a TLS connection",
    "tls_contexts.c": "the process's: taken at the beginning and the end of a TLS connection",
    "tls_session.c": "the process's: taken during a handshake",
    "tls_ticket_keys.c": "the same: taken by threads of the pool",
    "tls_keys_cipher.c": "the process's: taken with a key, and for a record where the memory for keys is full",
    "tls_session_ids.c": "the same: OpenSSL asks during a handshake; workers leave what they have for it",
}


@lru_cache
def sources() -> dict[str, str]:
    """Name -> text without comments and strings."""
    found = {}
    for path in WORKER.rglob("*.c"):
        if KEYS in path.parents:
            continue
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        found[path.name] = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    assert len(found) > 100
    return found


def callers(function: str) -> set[str]:
    """The files that call it. A declaration or definition begins a line; a member is not the function."""
    call = re.compile(rf"^[\t }}].*?(?<![\w.>]){function}\(", re.M)
    return {name for name, text in sources().items() if call.search(text)}


@pytest.mark.parametrize("function", CALLERS)
def test_there_is_one_path_to_tcp(function: str) -> None:
    assert callers(function) == CALLERS[function]


def test_mutexes_are_counted_or_known() -> None:
    assert callers("pthread_mutex_lock") == set(MUTEXES)
    assert not callers("pthread_rwlock_rdlock") | callers("pthread_spin_lock")


def test_no_file_is_opened() -> None:
    found = defaultdict(set)
    for function in ("open", "openat", "fopen", "opendir"):
        for name in callers(function):
            found[name].add(function)
    assert not found
