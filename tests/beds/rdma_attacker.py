"""A peer of an RDMA queue that keeps to no rule: a queue pair of pyverbs, with any request that verbs have."""

from __future__ import annotations

import errno
import time
from contextlib import AbstractContextManager
from typing import Any

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR
from xts_messages._native import ffi
from xts_messages.queues.rdma_cm import Options, connect

from beds.rdma import PATIENCE_S, Device

NUMBERS = ("dest_qp_num", "rq_psn", "sq_psn", "path_mtu", "max_rd_atomic", "max_dest_rd_atomic", "min_rnr_timer")
NUMBERS += ("timeout", "retry_cnt", "rnr_retry", "port_num", "pkey_index")


class Attacker(AbstractContextManager["Attacker"]):
    """Connected to an end that somebody accepts for: start that before."""

    def __init__(self, device: Device, service: int) -> None:
        self.context = Context(name=device.name)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.memory = MR(self.pd, 1 << 20, e.IBV_ACCESS_LOCAL_WRITE)
        cap = QPCap(max_send_wr=64, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))
        self.connection = connect(device.address, service, self.qp.qp_num, self._step, Options())

    def _step(self, data: bytes) -> None:
        step = ffi.from_buffer("struct xts_rdma_step *", data)
        attributes = QPAttr(qp_state=int(step.state))
        for name in NUMBERS:
            setattr(attributes, name, int(getattr(step, name)))
        attributes.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
        if step.mask & e.IBV_QP_MAX_QP_RD_ATOMIC:
            attributes.max_rd_atomic = 1  # whatever was agreed
        if step.is_global:
            groups = bytes(step.dgid).hex()
            dgid = ":".join(groups[i : i + 4] for i in range(0, 32, 4))
            route = GlobalRoute(dgid=GID(dgid), sgid_index=int(step.sgid_index), hop_limit=int(step.hop_limit))
            attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=int(step.port_num))
        if step.mask:
            self.qp.modify(attributes, int(step.mask))

    def post(
        self, opcode: int, length: int, *, flags: int = 0, to: tuple[int, int] | None = None, imm: int = 0
    ) -> None:
        """A request of so many bytes. `to`: the peer's key and address."""
        part = SGE(self.memory.buf, length, self.memory.lkey)
        request = SendWR(opcode=opcode, num_sge=1, sg=[part], imm_data=imm)
        request.send_flags = flags | e.IBV_SEND_SIGNALED
        if to:
            request.set_wr_rdma(*to)
        self.qp.post_send(request)

    def outcome(self) -> int:
        """How the oldest request that has not told has ended: IBV_WC_*."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            count, done = self.cq.poll(1)
            if count:
                return int(done[0].status)
        raise TimeoutError(errno.ETIMEDOUT, "a request of the attacker has not ended")

    def __exit__(self, *_: Any) -> None:
        self.connection.close()
        for one in (self.qp, self.memory, self.cq, self.pd, self.context):
            one.close()
