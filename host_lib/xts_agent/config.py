"""An agent's settings: command line over TOML file over defaults, checked as a whole."""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs
from xts_bpf.program import QUEUES_MAX
from xts_messages.attaching.attach import DEFAULT_ENDPOINT
from xts_messages.attaching.killed_processes import ENDED_KEEP_S, ENDED_KEEP_S_MAX
from xts_messages.machine import mac_address
from xts_messages.metrics.metric_list import add_list_metrics
from xts_messages.metrics.metrics_address import MetricsAddress
from xts_messages.queues.afxdp import SMALL_CHUNK_MTU, ChunkBytes, chunk_bytes_of
from xts_messages.queues.queue_kinds import RDMA_PORT, RDMA_QUEUES_MAX, QueueOptions
from xts_messages.services import exit_status
from xts_messages.services.log_format import FORMATS, Format
from xts_messages.services.served_sockets import add_unserved
from xts_messages.settings.config_mistakes import ConfigError, Mistake, expectation, found, near, of_syntax
from xts_messages.settings.configuration_file import parse_toml, read_text
from xts_messages.settings.file_failure import not_read
from xts_messages.settings.toml_positions import locate
from xts_messages.terminal.command_line import CommandLine, add_common
from xts_messages.wire.wire_table import ETHERTYPE, FRAME_WINDOW_MAX, FRAME_WINDOW_MIN, RELAYED_MAX

from xts_agent import config_rdma

FileOrNone = Annotated[str, Meta(pattern=r"^(/[^\x00]*)?$", description='an absolute path, or ""')]
_RULES_BY = '"ethtool", or "unix:" and an absolute path'
FlowRulesBy = Annotated[str, Meta(pattern=r"^(ethtool|unix:/[^\x00]{1,106})$", description=_RULES_BY)]
_A_NAME = 'the name of an interface such as "xts0"'
InterfaceName = Annotated[str, Meta(min_length=1, max_length=15, description=_A_NAME)]
_A_PATH = 'a path of at most 107 bytes such as "/run/xts/endpoint.sock"'


#: Processes behind the relay of an interface, if the operator has not set it.
RELAYED_DEFAULT = 64


class AgentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file's keys, at its top level, have these names. What applies to an interface applies to each of several."""

    interface: InterfaceName | tuple[InterfaceName, ...]
    peer_mac: str | tuple[str, ...] = ()  # the proxy's MAC address on each of these wires
    queue: Literal["afxdp", "rdma"] = "afxdp"  # what the interface has: queues, or an RDMA device for the relay
    rdma_peer: str = ""  # the address at which the proxy waits for RDMA connections
    rdma_port: Annotated[int, Meta(ge=1, le=65535)] = RDMA_PORT  # of its queue 0; queue N is at N more
    rdma_queue: Annotated[int, Meta(ge=0, le=RDMA_QUEUES_MAX - 1)] = 0  # which of the proxy's queues is ours
    rdma_ack_timeout: Annotated[int, Meta(ge=0, le=31)] | None = None  # 4.096 us * 2 to this power; None: by the route
    endpoint: Annotated[str, Meta(min_length=1, max_length=107, description=_A_PATH)] = DEFAULT_ENDPOINT
    endpoint_mode: Annotated[int, Meta(ge=0, le=0o777)] = 0o666
    ethertype: Annotated[int, Meta(ge=0x0600, le=0xFFFF)] = ETHERTYPE
    queues: Annotated[int, Meta(ge=0, le=QUEUES_MAX)] = 0  # 0: all that the interface has
    raise_queues: bool = False  # give the interface that many (0: as many as its driver allows) if it has fewer
    spares: Annotated[int, Meta(ge=0, le=QUEUES_MAX)] = 0  # kept open ahead; 0: all
    # processes that share the relay's queue; 0: no relay; None: RELAYED_DEFAULT, where an interface has two queues
    relayed_max: Annotated[int, Meta(ge=0, le=RELAYED_MAX)] | None = None
    frame_window: Annotated[int, Meta(ge=FRAME_WINDOW_MIN, le=FRAME_WINDOW_MAX)] = 64  # frames, each way
    per_uid_max: Annotated[int, Meta(ge=0)] | None = None  # queues of one user, root exempt; 0: no limit
    ended_keep_s: Annotated[int, Meta(ge=0, le=ENDED_KEEP_S_MAX)] = ENDED_KEEP_S  # of killed processes; 0: none
    user: str = ""  # user of the unprivileged process; "": xts-agent or nobody if root has started it
    pods: FileOrNone = ""  # socket of the device plug-in, which knows the pods of Kubernetes; "": pods are not known
    pods_only: bool = False  # with pods: nobody else gets a queue
    token_key: str = ""  # file with the key that the proxy has, too; "": no tokens
    log_format: Format = "auto"  # "text", "json", "journal"; "auto": the journal under systemd, else text
    metrics: str = "off"  # where they are served: "unix:/path", an address and port, or "off"
    metrics_certificate: FileOrNone = ""  # PEM, its chain behind it; "": plain HTTP
    metrics_key: FileOrNone = ""
    metrics_token: FileOrNone = ""  # file with the bearer token to ask for; "": none
    single_chunk: bool = False
    exclusive: bool = False
    steering: Literal["auto", "none", "address"] = "auto"  # how frames find their queue (xts_bpf/steering.py)
    flow_rules: FlowRulesBy = "ethtool"  # who has the rules for it: the driver, or a program at "unix:/path"
    reliable: Literal["off", "on"] = "off"  # repeat lost frames (messages/native/decorators/arq.h)
    zero_copy: Literal["auto", "on", "off"] = "auto"  # queues without a copy by the kernel (xts_bpf/zero_copy.py)
    huge_pages: bool = False  # the queues' memory, if there are enough
    chunk_bytes: ChunkBytes = "auto"  # of a buffer there (xts_messages/queues/afxdp.py)
    busy_poll_us: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # the kernel polls the card (busy_poll.py); 0: not
    busy_poll_frames: Annotated[int, Meta(ge=0, le=65535)] = 0  # of such a poll; 0: as the kernel has it
    napi_defer_us: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # without interrupts (napi_deferral.py); 0: as it is
    prove_every_s: Annotated[int, Meta(ge=1, le=3600)] = 60  # how often each queue is proved

    @property
    def name(self) -> str:
        """The interface, or all of several, for people."""
        return self.interface if isinstance(self.interface, str) else ", ".join(self.interface)

    @property
    def peer_mac_bytes(self) -> bytes:
        """The peer's address, for the configuration of one interface."""
        assert isinstance(self.peer_mac, str)
        return mac_address.station(self.peer_mac)

    def unpaired(self) -> str:
        """Why interfaces and MAC addresses do not pair up; "": they do, or there is nothing to pair."""
        if self.queue == "rdma":
            return ""
        interfaces, macs = _each(self.interface), _each(self.peer_mac)
        if not interfaces or len(interfaces) != len(macs):
            return f"{len(interfaces)} interfaces and {len(macs)} of peer_mac: give one for each, in order"
        if len(set(interfaces)) != len(interfaces):
            return f"an interface is named twice: {', '.join(interfaces)}"
        return ""

    def each(self) -> list[AgentConfig]:
        """The configuration of each interface."""
        if self.queue == "rdma":
            return [structs.replace(self, interface=self.name)]
        pairs = zip(_each(self.interface), _each(self.peer_mac), strict=True)
        return [structs.replace(self, interface=name, peer_mac=mac) for name, mac in pairs]

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

    @property
    def may_relay(self) -> bool:
        """May there be a relay? Not unasked in Kubernetes, where pods are allocated queues, and not without frames of
        several buffers, which it needs."""
        if self.queue == "rdma":
            return True
        return bool(self.relayed_max) if self.relayed_max is not None else not self.pods and not self.single_chunk

    def relayed_limit(self, queues: int) -> int:
        """How many processes the relay of an interface with this many queues may serve; 0: it has none. Unasked, an
        interface with one queue has none: the first process would have to do without a queue of its own."""
        if self.relayed_max is not None:
            return self.relayed_max
        if self.queue == "rdma":
            return RELAYED_DEFAULT
        return RELAYED_DEFAULT if self.may_relay and queues > 1 else 0

    def per_uid_limit(self, queues: int) -> int:
        """How many of this many queues one user may have; if the operator has not set it, three quarters."""
        return self.per_uid_max if self.per_uid_max is not None else max(1, queues - max(1, queues // 4))


def parser() -> argparse.ArgumentParser:
    """The command line of xts-agent."""
    result = CommandLine(
        prog="xts-agent",
        description="Opens AF_XDP queues of an interface for processes without privilege: attaches the XDP program, "
        "hands a queue to each process that connects to the endpoint, and takes it back when the process has ended.",
        epilog="examples:\n"
        "  xts-agent --interface xts0 --peer-mac 02:00:00:00:00:02 --endpoint /run/xts/endpoint.sock\n"
        "  xts-agent --config /etc/xts/xts-agent.toml\n"
        "  xts-agent --check /etc/xts/xts-agent.toml\n"
        "  kill -HUP PID     reads the file again: per_uid_max, spares, ended_keep_s\n\n" + exit_status.EPILOG,
    )
    add_common(result)
    add_list_metrics(result)
    add = result.add_argument
    add(
        "--config",
        metavar="FILE",
        help="TOML file with the options below as keys (frame_window = 64); options given here override it",
    )
    add(
        "--check",
        metavar="FILE",
        help="check this file, print the values in effect, and exit; options given here override it",
    )
    add("--quiet", action="store_true", help="with --check: print only mistakes")
    add_unserved(result)
    add(
        "--detach",
        action="store_true",
        help="take the XDP program of an agent that has ended off the interfaces, with the queues that programs still "
        "have there, and exit",
    )
    several = "; may be repeated, for several interfaces"
    add(
        "--interface",
        metavar="NAME",
        action="append",
        help=f"interface of this network namespace that leads to the proxy{several}",
    )
    add(
        "--peer-mac",
        metavar="MAC",
        action="append",
        help="the proxy's MAC address on that interface; frames from other addresses are dropped; one for each "
        "interface, in order",
    )
    add(
        "--queue",
        choices=("afxdp", "rdma"),
        help="what the interface has: AF_XDP queues for programs (afxdp), or an RDMA device over which a relay reaches "
        "the proxy for all programs (rdma) (default afxdp)",
    )
    add("--rdma-peer", metavar="ADDRESS", help="the address at which the proxy waits for RDMA connections")
    add(
        "--rdma-port",
        metavar="N",
        type=int,
        help=f"the port of the proxy's RDMA queue 0, as in its configuration (default {RDMA_PORT})",
    )
    add(
        "--rdma-queue",
        metavar="N",
        type=int,
        help="which of the proxy's RDMA queues is for this agent; it is N ports further (default 0)",
    )
    add(
        "--rdma-ack-timeout",
        metavar="N",
        type=int,
        help="how long the RDMA device waits for an acknowledgement before it repeats: 4.096 us * 2^N (default: as the "
        "RDMA connection manager finds from the route)",
    )
    add("--endpoint", metavar="PATH", help=f"the Unix socket that programs attach to (default {DEFAULT_ENDPOINT})")
    add(
        "--endpoint-mode",
        metavar="OCTAL",
        type=lambda text: int(text, 8),
        help="access mode of that socket, in octal (default 666)",
    )
    add("--ethertype", metavar="N", type=lambda text: int(text, 0), help="EtherType of messages (default 0x855b)")
    add("--queues", metavar="N", type=int, help="serve queues 0 to N-1 (default: all)")
    add(
        "--raise-queues",
        action="store_true",
        default=None,
        help="when starting, raise the interface's number of queues to --queues, or without --queues to what its "
        "driver allows, if no queue is in use (default: leave the number as it is)",
    )
    add(
        "--spares",
        metavar="N",
        type=int,
        help="how many free queues to keep open, each with its memory, for programs that will attach (default: all)",
    )
    add(
        "--relayed-max",
        metavar="N",
        type=int,
        help="when no queue is free, serve up to N more processes through a relay, over one queue of each "
        "interface, which is reserved for it; the proxy's relayed_max limits N, too; 0: no relay (default: 64 where "
        "an interface has two queues or more, of which the last is used only for it; without --pods)",
    )
    add(
        "--frame-window",
        metavar="N",
        type=int,
        help="the most unacknowledged frames in each direction; determines the memory of a queue (default 64)",
    )
    add(
        "--per-uid-max",
        metavar="N",
        type=int,
        help="the most queues of one user, except root; 0: no limit (default: three quarters of all queues)",
    )
    add(
        "--ended-keep-s",
        metavar="N",
        type=int,
        help="how many seconds to list a process that was killed, with its figures (default 600; 0: do not list it)",
    )
    add(
        "--user",
        metavar="NAME",
        help="user to run as, after the parts that need root (default: xts-agent, or nobody if there is no such user)",
    )
    add(
        "--pods",
        metavar="PATH",
        help="on a Kubernetes node, the socket of xts-device-plugin, which says how many queues each pod was "
        "allocated (default: none)",
    )
    add("--pods-only", action="store_true", default=None, help="give queues only to processes in pods")
    add(
        "--token-key",
        metavar="FILE",
        help="file with the key shared with the proxy, for attach tokens, which say each process's user and "
        "cgroup (default: no tokens)",
    )
    add(
        "--log-format",
        choices=FORMATS,
        help="write log lines as text, as JSON, or to the journal with fields (default auto: the journal under "
        "systemd, else text)",
    )
    add(
        "--metrics",
        metavar="WHERE",
        help='serve metrics to Prometheus: "unix:/path", or an address and port such as 127.0.0.1:9465 (default: off)',
    )
    add(
        "--metrics-certificate",
        metavar="FILE",
        help="serve metrics by HTTPS, with this certificate and its chain (PEM)",
    )
    add("--metrics-key", metavar="FILE", help="private key of that certificate (PEM)")
    add(
        "--metrics-token",
        metavar="FILE",
        help="require the bearer token in this file from clients that read metrics (default: require none)",
    )
    add(
        "--single-chunk",
        action="store_true",
        default=None,
        help="do not use multi-buffer frames: a message then fits into one buffer",
    )
    add(
        "--exclusive",
        action="store_true",
        default=None,
        help="drop all frames of the interface that are not messages (default: pass them to the kernel)",
    )
    add(
        "--steering",
        choices=("auto", "none", "address"),
        help="how frames find their queue: each has its own destination address, for which a network card has a rule "
        "and each frame a secret (address); or veth, where queue N of one end is queue N of the other (none). The "
        "proxy needs the same (default auto: none on veth, else address)",
    )
    add(
        "--reliable",
        choices=("off", "on"),
        help="repeat frames that the wire loses (on); or it loses none, as veth does (off). The proxy needs the same "
        "(default off)",
    )
    add(
        "--flow-rules",
        metavar="HOW",
        help="who has the rules of the card: its driver (ethtool), or a program that answers in its place "
        "(unix:/path, as in a lab) (default ethtool)",
    )
    _add_memory(result)
    add(
        "--busy-poll-us",
        metavar="N",
        type=int,
        help="have the kernel poll the card when a process asks for frames (SO_BUSY_POLL, SO_PREFER_BUSY_POLL): for up "
        "to N us; xts status says whether it is in force (default 0: not)",
    )
    add(
        "--busy-poll-frames",
        metavar="N",
        type=int,
        help="how many frames such a poll may handle (SO_BUSY_POLL_BUDGET) (default 0: as the kernel has it, 8)",
    )
    add(
        "--napi-defer-us",
        metavar="N",
        type=int,
        help="let the interface do without interrupts for up to N us after it was polled (napi_defer_hard_irqs, "
        "gro_flush_timeout), and put back what was set before at the end (default 0: leave it as it is)",
    )
    add(
        "--prove-every-s",
        metavar="N",
        type=int,
        help="with addresses for queues: how often to send a frame to each queue and see it arrive (default 60)",
    )
    add("--ready-fd", metavar="FD", type=int, help="write a line to this file descriptor when serving, and close it")
    add("--verbose", action="store_true", help="log each attachment")
    return result


def _add_memory(parser: argparse.ArgumentParser) -> None:
    """Options of the queues' memory."""
    add = parser.add_argument
    add(
        "--zero-copy",
        choices=("auto", "on", "off"),
        help="whether the driver uses the queues' memory itself: where it has that and a frame proves it (auto), or "
        "else the agent does not start (on), or never (off) (default auto)",
    )
    add(
        "--huge-pages",
        action="store_true",
        default=None,
        help="have the queues' memory in huge pages of 2 MiB, as far as there are free ones (vm.nr_hugepages)",
    )
    add(
        "--chunk-bytes",
        metavar="SIZE",
        type=lambda text: int(text) if text.isdecimal() else text,
        help="bytes of a buffer of the queues' memory: 4096, or 2048 for half the memory, where each frame fits "
        f"(an MTU of up to {SMALL_CHUNK_MTU}) (default auto: 2048 where it fits and the driver is known to take it)",
    )


_NEEDED = {"--interface": "interface", "--peer-mac": "peer_mac"}
_NEEDED_RDMA = {"--interface": "interface", "--rdma-peer": "rdma_peer"}
_COMMAND_LINE = "the command line"

#: Keys that a reload takes over. The others need a restart.
RELOADABLE = frozenset({"ended_keep_s", "per_uid_max", "spares"})


def load(options: argparse.Namespace) -> AgentConfig:
    """The configuration for these options. ConfigError has all mistakes, and where they are."""
    text, file = "", file_of(options)
    if file:
        try:
            text = read_text(file)
        except OSError as error:
            problem = not_read(file, error).removeprefix(f"{file}: ")
            raise ConfigError([Mistake(file, None, "", problem)]) from None
    names = AgentConfig.__struct_fields__
    given = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    return parse(text, file, given)


def file_of(options: argparse.Namespace) -> str:
    """The configuration file that these options name; "": none."""
    return options.check or options.config or ""


def parse(text: str, file: str, given: dict[str, Any]) -> AgentConfig:
    """As load(), for the text of a file (its name is for messages) and what the command line has given."""
    try:
        raw = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([of_syntax(error, text, file)]) from None
    places = locate(text)
    mistakes: list[Mistake] = []
    values: dict[str, Any] = {}
    for name, value in raw.items():
        place = places[name,]
        if name not in _TYPES:
            mistakes.append(Mistake(file, place.key, name, f"unknown key; {near(name, _TYPES)}"))
        elif name not in given and (problem := _convert(name, value, values)):
            mistakes.append(Mistake(file, place.value, name, problem))
    for name, value in given.items():
        if problem := _convert(name, value, values):
            mistakes.append(Mistake(_COMMAND_LINE, None, f"--{name.replace('_', '-')}", problem))
    needed = _NEEDED_RDMA if values.get("queue") == "rdma" else _NEEDED
    missing = [option for option, name in needed.items() if name not in raw and name not in given]
    if missing:
        keys, wanted = (" and ".join(names) for names in ([needed[option] for option in missing], missing))
        problem = f"{keys} must be given, here or by {wanted}" if file else f"{wanted} must be given (see --help)"
        mistakes.append(Mistake(file or _COMMAND_LINE, None, "", problem))
    if mistakes:
        raise ConfigError(mistakes)
    config = AgentConfig(**values)
    if problem := config.unpaired():
        position = None if "peer_mac" in given else places["peer_mac",].value
        raise ConfigError([Mistake(file if position else _COMMAND_LINE, position, "", problem)])
    for name, problem in config_rdma.mistakes(config):
        key = places[name,] if name in raw and name not in given else None
        option = name if key else f"--{name.replace('_', '-')}"
        mistakes.append(Mistake(file if key else _COMMAND_LINE, key.value if key else None, option, problem))
    if mistakes:
        raise ConfigError(mistakes)
    return config


#: A struct for each key, made only once: msgspec 0.22 crashes when the type of peer_mac is made again and again.
_TYPES = {field.name: msgspec.defstruct("Key", [(field.name, field.type)]) for field in structs.fields(AgentConfig)}
_EXPECTED = {field.name: expectation(field.type) for field in structs.fields(AgentConfig)}


#: Keys whose values are texts of a form: what is expected, and the function that raises ValueError for another form.
_PARSED: dict[str, tuple[str, Callable[[str], object]]] = {
    "rdma_peer": ('an address such as "192.168.100.2"', config_rdma.check_peer),
    "metrics": (MetricsAddress.expected, MetricsAddress.parse),
    "peer_mac": (f"{mac_address.EXPECTED}, or an array of such", mac_address.station),
}


def _each(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _convert(name: str, value: Any, values: dict[str, Any]) -> str:
    """Puts the value of a key into `values`. Returns what is wrong with it; "": nothing."""
    expected, parse_text = _PARSED.get(name, (_EXPECTED[name], str))
    try:
        values[name] = getattr(msgspec.convert({name: value}, _TYPES[name]), name)
        for one in _each(values[name]) if name in _PARSED else ():
            parse_text(one)
    except msgspec.ValidationError:
        return f"expected {expected}, found {found(value)}"
    except ValueError as error:
        return f"expected {expected}, found {json.dumps(value, default=str, ensure_ascii=False)}: {error}"
    return ""


def render(config: AgentConfig, given: Collection[str]) -> str:
    """The values in effect as a file that gives the same configuration; defaults are marked."""
    lines = []
    for name in AgentConfig.__struct_fields__:
        value = getattr(config, name)
        if value is None:
            lines.append(f"# {name}: not set")
            continue
        shown = (
            f"0o{value:03o}" if name == "endpoint_mode" else f"0x{value:04x}" if name == "ethertype" else _toml(value)
        )
        lines.append(f"{name} = {shown}" + ("" if name in given else "  # default"))
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False).replace("\x7f", "\\u007f")


def restart_needed(old: AgentConfig, new: AgentConfig) -> list[str]:
    """Keys that differ and cannot change while the agent runs."""
    names = AgentConfig.__struct_fields__
    return [name for name in names if name not in RELOADABLE and getattr(old, name) != getattr(new, name)]
