"""The workers' process dies by a signal while programs have protocols pushed onto their connections. What is at rest
goes on, and a PDU that has come in part with its next byte; no byte is wrong (PROTOCOL.md, "Crash";
dpu_proxy/native/pushed/pushed_kept.h)."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from beds import process_tree
from beds.crashes import KINDS, SIGNALS, Crashing, Kept, crashing
from beds.noise import Noise
from beds.operated_proxy import wait
from beds.pushed_talks import PUSHED, SMALL, TABLES, Talk, body

#: What is not between two PDUs is written down some milliseconds later (KEPT_LATER_MS of pushed_kept.c).
LATER_S = 0.05
#: What goes on. With keys it does not: TLS alone is test_crash_under_tls.py.
KEPT = {name: pushed for name, pushed in PUSHED.items() if not pushed.tls}


@contextmanager
def talks(kind: str, names: list[str]) -> Iterator[tuple[Crashing, dict[str, Talk]]]:
    with crashing(kind, more=TABLES) as bed, ExitStack() as stack:
        made = {f"{name} {number}": Talk(bed.place, PUSHED[name], stack) for number, name in enumerate(names)}
        yield bed, made


def comes(talk: Talk, number: int) -> None:
    """A PDU from the peer, of which the program has had the first half or nothing."""
    talk.peer.sendall(talk.pushed.wire(body(number, SMALL)))
    assert talk.does("recv", 1) == [talk.pushed.made(body(number, SMALL)).hex()]


def goes(talk: Talk, number: int) -> None:
    before = talk.pushed.read(bytes(talk.got))
    assert talk.does("send", body(number, SMALL).hex()) == "sent"
    sent = talk.pushed.read(talk.pushed.wire(body(number, SMALL)))
    talk.receive(len(before) + len(sent))
    assert talk.pushed.read(bytes(talk.got)) == before + sent


def settle(bed: Crashing) -> None:
    """Returns when the workers have written down what is at rest."""
    time.sleep(LATER_S)
    bed.status()


def torn(bed: Crashing) -> int:
    return sum(worker["torn"] for worker in bed.status()["workers"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_at_rest_goes_on(kind: str, crashes: int = 3) -> None:
    """Before anything was carried, and after that; in a program that sleeps, too."""
    with talks(kind, list(KEPT)) as (bed, made):
        for number in range(crashes):
            settle(bed)
            bed.crash(SIGNALS[number % 2])
            for talk in made.values():
                comes(talk, 2 * number)
                goes(talk, 2 * number + 1)
            assert torn(bed) == 0


def test_what_is_between_two_pdus_is_written_down_at_once() -> None:
    """So that a worker need not come back to it: that would have a timer for each PDU."""
    with talks("shm", [name for name in KEPT if name != "GRPC"]) as (bed, made):
        for number, talk in enumerate(made.values()):
            comes(talk, number)
            goes(talk, number + 1)
            bed.status()  # the turn has ended
            bed.crash(signal.SIGKILL)
            comes(talk, number + 2)
        assert torn(bed) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_pdu_has_come_in_part(kind: str) -> None:
    """The part is with the program, or was read ahead: so it is of a PDU that follows another one."""
    with talks(kind, list(KEPT)) as (bed, made):
        for number in range(0, 9, 3):
            first, second, third = (body(number + index, SMALL) for index in range(3))
            for talk in made.values():
                talk.peer.sendall(talk.pushed.wire(first) + talk.pushed.wire(second)[: 50 + 300 * number // 3])
                assert talk.does("recv", 1) == [talk.pushed.made(first).hex()]
            settle(bed)
            bed.crash(SIGNALS[number % 2])
            for talk in made.values():
                talk.peer.sendall(talk.pushed.wire(second)[50 + 300 * number // 3 :] + talk.pushed.wire(third))
                assert talk.does("recv", 2) == [talk.pushed.made(one).hex() for one in (second, third)]
                goes(talk, 7)
            assert torn(bed) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_and_comes_while_they_are_dead(kind: str) -> None:
    with talks(kind, list(KEPT)) as (bed, made):
        for number in range(3):
            for talk in made.values():
                goes(talk, number)

            def meanwhile(_: int, said: int = number) -> None:
                for talk in made.values():
                    for index in range(3):
                        talk.peer.sendall(talk.pushed.wire(body(said + index, SMALL)))
                        assert talk.does("send", body(said + 3 + index, SMALL).hex()) == "sent"

            before = {name: talk.pushed.read(bytes(talk.got)) for name, talk in made.items()}
            settle(bed)
            bed.crash(signal.SIGKILL, meanwhile)
            for name, talk in made.items():
                expected = [talk.pushed.made(body(number + index, SMALL)).hex() for index in range(3)]
                assert talk.does("recv", 3) == expected
                sent = (talk.pushed.read(talk.pushed.wire(body(number + 3 + index, SMALL))) for index in range(3))
                wanted = before[name] + b"".join(sent)
                talk.receive(len(wanted))
                assert talk.pushed.read(bytes(talk.got)) == wanted
            assert torn(bed) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_process_dies_as_well(kind: str) -> None:
    """Before its hosts have claimed their connections, or while they do so."""
    with talks(kind, list(KEPT)) as (bed, made):
        for talk in made.values():
            comes(talk, 1)
            goes(talk, 2)
            process_tree.stop(talk.process.pid)
        settle(bed)
        bed.crash(SIGNALS[0])
        wait(lambda: bed.status()["proxy"]["crashes"]["sockets"] >= len(made), "the next process")
        bed.crash(SIGNALS[0])
        for talk in made.values():
            talk.process.send_signal(signal.SIGCONT)
        for talk in made.values():
            comes(talk, 3)
            goes(talk, 4)


@pytest.mark.root
def test_what_a_dead_process_has_left_is_not_believed(rounds: int = 5) -> None:
    """A connection goes on as it should, or ends. The next process does not die of it."""
    noise = Noise(33)
    with talks("shm", []) as (bed, _):
        for number in range(rounds):
            with ExitStack() as stack:
                made = [Talk(bed.place, pushed, stack) for pushed in KEPT.values()]
                for talk in made:
                    comes(talk, number)
                settle(bed)
                bed.crash(signal.SIGKILL, before=noise.write)
                for talk in made:
                    with suppress(OSError):
                        talk.peer.sendall(talk.pushed.wire(body(number, SMALL)))
                    said = talk.does("recv", 1)
                    assert said == [talk.pushed.made(body(number, SMALL)).hex()] or "ConnectionResetError" in said, said
        logged = "".join(file.read_text() for file in bed.control.parent.glob("*log*"))
        assert logged.count("xts-workers: killed by SIGKILL") == rounds, logged
        assert logged.count("xts-workers: ") == rounds, logged  # by nothing else


def echo(peer: socket.socket) -> None:
    with suppress(OSError):
        while data := peer.recv(1 << 16):
            peer.sendall(data)


def crash_under_load(kind: str, crashes: int) -> Kept:
    """Of one that has ended the reason is kept, and another one begins."""
    kept, names = Kept(), ["LENGTH_PREFIXED", "LINES"] * 4
    with crashing(kind, more=TABLES) as bed, ExitStack() as stack:

        def begun(name: str) -> Talk:
            talk = Talk(bed.place, PUSHED[name], stack)
            threading.Thread(target=echo, args=(talk.peer,), daemon=True).start()
            assert talk.does("begin") == "begun"
            return talk

        made = [begun(name) for name in names]
        for number in range(crashes):
            assert all(isinstance(talk.does("carried"), int) for talk in made)
            bed.crash(SIGNALS[number % 2])
            said = [talk.does("carried") for talk in made]
            kept.note("busy", len(said), [one for one in said if not isinstance(one, int)])
            for index, one in enumerate(said):
                if not isinstance(one, int):
                    made[index].ends()
                    made[index] = begun(names[index])
        for talk in made:
            assert talk.does("quiet") == "quiet"
    return kept


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_busy_goes_on(kind: str) -> None:
    kept = crash_under_load(kind, 6)
    assert not [end for end in kept.ended["busy"] if "wrong" in end or "hangs" in end], kept
    # Of one connection a turn had not ended when a worker that always runs was killed, and of some bytes wait for TCP.
    assert kept.share("busy") >= 0.5, kept
