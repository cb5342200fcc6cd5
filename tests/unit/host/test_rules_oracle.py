"""Which rule decides: the matcher in C against a slow one in Python (ipaddress), on any file; files of any bytes."""

from __future__ import annotations

import fnmatch
import ipaddress
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st
from xts_socket._rules import Role, Rules, RulesError, offload_loopback

Address = tuple[str, int] | None
CLIENT, SERVER = Role.TCP_CLIENT, Role.TCP_SERVER
V4 = ("192.0.2.1", 443)


# --- against a matcher of our own -------------------------------------------------------------------------------------

Net = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class End:
    net: Net | None
    ports: tuple[int, int] | None

    def __str__(self) -> str:
        address = "*"
        if self.net is not None:
            address = f"[{self.net[0]}]" if self.net.version == 6 else str(self.net[0])
            address += f"/{self.net.prefixlen}"
        ports = "*" if self.ports is None else "-".join(map(str, self.ports))
        return f"{address}:{ports}"

    def fits(self, seen: Address) -> bool:
        if seen is None:
            return self.net is None and self.ports is None
        if self.net is not None and ipaddress.ip_address(plain(seen[0])) not in self.net:
            return False
        return self.ports is None or seen[1] in range(self.ports[0], self.ports[1] + 1)

    def names_loopback(self) -> bool:
        loopback = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
        return any(self.net is not None and self.net.version == n.version and self.net.subnet_of(n) for n in loopback)  # type: ignore[arg-type]


def plain(host: str) -> str:
    mapped = getattr(ipaddress.ip_address(host), "ipv4_mapped", None)
    return str(mapped or host)


@dataclass(frozen=True)
class Use:
    transport: str
    role: Role
    first: End
    second: End | None

    def __str__(self) -> str:
        second = f":{self.second}" if self.second else ""
        return f"use {self.transport} {self.role.name.lower()} {self.first}{second}"


@dataclass(frozen=True)
class App:
    program: str
    id: str

    def __str__(self) -> str:
        return f"application-id {self.program} {self.id}"


@dataclass(frozen=True)
class Default:
    word: str

    def __str__(self) -> str:
        return f"default {self.word}"


Statement = Use | App | Default


def here(seen: Address, listening: bool, asked: Asked) -> bool:
    """An address that the kernel keeps to this host."""
    if seen is None or asked.loopback_as_others:
        return False
    address = ipaddress.ip_address(plain(seen[0]))
    return address.is_loopback or (not listening and address.is_unspecified)


@dataclass(frozen=True)
class Asked:
    loopback_as_others: bool
    program: str
    id: str | None
    role: Role
    local: Address
    peer: Address


def oracle(statements: list[Statement], asked: Asked) -> tuple[bool, int, int]:
    """offload, line, line of the group."""
    program, id, role, local, peer = asked.program, asked.id, asked.role, asked.local, asked.peer
    groups: dict[tuple[str, str], list[tuple[int, int, Use]]] = {}
    defaults: dict[tuple[str, str] | None, tuple[bool, int, int]] = {}
    key, group_line = None, 0
    for line, statement in enumerate(statements, 1):
        if isinstance(statement, App):
            key, group_line = (statement.program, statement.id), line
            groups.setdefault(key, [])
        elif isinstance(statement, Default):
            defaults.setdefault(key, (statement.word == "xts", line, group_line))
        else:
            groups.setdefault(key or ("*", "*"), []).append((line, group_line, statement))
    chosen = next(
        (k for k in groups if fnmatch.fnmatchcase(program, k[0]) and (k[1] == "*" or id in ("*", k[1]))), None
    )
    listening = role in (Role.TCP_SERVER, Role.UDP_RECEIVER)
    first, second = (local, peer) if listening else (peer, local)
    for line, rule_group, use in groups[chosen] if chosen else []:
        if use.role != role or not use.first.fits(first):
            continue
        if use.second and role in (CLIENT, Role.UDP_CONNECT) and not use.second.fits(second):
            continue
        if use.transport not in ("os", "xts") and here(first, listening, asked) and not use.first.names_loopback():
            continue
        return use.transport != "os", line, rule_group
    offload, line, rule_group = defaults.get(chosen) or defaults.get(None) or (role in (CLIENT, SERVER), 0, 0)
    if here(first, listening, asked) or (not listening and here(local, True, asked)):
        offload = False
    return offload, line, rule_group


