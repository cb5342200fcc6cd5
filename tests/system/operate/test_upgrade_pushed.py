"""`xts-proxy upgrade` while programs have protocols pushed onto their connections: these go on, with a PDU that has
come in part, one that has been sent in part, and all that waits."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds.crashes import AUTHORITY, ISSUED
from beds.dialogues import dialogue
from beds.operated_proxy import PROXY, wait
from beds.operated_tls import trust
from beds.pushed_talks import PUSHED, SMALL, TABLES, Talk, body
from beds.ulp_tls import server_context
from beds.upgrades import OverSharedMemory, Upgrading, upgrading
from xts_proxy.upgrade import handover

AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", *(pytest.param(kind, marks=AFXDP) for kind in ("afxdp", "relay"))]


@contextmanager
def place_of(kind: str) -> Iterator[Upgrading]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-pushed-")))
        folder.chmod(0o755)
        (folder / "roots.pem").write_bytes(AUTHORITY.certificate)
        yield stack.enter_context(upgrading(kind, folder, TABLES + trust(folder)))


FIRST, SECOND, THIRD = (body(number, SMALL) for number in range(3))


def half_of_each(talk: Talk) -> int:
    """One PDU has come and is read, of another one a half; of what is sent TCP takes a part. Returns how many it is."""
    wire = talk.pushed.wire
    talk.peer.sendall(wire(FIRST) + wire(SECOND)[: SMALL // 2])
    assert talk.does("recv", 1) == [talk.pushed.made(FIRST).hex()]
    begun, left = talk.does("fill", talk.pushed.size)
    assert left
    return int(begun)


def the_rest(talk: Talk, begun: int) -> None:
    wire = talk.pushed.wire
    talk.peer.sendall(wire(SECOND)[SMALL // 2 :] + wire(THIRD))
    assert talk.does("recv", 2) == [talk.pushed.made(one).hex() for one in (SECOND, THIRD)]
    expected = talk.pushed.read(b"".join(wire(body(number, talk.pushed.size)) for number in range(begun)))
    reader = threading.Thread(target=talk.receive, args=(len(expected),))
    reader.start()
    assert talk.does("rest") == "sent"
    reader.join(60)
    last = talk.pushed.read(wire(body(7, SMALL)))
    assert talk.pushed.read(bytes(talk.got)) == expected
    assert talk.does("send", body(7, SMALL).hex()) == "sent"
    talk.receive(len(expected) + len(last))
    assert talk.pushed.read(bytes(talk.got)) == expected + last


@pytest.mark.parametrize("kind", KINDS)
def test_pdus_in_both_directions_are_under_way(kind: str) -> None:
    """Twice: what has been taken over is handed over, too."""
    with place_of(kind) as where, ExitStack() as stack:
        talks = {name: Talk(where.place, pushed, stack) for name, pushed in PUSHED.items()}
        begun = {name: half_of_each(talk) for name, talk in talks.items()}
        for _ in range(2):
            where.upgrade()
            assert where.status()["reset"] == 0
        for name, talk in talks.items():
            print(name, begun[name], flush=True)
            the_rest(talk, begun[name])


OLDER = [
    sys.executable,
    "-c",
    "import sys\nfrom xts_messages.wire import record_table\nrecord_table.VERSION = 1\n"
    "from xts_proxy.__main__ import main\nsys.exit(main())",
]


@pytest.mark.root
def test_the_next_proxy_is_an_older_one() -> None:
    """It knows one kind of records less: what needs it stays at the running one, which says so."""
    with place_of("shm") as where, ExitStack() as stack:
        assert isinstance(where, OverSharedMemory)
        lines = Talk(where.place, PUSHED["LINES"], stack)
        lines.peer.sendall(b"one\r")
        new, _ = where.begin(OLDER)
        stack.callback(new.wait)
        stack.callback(new.kill)
        wait(lambda: where.status().get("waits"), "a reason", 20)
        assert where.status()["waits"] == {"the next process does not know how it goes on": 1}
        lines.peer.sendall(b"\ntwo\r\n")
        assert lines.does("recv", 2) == [b"one".hex(), b"two".hex()]
        new.kill()
        wait(lambda: where.proxy_state() == "running", "end of the attempt", 20)
        assert lines.does("send", b"there".hex()) == "sent"
        assert lines.peer.recv(100) == b"there\r\n"
        where.upgrade()
        assert where.status()["reset"] == 0
        assert lines.does("send", b"and here".hex()) == "sent"
        assert lines.peer.recv(100) == b"and here\r\n"


@pytest.mark.root
def test_tls_alone_goes_to_an_older_proxy_and_back() -> None:
    with place_of("shm") as where, dialogue(where, server_context(ISSUED)) as ask:
        assert isinstance(where, OverSharedMemory)
        for program in (OLDER, PROXY):
            where.upgrade(program)
            assert where.status()["reset"] == 0
            assert ask() == "goes on"


def test_what_a_proxy_says_of_its_records() -> None:
    """One that does not say what it reads knows the first version."""
    assert handover.Ready(handover.VERSION).records.version == 1
