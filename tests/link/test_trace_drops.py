"""The bcc tool: it needs bcc and kernel headers, and says so when they are missing."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from beds.veth_wire import Wire
from xts_bpf.device import open_device_queues
from xts_bpf.probes import TraceError
from xts_bpf.trace_drops import Tracer
from xts_messages.queues.queue_kinds import QueueOptions

pytestmark = [pytest.mark.root, pytest.mark.afxdp]


def test_an_interface_without_a_program(wire: Wire) -> None:
    with wire.inside(wire.host):
        done = subprocess.run(
            [sys.executable, "-m", "xts_bpf.trace", "drops", "--interface", wire.host_if, "--seconds", "0"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    assert "has no XDP program" in done.stderr


def test_an_empty_fill_ring_is_seen(wire: Wire) -> None:
    with (
        wire.inside(wire.device),
        open_device_queues(wire.device_if, 1, wire.host_mac, options=QueueOptions(frame_window=4)) as device,
    ):
        with (
            wire.inside(wire.host),
            open_device_queues(wire.host_if, 1, wire.device_mac, options=QueueOptions(frame_window=4)) as host,
        ):
            try:
                tracer = Tracer(device.program.program_id)
            except TraceError as error:
                pytest.skip(f"no tracing on this machine: {error}")
            sender = host.queues[0]
            frame = (wire.device_mac + wire.host_mac + b"\x85\x5b").ljust(20_000, b"t")
            deadline = time.monotonic() + 10
            while not tracer.counts() and time.monotonic() < deadline:
                try:
                    sender.send(frame)  # nobody recycles
                except BlockingIOError:
                    sender.kick()
            rows = tracer.counts()
            tracer.close()
    assert rows and {row["event"] for row in rows} == {"redirect error"}
    assert json.loads(json.dumps(rows)) == rows