hosts = st.sampled_from(
    [
        "0.0.0.0",
        "10.0.0.1",
        "10.0.0.2",
        "10.0.3.1",
        "127.0.0.1",
        "127.3.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fd18::1",
        "fd18::2",
        "fd18:1::1",
        "::ffff:10.0.0.1",
        "::ffff:127.0.0.1",
        "ffff::1",
    ]
)
ports = st.integers(0, 4) | st.just(65535)
ends_seen = st.none() | st.tuples(hosts, ports)
roles = st.sampled_from(list(Role)) | st.sampled_from([CLIENT, SERVER])


@st.composite
def nets(draw: st.DrawFn) -> Net | None:
    if draw(st.booleans()):
        return None
    address = ipaddress.ip_address(plain(draw(hosts)))
    bits = draw(st.sampled_from([0, 7, 8, 9, 15, 16, 24, 30, 31, 32, 127, 128]))
    return ipaddress.ip_network((address, min(bits, address.max_prefixlen)), strict=False)


port_ranges = st.none() | st.tuples(ports, ports).map(lambda pair: (min(pair), max(pair)))
rule_ends = st.builds(End, nets(), port_ranges)
uses = st.builds(Use, st.sampled_from(["os", "xts", "xlio", "vma", "*"]), roles, rule_ends, st.none() | rule_ends)
apps = st.builds(App, st.sampled_from(["*", "n*", "nginx", "curl", "n?inx"]), st.sampled_from(["*", "a", "b"]))


@st.composite
def files(draw: st.DrawFn) -> list[Statement]:
    statements = draw(st.lists(uses | uses | apps | st.builds(Default, st.sampled_from(["os", "xts"])), max_size=10))
    kept: list[Statement] = []
    key: tuple[str, str] | None = None
    said: set[tuple[str, str] | None] = set()
    for statement in statements:  # a second default of a group would be refused
        if isinstance(statement, App):
            key = (statement.program, statement.id)
        elif isinstance(statement, Default):
            if key in said:
                continue
            said.add(key)
        kept.append(statement)
    return kept


programs = st.sampled_from(["nginx", "curl", "x"])
asked_for = st.builds(
    Asked, st.booleans(), programs, st.sampled_from([None, "a", "b", "*"]), roles, ends_seen, ends_seen
)


@given(files(), asked_for)
@example(
    [Use("os", CLIENT, End(None, None), End(None, (0, 65535)))], Asked(False, "x", None, CLIENT, None, ("10.0.0.1", 1))
)
def test_decides_as_the_oracle(statements: list[Statement], asked: Asked) -> None:
    rules = Rules.parse("\n".join(map(str, statements)).encode())
    group = rules.group(asked.program, asked.id)
    offload_loopback(asked.loopback_as_others)
    try:
        verdict = group.ask(asked.role, asked.local, asked.peer)
        tried = list(group.tried(asked.role, asked.local, asked.peer))
    finally:
        offload_loopback(False)
    assert (verdict.offload, verdict.line, verdict.group_line) == oracle(statements, asked)
    assert group.may_offload(asked.role) or not verdict.offload
    matched = [step.line for step in tried if step.mismatch is None]
    decided_by_rule = verdict.line and isinstance(statements[verdict.line - 1], Use)
    assert matched == ([verdict.line] if decided_by_rule else [])


def position_is_in(error: RulesError, text: bytes) -> None:
    lines = text.split(b"\n")
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1
    assert error.text.startswith("expected ")
    assert error.text.isprintable()


words = st.sampled_from(
    [
        "use",
        "os",
        "xts",
        "xts@a",
        "vma",
        "tcp_client",
        "tcp_server",
        "*",
        ":",
        "*:*",
        "/",
        "[",
        "]",
        "[::1]",
        "10.0.0.1",
        "-",
        "80",
        "65536",
        "#",
        "endpoint",
        "a",
        "/p",
        "default",
        "log",
        "destination",
        "application-id",
        "min-level",
        "999",
        "%",
        "@",
        ".",
        "256",
        "yfile",
        "é",
    ]
) | st.sampled_from(["\n", "\r\n", "\r", "\0", "\t"])


@given(
    st.binary(max_size=80)
    | st.lists(words, max_size=20).map(lambda parts: " ".join(parts).encode())
    | st.lists(words).map(lambda parts: "".join(parts).encode())
)
def test_anything_is_taken_or_refused_with_its_place(text: bytes) -> None:
    try:
        rules = Rules.parse(text)
    except RulesError as error:
        position_is_in(error, text)
        return
    rules.notes()
    rules.group("app", None).ask(CLIENT, None, V4)


@given(files(), st.data())
def test_a_changed_byte_is_taken_or_refused_with_its_place(statements: list[Statement], data: st.DataObject) -> None:
    text = bytearray("\n".join(map(str, statements)).encode() or b"#")
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    try:
        Rules.parse(bytes(text))
    except RulesError as error:
        position_is_in(error, bytes(text))
