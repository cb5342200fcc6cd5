"""A stand-in for pyverbs (xts_proxy/nic/pyverbs_provider.py): one device that answers as it is told, and a record of
what it was asked to make. What needs no device, specifications and attributes, is pyverbs' own where that is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

RAW_PACKET = 8  # IBV_QPT_RAW_PACKET


class VerbsError(Exception):
    """As PyverbsError."""


class RecordedVerbs:
    """`refuses`: the errors with which things are refused, by the name of their class ("QP", "Flow", "DM"), by "query",
    and by "QP back" for what is given back. `raw`: what the device paces and segments is raw packets."""

    def __init__(self, *, memory: int = 1 << 17, raw: bool = True, refuses: dict[str, str] | None = None) -> None:
        self.made: list[str] = []
        self.open: list[str] = []
        self.written = b""
        self.specs: list[list[Any]] = []
        self._refuses = refuses or {}
        mask = 1 << RAW_PACKET if raw else 0
        self._attributes = SimpleNamespace(
            max_dm_size=memory,
            tso_caps=SimpleNamespace(supported_qpts=mask, max_tso=262_144),
            packet_pacing_caps=SimpleNamespace(supported_qpts=mask, qp_rate_limit_min=1, qp_rate_limit_max=100_000_000),
        )
        self.Error = VerbsError
        self.enums = SimpleNamespace(IBV_QPT_RAW_PACKET=RAW_PACKET)
        self.device = SimpleNamespace(
            get_device_list=lambda: [SimpleNamespace(name=b"mlx5_0")],
            Context=lambda name: self.make("Context", query_device_ex=self._query),
            AllocDmAttr=lambda length: SimpleNamespace(length=length),
            DM=lambda context, attribute: self.make(
                "DM", copy_to_dm=self._write, copy_from_dm=lambda at, count: self.written[at : at + count]
            ),
        )
        self.pd = SimpleNamespace(PD=lambda context: self.make("PD"))
        self.cq = SimpleNamespace(CQ=lambda context, entries: self.make("CQ"))
        self.qp = SimpleNamespace(
            QPCap=SimpleNamespace,
            QPInitAttr=SimpleNamespace,
            QP=lambda domain, wanted: self.make("QP"),
        )
        self.flow = SimpleNamespace(FlowAttr=self._flow_attributes, Flow=self._flow)
        self.spec = SimpleNamespace(
            EthSpec=lambda **given: ("eth", given),
            Ipv4ExtSpec=lambda **given: ("ipv4", given),
            Ipv6Spec=lambda **given: ("ipv6", given),
        )

    def make(self, name: str, **methods: Any) -> Any:
        self._refuse(name)
        self.made.append(name)
        self.open.append(name)
        return _Made(self, name, methods)

    def _query(self) -> Any:
        self._refuse("query")
        return self._attributes

    def _refuse(self, name: str) -> None:
        if name in self._refuses:
            raise VerbsError(self._refuses[name])

    def _write(self, at: int, data: bytes, count: int) -> None:
        assert (at, len(data)) == (0, count)
        self.written = data

    @staticmethod
    def _flow_attributes(num_of_specs: int, port: int) -> Any:
        return SimpleNamespace(num_of_specs=num_of_specs, port=port, specs=[])

    def _flow(self, pair: Any, attributes: Any) -> Any:
        assert len(attributes.specs) == attributes.num_of_specs  # pyverbs refuses another number
        self.specs.append(attributes.specs)
        return self.make("Flow")


class _Made:
    def __init__(self, of: RecordedVerbs, name: str, methods: dict[str, Any]) -> None:
        self._of, self._name = of, name
        self.__dict__.update(methods)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._of.open.remove(self._name)
        self._of._refuse(f"{self._name} back")
