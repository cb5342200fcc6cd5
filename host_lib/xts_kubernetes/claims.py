"""What a resource claim has of this driver: a claim as the API server has it (resource.k8s.io), read and checked.

The scheduler writes into the claim's status which devices it allocated, for which request, and which parameters class
and claim give them. Ours are, in a class or a claim:

    config:
      - opaque:
          driver: queue.xts.io
          parameters: {apiVersion: xts.io/v1, kind: QueueParameters, interposer: false}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec
from xts_messages.terminal.printable import printable

PARAMETERS = ("xts.io/v1", "QueueParameters")
_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_REQUEST = re.compile(rf"{_LABEL}(/{_LABEL})?")


class UnusableClaim(Exception):  # noqa: N818  (an answer, for people)
    """The claim cannot be prepared; the text says why."""


@dataclass(frozen=True, slots=True)
class ClaimedRequest:
    """A request of a claim, "NAME" or "NAME/SUBREQUEST", and its devices. `interposer`: as the parameters say; None:
    they do not say."""

    name: str
    devices: tuple[str, ...]
    interposer: bool | None


class _Parameters(msgspec.Struct, forbid_unknown_fields=True):
    apiVersion: str  # noqa: N815
    kind: str
    interposer: bool | None = None


class _Result(msgspec.Struct, rename="camel"):
    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None


class _Opaque(msgspec.Struct):
    driver: str
    parameters: Any


class _Configuration(msgspec.Struct):
    source: str
    requests: list[str] | None = None
    opaque: _Opaque | None = None


class _Devices(msgspec.Struct):
    results: list[_Result] | None = None
    config: list[_Configuration] | None = None


class _Allocation(msgspec.Struct):
    devices: _Devices | None = None


class _Status(msgspec.Struct):
    allocation: _Allocation | None = None


class _Metadata(msgspec.Struct):
    uid: str


class _Claim(msgspec.Struct):
    metadata: _Metadata
    status: _Status | None = None


def claimed(claim: object, uid: str, driver: str, pool: str) -> tuple[ClaimedRequest, ...]:
    """The requests of a claim that have devices of this driver. UnusableClaim: it is another claim than that of `uid`,
    nothing of this driver and pool is allocated to it, or it asks for what there is not."""
    try:
        read = msgspec.convert(claim, _Claim)
    except msgspec.ValidationError as error:
        raise UnusableClaim(f"the API server's claim cannot be read: {error}") from None
    if read.metadata.uid != uid:
        raise UnusableClaim(f"the claim of that name is another one, {printable(read.metadata.uid[:64])}")
    allocation = read.status.allocation if read.status else None
    devices = allocation.devices if allocation else None
    requests: dict[str, list[str]] = {}
    for result in (devices.results if devices else None) or ():
        if result.driver != driver:
            continue
        if result.pool != pool:
            raise UnusableClaim(f"it has a device of {printable(result.pool[:64])}, and this is {pool}")
        if result.admin_access:
            raise UnusableClaim(f"request {printable(result.request[:64])}: a queue has nothing for adminAccess")
        if not _REQUEST.fullmatch(result.request):
            raise UnusableClaim("a request of it has no name of one")
        requests.setdefault(result.request, []).append(result.device)
    if not devices or not requests:
        raise UnusableClaim(f"nothing of {driver} is allocated to it")
    given = _given(devices.config or [], driver)
    return tuple(
        ClaimedRequest(name, tuple(dict.fromkeys(names)), _interposer(given, name)) for name, names in requests.items()
    )


def _given(configurations: list[_Configuration], driver: str) -> list[tuple[list[str], _Parameters]]:
    """What class and claim say, the class first: the later one holds."""
    found = []
    for one in sorted(configurations, key=lambda one: one.source == "FromClaim"):
        if not one.opaque or one.opaque.driver != driver:
            continue
        try:
            parameters = msgspec.convert(one.opaque.parameters, _Parameters)
        except msgspec.ValidationError as error:
            raise UnusableClaim(f"parameters for {driver} ({one.source}): {error}") from None
        if (parameters.apiVersion, parameters.kind) != PARAMETERS:
            raise UnusableClaim(f"parameters for {driver} ({one.source}): expected {' '.join(PARAMETERS)}")
        found.append((one.requests or [], parameters))
    return found


def _interposer(given: list[tuple[list[str], _Parameters]], request: str) -> bool | None:
    main = request.partition("/")[0]
    said = None
    for requests, parameters in given:
        if parameters.interposer is not None and (not requests or request in requests or main in requests):
            said = parameters.interposer
    return said
