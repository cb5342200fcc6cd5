"""The folders of host_lib/native are layers, and nothing outside a kind's files asks what kind a socket is."""

from __future__ import annotations

from beds.c_layers import TOP, Wing
from beds.socket_kinds import asking

HOST = Wing(
    TOP / "host_lib" / "native",
    "xts",
    [
        {"rules"},
        {"core"},
        {"waiting"},
        {"ulps"},
        {"processes"},
        {"calls"},
        {"streams"},
        {"datagrams", "listeners"},
        {"tables"},
        {"decision"},
    ],
)

#: What is used against the order. Core has the life of a socket and of a channel, and what happens there concerns what
#: is above it. A change that needs one of them no more takes it from here too.
UPWARD = {
    # Requests have replies, frames need credits: core waits for them, and wakes who waits. It has the process, too:
    # its threads, its forks, and where a call of the library begins and ends.
    ("core", "waiting"): """
        epoll_channel_opened epoll_end_turn epoll_ready mirror_arrived mirror_dirty mirrors_update progress_look
        progress_need progress_reserve progress_wake progress_will_flush
    """,
    # A fork and an exit are of the process, and a queue may go to another process of the proxy. A socket that is used
    # for the first time may be the parent's still.
    ("core", "processes"): """
        again_attached again_now again_start common_drop inherit_release next_proxy
        process_at_fork share_is_on_its_way share_wait_begins share_wait_ends sockets_lose
        turn_send_returns turn_take turn_use turn_yield_read turn_yield_some
    """,
    # Messages arrive in core, and the data in some is of a pushed protocol.
    ("core", "ulps"): "push_forget xts_ulp_error",
    # The progress thread gives connections back, and makes sockets again whose channel has ended. A connection that
    # others have too is waited for by asking for it.
    ("waiting", "processes"): """
        again_is_due again_tick common_tick inherit_take_watched key_tick share_is_away share_tick table_use_for
    """,
    # A request of a protocol is made of a connection that other processes may have.
    ("ulps", "processes"): "again_now socket_close table_use turn_use",
    # PDUs are sent and received by the parts of the calls for a byte stream.
    ("ulps", "calls"): "send_all send_wait_connected",
    # What a socket does differently from others is in the table of its kind, which one array leads to.
    ("core", "tables"): "message_handle outbox_steps socket_kinds",
    ("waiting", "tables"): "socket_kinds",
    ("processes", "tables"): "socket_kinds",
    ("calls", "tables"): "socket_kinds",
    ("listeners", "tables"): "socket_kinds",
}

#: Where a socket's kind may be asked, and on how many lines: which table it has, what the interposer is told, the
#: tables of states, the queue that its entry on the status page shows. These can only become fewer.
ASKS = {
    "core/socket_kind.h": 2,
    "core/socket_states.c": 3,
    "core/status.c": 1,
    "processes/exec.c": 1,
    "processes/pass.c": 1,
    "processes/socket_record.c": 1,
}


def test_the_folders_use_each_other_in_one_direction() -> None:
    assert HOST.upward() == {pair: set(names.split()) for pair, names in UPWARD.items()}


def test_the_kind_of_a_socket_is_asked_in_its_own_files() -> None:
    assert asking() == ASKS
