"""The configuration file of `xts-proxy`: TOML, checked as a whole into frozen structs.

`load()` gives a complete, valid `Config` or raises `ConfigError` with every mistake it found, each with file,
line, column and dotted key. Nothing is taken over from a file with a mistake. Units are in the names of keys.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import msgspec
from msgspec import Meta, Struct
from xts_messages.attaching.killed_processes import ENDED_KEEP_S, ENDED_KEEP_S_MAX
from xts_messages.metrics.metrics_address import MetricsAddress
from xts_messages.queues.afxdp import ChunkBytes, chunk_bytes_of
from xts_messages.queues.queue_kinds import QueueOptions
from xts_messages.services.log_format import Format
from xts_messages.settings import line_origin
from xts_messages.settings.config_mistakes import ConfigError, Mistake, expectation, found, near, needed, of_syntax
from xts_messages.settings.configuration_file import parse_toml, read_text
from xts_messages.settings.file_failure import not_read
from xts_messages.settings.toml_positions import Path as KeyPath
from xts_messages.settings.toml_positions import Place, dotted, locate
from xts_messages.wire.wire_table import ETHERTYPE, FRAME_WINDOW_MAX, FRAME_WINDOW_MIN, RELAYED_MAX

from xts_proxy.config.config_filter import Filter
from xts_proxy.config.config_filter import of_files as filters_of_files
from xts_proxy.config.config_filter import together as filters_together
from xts_proxy.config.config_limits import Limits, limits_together
from xts_proxy.config.config_names import Domain, Names, Resolver
from xts_proxy.config.config_names import together as names_together
from xts_proxy.config.config_rdma import Rdma
from xts_proxy.config.config_rdma import together as rdma_together
from xts_proxy.config.config_steer import Steer
from xts_proxy.config.config_steer import together as steer_together
from xts_proxy.config.config_tenant import DEFAULT, Interface, Tenant
from xts_proxy.config.config_tenant import Name as TenantName
from xts_proxy.config.config_tenant import together as tenants_together
from xts_proxy.config.config_tls import FileOrNone, Tls
from xts_proxy.config.config_tls import together as tls_together
from xts_proxy.config.config_ulp import Ulp
from xts_proxy.config.config_ulp import of_files as ulp_of_files
from xts_proxy.config.config_ulp import together as ulp_together
from xts_proxy.config.config_values import PARSED as PLAIN
from xts_proxy.config.config_values import Mac, Network, Ports, Queues

#: Each rule counts once for each pair of its port and queue ranges; they are searched in order.
RULES_MAX = 4096
#: Types of values that are strings in the file, and parse themselves.
PARSED = (*PLAIN, Resolver, Domain)


# --- the tables of the file ----------------------------------------------------------------------------

# A Unix socket's path has 107 bytes at most (sockaddr_un).
_A_PATH = 'an absolute path such as "/run/xts/x.sock"'
_RULES_BY = '"ethtool", or "unix:" and an absolute path'
FlowRulesBy = Annotated[str, Meta(pattern=r"^(ethtool|unix:/[^\x00]{1,106})$", description=_RULES_BY)]
SocketPath = Annotated[str, Meta(pattern=r"^/[^\x00]{1,106}$", description=_A_PATH)]


class Proxy(Struct, frozen=True, kw_only=True):
    """[proxy]: how this process runs. Changes need a restart, except for the keys in RELOADABLE."""

    queue: Literal["shm", "afxdp", "rdma"] = "shm"
    endpoint: SocketPath = "/run/xts/endpoint.sock"
    endpoint_mode: Annotated[int, Meta(ge=0, le=0o777)] = 0o666
    ended_keep_s: Annotated[int, Meta(ge=0, le=ENDED_KEEP_S_MAX)] = ENDED_KEEP_S
    interface: Interface = ""
    peer_mac: Mac = Mac(None)
    ethertype: Annotated[int, Meta(ge=0x0600, le=0xFFFF)] = ETHERTYPE
    queues: Queues = Queues(((0, Queues.highest),))
    exclusive: bool = True
    token_key: Annotated[str, Meta(pattern=r"^(/[^\x00]*)?$", description="an absolute path")] = ""
    single_chunk: bool = False
    relayed_max: Annotated[int, Meta(ge=0, le=RELAYED_MAX)] = 256
    frame_window: Annotated[int, Meta(ge=FRAME_WINDOW_MIN, le=FRAME_WINDOW_MAX)] = 64
    steering: Literal["auto", "none", "address"] = "auto"
    flow_rules: FlowRulesBy = "ethtool"
    reliable: Literal["off", "on"] = "off"
    zero_copy: Literal["auto", "on", "off"] = "auto"
    huge_pages: bool = False
    chunk_bytes: ChunkBytes = "auto"
    busy_poll_us: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    busy_poll_frames: Annotated[int, Meta(ge=0, le=65535)] = 0
    napi_defer_us: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    cpus: list[Annotated[int, Meta(ge=0, le=4095)]] = msgspec.field(default_factory=list)
    spin_us: Annotated[int, Meta(ge=0, le=1_000_000)] = 50
    polling: Literal["adaptive", "always"] = "adaptive"
    wakeup_gap_us: Annotated[int, Meta(ge=0, le=10_000)] = 0
    drain_timeout_s: Annotated[float, Meta(ge=0, le=86400)] = 10.0
    drain_refuse_s: Annotated[float, Meta(ge=0, le=86400)] = 0.5
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Format = "auto"
    connection_log: FileOrNone = ""
    connection_log_sample: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    metrics: MetricsAddress = MetricsAddress()
    metrics_certificate: FileOrNone = ""
    metrics_key: FileOrNone = ""
    metrics_token: FileOrNone = ""
    control: SocketPath = "/run/xts/proxy.sock"
    upgrade_key: Annotated[str, Meta(pattern=r"^(/[^\x00]*)?$", description="an absolute path")] = ""
    user: Annotated[str, Meta(pattern=r"^[^:\s\x00]{0,64}$", description="the name of a user")] = ""
    core_dumps: bool = False
    crashes_max: Annotated[int, Meta(ge=0, le=1000)] = 3
    memory_mib: Annotated[int, Meta(ge=0, le=1 << 24)] = 0
    key_memory_mib: Annotated[int, Meta(ge=1, le=4096)] = 64

    @property
    def queue_options(self) -> QueueOptions:
        return QueueOptions(
            self.frame_window,
            self.single_chunk,
            huge_pages=self.huge_pages,
            chunk_bytes=chunk_bytes_of(self.chunk_bytes),
            busy_poll_us=self.busy_poll_us,
            busy_poll_frames=self.busy_poll_frames,
        )


class Rule(Struct, frozen=True, kw_only=True):
    """[[policy.rule]]: the first that matches decides."""

    action: Literal["allow", "deny"]
    what: Literal["connect", "listen", "both"] = "both"
    network: Network = Network(None)
    ports: Ports = Ports(((0, Ports.highest),))
    queues: Queues = Queues(((0, Queues.highest),))
    tenants: list[TenantName] = msgspec.field(default_factory=list)


class Policy(Struct, frozen=True, kw_only=True):
    """[policy]: which tenant may connect or listen where. `listen`: the default for bind and listen. `low_ports`: who
    may bind to ports below 1024, besides: whom the kernel of the host would let, or all."""

    default: Literal["allow", "deny"] = "allow"
    listen: Literal["auto", "allow", "deny"] = "auto"
    low_ports: Literal["kernel", "all"] = "kernel"
    rule: list[Rule] = msgspec.field(default_factory=list)


class Config(Struct, frozen=True, kw_only=True):
    """A whole, valid configuration."""

    proxy: Proxy = Proxy()
    rdma: Rdma = Rdma()
    limits: Limits = Limits()
    policy: Policy = Policy()
    names: Names = Names()
    ulp: Ulp = Ulp()
    tls: Tls = Tls()
    filter: list[Filter] = msgspec.field(default_factory=list)
    steer: list[Steer] = msgspec.field(default_factory=list)
    tenant: list[Tenant] = msgspec.field(default_factory=list)


#: Keys of [proxy] that a reload takes over. Of the other tables it takes over all keys, except those of [[steer]].
RELOADABLE = frozenset(
    {
        *("memory_mib", "spin_us", "polling", "wakeup_gap_us", "drain_timeout_s", "drain_refuse_s"),
        *("log_level", "connection_log_sample"),
    }
)

# --- reading -------------------------------------------------------------------------------------------


def load(path: Path) -> Config:
    """Reads and checks a file. ConfigError with all mistakes; an unreadable file is one too."""
    return read(path)[0]


def read(path: Path) -> tuple[Config, frozenset[KeyPath]]:
    """As load(), and also returns the keys that the file gives."""
    try:
        text = read_text(path)
    except OSError as error:
        text = not_read(path, error).removeprefix(f"{path}: ")
        raise ConfigError([Mistake(str(path), None, "", f"cannot be read: {text}")]) from error
    return parse(text, str(path))


def parse(text: str, file: str) -> tuple[Config, frozenset[KeyPath]]:
    """Checks a text; `file` is its name in messages, except for lines that are marked as belonging to another file."""
    try:
        return _parse(text, file)
    except ConfigError as error:
        raise ConfigError([_at_origin(mistake, text) for mistake in error.mistakes]) from error


def _at_origin(mistake: Mistake, text: str) -> Mistake:
    if mistake.position is None:
        return mistake
    file, line = line_origin.origin(text, mistake.file, mistake.position.line)
    return replace(mistake, file=file, position=replace(mistake.position, line=line))


def _parse(text: str, file: str) -> tuple[Config, frozenset[KeyPath]]:
    try:
        raw = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([of_syntax(error, text, file)]) from error
    return _Check(file, raw, locate(text)).run()


class _Check:
    """One pass over a parsed file, which collects mistakes."""

    def __init__(self, file: str, raw: dict[str, Any], places: dict[KeyPath, Place]) -> None:
        self.file = file
        self.raw = raw
        self.places = places
        self.mistakes: list[Mistake] = []

    def run(self) -> tuple[Config, frozenset[KeyPath]]:
        config = self._table(Config, self.raw, ())
        if config is not None:
            for path, problem in _together(config):
                self._mistake(path, problem)
            for path, problem in _of_files(config):
                self._mistake(path, problem)
        if self.mistakes or config is None:
            raise ConfigError(sorted(self.mistakes, key=lambda mistake: mistake.order))
        return config, frozenset(self.places)

    def _mistake(self, path: KeyPath, problem: str, at_key: bool = False) -> None:
        nearest = path
        while nearest and nearest not in self.places:
            nearest = nearest[:-1]
        place = self.places.get(nearest)
        position = None if place is None else place.key if at_key or nearest != path else place.value
        self.mistakes.append(Mistake(self.file, position, dotted(path), problem))

    def _table(self, kind: type[Any], raw: Any, path: KeyPath) -> Any:
        """The struct of a table, or None after a mistake in it."""
        if not isinstance(raw, dict):
            self._mistake(path, f"expected a table, found {found(raw)}")
            return None
        before = len(self.mistakes)
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        values: dict[str, Any] = {}
        for name, value in raw.items():
            if name in fields:
                values[name] = self._value(fields[name].type, value, (*path, name))
            else:
                self._mistake((*path, name), _unknown(name, list(fields), kind is Config), at_key=True)
        for name, field in fields.items():
            if field.required and name not in raw:
                self._mistake((*path, name), f"is missing; expected {expectation(field.type)}", at_key=True)
        return kind(**values) if len(self.mistakes) == before else None

    def _value(self, kind: Any, value: Any, path: KeyPath) -> Any:
        kind = needed(kind)
        if isinstance(kind, type) and issubclass(kind, Struct):
            return self._table(kind, value, path)
        if kind in PARSED:
            return self._parsed(kind, value, path)
        if get_origin(kind) is list:
            if not isinstance(value, list):
                self._mistake(path, f"expected {expectation(kind)}, found {found(value)}")
                return None
            return [self._value(kind.__args__[0], item, (*path, i)) for i, item in enumerate(value)]
        try:
            return msgspec.convert(value, kind, strict=True)
        except msgspec.ValidationError:
            self._mistake(path, f"expected {expectation(kind)}, found {found(value)}")
            return None

    def _parsed(self, kind: Any, value: Any, path: KeyPath) -> Any:
        if not isinstance(value, str):
            self._mistake(path, f"expected {kind.expected}, found {found(value)}")
            return None
        try:
            return kind.parse(value)
        except ValueError as error:
            self._mistake(path, f"expected {kind.expected}, found {found(value)}: {error}")
            return None


def _unknown(name: str, known: list[str], is_top: bool) -> str:
    what = "table" if is_top else "key"
    return f"unknown {what}; {near(name, known)}"


def _together(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the combination of several values."""
    proxy, limits = config.proxy, config.limits
    if proxy.queue == "afxdp":
        if not proxy.interface:
            yield ("proxy", "interface"), f'is needed with queue = "afxdp"; expected {expectation(Interface)}'
        if proxy.peer_mac.octets is None:
            yield ("proxy", "peer_mac"), f'is needed with queue = "afxdp"; expected {Mac.expected}'
    if proxy.cpus and len(proxy.cpus) != proxy.workers:
        problem = f"expected one CPU for each of {proxy.workers} workers, or none; found {len(proxy.cpus)}"
        yield ("proxy", "cpus"), problem
    yield from rdma_together(config.rdma, proxy)
    for key, problem in limits_together(limits):
        yield ("limits", key), problem
    known = {DEFAULT, *(tenant.name for tenant in config.tenant)}
    of_tenants: list[tuple[KeyPath, list[Any]]] = [
        (("policy", "rule"), config.policy.rule),
        (("names", "rule"), config.names.rule),
        (("tls", "identity"), config.tls.identity),
        (("tls", "trust"), config.tls.trust),
        (("filter",), config.filter),
    ]
    for where, items in of_tenants:
        for i, item in enumerate(items):
            for j, name in enumerate(item.tenants):
                if name not in known:
                    yield (*where, i, "tenants", j), f"there is no tenant {name}; {near(name, known)}"
    flat = sum(len(r.ports.pairs) * len(r.queues.pairs) * max(1, len(r.tenants)) for r in config.policy.rule)
    if flat > RULES_MAX:
        problem = f"{flat} combinations of port and queue ranges and tenants; at most {RULES_MAX} are allowed"
        yield ("policy", "rule"), problem
    paths = {"endpoint": proxy.endpoint, "metrics": proxy.metrics.unix_path}
    for name, path in paths.items():
        if path == proxy.control:
            yield ("proxy", "control"), f"{path} is also {name}"
    yield from tenants_together(config.tenant, limits, proxy.queue, bool(proxy.token_key))
    carries_messages = proxy.interface if proxy.queue != "shm" else ""
    yield from steer_together(config.steer, [tenant.name for tenant in config.tenant], proxy.cpus, carries_messages)
    yield from names_together(config.names)
    yield from ulp_together(config.ulp)
    yield from filters_together(config.filter)
    yield from tls_together(config.tls)


