"""Agent and proxy whose interfaces have other XDP programs, which come and go under a transfer both ways. Needs a
kernel with libxdp's dispatcher, such as that of `tests/vm/run --suite trixie-backports`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from beds.lab import skip_without_lab
from beds.lab_processes import echo_server
from beds.other_program import OtherProgram, built, need_bpffs
from beds.transfer import TRANSFER
from xts_bpf.interface_programs import find, part
from xts_bpf.program import interface_index
from xts_lab import lab as lab_module
from xts_lab import topology
from xts_lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

BACK_S = 60.0  # the processor may be emulated
HOST, DEVICE = topology.HOST_XTS, topology.DPU_XTS
ENDS = pytest.mark.parametrize("end", [HOST, DEVICE], ids=["host", "device"])


class SharedLab(Lab):
    """Its interfaces have another program before agent and proxy start."""

    def __init__(self, name: str, program: Path) -> None:
        super().__init__(name, queue="afxdp", queues=2, relayed_max=None)
        self.program = program

    def _raise_network(self) -> None:
        super()._raise_network()
        for end in (HOST, DEVICE):
            self.attach_other(end)

    def attach_other(self, end: topology.End) -> OtherProgram:
        with self.inside(end.role):
            try:
                made = OtherProgram(self.program, interface_index(end.interface))
            except OSError as error:
                pytest.skip(f"this kernel lets nobody attach through libxdp: {error.strerror}")
            if not find(end.interface, interface_index(end.interface)).dispatched:
                pytest.skip("this kernel has no dispatcher: libxdp attaches programs alone")
            return made

    def names(self, end: topology.End) -> tuple[str, ...]:
        with self.inside(end.role):
            return find(end.interface, interface_index(end.interface)).names


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedLab]:
    skip_without_lab("afxdp")
    need_bpffs()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lab_module, "START_TIMEOUT_S", BACK_S)
        made = SharedLab(f"t{os.getpid()}shared", built(tmp_path_factory.mktemp("other")))
        made.up()
        try:
            yield made
        finally:
            sys.stderr.write(made.tail("agent", 40) + made.tail("proxy", 40))
            made.down()


@ENDS
def test_a_transfer_goes_on(lab: SharedLab, end: topology.End) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ExitStack() as stack:
        port = str(stack.enter_context(echo_server(lab)))
        command = [sys.executable, "-c", TRANSFER, port]
        program = stack.enter_context(lab.popen("host", command, text=True, **pipes))
        stack.callback(program.kill)
        assert program.stdout and program.stdout.readline() == "begun\n"
        other = lab.attach_other(end)
        assert lab.names(end) == ("xts_steer", "pass_all", "pass_all")
        with lab.inside(end.role):
            assert part(end.interface, interface_index(end.interface), other.number)
        assert lab.names(end) == ("xts_steer", "pass_all")
        assert program.communicate("\n", timeout=100)[0] == "as it was sent\n"
    assert "in place of ours" not in lab.tail("agent") + lab.tail("proxy")


@ENDS
def test_one_that_is_started_again(lab: SharedLab, end: topology.End) -> None:
    """Its program stays meanwhile, as where it is alone, and the next one's takes its place."""
    lab.stop_program("agent" if end is HOST else "proxy")
    assert lab.names(end) == ("xts_steer", "pass_all")
    (lab.start_agent if end is HOST else lab.start_proxy)()
    assert lab.names(end) == ("xts_steer", "pass_all")
    lab._cross()
