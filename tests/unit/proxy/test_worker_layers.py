"""The folders of dpu_proxy/native are layers, and nothing outside a kind's files asks what kind a socket is."""

from __future__ import annotations

import re

from beds.c_layers import TOP, Wing

NATIVE = TOP / "dpu_proxy" / "native"
WORKER = Wing(
    NATIVE,
    "xts_worker",
    [
        {"worker", "tenants", "keys"},
        {"ulp", "addresses"},
        {"channel"},
        {"connection"},
        {"pushed"},
        {"processes"},
        {"datagrams", "names"},
        {"turns"},
        {"loop"},
    ],
)

#: What is used against the order. A change that needs one of them no more takes it from here too.
UPWARD: dict[tuple[str, str], str] = {
    # A connection that ends leaves who else has it; a listener that is shared offers in turn.
    ("connection", "processes"): """
        held_forget held_has_news held_send_yield park_drain share_accepted_all share_drain share_end_some
        share_give_back share_gives_way share_has_news share_is_elsewhere share_leave share_listens share_offer_begins
        share_offer_ends share_shut_goes_on share_take_back_unanswered share_take_waiting share_tell share_turn
        share_turn_ends stream_join stream_may_join
    """,
    # The bytes of a connection go through the protocols that are pushed onto it.
    ("connection", "pushed"): """
        accepting_any accepting_begin accepting_drop accepting_ends accepting_has_room accepting_next peek_read
        push_with_connect_failed pushed_adopt pushed_drain pushed_event pushed_fail pushed_free pushed_has_unread
        pushed_keep_begins pushed_keep_now pushed_leave pushed_make pushed_sent_empty pushed_stays
        pushed_orphan pushed_shaking_failed pushed_start pushed_timer
    """,
    # A socket that connects is no longer shared.
    ("pushed", "processes"): """
        share_part
    """,
}

#: Where a socket's kind may be asked: where it becomes one, and the tables of states.
ASKS = {
    "connection/connection_states.c",
    "connection/connection_states.h",
    "connection/listener_kind.c",
    "pushed/pushed.c",
}
KIND = re.compile(r"CONNECTION_LISTENER|CONNECTION_DATAGRAM|->datagrams\b")


def test_the_folders_use_each_other_in_one_direction() -> None:
    assert WORKER.upward() == {pair: set(names.split()) for pair, names in UPWARD.items()}


def test_only_three_folders_form_a_circle() -> None:
    assert WORKER.circles() == [{"connection", "pushed", "processes"}]


def test_the_kind_of_a_socket_is_asked_in_its_own_files() -> None:
    asking = {
        str(path.relative_to(NATIVE))
        for path in [*NATIVE.rglob("*.c"), *NATIVE.rglob("*.h")]
        if path.relative_to(NATIVE).parts[0] != "datagrams"
        and KIND.search(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S))
    }
    assert asking == ASKS
