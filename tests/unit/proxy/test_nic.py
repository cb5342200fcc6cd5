"""xts_proxy.nic: what the back ends answer. Verbs by a recording, for no card was there; its attributes by pyverbs."""

from __future__ import annotations

import ctypes
import socket
from typing import Any

import pytest
from beds.recorded_verbs import RecordedVerbs
from xts_proxy.nic import report
from xts_proxy.nic.answer import Answer, Capability
from xts_proxy.nic.in_force import in_force
from xts_proxy.nic.kernel import Kernel
from xts_proxy.nic.verbs import ALL_BITS, ANY_ADDRESSES, NOBODY, NOT_TRIED, Verbs, VxlanSpec
from xts_proxy.nic.xdp import Xdp


def answers(verbs: Any) -> dict[Capability, Answer]:
    found = {answer.capability: answer for answer in Verbs(lambda: verbs).answers("eth0")}
    assert set(found) == set(Capability)
    return found


def test_a_card_that_does_everything() -> None:
    verbs = RecordedVerbs()
    found = answers(verbs)
    of_peers = {Capability.ACK_TIMEOUT, Capability.ESTABLISH}
    assert {capability for capability, answer in found.items() if not answer.available} == of_peers
    assert {answer.back_end for answer in found.values()} == {"verbs (mlx5_0)"}
    assert found[Capability.PACING].limit == "1 to 100000000 kbit/s"
    assert found[Capability.DEVICE_MEMORY].limit == "131072 bytes"
    assert verbs.made == ["Context", "DM", "PD", "CQ", "QP", "Flow", "Flow", "Flow"] and verbs.open == []
    assert [specs[0] for specs in verbs.specs] == [("eth", {"dst_mac": NOBODY, "dst_mac_mask": ALL_BITS})] * 3
    assert verbs.specs[0][1] == ("ipv4", {"tos": 4, "tos_mask": 0xFC})
    assert verbs.specs[1][1] == ("ipv6", ANY_ADDRESSES | {"flow_label": 1, "flow_label_mask": 0xFFFFF})
    assert isinstance(verbs.specs[2][1], VxlanSpec)


def test_a_device_without_raw_packets() -> None:
    """As rxe: "Operation not supported"."""
    verbs = RecordedVerbs(memory=0, refuses={"QP": "Failed to create QP. Errno: 95, Operation not supported\nmore"})
    found = answers(verbs)
    assert found[Capability.RAW_PACKETS].reason == "Failed to create QP. Errno: 95, Operation not supported"
    for capability in (Capability.PACING, Capability.SEGMENTATION, Capability.STEER_VNI):
        assert not found[capability].available
        assert found[capability].reason == f"needs a queue pair of raw packets; {NOT_TRIED}"
    assert found[Capability.DEVICE_MEMORY].reason == f"the device has none; {NOT_TRIED}"
    for capability in (Capability.ACK_TIMEOUT, Capability.ESTABLISH):  # nobody was there to try it with
        assert not found[capability].available and found[capability].reason.startswith(NOT_TRIED)
    assert verbs.open == [] and "Flow" not in verbs.made


def test_what_a_card_refuses() -> None:
    found = answers(RecordedVerbs(raw=False, refuses={"Flow": "no rule", "DM": "no memory"}))
    assert found[Capability.PACING].reason == "the device paces no raw packets"
    assert found[Capability.SEGMENTATION].reason == "the device segments no raw packets"
    assert found[Capability.STEER_DSCP].reason == "no rule"
    assert found[Capability.DEVICE_MEMORY] == Answer(
        Capability.DEVICE_MEMORY, False, "verbs (mlx5_0)", reason="no memory"
    )


def test_without_pyverbs_and_without_access() -> None:
    def nothing() -> Any:
        raise ImportError("No module named 'pyverbs'")

    found = list(Verbs(nothing).answers("eth0"))
    assert len(found) == len(Capability) and not any(answer.available for answer in found)
    assert all(answer.reason.endswith(NOT_TRIED) for answer in found)
    denied = answers(RecordedVerbs(refuses={"Context": "Permission denied"}))
    assert {answer.reason for answer in denied.values()} == {f"Permission denied; {NOT_TRIED}"}


@pytest.mark.parametrize("refused", ["query", "QP back", "Flow back", "DM back", "Context back"])
def test_a_device_that_goes_away_meanwhile(refused: str) -> None:
    """Removed by its driver, at any step: one answer for each capability all the same, and no error."""
    verbs = RecordedVerbs(refuses={refused: "Operation not permitted"})
    found = list(Verbs(lambda: verbs).answers("mlx5"))
    assert sorted(answer.capability for answer in found) == sorted(Capability)
    if refused == "query":
        assert {answer.reason for answer in found} == {f"Operation not permitted; {NOT_TRIED}"}
    assert verbs.open == []


