"""`xts-device-plugin` as a process of its own for a test, with a kubelet and an endpoint that are stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xts_messages.attaching.attachments import Grant, NotReady, Peer, Queues
from xts_messages.attaching.endpoint import Endpoint

from beds.patience import SLOWER
from beds.ready import readable

STOP_S = 20.0 * SLOWER


class OfferingEndpoint:
    """An endpoint that says how many queues it has, in a thread. A context manager; may be opened again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.queues = [Queues("xts0", 3, 2, 0)]
        self._stop = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> OfferingEndpoint:
        self.path.parent.mkdir(exist_ok=True)
        self._stop = False
        self._endpoint = Endpoint(str(self.path), self._allocate, queues=lambda: self.queues)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        assert self._thread
        self._thread.join()
        self._endpoint.close()

    def _run(self) -> None:
        while not self._stop:
            self._endpoint.process(0.01)

    def _allocate(self, peer: Peer, epoch: int) -> Grant:
        raise NotReady


@contextmanager
def running_plugin(
    folder: Path, endpoint: Path, *options: str, await_ready: bool = True
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Starts it for the kubelet of tests/beds/kubelet.py in `folder`; yields the process and its log."""
    log = folder / "plugin.log"
    command = [sys.executable, "-m", "xts_kubernetes", "--verbose", "--log-format", "text", "--period-s", "0.05"]
    command += ["--endpoint", str(endpoint), "--kubelet-dir", str(folder)]
    command += ["--pod-resources", str(folder / "resources" / "kubelet.sock")]
    command += ["--pods-socket", str(folder / "pods" / "pods.sock"), "--pod-logs", str(folder / "logs"), *options]
    ready, write_end = os.pipe()
    try:
        with log.open("a") as output:
            process = subprocess.Popen(
                [*command, "--ready-fd", str(write_end)], pass_fds=[write_end], stderr=output, text=True
            )
    finally:
        os.close(write_end)
    try:
        if await_ready:
            assert readable(ready, STOP_S), log.read_text()
            assert os.read(ready, 200).startswith(b"ready: "), log.read_text()
        yield process, log
    finally:
        os.close(ready)
        process.terminate()
        try:
            process.wait(STOP_S)
        finally:
            process.kill()
