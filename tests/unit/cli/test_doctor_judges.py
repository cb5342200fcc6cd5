"""`xts doctor` says of the kernel, of tools and of interfaces what is so."""

from __future__ import annotations

import platform
import socket
from pathlib import Path

import pytest
from xts_messages.attaching.attach import OfferedQueues
from xts_messages.machine import trace_needs
from xts_messages.machine.xdp_features import BASIC, REDIRECT, RX_SEVERAL, ZERO_COPY, XdpFeatures
from xts_socket.cli.checks import Check, polling, privilege, tls
from xts_socket.cli.checks.interfaces import interface, program_fault

TCP_ESTABLISHED = 1
VETH = XdpFeatures(BASIC | REDIRECT | RX_SEVERAL)


def test_kernel_tls_is_tried_on_a_connection_that_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses it to one whose other end has closed, with the same words as where it cannot be had."""
    states = []

    def attempt(connection: socket.socket) -> Check:
        states.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0])
        return Check("kernel TLS", "ok", "available")

    monkeypatch.setattr(tls, "_attempt", attempt)
    assert [check.found for check in tls.checks()] == ["available"]
    assert states == [TCP_ESTABLISHED]


def test_kernel_tls_where_it_is_and_where_not() -> None:
    """As another connection of ours finds it."""
    (check,) = tls.checks()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, 31, b"tls")
        except FileNotFoundError:
            assert check.found.startswith("not available")
        else:
            assert (check.level, check.found) == ("ok", "available")


@pytest.mark.parametrize("there", [False, True], ids=["absent", "present"])
def test_bcc_is_judged_as_the_tools_judge_it(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers of any version serve them."""
    if there:
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        for name in (machine, "common"):
            (tmp_path / f"linux-headers-1.2.3-{name}").mkdir()
    monkeypatch.setattr(trace_needs, "SOURCES", tmp_path)
    monkeypatch.setattr(trace_needs, "MODULES", tmp_path / "none")
    monkeypatch.setattr(trace_needs, "TRACING", (tmp_path,))
    (tmp_path / "events").mkdir()
    monkeypatch.setattr(trace_needs, "lacks_bcc", lambda: "")
    monkeypatch.delenv("BCC_KERNEL_SOURCE", raising=False)
    check = privilege._bcc()
    assert (check.level == "ok") == there
    assert ("there are no kernel headers" in check.found) != there
    monkeypatch.setattr(trace_needs, "lacks_bcc", lambda: trace_needs.NO_BCC)
    assert "python3-bpfcc" in privilege._bcc().found


@pytest.mark.parametrize(
    ("attached", "fault"),
    [
        ({"x0": 7}, ""),
        ({}, ""),  # in another namespace
        ({"x0": 0}, "no XDP program, and the agent's is 7"),
        ({"x0": 8}, "XDP program 8, and the agent's is 7"),
    ],
)
def test_an_interface_without_its_program_is_not_ok(attached: dict[str, int], fault: str) -> None:
    assert program_fault(OfferedQueues("x0", 4, 0, 0, program_id=7), attached) == fault
    check = interface("x0", "", VETH, fault)
    assert check.level == ("fail" if fault else "ok")
    assert fault in check.found


def test_what_a_driver_has_is_said() -> None:
    assert "zero-copy" not in interface("x0", "", VETH).found
    assert "zero-copy of up to 17 buffers" in interface("x0", "", XdpFeatures(VETH.bits | ZERO_COPY, 17)).found
    assert interface("x0", "", XdpFeatures(BASIC | REDIRECT | ZERO_COPY)).level == "warn"
    assert interface("x0", "", XdpFeatures(0)).found == "no native XDP"


@pytest.mark.parametrize(
    ("bound", "held_ns", "level", "found"),
    [
        ("copy mode: of veth", 0, None, ""),
        ("copy mode: of veth", 50_000, "warn", "wait 50 us for a timer"),
        ("busy polling (20 us, preferred): nothing to poll, for no frame has named a NAPI", 0, "warn", "nothing"),
        ("busy polling (20 us, preferred) of NAPI 7", 0, "warn", "in the way"),
        ("busy polling (20 us, preferred) of NAPI 7", 50_000, "ok", "deferred"),
        ("busy polling (20 us, preferred) of NAPI 7; deferred by 50 us", 0, "ok", "deferred"),
        ("no busy polling: this kernel refuses it", 0, "warn", "refuses"),
    ],
)
def test_busy_polling_is_judged(bound: str, held_ns: int, level: str | None, found: str) -> None:
    check = polling.judge("x0", bound, held_ns)
    assert (check.level if check else None) == level
    assert found in (check.found if check else "")


def test_what_the_kernel_holds_back(tmp_path: Path) -> None:
    (tmp_path / "x0").mkdir()
    (tmp_path / "x0" / "gro_flush_timeout").write_text("50000\n")
    assert (polling.flush_ns("x0", tmp_path), polling.flush_ns("x1", tmp_path)) == (50_000, 0)
