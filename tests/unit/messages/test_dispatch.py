"""Every message has a function at the end that receives it, and commands the feature they belong to."""

from __future__ import annotations

import pytest
from xts_messages.generate import generate_dispatch
from xts_messages.wire import wire_table as table


@pytest.mark.parametrize(
    ("made", "sender", "function"),
    [
        (generate_dispatch.commands(), "host", "enum command_result command"),
        (generate_dispatch.replies(), "proxy", "bool message"),
    ],
)
def test_every_message_has_a_function(made: str, sender: str, function: str) -> None:
    for message in table.MESSAGES:
        expected = message.sender == sender and message.sequenced
        assert (f"\tcase {message.name}: {{" in made) == expected, message.name
        assert (f"{function}_{message.stem}(" in made) == expected, message.name


def test_features_are_known_and_of_commands() -> None:
    named = {message.stem: message.feature for message in table.MESSAGES if message.feature}
    assert named == {
        **dict.fromkeys(("share", "park", "claim"), "SHARE"),
        **dict.fromkeys(("take", "return"), "TAKE"),
        **dict.fromkeys(("send_pdu", "give_back"), "ULP"),
        **dict.fromkeys(("open_datagram", "connect_datagram", "send_datagrams"), "DATAGRAM"),
        "query_name": "NAMES",
        "cancel": "CANCEL",
        "move_ack": "MOVE",
        "resume": "RESUME",
        "shut_listener": "LISTENING",
        "return_datagrams": "RETURN_DATAGRAM",
    }
