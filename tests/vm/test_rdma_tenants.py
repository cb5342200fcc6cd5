"""Over RDMA: tenants by users of the host, their limits, what an operator sees of them, and captures."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.patience import SLOWER
from beds.rdma_clients import CLIENT, NOBODY, Client, Echo, echoes
from beds.rdma_products import XTS, Products, products, until
from beds.rdma_wire import Wire
from unit.messages.test_dissector import TSHARK, run_tshark

LIMITED = 4711
#: Of a user of the host that the agent vouches for. Others have the tenant "default".
TENANT = f'[[tenant]]\nname = "limited"\nusers = ["{LIMITED}"]\nlimits = {{ connections = 1 }}\n'
CONNECTS = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"


@pytest.fixture
def both(wire: Wire, tmp_path: Path) -> Iterator[Products]:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o600)
    extra = f'token_key = "{key}"\n{TENANT}'
    with products(wire, proxy_extra=extra, agent_options=("--token-key", str(key))) as made:
        yield made


def connections_of(both: Products, tenant: str) -> int:
    """How many a tenant has."""
    [found] = [row for row in both.status()["tenants"] if row["tenant"] == tenant]
    return int(found["used"]["connections"])


def test_a_tenant_has_its_limit_and_others_have_theirs(both: Products, echo: Echo) -> None:
    """All are behind one queue. Who goes beyond is refused, also after an upgrade, and nobody else notices."""
    clients = [Client(both, echo, then="keep", user=user) for user in (LIMITED, NOBODY, NOBODY)]
    for client in clients:
        client.hashed()
    for turn in range(2):
        assert (connections_of(both, "limited"), connections_of(both, "default")) == (1, 2)
        more = both.run(sys.executable, "-c", CONNECTS, str(echo[0]), user=LIMITED)
        told = more.communicate(timeout=24 * SLOWER)[1]
        assert more.returncode and f"[Errno {errno.ENOBUFS}]" in told, told
        if not turn:
            both.upgrade()
    for client in clients:
        client.go_on()
        client.hashed()
        client.ends()
    until(lambda: not connections_of(both, "limited"), "that the proxy has seen it")
    after = Client(both, echo, user=LIMITED)
    after.hashed()
    after.ends()


@pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")
def test_a_capture_is_what_wireshark_reads(both: Products, echo: Echo) -> None:
    """A program's frames, as over other kinds of queues, with all that it has sent."""
    output, size = both.folder / "out.pcapng", 200_000
    words = [XTS, "capture", "--output", output, "--", XTS, "run", "--strict", "--", sys.executable, CLIENT]
    environment = os.environ | {"XTS_ENDPOINT": both.endpoint, "XTS_LOOPBACK": "1"}
    done = subprocess.run(
        [*words, str(echo[0]), str(size), "end"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60 * SLOWER,
        check=False,
    )
    assert done.returncode == 0, done.stderr + both.log_of_both()
    [capture] = both.folder.glob("out*.pcapng")
    told = run_tshark(capture, "-T", "fields", "-e", "_ws.col.Info")
    for name in ("TOKEN", "HELLO_ACK", "CONNECT_ACK", "SEND", "RECV"):
        assert f"{name} seq=" in told, told[:2000]
    assert "Malformed" not in told
    echoes(both, echo)
