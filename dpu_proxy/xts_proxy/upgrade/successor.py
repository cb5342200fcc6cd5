"""A new proxy in the unit of the running one: `xts-proxy reload`, run by systemd, when root has asked for an upgrade
(in_service.py).

Theory of operation. systemd ends a unit whose main process dies by a signal, also when another one is named at once. So
during the hand-over neither proxy is the main process, and either may die. A third one is: the *usher*. It is made by
the command of the reload, which waits for it. It makes the new proxy, and then hears words of that one, and sees the
end of both. It reads nothing of hosts, peers or files. At the end it tells systemd who the main process is from now on
(MAINPID, sd_notify(3)): the new proxy if it has everything, or the old one if the new one has ended before. Both usher
and new proxy are children of systemd, which so learns of their ends as of any main process's.

The proxies' signs of life do not reach systemd meanwhile. The usher gives them: until the new one says that it begins,
by itself, and from then on only when the new one has given one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from xts_messages.services.service_manager import ServiceManager

from xts_proxy.supervisor import sandbox
from xts_proxy.upgrade.in_service import Begin, Outcome, meeting_place, peer_of

_BYTES_MAX = 4096
_REASON_BYTES_MAX = 500
_BEGINS, _ALIVE, _DONE, _FAILED, _MAIN = b"begins", b"alive", b"done", b"failed: ", b"main"
#: How often the usher gives a sign of life by itself.
_ALIVE_S = 1.0
_TIMEOUT_S = 30.0


def invitation(control: str) -> socket.socket | None:
    """The connection to the process of root's that asks for an upgrade; None: there is none."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.connect(meeting_place(control))
        if peer_of(sock)[1] != 0:
            raise PermissionError(errno.EPERM, "who asks for an upgrade is not root")
    except OSError:
        sock.close()
        return None
    return sock


def begin(root: socket.socket, manager: ServiceManager, old_pid: int, command: Sequence[str]) -> str:
    """Has `command` take over, with more arguments for two descriptors. Returns why the old one goes on, "": the new
    one has everything. The process is then the unit's control process still. OSError."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the unit is stopped, which is no failure of ours
    said, granted = _invited(root)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        usher_pid = _fork(lambda: _be_usher(Usher(manager, old_pid, said.watchdog_us, root), theirs, granted, command))
        theirs.close()
        os.close(granted)
        _set_main(manager, usher_pid)  # which only the control process and the main process may say
        ours.send(_MAIN)
        return ours.recv(_BYTES_MAX).decode(errors="replace").strip()


def _be_usher(usher: Usher, control: socket.socket, granted: int, command: Sequence[str]) -> None:
    sandbox.set_name("xts-usher")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, usher.on_stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if control.recv(16) != _MAIN:
        return
    error = usher.run(granted, command)
    with suppress(OSError):
        usher.root.send(msgspec.json.encode(Outcome(error)))
    with suppress(OSError):
        control.send((error or " ").encode())
    if error and not usher.stopping and not usher.old.alive:
        os._exit(1)


def _invited(root: socket.socket) -> tuple[Begin, int]:
    """OSError: it is not what root's process says."""
    root.settimeout(_TIMEOUT_S)
    data, came, _, _ = socket.recv_fds(root, _BYTES_MAX, 4)
    try:
        said = msgspec.json.decode(data, type=Begin)
        [granted] = came
    except (msgspec.MsgspecError, ValueError):
        for fd in came:
            os.close(fd)
        raise OSError(errno.EPROTO, "root's process has not begun the upgrade") from None
    return said, granted


def _fork(run: Callable[[], None]) -> int:
    """The number of a process that is no child of ours: its parent ends at once, and systemd becomes it."""
    ours, theirs = socket.socketpair()
    between = os.fork()
    if between == 0:
        status = 1
        try:
            new = os.fork()
            if new:
                theirs.send(new.to_bytes(8, "little"))
            else:
                theirs.recv(1)  # until systemd is our parent
                ours.close()
                theirs.close()
                run()
            status = 0
        except Exception as error:
            os.write(2, f"xts-proxy: upgrade: {error}\n".encode())
        finally:
            os._exit(status)
    with ours, theirs:
        os.waitpid(between, 0)
        number = int.from_bytes(ours.recv(8), "little")
        ours.send(b"\0")
    return number


