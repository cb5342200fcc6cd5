"""Every script of calls goes the same way on kernel and on XTS sockets: results, errno, data, readiness."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from beds.shm_proxy import SYSTEM, ShmProxy, library
from system.sockets.programs.call_program import SCRIPTS

PROGRAM = "sockets/programs/call_program.py"
Traces = dict[str, list[Any]]


@pytest.fixture(scope="module")
def kernel() -> Traces:
    command = [sys.executable, str(SYSTEM / PROGRAM), "kernel"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=90).stdout)  # type: ignore[no-any-return]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({}, id="default"),
        pytest.param({"XTS_FRAME_WINDOW": "4", "XTS_SPIN_US": "0"}, id="4-frames-no-spin"),
    ],
)
def offloaded(request: pytest.FixtureRequest, proxy: ShmProxy) -> Traces:
    return json.loads(proxy.run(PROGRAM, library(), **request.param))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", SCRIPTS)
def test_goes_as_on_the_kernel(name: str, kernel: Traces, offloaded: Traces) -> None:
    assert not [entry for entry in kernel[name] if entry[0] == "failed"], kernel[name]
    assert offloaded[name] == kernel[name]
