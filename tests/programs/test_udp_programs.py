"""Real programs with UDP: iperf3, sockperf in each of its modes and with multicast, and dig with dnsmasq, each way.

The host has no network but the proxy's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from beds.real_programs import DPU4, NET4, Bed, need, wait_until

pytestmark = [pytest.mark.root]

PORT = "5353"
RULES = "default xts\n"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that offload UDP, for programs on the host."""
    rules = tmp_path / "udp.rules"
    rules.write_text(RULES)
    monkeypatch.setenv("XTS_RULES", str(rules))


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("reverse", [False, True], ids=["towards server", "towards client"])
@pytest.mark.parametrize("role", ["host", "net"])
def test_iperf3(bed: Bed, role: str, reverse: bool) -> None:
    """The client is on `role`; at a rate that loses nothing on a machine with other things to do."""
    need("iperf3")
    server_role, address = ("net", NET4) if role == "host" else ("host", bed.here4)
    with bed.program(server_role, "iperf3", "-s", "-1", "--forceflush", name="iperf3-server") as server:
        log = bed.folder / "iperf3-server.log"  # it serves one client: no probing of its port
        wait_until(lambda: "listening" in log.read_text(errors="replace"), "iperf3 to listen")
        options = ["-R"] if reverse else []
        output = bed.run(role, "iperf3", "-J", "-u", "-b", "2M", "-l", "1200", "-n", "500K", "-c", address, *options)
        server.wait(10)
    end = json.loads(output)["end"]["sum"]
    assert end["packets"] > 300
    assert end["lost_packets"] < end["packets"] / 10, end


@pytest.mark.usefixtures("environment")
def test_dig_asks_dnsmasq(bed: Bed) -> None:
    """dig is offloaded. An answer that is too long for a datagram is fetched by TCP."""
    need("dig", "dnsmasq")
    record = ",".join(["x" * 250] * 8)
    command = (
        *("dnsmasq", "--keep-in-foreground", f"--port={PORT}", "--no-resolv", "--no-hosts", "--user=root"),
        *("--conf-file=/dev/null", "--pid-file=", "--log-facility=-", "--address=/device.test/192.0.2.7"),
        f"--txt-record=long.test,{record}",
    )
    with bed.program("net", *command, name="dnsmasq") as server:
        log = bed.folder / "dnsmasq.log"
        wait_until(lambda: "started" in log.read_text(errors="replace") or server.poll(), "dnsmasq to start")
        dig = ("dig", f"@{NET4}", "-p", PORT, "+tries=2", "+time=5")
        assert bed.run("host", *dig, "+short", "device.test").strip() == "192.0.2.7"
        assert bed.run("host", *dig, "+short", "long.test", "TXT").count("x") == 2000
        asked = bed.run("host", *dig, "device.test")
        assert "(UDP)" in asked and "status: NOERROR" in asked


def messages(said: str) -> tuple[int, int]:
    """What a client of sockperf has sent and received, by its own count."""
    found = re.search(r"SentMessages=(\d+); ReceivedMessages=(\d+)", said)
    assert found, said
    return int(found[1]), int(found[2])


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("role", ["host", "net"])
def test_sockperf(bed: Bed, role: str) -> None:
    """Its client, on `role`, in all modes. In two of them a thread is asleep in recvfrom() when another sends the first
    datagram."""
    need("sockperf")
    server_role, address = ("net", NET4) if role == "host" else ("host", bed.here4)
    where = ("-i", address, "-p", "11112")
    played = bed.folder / "played.csv"
    played.write_text("".join(f"{number / 1000:.3f}, {16 + number % 100}\n" for number in range(1, 1001)))  # s, bytes
    with bed.program(server_role, "stdbuf", "-oL", "sockperf", "server", *where, name="sockperf-server"):
        log = bed.folder / "sockperf-server.log"
        wait_until(lambda: "Warmup stage" in log.read_text(errors="replace"), "sockperf to listen")
        for mode in ("ping-pong", "under-load", "playback"):
            options = ("--data-file", str(played)) if mode == "playback" else ("-t", "1", "--mps", "1000")
            every = () if mode == "ping-pong" else ("--reply-every", "1")  # the others want few answers
            sent, received = messages(bed.run(role, "sockperf", mode, *where, *options, *every))
            assert sent > 10 and received > sent * 0.9, (mode, sent, received)
        said = bed.run(role, "sockperf", "throughput", *where, "-t", "1", "--mps", "1000", "-m", "64")
        assert bed.number(r"Message Rate is (\d+)", said) > 10, said


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("role", ["host", "net"])
def test_sockperf_multicast(bed: Bed, role: str) -> None:
    """Ping-pong by a group: both ends have joined it, and both send to it. The client is on `role`."""
    need("sockperf")
    interface = {"host": DPU4 if bed.queue != "kernel" else bed.here4, "net": NET4}
    server_role = "net" if role == "host" else "host"

    def options(where: str) -> list[str]:
        return ["-i", "239.255.7.7", "-p", "11111", "--mc-rx-if", interface[where], "--mc-tx-if", interface[where]]

    with bed.program(server_role, "stdbuf", "-oL", "sockperf", "server", *options(server_role), name="sockperf-server"):
        log = bed.folder / "sockperf-server.log"
        wait_until(lambda: "Warmup stage" in log.read_text(errors="replace"), "sockperf to listen")
        said = bed.run(role, "sockperf", "ping-pong", "-t", "1", "--mps", "500", *options(role))
    sent, received = messages(said)
    assert sent > 10 and received > sent * 0.9, said  # in a second, however busy the machine is
