"""What happens around a new proxy in the unit of the running one: whom root's process gives the connection to, and what
the usher tells systemd (in_service.py, successor.py). A stand-in hears what systemd would."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from beds.ready import readable
from beds.service_manager import Manager
from xts_proxy.upgrade import in_service, successor
from xts_proxy.upgrade.in_service import Begin, Meeting, Outcome, Service

RELOAD = """
import socket, sys
from xts_messages.services.service_manager import manager
from xts_proxy.upgrade import successor
root = socket.socket(fileno=int(sys.argv[1]))
sys.exit(bool(successor.begin(root, manager(), int(sys.argv[2]), [sys.executable, "-c", sys.argv[3]])))
"""
NEW = """
import asyncio, os, select, sys
from xts_proxy.upgrade.successor import SystemdTeller
granted, told = (int(argument.split("=")[1]) for argument in sys.argv[-2:])
teller = SystemdTeller(told)
os.write(granted, str(os.getpid()).encode())
"""
#: The running proxy has ended when the new one goes on: kill() only asks for that.
ENDS_THE_OLD = "old = os.pidfd_open({0})\nos.kill({0}, 9)\nselect.select([old], [], [])\n"
HAS_EVERYTHING = "teller.begins()\nteller.alive()\nasyncio.run(teller.done())"
TIMEOUT_S = 60  # two interpreters start one after the other, and took 8 s where four programs shared a core


@contextmanager
def running_proxy() -> Iterator[int]:
    """Its process number."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def ushered(old_pid: int, then: str) -> tuple[Outcome, int, list[int], list[str]]:
    """A new proxy that does this: the outcome for root, its number, the numbers of the main processes in their order,
    and all that systemd hears."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    running, granted = socket.socketpair()
    with Manager() as manager, ours, theirs, running, granted:
        socket.send_fds(ours, [msgspec.json.encode(Begin(2_000_000))], [granted.fileno()])
        granted.close()
        command = [sys.executable, "-c", RELOAD, str(theirs.fileno()), str(old_pid), NEW + then]
        environment = os.environ | {"NOTIFY_SOCKET": manager.path}
        done = subprocess.run(command, pass_fds=[theirs.fileno()], env=environment, timeout=TIMEOUT_S, check=False)
        theirs.close()
        running.settimeout(TIMEOUT_S)
        new_pid = int(running.recv(20))
        ours.settimeout(TIMEOUT_S)
        outcome = msgspec.json.decode(ours.recv(4096), type=Outcome)
        assert done.returncode == bool(outcome.error)
        heard = list(manager.heard)
    mains = [int(said.removeprefix("MAINPID=")) for said in heard if said.startswith("MAINPID=")]
    return outcome, new_pid, mains, heard


def test_the_new_proxy_has_everything() -> None:
    with running_proxy() as old:
        outcome, new, mains, heard = ushered(old, HAS_EVERYTHING)
    assert outcome == Outcome("")
    assert len(mains) == 2 and mains[0] not in (old, new) and mains[1] == new
    assert heard.count("WATCHDOG=1") >= 2


def test_the_new_proxy_ends_and_the_old_one_is_the_main_process_again() -> None:
    with running_proxy() as old:
        outcome, new, mains, _ = ushered(old, "teller.begins()\nos.kill(os.getpid(), 9)")
    assert outcome == Outcome("the new proxy has ended: see the log")
    assert mains[1:] == [old] and mains[0] not in (old, new)


def test_the_reason_reaches_root() -> None:
    with running_proxy() as old:
        outcome, *_ = ushered(old, "teller.failed('no room')")
    assert outcome == Outcome("the new proxy has ended: no room")


def test_the_old_proxy_ends_meanwhile() -> None:
    with running_proxy() as old:
        outcome, new, mains, _ = ushered(old, ENDS_THE_OLD.format(old) + HAS_EVERYTHING)
    assert outcome == Outcome("") and mains[1:] == [new]


def test_both_end() -> None:
    """Nobody is the main process then but the usher, which ends: systemd starts the unit again."""
    with running_proxy() as old:
        outcome, _, mains, _ = ushered(old, ENDS_THE_OLD.format(old))
    assert outcome.error and len(mains) == 1


# --- whom root's process gives the connection to ----------------------------------------------------


@pytest.mark.parametrize("is_control", [False, True])
def test_only_the_control_process_gets_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_control: bool
) -> None:
    """Whoever comes has the user of the unit, as a worker has; systemd knows whom it has started."""
    properties = {"ControlPID": str(os.getpid() if is_control else 1), "WatchdogUSec": "1min 10s"}
    monkeypatch.setattr(in_service, "_property", lambda _, name: properties[name])
    control = str(tmp_path / "proxy.sock")
    ours, granted = socket.socketpair()
    with Meeting(control, os.geteuid()) as meeting, ours, granted:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as come:
            come.connect(in_service.meeting_place(control))
            if is_control:
                come.send(msgspec.json.encode(Outcome("no room")))
            with subprocess.Popen(["sleep", "1"], stderr=subprocess.PIPE, text=True) as asking:
                outcome = in_service._met(Service("xts.service", 2, 0), meeting, granted, asking)
            data, came, *_ = socket.recv_fds(come, 4096, 4)
        for fd in came:
            os.close(fd)
        assert bool(came) is is_control
        assert data == (msgspec.json.encode(Begin(70_000_000)) if is_control else b"")
        assert outcome.error == "no room" if is_control else "started no new proxy" in outcome.error
    assert not Path(in_service.meeting_place(control)).exists()


IMPOSTOR = """
import os, socket, sys
os.setuid(65534)
made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
made.bind(sys.argv[1])
made.listen()
print("up", flush=True)
sys.stdin.read()
"""


@pytest.mark.root
def test_an_invitation_is_roots() -> None:
    """Another user listens where root's process would: nothing is begun."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        control = f"{folder}/proxy.sock"
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", IMPOSTOR, in_service.meeting_place(control)]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
            assert other.stdout and other.stdout.readline() == "up\n"
            Path(in_service.meeting_place(control)).chmod(0o666)
            assert successor.invitation(control) is None
            other.communicate("")
        with Meeting(control, 0) as meeting, successor.invitation(control) or pytest.fail("root's is none") as come:
            assert not readable(come)
            found = meeting.accept(1.0)
            assert found and in_service.peer_of(found)[0] == os.getpid()
            found.close()
