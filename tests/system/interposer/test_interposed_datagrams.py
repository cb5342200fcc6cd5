"""Datagram sockets under the interposer: scripts of calls go as on the kernel, and rules decide where they belong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from beds.preload import PreloadBed
from beds.scripts import RUN_S, scripts
from beds.shm_proxy import SYSTEM
from beds.stack_modes import MODES
from system.interposer.programs import datagram_scripts  # noqa: F401  adds its scripts
from system.sockets.programs.call_program import SCRIPTS

PROGRAM = str(SYSTEM / "sockets" / "programs" / "call_program.py")
OWN = str(Path(__file__).with_name("programs") / "datagram_scripts.py")
NAMES = [name for name in SCRIPTS if name.startswith("datagram")]
ALL = "use xts udp_sender *:*\nuse xts udp_receiver *:*\nuse xts udp_connect *:*\n"
Traces = dict[str, list[Any]]


#: Scripts with calls that older kernels do not have, with which the others are compared.
SINCE = {"datagram_stamps_of_some": ((6, 13), "SCM_TS_OPT_ID")}


@pytest.fixture
def known_to_kernel(request: pytest.FixtureRequest, kernel: Traces) -> str:
    """The script's name; skipped where this machine cannot do what it does without us."""
    name = str(request.param)
    if ["connect", "ENETUNREACH"] in kernel[name]:
        pytest.skip("no route for broadcasts here: of two errors the proxy, which has a policy, tells the other one")
    (major, minor), what = SINCE.get(name, ((0, 0), ""))
    release = os.uname().release
    if tuple(int(part) for part in release.split(".")[:2]) < (major, minor):
        pytest.skip(f"kernel {release}: {what} needs Linux {major}.{minor}")
    return name


@pytest.fixture(scope="module")
def kernel(bed: PreloadBed) -> Traces:
    """While the bed is there: over RDMA it has made interfaces, on which the answers to some calls depend."""
    done = subprocess.run([sys.executable, PROGRAM, "kernel", *NAMES], capture_output=True, check=True, timeout=RUN_S)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def offloaded(bed: PreloadBed) -> Traces:
    """The program's peers are its own, and offloaded, too."""
    return json.loads(bed.run([sys.executable, PROGRAM, "kernel", *NAMES], rules=ALL, strict=True).stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("known_to_kernel", NAMES, indirect=True)
def test_goes_as_on_the_kernel(known_to_kernel: str, kernel: Traces, offloaded: Traces) -> None:
    expected = kernel[known_to_kernel]
    assert not [entry for entry in expected if entry[0] == "failed"], expected
    assert offloaded[known_to_kernel] == expected


@pytest.fixture(scope="module", params=MODES)
def in_several_stacks(request: pytest.FixtureRequest, bed: PreloadBed) -> Traces:
    of = MODES[request.param]
    command = [sys.executable, PROGRAM, "kernel", *NAMES]
    done = bed.run(command, rules=of.rules(ALL, bed.proxy.endpoint), env=of.environment, strict=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("known_to_kernel", NAMES, indirect=True)
def test_goes_as_on_the_kernel_in_several_stacks(
    known_to_kernel: str, kernel: Traces, in_several_stacks: Traces
) -> None:
    assert in_several_stacks[known_to_kernel] == kernel[known_to_kernel]


@pytest.mark.parametrize("mode", MODES)
def test_all_ways_of_waiting_in_several_stacks(mode: str, bed: PreloadBed) -> None:
    of = MODES[mode]
    command = [sys.executable, OWN, "all_ways_of_waiting"]
    bed.run(command, rules=of.rules(ALL, bed.proxy.endpoint), env=of.environment, strict=True)


@pytest.mark.parametrize("name", scripts("datagrams"))
def test_offloaded(name: str, bed: PreloadBed) -> None:
    bed.run([sys.executable, OWN, name], rules=ALL, strict=True)


def test_rules_decide(bed: PreloadBed) -> None:
    rules = "use xts udp_connect *:*\nuse xts udp_sender 127.0.0.2:*\n"
    bed.run([sys.executable, OWN, "rules_decide"], rules=rules)


def test_without_rules_they_are_the_kernels(bed: PreloadBed) -> None:
    bed.run([sys.executable, OWN, "without_rules_they_are_the_kernels"], rules=None)
