"""`xts-proxy upgrade` where the running proxy is a service of systemd: root's side. The other one is in successor.py.

Theory of operation. The new proxy has to be a process of the same unit, with all that the unit gives and forbids, and
only systemd can start one there: as the command of a reload (ExecReload). This process, which root has started, asks
the running proxy for the hand-over, and gets a connection. It listens at a socket of its own next to the control
socket, and has systemd reload the unit. `xts-proxy reload`, which systemd runs as the unit's user, finds that socket.
It gets the connection if systemd itself says that it is the unit's control process: being the same user is not enough.
It starts the new proxy, says how that went, and this process ends with the outcome.
"""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import struct
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from xts_messages.services.unix_listener import listen_at
from xts_messages.terminal.printable import printable

from xts_proxy.status import control_socket
from xts_proxy.upgrade.taking import ask_to_take

CREDENTIALS = struct.Struct("=iII")
#: A unit that is reloaded starts its command at once; Python takes a while to start on a busy machine.
_STARTS_S = 30.0
_LOOK_S = 0.05
_BYTES_MAX = 4096
_SYSTEMCTL_S = 20.0
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]+\.service")


class Begin(msgspec.Struct, frozen=True):
    """To the process that starts the new proxy, with the connection to the running one."""

    watchdog_us: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """From that process. `error`: why the proxy before goes on; "": the new one has everything."""

    error: str


@dataclass(frozen=True, slots=True)
class Service:
    """A running proxy that systemd has started."""

    unit: str
    pid: int
    uid: int


def meeting_place(control: str) -> str:
    """Where both sides of an upgrade meet."""
    return f"{control}.upgrade"


def service_of(control: str) -> Service | None:
    """The service that serves this control socket; None: it is none of systemd's, or none answers."""
    try:
        pid = int(control_socket.ask(control, control_socket.Question("status"))["proxy"]["pid"])
        group = Path(f"/proc/{pid}/cgroup").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # or it is not visible from here
        return None
    units = [name for line in group.splitlines() for name in line.rsplit("/", 1)[1:] if _UNIT.fullmatch(name)]
    if not units or _property(units[0], "MainPID") != str(pid):
        return None
    [uid] = [int(line.split()[2]) for line in status.splitlines() if line.startswith("Uid:")]
    return Service(units[0], pid, uid)


def _property(unit: str, name: str) -> str:
    """ "": there is no systemd, or no such unit."""
    command = ["systemctl", "show", "--value", f"--property={name}", "--", unit]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SYSTEMCTL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def upgrade(service: Service, control: str) -> str:
    """Has a new proxy take the place of the running one, in its unit. Returns what to say. OSError: the running one
    goes on, and why."""
    if os.geteuid() != 0:
        raise OSError(errno.EPERM, "only root may take over from a running proxy")
    with Meeting(control, service.uid) as meeting, ask_to_take(control) as granted:
        command = ["systemctl", "reload", "--", service.unit]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as asking:
            try:
                outcome = _met(service, meeting, granted, asking)
            finally:
                granted.close()  # who has not been met by now takes nothing
        if outcome.error:
            raise OSError(errno.ECANCELED, f"{service.unit}: {printable(outcome.error)}; the proxy before goes on")
    return f"{service.unit}: process {_property(service.unit, 'MainPID')} has taken over from {service.pid}"


def _met(service: Service, meeting: Meeting, granted: socket.socket, asking: subprocess.Popen[str]) -> Outcome:
    """The outcome that the process tells which systemd has started."""
    watchdog = _property(service.unit, "WatchdogUSec")
    deadline = time.monotonic() + _STARTS_S
    while time.monotonic() < deadline and asking.poll() is None:
        found = meeting.accept(_LOOK_S)
        if not found:
            continue
        with found:
            if str(peer_of(found)[0]) != _property(service.unit, "ControlPID"):
                continue
            begin = msgspec.json.encode(Begin(_microseconds(watchdog)))
            socket.send_fds(found, [begin], [granted.fileno()])
            granted.close()
            found.setblocking(True)
            said = found.recv(_BYTES_MAX)
        if not said:
            return Outcome("the process that was to start the new proxy has ended: see the log")
        return msgspec.json.decode(said, type=Outcome)
    complaint = asking.communicate()[1].strip() if asking.poll() is not None else ""
    return Outcome(complaint or "systemd has started no new proxy: does ExecReload of the unit say xts-proxy reload?")


def _microseconds(text: str) -> int:
    """As systemctl says it: "10s", "1min 30s", "infinity"."""
    units = {"us": 1, "ms": 1000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
    found = re.findall(r"(\d+)(us|ms|s|min|h)\b", text)
    return sum(int(count) * units[unit] for count, unit in found)


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as the kernel knows them."""
    pid, uid, _ = CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return pid, uid


class Meeting:
    """The socket where the process that systemd starts finds us. A context manager: gone at the end."""

    def __init__(self, control: str, uid: int) -> None:
        """`uid`: of the unit, whose processes can reach it."""
        self._path = Path(meeting_place(control))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listen_at(self._listener, self._path, 0o600, 4)
            os.chown(self._path, uid, -1, follow_symlinks=False)
        except OSError as error:
            self.close()
            raise OSError(error.errno, f"{self._path}: {error.strerror}") from error

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def accept(self, timeout_s: float) -> socket.socket | None:
        """Who has come; None: nobody in this time."""
        if not select.select([self._listener], [], [], timeout_s)[0]:
            return None
        return self._listener.accept()[0]

    def close(self) -> None:
        self._listener.close()
        with suppress(OSError):
            self._path.unlink()