def test_attributes_are_as_pyverbs_has_them() -> None:
    """What needs no device is made by pyverbs itself, so the recording cannot drift away from it."""
    spec, flow = pytest.importorskip("pyverbs.spec"), pytest.importorskip("pyverbs.flow")
    qp, device = pytest.importorskip("pyverbs.qp"), pytest.importorskip("pyverbs.device")
    attributes = flow.FlowAttr(num_of_specs=2, port=1)
    attributes.specs.append(spec.EthSpec(dst_mac=NOBODY, dst_mac_mask=ALL_BITS))
    attributes.specs.append(spec.Ipv4ExtSpec(tos=4, tos_mask=0xFC))
    assert "tos" in str(spec.Ipv4ExtSpec(tos=4, tos_mask=0xFC)).lower()
    assert spec.Ipv6Spec(**ANY_ADDRESSES, flow_label=1, flow_label_mask=0xFFFFF).size > 40  # with two addresses
    assert qp.QPInitAttr(qp_type=8, cap=qp.QPCap(max_send_wr=4, max_recv_wr=4)).qp_type == 8
    assert device.AllocDmAttr(length=64).length == 64


def test_the_specification_of_a_tunnel_is_the_kernels() -> None:
    """struct ibv_flow_spec_tunnel: type, size, padding, VNI, mask."""
    made = VxlanSpec(0x123456)
    room = ctypes.create_string_buffer(made.size)
    made._copy_data(ctypes.addressof(room))
    assert [int.from_bytes(room.raw[i : i + 4], "little") for i in (0, 8, 12)] == [0x50, 0x123456, 0xFFFFFF]
    assert int.from_bytes(room.raw[4:6], "little") == made.size == 16


def test_what_the_kernel_and_xdp_say_of_an_interface() -> None:
    found = {answer.capability: answer for answer in Kernel().answers("lo")}
    assert found[Capability.PACING].available and found[Capability.SEGMENTATION].available
    assert not found[Capability.STEER_DSCP].available and found[Capability.STEER_DSCP].reason
    missing = {answer.capability: answer for answer in Xdp().answers("no-such-one")}
    assert not any(answer.available for answer in missing.values())
    assert "no-such-one" in missing[Capability.STEER_VNI].reason


def test_a_report_of_an_interface_that_is_not_there() -> None:
    for name, said in (("no-such-one", "'no-such-one'"), ("", "''"), ("a\x1b[31m", r"'a\\x1b\[31m'")):
        with pytest.raises(OSError, match=f"there is no interface {said} here; there are "):
            report.survey([name])
    with pytest.raises(OSError, match="lo is loopback, behind which is no card; there are "):
        report.survey(["lo"])
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    assert list(report.survey([])) == names


def test_what_is_in_force_and_who_asked() -> None:
    tenant = {"tenant": "web", "pacing_bytes_s": 1_250_000, "dscp": 46}
    sock = {"local": "a", "peer": "b", "state": "datagram", "queue_id": 0, "pacing_bytes_s": 125_000}
    rule = {"match": "flow_label", "value": 255, "interface": "eth0", "worker": 1, "cpu": 3, "tenant": "web"}
    gone = rule | {"present": False, "frames": {}}
    status = {
        "tenants": [tenant, {"tenant": "default", "pacing_bytes_s": 0, "dscp": None}],
        "channels": [{"queue_id": 0, "tenant": "web"}, {"queue_id": 1, "tenant": "default"}],
        "connections": [
            sock | {"traffic_class": 46 << 2},  # its tenant's
            sock | {"queue_id": 1, "state": "established", "traffic_class": 10 << 2},
            sock | {"queue_id": 1, "pacing_bytes_s": 0, "traffic_class": 3},
        ],
        "steering": [rule | {"present": True, "frames": {"3": 7}}, gone],
    }
    assert [(one.capability, one.setting, one.back_end, one.asked_by) for one in in_force(status)] == [
        ("pacing", "10 Mbit/s", "software", "tenant web"),
        ("marking", "DSCP 46", "kernel", "tenant web"),
        ("pacing", "1 Mbit/s", "software", "socket a > b"),
        ("pacing", "1 Mbit/s", "kernel", "socket a > b"),
        ("marking", "DSCP 10", "kernel", "socket a > b"),
        ("steering by flow", "flow label 0xff on eth0 to worker 1 (CPU 3)", "XDP", "tenant web"),
        (
            "steering by flow",
            "flow label 0xff on eth0 to worker 1 (CPU 3): not in force, for the interface was removed; restart the "
            "proxy when it is back",
            "XDP",
            "tenant web",
        ),
    ]
