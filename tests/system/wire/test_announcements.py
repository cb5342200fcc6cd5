"""Each end announces the addresses of its queues to the bridge that is between. Where there is none the other end gets
that frame, and may not know of steering: no link ends by it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from beds.lab import skip_without_lab
from beds.lab_processes import echo_server
from beds.ready import readable
from xts_lab import topology
from xts_lab.lab import Lab

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

WAIT_S = 20.0

#: Answers each line by one to and from the server.
ASKS = """
import sys
import xts_socket

with xts_socket.create_connection(("198.18.0.2", int(sys.argv[1])), timeout=10) as s:
    for line in sys.stdin:
        try:
            s.sendall(b"request")
            print(s.recv(7), flush=True)
        except OSError as error:
            print(error, flush=True)
"""

#: As this version does, and as one did before it: a message of type 0.
ANNOUNCES = """
import socket, sys
from xts_bpf import queue_addresses, program

interface, how = sys.argv[1:]
mac = program.interface_mac(interface)
if how == "now":
    addresses = queue_addresses.QueueAddresses(interface, mac, 1)
    addresses.announce(0x855B)
else:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((interface, 0))
        sender.send((bytes.fromhex("0180c200000e") + mac + bytes.fromhex("855b")).ljust(60, bytes(1)))
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A cable, and neither end has addresses of queues: so all frames but the announcement are as on veth."""
    skip_without_lab("afxdp")
    made = Lab(f"t{os.getpid()}announced", queues=1, relayed_max=0, steering="none")
    made.up()
    try:
        yield made
    finally:
        assert not made.down()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdin and process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    assert readable(process.stdout, WAIT_S)
    return process.stdout.readline()


@pytest.mark.parametrize("how", ["now", "before"])
@pytest.mark.parametrize("sender", ["dpu", "host"])
def test_an_announcement_ends_no_link(lab: Lab, sender: str, how: str) -> None:
    interface = topology.DPU_XTS.interface if sender == "dpu" else topology.HOST_XTS.interface
    with echo_server(lab) as port:
        command = [sys.executable, "-c", ASKS, str(port)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with lab.popen("host", command, **pipes) as process:
            try:
                assert says(process) == "b'request'\n"
                done = lab.run(sender, [sys.executable, "-c", ANNOUNCES, interface, how], timeout=WAIT_S)
                assert done.returncode == 0
                assert says(process) == "b'request'\n"
            finally:
                process.kill()
