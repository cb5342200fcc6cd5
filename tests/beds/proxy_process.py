"""An `xts-proxy` of one's own for a test: shared memory, in a directory of its own, without privilege. With
TESTS_WIRE=rdma it is over RDMA (proxy_queue.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from xts_lab.loopback import ALLOW_LOOPBACK
from xts_lab.places import end
from xts_proxy.status.control_socket import workers_pid

from beds.patience import SLOWER
from beds.proxy_queue import queue_to
from beds.ready import readable

READY_S = 60.0 * SLOWER
STOP_S = 10.0 * SLOWER


@dataclass(frozen=True, slots=True)
class ProxyProcess:
    """A running proxy; its process and where applications attach."""

    process: subprocess.Popen[bytes]
    endpoint: str
    control: str
    log: Path

    @property
    def workers_pid(self) -> int:
        """The process that carries data."""
        return workers_pid(self.control)


@contextmanager
def running_proxy(folder: Path, extra: str = "") -> Iterator[ProxyProcess]:
    """Starts a proxy in `folder`, yields when it serves, and stops it. `extra`: more lines of its configuration."""
    endpoint, control, log = folder / "endpoint.sock", folder / "proxy.sock", folder / "proxy.log"
    config = folder / "proxy.toml"
    queue = queue_to(endpoint)
    config.write_text(
        f'[proxy]\n{queue.keys}control = "{control}"\ndrain_timeout_s = 0.0\n{extra}\n' + ALLOW_LOOPBACK + queue.tables
    )
    read_end, write_end = os.pipe()
    try:
        with log.open("ab") as log_file:
            process = subprocess.Popen(
                [sys.executable, "-m", "xts_proxy", "--config", str(config), "--ready-fd", str(write_end)],
                pass_fds=[write_end],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
            )
    finally:
        os.close(write_end)
    try:
        _wait_ready(read_end, process, log)
        queue.start()
        yield ProxyProcess(process, str(endpoint), str(control), log)
    finally:
        os.close(read_end)
        queue.end()
        end(process, STOP_S)


def _wait_ready(read_end: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """The proxy writes a line when it serves; its end closes the pipe."""
    ready = readable(read_end, READY_S)
    if not ready or not os.read(read_end, 64):
        state = f"exit status {process.wait(STOP_S)}" if ready else f"not ready after {READY_S} s"
        raise RuntimeError(f"xts-proxy: {state}\n{log.read_text(errors='replace')}")
