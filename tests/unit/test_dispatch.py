"""Every message that a host may send to a worker is carried out, under the feature it belongs to."""

from __future__ import annotations

from xts_messages import generate_dispatch, table


def test_every_command_has_a_function() -> None:
    made = generate_dispatch.header()
    for message in table.MESSAGES:
        expected = message.sender == "host" and message.sequenced
        assert (f"\tcase {message.name}: {{" in made) == expected, message.name
        assert (f"enum command_result command_{message.stem}(" in made) == expected, message.name


def test_features_are_known_and_of_commands() -> None:
    named = {message.stem: message.feature for message in table.MESSAGES if message.feature}
    assert named == {"share": "SHARE", "park": "SHARE", "claim": "SHARE", "send_pdu": "ULP", "give_back": "ULP"}
