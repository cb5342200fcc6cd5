"""The folders of host_lib/native are layers: who uses whose functions, by the symbols of the compiled files."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BUILT = TOP / "build" / "editable" / "CMakeFiles" / "xts.dir"  # by deploy/setup --dev

#: A folder may use those before it. Of two in a line, neither the other.
LAYERS = [{"rules"}, {"core"}, {"waiting"}, {"processes", "ulps"}, {"calls"}, {"decision"}]

#: What is used against the order. Core has the life of a socket and of a channel, and what happens there concerns what
#: is above it. A change that needs one of them no more takes it from here too.
UPWARD = {
    # Requests have replies, frames need credits: core waits for them, and wakes who waits. It has the process, too: its
    # threads, its forks, and where a call of the library begins and ends.
    ("core", "waiting"): """
        wait_for wait_interruptibly wake wake_all wake_sleepers_on_queue
        bell_get bell_give_up bell_reserve bells_forget
        progress_forget progress_look progress_need progress_reserve progress_wake progress_will_flush
        epoll_channel_opened epoll_end_turn epoll_forget epoll_forget_socket epoll_orphaned epoll_ready
        epoll_unlock mirror_arrived mirror_close mirror_dirty mirror_forget mirrors_update
        signals_after_fork_child signals_after_fork_parent signals_before_fork signals_orphaned
        xts_cancellation_point xts_come_out_again xts_inside xts_run_put_off
    """,
    # A fork and an exit are of the process; a socket that is used for the first time may be the parent's still.
    ("core", "processes"): """
        common_at_exit common_before_fork common_closes common_drop common_look_soon relatives_after_fork
        relatives_begin
        inherit_after_fork inherit_after_fork_parent inherit_is_here inherit_take
        message_yield turn_channel_died turn_is_elsewhere turn_is_taken turn_parked turn_send_park turn_send_returns
        turn_begin turn_use turn_yield_some
        datagram_interest datagram_is_named datagram_leave datagram_naming datagram_send_returns datagrams_before_fork
        datagrams_leave share_before_fork share_by_key share_forget
        share_waits_elsewhere share_is_on_its_way share_offered share_wait_begins
        key_to_say key_wipe passed_leave relatives_drop_unused sharers_at_exit sharers_before_fork sharers_leave
        relatives_orphaned socket_report_gone
        again_after_fork_child again_after_fork_parent again_attached again_before_fork again_keeps again_now again_over
        again_start
    """,
    # Messages arrive in core, and the data in some is of a pushed protocol.
    ("core", "ulps"): """
        message_recv_pdu pdu_drop pdu_is_open pdu_is_readable pdu_stream_data
        push_answered push_forget push_give_back push_inherit push_window fault_forget xts_ulp_error
    """,
    # A program's callback sees a datagram, before it is queued, as a receive call would show it. A socket that ends has
    # no hints any more.
    ("core", "calls"): "datagram_controls_of datagram_stamp_of hints_forget",
    # A thread that waits for a listener shows interest in it, and the progress thread gives connections back, and makes
    # sockets again whose channel has ended. A connection that others have too is waited for by asking for it.
    ("waiting", "processes"): """
        again_is_due again_tick common_tick key_tick turn_yield_read
        inherit_take_watched listener_interest share_is_away share_tick share_wait_begins share_wait_ends
    """,
    # What is unread of PDUs goes with a connection to another process.
    ("processes", "ulps"): "pdu_consume pdu_credits pdu_restore",
    # A request of a protocol is made of a connection that other processes may have.
    ("ulps", "processes"): "again_now turn_is_elsewhere turn_take turn_use",
    # PDUs are sent and received by the parts of the calls for a byte stream.
    ("ulps", "calls"): """
        connect_socket recv_give_back recv_was_read send_account send_all send_wait_connected source_take
    """,
}


def folder_of(file: str) -> str:
    return file.partition("/")[0]


def rank(folder: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if folder in layer)


@lru_cache
def uses() -> dict[tuple[str, str], set[str]]:
    """(file that uses, file that defines) -> the names."""
    if not BUILT.is_dir() or shutil.which("nm") is None:
        pytest.skip("needs nm, and the objects of deploy/setup --dev")
    defined: dict[str, str] = {}
    wanted: dict[str, set[str]] = {}
    sources = {path.relative_to(TOP / "host_lib" / "native") for path in (TOP / "host_lib" / "native").glob("*/*.c")}
    for path in BUILT.rglob("*.c.o"):
        file = Path(path.parent.name, path.name.removesuffix(".o"))
        if file not in sources:
            continue  # of a file that has another name by now
        symbols = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout.splitlines()
        fields = [line.split()[-2:] for line in symbols]
        defined |= {name: str(file) for kind, name in fields if kind in "TDBRV"}
        wanted[str(file)] = {name for kind, name in fields if kind == "U"}
    out: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file, names in wanted.items():
        for name in names & defined.keys():
            if defined[name] != file:
                out[file, defined[name]].add(name)
    return out


def test_the_folders_use_each_other_in_one_direction() -> None:
    upward: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (user, owner), names in uses().items():
        low, high = folder_of(user), folder_of(owner)
        if low != high and rank(high) >= rank(low):
            upward[low, high] |= names
    allowed = {pair: set(names.split()) for pair, names in UPWARD.items()}
    assert upward == allowed
