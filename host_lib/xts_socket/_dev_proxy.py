"""An offload proxy of one's own: a process over shared memory, for `xts dev`, `xts_socket.dev()` and pytest.

Theory of operation. The proxy is a program (`python -m xts_proxy` of this interpreter) with a configuration in memory.
Its sockets are in a directory of its own (_dev_directory.py). It ends when it is asked to, or when this process has
ended in any way: it watches a pidfd of this process. It leads a process group of its own, so that Ctrl-C in a terminal
reaches the program that uses it and not the proxy. It is a child of `xts dev`, and a grandchild of a program with
dev(), which must not find it when it waits for its own children. If the proxy is stopped (pause()) when this process
ends, its group is orphaned, so the kernel continues it, or its keeper does, and it notices the end.
"""

from __future__ import annotations

import errno
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from xts_messages.services.signal_handlers import handlers_later
from xts_messages.settings import line_origin
from xts_messages.terminal.printable import printable

from ._dev_directory import new_directory
from ._dev_environment import for_proxy
from ._grandchild import Grandchild
from ._rules import LOOPBACK_VARIABLE

_START_S = 30.0
_DRAIN_S = 10.0
_STOP_S = 5.0  # how long a proxy may take to end, in addition to its drain
_LOG_BYTES_MAX = 65536

_CONFIGURATION = """\
[proxy]
queue = "shm"
endpoint = "{directory}/endpoint.sock"
control = "{control}"
user = "{user}"
drain_timeout_s = {drain_s:.1f}
log_level = "{log_level}"
{tables}
{limits}
[[policy.rule]]
action = "allow"
network = "loopback"
"""

#: All processes are this user's, and a command may start hundreds. Unless the tables have limits of their own.
_LIMITS = "[limits]\nclients = 1024"
_HAS_LIMITS = re.compile(r"^\s*\[\s*limits\b", re.MULTILINE)


