"""What an edge-triggered set tells of one socket, cause by cause: scripts for `random_child.py`.

The kernel wakes those who wait for certain events (data: EPOLLIN) or, at each change of state, all of them, whatever
they wait for: a FIN, a reset, any shutdown(), even one that changes nothing. An edge is what is ready when it wakes.
"""

from __future__ import annotations

import json

from system.interposer.programs.random_scripts import Script

EPOLLET = 1 << 31
MASKS = (0, 0x1, 0x2, 0x4, 0x2000, 0x2005)
LOOK: Script = [["epoll_wait", 6, 0, 16]]
REGISTERED: Script = [["epoll", 6], ["epoll_ctl", 6, 1, 0, "mask"], *LOOK]
CONNECTED: Script = [["pair", 0, 1, "127.0.0.1"], *REGISTERED]
# Slot 0 listens.
LISTENS: Script = [
    *([["socket", 0, 4, 0], ["bind", 0, "127.0.0.1", 0], ["listen", 0, 5], ["socket", 1, 4, 0], ["socket", 2, 4, 0]]),
    *REGISTERED,
]
# Slot 0 has been refused, and not been told.
REFUSED: Script = [
    *([["socket", 1, 4, 0], ["bind", 1, "127.0.0.1", 0], ["socket", 0, 4, 2048], ["connect", 0, 1]]),
    *REGISTERED,
]
# Slot 0 is connected to listener 1, and has not been told.
CONNECTING: Script = [
    *([["socket", 1, 4, 0], ["bind", 1, "127.0.0.1", 0], ["listen", 1, 5], ["socket", 0, 4, 2048], ["connect", 0, 1]]),
    *REGISTERED,
]

CAUSES: dict[str, Script] = {
    "data": [*CONNECTED, ["send", 1, 7, 0]],
    "data_again": [*CONNECTED, ["send", 1, 7, 0], *LOOK, ["send", 1, 7, 0]],
    "reading": [*CONNECTED, ["send", 1, 7, 0], *LOOK, ["recv", 0, 7, 0]],
    "fin": [*CONNECTED, ["shutdown", 1, 1]],
    "fin_after_data": [*CONNECTED, ["send", 1, 7, 0], *LOOK, ["shutdown", 1, 1]],
    "fin_after_own": [*CONNECTED, ["shutdown", 0, 1], *LOOK, ["shutdown", 1, 1]],
    "reset": [*CONNECTED, ["reset", 1]],
    "reset_after_fin": [*CONNECTED, ["shutdown", 1, 1], *LOOK, ["reset", 1]],
    "reset_and_error_read": [*CONNECTED, ["reset", 1], *LOOK, ["get", 0, "SO_ERROR", 4]],
    "reset_and_sent_to": [*CONNECTED, ["reset", 1], *LOOK, ["get", 0, "SO_ERROR", 4], ["send", 0, 1, 0]],
    "shutdown_write": [*CONNECTED, ["shutdown", 0, 1]],
    "shutdown_write_again": [*CONNECTED, ["shutdown", 0, 1], *LOOK, ["shutdown", 0, 1]],
    "shutdown_read": [*CONNECTED, ["shutdown", 0, 0]],
    "shutdown_read_again": [*CONNECTED, ["shutdown", 0, 0], *LOOK, ["shutdown", 0, 0]],
    "shutdown_both_again": [*CONNECTED, ["shutdown", 0, 2], *LOOK, ["shutdown", 0, 2]],
    "shutdown_read_after_fin": [*CONNECTED, ["shutdown", 1, 1], *LOOK, ["shutdown", 0, 0]],
    "shutdown_both": [*CONNECTED, ["shutdown", 0, 2]],
    "shutdown_write_after_fin": [*CONNECTED, ["shutdown", 1, 1], *LOOK, ["shutdown", 0, 1]],
    "shutdown_after_both_fins": [*CONNECTED, ["shutdown", 1, 1], ["shutdown", 0, 1], *LOOK, ["shutdown", 0, 1]],
    "shutdown_after_reset": [*CONNECTED, ["reset", 1], *LOOK, ["shutdown", 0, 1]],
    "shutdown_after_reset_again": [*CONNECTED, ["reset", 1], ["shutdown", 0, 1], *LOOK, ["shutdown", 0, 1]],
    "shutdown_that_is_none": [*CONNECTED, ["shutdown", 0, 3]],
    "sending": [*CONNECTED, ["send", 0, 1000, 0], *LOOK, ["recv", 1, 1000, 0]],
    "lowat_not_reached": [*CONNECTED, ["set", 0, "SO_RCVLOWAT", [50]], ["send", 1, 7, 0], *LOOK, ["send", 1, 100, 0]],
    "lowat_set": [*CONNECTED, ["send", 1, 7, 0], *LOOK, ["set", 0, "SO_RCVLOWAT", [1]]],
    "lowat_set_above": [*CONNECTED, ["send", 1, 2, 0], *LOOK, ["set", 0, "SO_RCVLOWAT", [5]]],
    "lowat_set_after_fin": [*CONNECTED, ["shutdown", 1, 1], *LOOK, ["set", 0, "SO_RCVLOWAT", [5]]],
    "modified": [*CONNECTED, ["epoll_ctl", 6, 3, 0, "mask"]],
    "a_second_descriptor": [*CONNECTED, ["dup", 0, 3, "dup"], ["epoll_ctl", 6, 1, 3, "mask"], ["send", 1, 1, 0]],
    "a_connection_to_accept": [*LISTENS, ["connect", 1, 0]],
    "a_connection_to_accept_and_shutdown_write": [*LISTENS, ["connect", 1, 0], *LOOK, ["shutdown", 0, 1]],
    "connected_and_asked": [*CONNECTING, ["connect", 0, 1]],
    "connected_and_shut_down": [*CONNECTING, ["shutdown", 0, 1]],
    "refused_and_asked": [*REFUSED, ["connect", 0, 1]],
    "refused_and_asked_by_option": [*REFUSED, ["get", 0, "SO_ERROR", 4], *LOOK, ["connect", 0, 1]],
    "refused_and_shut_down": [*REFUSED, ["shutdown", 0, 2]],
}


def edges(cause: str) -> list[Script]:
    """The cause in a set that holds slot 0 for one mask after the other, looked at twice."""
    text = json.dumps([*CAUSES[cause], *LOOK, *LOOK])
    return [json.loads(text.replace('"mask"', str(mask | EPOLLET))) for mask in MASKS]