def _of_files(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Mistakes in the files that this one names, and those that only the libraries that use them can find."""
    yield from ulp_of_files(config.ulp)
    yield from filters_of_files(config.filter)
    yield from _metrics_files(config.proxy)
    if config.tls == Tls():
        return
    from xts_proxy.tls import ulp_tls  # this imports native code, which most files do not need

    yield from ulp_tls.check(config.tls)


def _metrics_files(proxy: Proxy) -> Iterator[tuple[KeyPath, str]]:
    if not (proxy.metrics_certificate or proxy.metrics_key or proxy.metrics_token):
        return
    from xts_messages.metrics import metrics_credentials

    try:
        metrics_credentials.read(proxy.metrics_certificate, proxy.metrics_key, proxy.metrics_token)
    except metrics_credentials.CredentialError as error:
        yield ("proxy", f"metrics_{error.which}"), str(error)


# --- showing -------------------------------------------------------------------------------------------


def render(config: Config, given: frozenset[KeyPath] = frozenset()) -> str:
    """The effective values as a TOML file that gives the same configuration; defaults are marked."""
    lines: list[str] = []
    for table in msgspec.structs.fields(config):
        struct = getattr(config, table.name)
        if isinstance(struct, list):
            continue
        lines.append(f"[{table.name}]")
        for name, value in _simple_values(struct):
            mark = "" if (table.name, name) in given else "  # default"
            lines.append(f"{name} = {_toml(name, value)}{mark}")
        lines.append("")
    for path, structs in _arrays_of(config):
        for i, struct in enumerate(structs):
            lines.append(f"[[{'.'.join(path)}]]")
            for key, value in _simple_values(struct):
                mark = "" if (*path, i, key) in given else "  # default"
                lines.append(f"{key} = {_toml(key, value)}{mark}")
            lines.append("")
    return "\n".join(lines)


def _arrays_of(config: Config) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Every array of tables, with its path."""
    for name, structs in _arrays(config):
        yield (name,), structs
    for table in msgspec.structs.fields(config):
        if not isinstance(struct := getattr(config, table.name), list):
            for name, structs in _arrays(struct):
                yield (table.name, name), structs


def _simple_values(struct: Any) -> Iterator[tuple[str, Any]]:
    arrays = [name for name, _ in _arrays(struct)]
    for field in msgspec.structs.fields(struct):
        if field.name not in arrays and (value := getattr(struct, field.name)) is not None:
            yield field.name, value


def _arrays(struct: Any) -> Iterator[tuple[str, list[Any]]]:
    """The arrays of tables."""
    for field in msgspec.structs.fields(struct):
        element = field.type.__args__[0] if get_origin(field.type) is list else None
        if isinstance(element, type) and issubclass(element, Struct):
            yield field.name, getattr(struct, field.name)


def _toml(name: str, value: Any) -> str:
    if name == "ethertype":
        return f"0x{value:04X}"
    if name == "endpoint_mode":
        return f"0o{value:03o}"
    if isinstance(value, PARSED):
        return json.dumps(str(value))
    if isinstance(value, list):
        return f"[{', '.join(_toml(name, one) for one in value)}]"
    if isinstance(value, Struct):
        keys = ", ".join(f"{key} = {_toml(key, one)}" for key, one in _simple_values(value))
        return f"{{ {keys} }}" if keys else "{}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def restart_needed(old: Config, new: Config) -> list[str]:
    """Keys that differ and cannot change while the proxy runs, as "key: old -> new"."""
    changes = []
    for name, value in _simple_values(old.proxy):
        now = getattr(new.proxy, name)
        if now != value and name not in RELOADABLE:
            changes.append(f"proxy.{name}: {_toml(name, value)} -> {_toml(name, now)}")
    if old.rdma != new.rdma:
        changes.append(f"rdma: {_toml('rdma', old.rdma)} -> {_toml('rdma', new.rdma)}")
    if old.steer != new.steer:
        changes.append(f"steer: {_toml('steer', old.steer)} -> {_toml('steer', new.steer)}")
    return changes
