"""iperf3 and sockperf, each way: they check themselves that everything sent has arrived."""

from __future__ import annotations

import itertools
import json

import pytest
from beds.real_programs import NET4, Bed, need, wait_until

pytestmark = [pytest.mark.root]

BYTES = "96M"
PORTS = itertools.count(9111)  # below those the kernel chooses: 11112 was once a connection's


@pytest.mark.parametrize("streams", [1, 8])
@pytest.mark.parametrize("reverse", [False, True], ids=["towards server", "towards client"])
@pytest.mark.parametrize("role", ["host", "net"])
def test_iperf3(bed: Bed, role: str, reverse: bool, streams: int) -> None:
    """The client is on `role`, the server on the other side."""
    need("iperf3")
    server_role, address = ("net", NET4) if role == "host" else ("host", bed.here4)
    with bed.program(server_role, "iperf3", "-s", "-1", "--forceflush", name="iperf3-server") as server:
        log = bed.folder / "iperf3-server.log"  # it serves one client: no probing of its port
        wait_until(lambda: "listening" in log.read_text(errors="replace"), "iperf3 to listen")
        options = ["-R"] if reverse else []
        output = bed.run(role, "iperf3", "-J", "-n", BYTES, "-P", str(streams), "-c", address, *options)
        server.wait(10)
    end = json.loads(output)["end"]
    sent, received = end["sum_sent"]["bytes"], end["sum_received"]["bytes"]
    assert received > 1_000_000, end
    assert received <= sent + streams * 2_000_000


@pytest.mark.parametrize(
    "mode",
    [
        "ping-pong",
        pytest.param("under-load", marks=pytest.mark.long),
        pytest.param("throughput", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("role", ["host", "net"])
def test_sockperf(bed: Bed, role: str, mode: str) -> None:
    """The client is on `role`."""
    need("sockperf")
    server_role, address = ("net", NET4) if role == "host" else ("host", bed.here4)
    port = str(next(PORTS))  # it does not set SO_REUSEADDR
    with bed.program(server_role, "sockperf", "server", "--tcp", "-p", port, name="sockperf-server") as server:
        bed.wait_for_port("net", address, int(port), server)
        options = {"under-load": ["--mps", "1000", "--reply-every", "5"], "throughput": ["-m", "1024"]}.get(mode, [])
        output = bed.run(role, "sockperf", mode, "--tcp", "-i", address, "-p", port, "-t", "1", *options, timeout=30)
    assert "errors" not in output.lower() or "0 errors" in output.lower(), output
    if mode == "throughput":
        assert bed.number(r"BandWidth is ([\d.]+) MBps", output) > 1
    else:
        assert bed.number(r"# dropped messages = (\d+)", output) == 0, output
        assert bed.number(r"\[Valid Duration\].*ReceivedMessages=(\d+)", output) > 10