def _set_main(manager: ServiceManager, pid: int) -> None:
    manager.notify(f"MAINPID={pid}")
    manager.wait_until_taken()


class _Process:
    """The running proxy, which is no child of ours."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError:
            self._pidfd = -1

    @property
    def alive(self) -> bool:
        return self._pidfd >= 0 and not select.select([self._pidfd], [], [], 0)[0]

    def wait(self) -> None:
        """Until it has ended."""
        if self._pidfd >= 0:
            select.select([self._pidfd], [], [])


class Usher:
    """What the main process does during the hand-over."""

    def __init__(self, manager: ServiceManager, old_pid: int, watchdog_us: int, root: socket.socket) -> None:
        self.root = root
        self.old = _Process(old_pid)
        self._manager = manager
        self._watchdog_us = watchdog_us
        self.stopping = False

    def on_stop(self, *_: object) -> None:
        """systemd stops the unit: both proxies hear it, too, and it waits for us."""
        self.stopping = True

    def run(self, granted: int, command: Sequence[str]) -> str:
        """Returns why the old one goes on; "": the new one has everything, and is the main process."""
        told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = [*command, f"--granted-fd={granted}", f"--teller-fd={theirs.fileno()}"]
        environment = dict(os.environ, NOTIFY_SOCKET=self._manager.address)
        if self._watchdog_us:
            environment["WATCHDOG_USEC"] = str(self._watchdog_us)

        def become_new() -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            for fd in (granted, theirs.fileno()):
                os.set_inheritable(fd, True)
            os.execve(arguments[0], arguments, environment)

        with told:
            new_pid = _fork(become_new)
            theirs.close()
            os.close(granted)
            error = self._heard(told, new_pid)
        if self.stopping:
            self.old.wait()
        return error

    def _heard(self, told: socket.socket, new_pid: int) -> str:
        has_begun = False
        while True:
            if not has_begun:
                self._manager.notify("WATCHDOG=1")
            if not select.select([told], [], [], _ALIVE_S)[0]:
                continue
            said = told.recv(_BYTES_MAX)
            if said in (_BEGINS, _ALIVE):
                has_begun = True
                self._manager.notify("WATCHDOG=1")
            elif said == _DONE:
                _set_main(self._manager, new_pid)
                with suppress(OSError):
                    told.send(_MAIN)
                return ""
            else:
                if self.old.alive and not self.stopping:
                    _set_main(self._manager, self.old.pid)
                reason = said.removeprefix(_FAILED).decode(errors="replace") if said.startswith(_FAILED) else ""
                return f"the new proxy has ended: {reason or 'see the log'}"


def this_command() -> list[str]:
    """What starts this program, with what its files are now."""
    program = os.path.realpath(sys.argv[0])
    return [program] if os.access(program, os.X_OK) else [sys.executable, "-m", "xts_proxy"]


class SystemdTeller:
    """The new proxy's end of its connection to the usher."""

    def __init__(self, fd: int) -> None:
        self._sock = socket.socket(fileno=fd)
        os.set_inheritable(fd, False)
        self._sock.setblocking(False)

    def begins(self) -> None:
        """Our workers run."""
        self._say(_BEGINS)

    def alive(self) -> None:
        """They still do."""
        self._say(_ALIVE)

    async def done(self) -> None:
        """We have everything; returns when systemd knows that this is the main process."""
        self._say(_DONE)
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._sock, 16), _TIMEOUT_S)
        self._sock.close()

    def failed(self, reason: str) -> None:
        """We end."""
        self._say(_FAILED + reason.encode()[:_REASON_BYTES_MAX])
        self._sock.close()

    def _say(self, what: bytes) -> None:
        with suppress(OSError):  # the usher is gone, or we were done
            self._sock.send(what)
