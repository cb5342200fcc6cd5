"""The agent's configuration with queue = "rdma": what it needs, what has no meaning, and no device is needed to say."""

from __future__ import annotations

from typing import Any

import pytest
from xts_agent.__main__ import main
from xts_agent.config import parse
from xts_agent.rdma_pool import RdmaPool
from xts_messages.queues import rdma
from xts_messages.settings.config_mistakes import ConfigError

LEAST = 'interface = "ib0"\nqueue = "rdma"\nrdma_peer = "192.168.100.2"\n'


def mistakes(text: str, **given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f", given)
    return str(caught.value).splitlines()


def test_the_least() -> None:
    config = parse(LEAST, "f", {})
    assert config.relayed_limit(1) == 64 and config.may_relay and [one.name for one in config.each()] == ["ib0"]
    given = {"interface": ["ib0"], "queue": "rdma", "rdma_peer": "fd00::2"}
    assert [one.name for one in parse("", "", given).each()] == ["ib0"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('peer_mac = "02:00:00:00:00:01"', 'f:4:12: peer_mac: means nothing with queue = "rdma"'),
        ('reliable = "on"', "f:4:12: reliable: means nothing"),
        ('zero_copy = "on"', "f:4:13: zero_copy: means nothing"),
        ('steering = "address"', "f:4:12: steering: means nothing"),
        ("queues = 2", "f:4:10: queues: means nothing"),
        ("relayed_max = 0", "f:4:15: relayed_max: is how many processes are served"),
        ("per_uid_max = 3", "f:4:15: per_uid_max: counts queues"),
        ('pods = "/run/pods.sock"', "f:4:8: pods: cannot be served"),
        ("rdma_port = 65535\nrdma_queue = 1", "f:4:13: rdma_port: leaves no port for queue 1"),
        ("rdma_ack_timeout = 32", "f:4:20: rdma_ack_timeout: expected"),
    ],
)
def test_what_cannot_be(line: str, said: str) -> None:
    [found] = mistakes(LEAST + line + "\n")
    assert found.startswith(said), found


def test_what_is_missing() -> None:
    assert mistakes('queue = "rdma"') == [
        "f: interface and rdma_peer must be given, here or by --interface and --rdma-peer"
    ]
    [found] = mistakes('interface = "a"\nqueue = "rdma"\nrdma_peer = "the device"\n')
    assert found.startswith('f:3:13: rdma_peer: expected an address such as "192.168.100.2"'), found
    for address in ("0.0.0.0", "::", "224.0.0.1", "ff02::1"):
        [found] = mistakes(f'interface = "a"\nqueue = "rdma"\nrdma_peer = "{address}"\n')
        assert found.endswith(f'found "{address}": no proxy can be reached there'), found
    [found] = mistakes('interface = ["a", "b"]\nqueue = "rdma"\nrdma_peer = "10.0.0.1"\n')
    assert found.startswith("f:1:13: interface: expected one"), found


def test_keys_of_rdma_without_it() -> None:
    [found] = mistakes('interface = "a"\npeer_mac = "02:00:00:00:00:01"\nrdma_queue = 1\n')
    assert found == 'f:3:14: rdma_queue: means queue = "rdma", and queue is "afxdp"'
    [found] = mistakes('interface = "a"\npeer_mac = "02:00:00:00:00:01"\n', rdma_peer="10.0.0.1")
    assert found.startswith("the command line: --rdma-peer: means queue")


def test_its_queue_is_for_a_relay() -> None:
    pool = RdmaPool.of(parse(LEAST + "rdma_queue = 5\n", "f", {}))
    assert pool.take(1000) is None and pool.exhausted()
    slot = pool.take(-1, relay=True)
    assert slot and slot.queue_id == 5 and pool.admit(slot, None) == () and pool.take(-1, relay=True) is None  # type: ignore[arg-type]
    pool.release(slot)
    assert pool.take(-1, relay=True) is slot


def test_a_machine_without_what_it_takes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The start fails, and says what to install, before anything is made."""

    def missing() -> None:
        raise OSError(95, "no connections of RDMA: pyverbs is not installed (python3-pyverbs)")

    monkeypatch.setattr(rdma, "check_installed", missing)
    words = ["--interface", "ib0", "--queue", "rdma", "--rdma-peer", "10.0.0.1", "--endpoint", "/tmp/xts-none/e.sock"]
    assert main(words) != 0
    assert "pyverbs is not installed" in capsys.readouterr().err
