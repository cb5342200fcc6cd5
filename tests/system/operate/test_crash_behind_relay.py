"""The workers' process dies, and several programs are behind one relay of the agent (PROTOCOL.md, "Crash")."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack

import pytest
from beds import process_tree
from beds.crashes import SHARES, SIGNALS, Crashing, Kept, carry, crashing, program
from beds.dialogues import echo_server, peer_address
from beds.operated_proxy import wait
from beds.ready import readable

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

KINDS = ["relay", "switch relay", "repeated relay"]

#: With frames of 1,500 bytes a channel behind a relay takes some 40,000 while nobody serves it (16 frames, and what the
#: library gathers). A send that waited for room would wait for the next process, which comes after it.
USES = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
data = b"".join(number.to_bytes(4, "big") for number in range(10_000))
sent = 0
print("made", flush=True)
for line in sys.stdin:
    if line == "send\\n":
        try:
            sent += connection.send(data[sent : sent + 2000], socket.MSG_DONTWAIT)
        except BlockingIOError:
            assert sent >= 20_000, sent
    else:
        assert connection.recv(sent, socket.MSG_WAITALL) == data[:sent]
        sent = 0
    print("done", flush=True)
"""


def _behind(bed: Crashing) -> int:
    """How many channels are behind the relay."""
    return sum(bool(row["relayed"]) for row in bed.status()["channels"])


@pytest.mark.parametrize("kind", KINDS)
def test_each_goes_on_and_none_comes_back_that_has_ended(kind: str, processes: int = 6) -> None:
    """What they send while nobody serves the queue waits partly in the queue, and partly before the relay. One ends
    meanwhile."""
    with crashing(kind) as bed, echo_server(bed.place) as port, ExitStack() as stack:
        arguments = ["-c", USES, peer_address(bed.place), str(port)]
        patient = {"XTS_DEAD_MS": "20000"}  # the workers stand still for a while
        running = [stack.enter_context(bed.place.program(arguments, patient)) for _ in range(processes)]

        def say(number: int, word: str) -> None:
            process = running[number]
            assert process.stdin
            process.stdin.write(f"{word}\n")
            process.stdin.flush()

        def hear(number: int) -> str:
            process = running[number]
            assert process.stdout
            assert readable(process.stdout, 20), "it waits for ever"
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            return line

        assert [hear(number) for number in range(processes)] == ["made\n"] * processes
        assert _behind(bed) == processes
        for crashes in range(3):

            def meanwhile(_pid: int) -> None:
                for number in range(len(running)):
                    for _ in range(20):
                        say(number, "send")
                        assert hear(number) == "done\n"
                running.pop().kill()

            before = len(running)
            bed.crash(signal.SIGKILL, meanwhile)
            wait(lambda before=before: _behind(bed) == before - 1, "the end of the one that was killed")
            for number in range(len(running)):
                say(number, "receive")
                assert hear(number) == "done\n"
            assert bed.status()["proxy"]["crashes"]["count"] == crashes + 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_relay_that_ends_at_the_same_time_is_made_again(kind: str) -> None:
    """Then nobody takes what the next process has kept: it is reset, and new connections work."""
    with crashing(kind) as bed, echo_server(bed.place) as port:
        arguments = ["-c", USES, peer_address(bed.place), str(port)]
        with bed.place.program(arguments) as first:
            assert first.stdout
            assert readable(first.stdout, 20)
            agent = bed.place.lab.records()["agent"].pid
            relay = process_tree.one(agent, "xts-relay")
            bed.crash(signal.SIGKILL, lambda _pid: os.kill(relay, signal.SIGKILL))
            wait(lambda: bed.status()["proxy"]["crashes"]["count"] == 1, "the next process")
            process_tree.one(agent, "xts-relay", other_than=relay)
            with bed.place.program(arguments) as second:
                assert second.stdout
                assert readable(second.stdout, 20)
                assert second.stdout.readline() == "made\n"
            wait(lambda: _behind(bed) == 0, "an end of what nobody has")


@pytest.mark.parametrize("kind", KINDS)
def test_what_several_programs_do_goes_on(kind: str, crashes: int = 6, programs: int = 3) -> None:
    """Each channel gives its frames back in its own time, so that the trunk's have gaps."""
    kept = Kept()
    with crashing(kind) as bed, ExitStack() as stack:
        running = [stack.enter_context(program(bed.place, 5)) for _ in range(programs)]
        for on in running:
            on.does("busy")
        for number in range(crashes):
            for on in running:
                assert on.does("carried")["hangs"] == []
            bed.crash(SIGNALS[number % 2])
            for on in running:
                said = on.does("carried")
                assert said["hangs"] == []
                kept.note("busy", 8, said["busy"])
                kept.note("under way", 4, said["under way"])
        for on in running:
            on.does("quiet")
            assert on.does("use")["failures"] == []
    print(kept)
    assert not [end for ends in kept.ended.values() for end in ends if "wrong" in end], kept
    assert kept.share("busy") >= 0.97, kept
    assert kept.share("under way") >= 0.9, kept


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_crashes(kind: str) -> None:
    kept = Kept()
    with crashing(kind) as bed, program(bed.place, 20) as on:
        carry(kept, bed, on, 100)
        assert on.does("use")["failures"] == []
    sys.stdout.write(f"{kept}\n")
    assert all(kept.share(kind) >= SHARES[kind] for kind in kept.there), kept
