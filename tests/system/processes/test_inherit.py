"""Sockets that are kept over fork and exec: shared listeners, connections that move to the process that uses them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.authority import Authority, tls_tables
from beds.lab import raise_or_skip
from beds.script_outcomes import Outcomes
from beds.scripts import RUN_S
from beds.shm_proxy import SYSTEM, ShmProxy, library
from system.processes.programs.inherit_scripts import KERNEL, SCRIPTS
from xts_lab import topology

PROGRAM = "processes/programs/inherit_scripts.py"
PEERS = "198.18.0.2"

#: Those about connections by turns: each process has a queue of its own there.
ON_AFXDP = [
    "a_thread_of_the_parent_is_reading",
    "a_thread_sends_while_another_waits_for_the_connection",
    "all_is_waited_for_between_turns",
    "exits_between_parent_and_grandchild",
    "killed_child",
    "killed_parent",
    "killed_with_unread_data",
    "nobody_receives_it",
    "one_polls_while_the_other_sends_all_the_time",
    "one_reads_and_the_other_sends",
    "one_receives_while_the_other_sends_all_the_time",
    "parent_and_child_alternate",
    "passed_and_closed",
    "passed_and_kept",
    "passed_on_and_back",
    "several_send_at_the_same_time",
    "stopped_holder",
    "two_children_use_it",
    "two_wait_for_data",
    "window_full_at_the_move",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the proxy's identity "localhost" is, and whom it trusts."""
    return tmp_path_factory.mktemp("proxy")


@pytest.fixture(scope="module")
def proxy(folder: Path, xts_authority: Authority) -> Iterator[ShmProxy]:
    with ShmProxy(folder, tls_tables(folder, xts_authority)) as made:
        yield made


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, proxy: ShmProxy, folder: Path) -> Outcomes:
    return Outcomes(request, lambda names, _: proxy.run(PROGRAM, library(), names, TLS_FOLDER=str(folder)))


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_program(name: str, outcomes: Outcomes) -> None:
    outcomes.check("test_program", name)


#: All of them are as on the kernel.
AS_THE_KERNEL = sorted(name for name in SCRIPTS if "datagrams" in name or "shut" in name or "status" in name)


@pytest.fixture(scope="module")
def on_the_kernel(request: pytest.FixtureRequest) -> Outcomes:
    def run(names: str, _: str) -> bytes:
        command = [sys.executable, str(SYSTEM / PROGRAM), KERNEL, names]
        return subprocess.run(command, check=True, timeout=RUN_S, stdout=subprocess.PIPE).stdout

    return Outcomes(request, run)


@pytest.mark.parametrize("name", AS_THE_KERNEL)
def test_the_kernel_does_the_same(name: str, on_the_kernel: Outcomes) -> None:
    on_the_kernel.check("test_the_kernel_does_the_same", name)


@pytest.fixture(scope="module")
def on_afxdp(request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    lab = raise_or_skip("afxdp", "inherit")

    def run(names: str, _: str) -> str:
        peers = f"{topology.namespace_of(lab.name, 'net')} {PEERS}"
        command = [sys.executable, str(SYSTEM / PROGRAM), library(), names]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with lab.popen("host", command, environment={"INHERIT_PEERS": peers}, **pipes) as process:
            output, said = process.communicate(timeout=RUN_S)
        assert process.returncode == 0, said
        return str(output)

    yield Outcomes(request, run)
    lab.down()


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("name", [*ON_AFXDP, *AS_THE_KERNEL])
def test_on_afxdp(name: str, on_afxdp: Outcomes) -> None:
    on_afxdp.check("test_on_afxdp", name)
