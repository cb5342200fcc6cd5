"""What the agent's opener reports of its interface arrives as it was said."""

from __future__ import annotations

import socket

from xts_agent.opener_protocol import InterfaceReport, receive_answer
from xts_messages.queues.afxdp import Drops

REPORT = InterfaceReport(
    generation=3,
    queues=4,
    program_id=77,
    reattached=1,
    renewed=2,
    problem="it is down",
    steered=True,
    headed=True,
    lacking=frozenset({1, 255}),
    lacking_reason="no rules",
    zero_copy=2,
    fallbacks=1,
    drops=Drops(1, 2, 3, 4, 1 << 40),
    copying="copy mode: the driver veth has no zero copy",
)


def test_a_report_arrives_whole() -> None:
    for report in (REPORT, InterfaceReport()):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            report.send(ours)
            assert receive_answer(theirs).state == report