class DevProxy:
    """A proxy, from start() to stop(); both may be called again. A context manager.

    `endpoint` is where processes attach: XTS_ENDPOINT. `tables`: additional configuration (deploy/xts-proxy.toml),
    for example TLS identities; `tables_file`: the file for which mistakes in them are reported. `verbose`: its log
    goes to standard error; otherwise only exceptions show it. `hidden`: it is no child of this process
    (_grandchild.py). All methods raise OSError, with a sentence, if something cannot be done.
    """

    def __init__(
        self, tables: str = "", verbose: bool = False, tables_file: str = "tables", hidden: bool = False
    ) -> None:
        self._tables = line_origin.marked(tables, tables_file)
        self.verbose = verbose
        self._directory = Path()  # its name is a secret: it must be in no command line
        self._log = -1
        self._owner = os.getpid()
        self._hidden = hidden
        self._process: subprocess.Popen[bytes] | Grandchild | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        return str(self._directory / "endpoint.sock")

    @property
    def control(self) -> str:
        """The socket that `xts-proxy status` uses: XTS_CONTROL."""
        return str(self._directory / "proxy.sock")

    @property
    def pid(self) -> int | None:
        """Of the running proxy; None: it does not run."""
        return self._process.pid if self._process else None

    def environment(self, **extra: str) -> dict[str, str]:
        """os.environ with the endpoint, for a program whose XTS sockets shall use this proxy. Loopback is offloaded too
        (XTS_LOOPBACK): the network of this proxy is this machine's."""
        there = {name: value for name, value in os.environ.items() if name != "XTS_QUEUE"}
        ours = {"XTS_ENDPOINT": self.endpoint, "XTS_CONTROL": self.control, LOOPBACK_VARIABLE: "1"}
        return {**there, **ours, **extra}

    def start(self) -> Self:
        """Returns when the proxy serves. A proxy that was killed is started again at the same endpoint."""
        if self._process:
            return self
        if not self._directory.name:
            self._directory = new_directory()
        read_end, write_end = os.pipe()
        try:
            self._spawn(write_end)
            os.close(write_end)
            write_end = -1
            served = _readable(read_end, _START_S) and os.read(read_end, 1)
        except BaseException:
            self.kill()
            raise
        finally:
            os.close(read_end)
            if write_end >= 0:
                os.close(write_end)
        if not served:
            raise self._not_started()
        return self

    def stop(self) -> None:
        """Before that, closed connections that still have bytes for their peers may end, for 10 s. May be called again,
        and in a forked process."""
        if self.request_stop():
            assert self._process
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_DRAIN_S + _STOP_S)
        self.kill()

    def request_stop(self) -> bool:
        """Begins stop(); a second call: ends at once. False: it does not run."""
        if not self.is_ours() or not self._process or self._process.poll() is not None:
            return False
        self._process.send_signal(signal.SIGTERM)
        self.resume()
        return True

    def wait(self, timeout_s: float) -> bool:
        """Has it ended within this time?"""
        if self._process:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        return not self._process or self._process.returncode is not None

    def kill(self) -> None:
        """Ends it at once: connections are cut off. May be called again, and in a forked process."""
        if not self.is_ours():
            return
        if self._process:
            group = self._process.pid
            self._signal(signal.SIGKILL)
            self._process.wait()
            _await_end(group)
            self._process = None
        if self._directory.name:
            shutil.rmtree(self._directory.parent, ignore_errors=True)
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def pause(self) -> None:
        """When this returns, the proxy does nothing until resume(), like a device that hangs."""
        self._signal(signal.SIGSTOP)
        while self._process and not _is_stopped(self._process.pid):
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def ended(self) -> str | None:
        """How it ended by itself, with its last messages; None: it runs, or was not started."""
        if not self._process or self._process.poll() is None:
            return None
        code = self._process.returncode or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        words = self.log_text().strip().splitlines()
        return f"{how}: {words[-1]}" if words else how

    def log_text(self) -> str:
        """The end of its log; empty if `verbose`."""
        if self._log < 0:
            return ""
        size = os.fstat(self._log).st_size
        text = os.pread(self._log, _LOG_BYTES_MAX, max(0, size - _LOG_BYTES_MAX))
        return "\n".join(printable(line) for line in text.decode(errors="replace").splitlines())

    def forget(self) -> None:
        """In a forked child: the proxy belongs to the parent."""
        if isinstance(self._process, Grandchild):
            self._process.forget()
        elif self._process:
            self._process.returncode = 0  # otherwise Popen would warn about a child that is not this process's

    # --- inside ----------------------------------------------------------------------------------------

    def is_ours(self) -> bool:
        return os.getpid() == self._owner

    def _signal(self, number: signal.Signals) -> None:
        if self.is_ours() and self._process and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _spawn(self, ready_fd: int) -> None:
        if not self.verbose and self._log < 0:
            self._log = _needed("memfd_create", "3.17")("xts-dev-log")
        with ExitStack() as undo:
            until_fd = _needed("pidfd_open", "5.3")(self._owner)
            undo.callback(os.close, until_fd)
            config_fd = _needed("memfd_create", "3.17")("xts-dev-configuration")
            undo.callback(os.close, config_fd)
            Path(f"/proc/self/fd/{config_fd}").write_text(self._configuration())
            command = [sys.executable, "-P", "-m", "xts_proxy", "--config", f"/proc/self/fd/{config_fd}"]
            command += [
                "--make-dir",
                str(self._directory.parent),
                "--ready-fd",
                str(ready_fd),
                "--until-fd",
                str(until_fd),
            ]
            options: dict[str, Any] = {
                "env": for_proxy(os.environ),
                "stdin": subprocess.DEVNULL,
                "stdout": None if self.verbose else self._log,
                "stderr": None if self.verbose else self._log,
                "pass_fds": [config_fd, ready_fd, until_fd],
            }
            with handlers_later():
                if self._hidden:
                    self._process = Grandchild(command, until_fd, **options)
                else:
                    self._process = subprocess.Popen(command, process_group=0, **options)

    def _configuration(self) -> str:
        # Listeners that several processes share (SO_REUSEPORT) must belong to one user: so root's proxy stays root,
        # too.
        return _CONFIGURATION.format(
            directory=self._directory,
            control=self.control,
            user="root" if os.geteuid() == 0 else "",
            drain_s=_DRAIN_S,
            log_level="info" if self.verbose else "warning",
            tables=self._tables,
            limits="" if _HAS_LIMITS.search(self._tables) else _LIMITS,
        )

    def _not_started(self) -> OSError:
        """After a start that has failed: cleans up, and returns the reason."""
        assert self._process
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        silent = f"not ready after {_START_S:g} s" if self._process.poll() is None else "it said nothing"
        why = self.log_text().strip() or ("its log is above" if self.verbose else silent)
        if "Traceback" in why:
            why = why.splitlines()[-1]  # ImportError: libssl.so.3: …, on a machine without OpenSSL 3
        self.kill()
        return OSError(errno.ENETDOWN, f"the proxy could not be started: {why.removeprefix('xts-proxy: ')}")


def _needed(name: str, since: str) -> Callable[..., int]:
    """A system call in module os; OSError with a sentence if the kernel, or this Python, does not have it."""

    def call(*arguments: object) -> int:
        try:
            return int(getattr(os, name)(*arguments))
        except (AttributeError, OSError) as failure:
            if isinstance(failure, OSError) and failure.errno != errno.ENOSYS:
                raise
            problem = f"an offload proxy needs {name}(), of Linux {since}, which this system does not have"
            raise OSError(errno.ENOSYS, problem) from None

    return call


def _states(group: int) -> Iterator[str]:
    """Of the processes of a process group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat_text = entry.joinpath("stat").read_text()
            except OSError:
                continue
            state, _, its_group = stat_text.rpartition(")")[2].split()[:3]  # the process's name may contain anything
            if int(its_group) == group:
                yield state


def _is_stopped(group: int) -> bool:
    """Has every process of the process group stopped or ended?"""
    return all(state in "TtZX" for state in _states(group))


def _await_end(group: int) -> None:
    """Until every process of a process group that was killed has ended; not for long, should the kernel keep one."""
    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except OSError:
            return  # the usual case: none is left, not even as a zombie, and /proc need not be read
        if all(state in "ZX" for state in _states(group)):
            return
        time.sleep(0.001)


def _readable(descriptor: int, timeout_s: float) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(timeout_s * 1000))
