"""How programs of a test reach its proxy: by shared memory, or, with TESTS_WIRE=rdma, over RDMA through an agent.

The sockets and files are the same, and so is what programs do, so that suites written for shared memory run over RDMA
as they are (rdma_chosen.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from xts_lab.places import end

from beds.patience import SLOWER
from beds.ready import readable

WIRE_VARIABLE = "TESTS_WIRE"
#: What it names then.
RDMA = "rdma"
READY_S = 60.0 * SLOWER
STOP_S = 10.0 * SLOWER


class OverShm:
    """`keys`: of the proxy's [proxy]; `tables`: at the end of its configuration."""

    def __init__(self, endpoint: Path) -> None:
        self.keys, self.tables = f'queue = "shm"\nendpoint = "{endpoint}"\n', ""

    def start(self) -> None:
        """The proxy serves."""

    def end(self) -> None:
        """The proxy has ended. Harmless when repeated."""


class OverRdma(OverShm):
    """With an agent of its own."""

    def __init__(self, endpoint: Path) -> None:
        from beds import rdma_chosen  # what few need

        super().__init__(endpoint)
        wire, port = rdma_chosen.wire(), rdma_chosen.next_port()
        over = {"address": wire.dpu.address, "port": port, "hosts": [wire.host.address]}
        self.keys = f'queue = "rdma"\ninterface = "{wire.dpu.interface}"\n'
        self.tables = "\n".join(["", "[rdma]", *(f"{key} = {json.dumps(value)}" for key, value in over.items()), ""])
        words = ["--queue", "rdma", "--interface", wire.host.interface, "--endpoint", str(endpoint)]
        words += ["--rdma-peer", wire.dpu.address, "--rdma-port", str(port)]
        self._command, self._log = [sys.executable, "-m", "xts_agent", *words], endpoint.with_name("agent.log")
        self._agent: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ready, told = os.pipe()
        try:
            with self._log.open("ab") as log:
                words = [*self._command, "--ready-fd", str(told)]
                self._agent = subprocess.Popen(words, pass_fds=[told], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            os.close(told)
            assert readable(ready, READY_S) and os.read(ready, 64), self._log.read_text(errors="replace")
        finally:
            os.close(ready)

    def end(self) -> None:
        if self._agent:
            end(self._agent, STOP_S)
            self._agent = None


def queue_to(endpoint: Path) -> OverShm:
    """For a proxy whose programs attach there. The test is skipped where there is no RDMA, and TESTS_WIRE wants it."""
    if os.environ.get(WIRE_VARIABLE) != RDMA:
        return OverShm(endpoint)
    from beds import rdma_chosen

    if reason := rdma_chosen.missing():
        pytest.skip(reason)
    return OverRdma(endpoint)
