"""The rules: their grammar, and which rule decides, case by case. test_rules_oracle.py has files of any content."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from xts_socket._rules import Role, Rules, RulesError

Address = tuple[str, int] | None
CLIENT, SERVER = Role.TCP_CLIENT, Role.TCP_SERVER


def ask(
    text: str, role: Role = CLIENT, local: Address = None, peer: Address = None, app: str = "app"
) -> tuple[bool, int]:
    verdict = Rules.parse(text.encode()).group(app, None).ask(role, local, peer)
    return verdict.offload, verdict.line


def fault(text: str | bytes) -> RulesError:
    with pytest.raises(RulesError) as caught:
        Rules.parse(text.encode() if isinstance(text, str) else text)
    return caught.value


# --- what is taken ---------------------------------------------------------------------------------------------------

TAKEN = [
    "",
    "\n\n",
    "# only a comment",
    "   # an indented comment\n\t\n",
    "use os tcp_client *:*",
    "use os tcp_client *:53 # after a statement",
    "use os tcp_client *:53# without a blank",
    "use os tcp_client *:53\r\nuse vma tcp_server *:*\r\n",
    "\tuse\tos\ttcp_client\t*:53\t",
    "use os tcp_client 10.0.0.0 / 8 : 80 - 90 : * : *",
    "use xlio tcp_server 0.0.0.0/0:0-65535",
    "use vma udp_sender 224.0.0.1:5001",
    "use vma udp_receiver 224.0.0.1:5001",
    "use os udp_connect *:53",
    "use sdp tcp_server *:*\nuse sa tcp_client *:*\nuse * tcp_client *:*",
    "use vma tcp_client 192.168.1.0/24:*:*:*",
    "use vma tcp_client 255.255.255.255/32:65535:255.255.255.255:65535",
    "use xts tcp_client [2001:db8::]/32:443",
    "use xts tcp_client [::]/0:*:[2001:db8::1]:1-2",
    "use xts tcp_client [::ffff:192.0.2.1]:80",
    "use xts tcp_client 192.0.2.1:80:[2001:db8::1]:*",
    "application-id tcp_* B1\nuse os tcp_client *:*",
    "application-id nginx * user www-data cgroup /a/*  # both",
    "application-id nginx * cgroup /a#b user 0",
    "application-id * *\napplication-id nginx 4711\napplication-id a#b c#d # comment",
    "default os",
    "default xts\napplication-id a *\ndefault os",
    "endpoint dpu0 /run/xts/dpu0.sock\nuse xts@dpu0 tcp_client *:*",
    "log",
    "log destination ystderr",
    "log destination stderr min-level 9",
    "log min-level 1 destination yfile /var/log/a.log # x",
    "log destination file /var/log/a\nlog destination syslog",
]


@pytest.mark.parametrize("text", TAKEN)
def test_taken(text: str) -> None:
    Rules.parse(text.encode())


#: text, line, column, and words that the message has.
FAULTS = [
    ("ues os tcp_client *:*", 1, 1, "expected a statement|found 'ues': did you mean 'use'?"),
    ("\n\n  USE os tcp_client *:*", 3, 3, "did you mean 'use'"),
    ("aplication-id * *", 1, 1, "did you mean 'application-id'"),
    ("use", 1, 4, "expected a transport|found the end of the line"),
    ("use # os tcp_client *:*", 1, 5, "expected a transport|found a comment"),
    ("use xtss tcp_client *:*", 1, 5, "did you mean 'xts'"),
    ("use kernel tcp_client *:*", 1, 5, "found 'kernel'"),
    ("use os\ntcp_client *:*", 1, 7, "expected a role|found the end of the line"),
    ("use os tcp_clinet *:*", 1, 8, "expected a role|did you mean 'tcp_client'"),
    ("use os tcp-client *:*", 1, 8, "did you mean 'tcp_client'"),
    ("use os tcp_client", 1, 18, "expected an endpoint|found the end of the line"),
    ("use os tcp_client localhost:80", 1, 19, "expected an endpoint|found 'localhost:80'"),
    ("use os tcp_client *", 1, 20, "':' and ports|found the end of the line"),
    ("use os tcp_client *:", 1, 21, "expected * or a port from 0 to 65535|the end of the line"),
    ("use os tcp_client *:http", 1, 21, "from 0 to 65535|found 'http'"),
    ("use os tcp_client *:65536", 1, 21, "expected * or a port from 0 to 65535, found '65536'"),
    ("use os tcp_client *:99999999999999999999", 1, 21, "from 0 to 65535"),
    ("use os tcp_client *:080", 1, 21, "without leading zeros, found '080'"),
    ("use os tcp_client *:90-80", 1, 24, "last port of the range from 90 to 65535, found '80'"),
    ("use os tcp_client *:80-", 1, 24, "last port of the range"),
    ("use os tcp_client *:80-70000", 1, 24, "found '70000'"),
    ("use os tcp_client */8:80", 1, 20, "':' and ports"),
    ("use os tcp_client 10.0.0.256:80", 1, 26, "part of an IPv4 address from 0 to 255, found '256'"),
    ("use os tcp_client 10.0.0:80", 1, 25, "'.' and the rest of an IPv4 address"),
    ("use os tcp_client 10.0.0.1/33:80", 1, 28, "prefix length from 0 to 32, found '33'"),
    ("use os tcp_client 10.0.0.1/:80", 1, 28, "prefix length"),
    ("use os tcp_client 10.0.0.1:80:1.2.3.4/40:1", 1, 39, "prefix length from 0 to 32"),
    ("use os tcp_client *:80 *:*", 1, 24, "the end of the line, or ':' and a second endpoint"),
    ("use os tcp_client *:80:", 1, 24, "expected an endpoint"),
    ("use os tcp_client *:80:*:*:*", 1, 27, "expected the end of the line"),
    (
        "use os tcp_client 192.0.2.77/24:80",
        1,
        19,
        "beyond its prefix, found '192.0.2.77/24': did you mean '192.0.2.0/24'?",
    ),
    ("use os tcp_client 10.0.0.1/0:80", 1, 19, "did you mean '0.0.0.0/0'"),
    ("use os tcp_client [fd18::1]/64:80", 1, 19, "did you mean '[fd18::]/64'"),
    ("use os tcp_client *:*: 10.1.0.0 / 8:*", 1, 24, "did you mean '10.0.0.0/8'"),
    ("use os tcp_client 2001:db8::1:80", 1, 19, "in brackets"),
    ("use os tcp_client fe80:1:2:3:4:5:6:7:80", 1, 19, "in brackets"),
    ("use os tcp_client [2001:db8::1:80", 1, 20, "an IPv6 address and ']'"),
    ("use os tcp_client [2001:db8::/32]:80", 1, 20, "the prefix after the bracket"),
    ("use os tcp_client [2001:db8::]/129:80", 1, 32, "prefix length from 0 to 128, found '129'"),
    ("use os tcp_client [fe80::1%eth0]:80", 1, 20, "without a scope"),
    ("use os tcp_client []:80", 1, 20, "an IPv6 address"),
    ("use os tcp_client [192.0.2.1]:80", 1, 20, "an IPv6 address"),
    ("use os tcp_client [::1]80", 1, 24, "':' and ports"),
    ("use xts@dpu1 tcp_client *:*", 1, 9, "`endpoint NAME PATH` line above|found 'dpu1'"),
    ("use xts@ tcp_client *:*", 1, 9, "`endpoint NAME PATH`"),
    ("use os@a tcp_client *:*", 1, 5, "expected xts before @NAME"),
    ("endpoint a/b", 1, 13, "absolute path"),
    ("endpoint dpu1 run/x", 1, 15, "absolute path|found 'run/x'"),
    ("endpoint dpu1 /" + "x" * 107, 1, 15, "at most 107 bytes"),
    ("endpoint a /a\nendpoint a /b", 2, 10, "no line above has given"),
    ("endpoint a@b /a", 1, 10, "without '@' and ':'"),
    ("endpoint a /a b", 1, 15, "the end of the line"),
    ("application-id", 1, 15, "program's name"),
    ("application-id nginx", 1, 21, "an id, or *"),
    ("application-id nginx a b", 1, 24, "the end of the line"),
    ("application-id nginx a usr www", 1, 24, "did you mean 'user'"),
    ("application-id nginx a user", 1, 28, "the name or number of a user"),
    ("application-id nginx a cgroup # /a", 1, 31, "a pattern for the path of a cgroup"),
    ("application-id nginx a user a user b", 1, 31, "each condition once"),
    ("default", 1, 8, "os or xts"),
    ("default vma", 1, 9, "os or xts, found 'vma'"),
    ("default os\ndefault xts", 2, 9, "line 1 has it"),
    ("application-id a *\ndefault os\napplication-id a *\ndefault os", 4, 9, "line 2 has it"),
    ("log destination printer", 1, 17, "stderr, syslog or file"),
    ("log min-level high", 1, 15, "a level"),
    ("log destination yfile", 1, 22, "a file's name"),
    ("log level 3", 1, 5, "destination or min-level"),
    ("use os tcp_client *:*\nuse os tcp_client *:*\nuse os udp *:*", 3, 8, "expected a role"),
    (b"use os tcp_client *:*\0", 1, 22, "found '\\x00'"),
    (b"\xef\xbb\xbfuse os tcp_client *:*", 1, 1, "\\xef\\xbb\\xbfuse"),
    ("x" * 5000, 1, 1, "x..."),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), FAULTS)
def test_refused(text: str | bytes, line: int, column: int, words: str) -> None:
    error = fault(text)
    assert (error.line, error.column) == (line, column), error
    for word in words.split("|"):
        assert word in error.text


def test_file_is_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text("use os tcp_client *:*\nuse os tcp_cleint *:*\n")
    with pytest.raises(RulesError, match=rf"^{path}:2:8: expected a role"):
        Rules.read(str(path))


def test_all_mistakes_are_found_at_once() -> None:
    text = """\
application-id nginx
default xts
default os
endpoint east run/east.sock
use xts@east tcp_client *:443
use xts@west tcp_client *:443
application-id curl *
use os tcp_clinet *:*
use os tcp_client 10.0.0.7/8:*
default os
use os tcp_client *:80
"""
    error = fault("default os\n" + text)
    assert [(mistake.line, mistake.column) for mistake in error.mistakes] == [
        (2, 21),  # and the defaults under it are held against nobody
        (5, 15),
        (7, 9),  # not line 6: the endpoint is named, only its path is wrong
        (9, 8),
        (10, 19),
    ]
    assert str(error).count("\n") == 4
    many = fault("use\n" * 100)
    assert (len(many.mistakes), many.count, str(many).splitlines()[-1]) == (32, 100, "rules: and 68 more")


def test_a_file_that_is_replaced_is_read_whole(tmp_path: Path) -> None:
    """Old or new, never half of one: by rename, and by writing over it, which may also end in a refusal."""
    path, spare = tmp_path / "rules", tmp_path / "spare"
    texts = ["use os tcp_client *:*\n" + "# old\n" * 4000, "use xts tcp_client *:*\n" + "# new\n" * 20000]
    ends = [text + "use os tcp_server *:1\n" for text in texts]
    path.write_text(ends[0])
    done = threading.Event()

    def write() -> None:
        for i in range(200):
            spare.write_text(ends[i % 2])
            spare.rename(path)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not done.is_set():
            asked = Rules.read(str(path)).group("app", None).ask(SERVER, ("192.0.2.1", 1), None)
            assert not asked.offload, "the last line was not read"
    finally:
        writer.join()


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Rules.read(str(tmp_path / "none"))
    with pytest.raises(RulesError, match="regular file"):
        Rules.read(str(tmp_path))
    large = tmp_path / "large"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(RulesError, match="1 MiB"):
        Rules.read(str(large))


# --- who decides -----------------------------------------------------------------------------------------------------

V4, V6, LOOP = ("192.0.2.1", 443), ("2001:db8::1", 443), ("127.0.0.1", 443)


@pytest.mark.parametrize(
    ("text", "role", "local", "peer", "answer"),
    [
        # without rules
        ("", CLIENT, None, V4, (True, 0)),
        ("", CLIENT, None, V6, (True, 0)),
        ("", CLIENT, None, LOOP, (False, 0)),
        ("", CLIENT, None, ("127.255.0.1", 1), (False, 0)),
        ("", CLIENT, None, ("::1", 1), (False, 0)),
        ("", CLIENT, None, ("::ffff:127.0.0.1", 1), (False, 0)),
        ("", CLIENT, None, ("::ffff:192.0.2.1", 1), (True, 0)),
        ("", CLIENT, None, ("0.0.0.0", 1), (False, 0)),
        ("", CLIENT, None, ("::", 1), (False, 0)),
        ("", CLIENT, LOOP, V4, (False, 0)),
        ("", SERVER, ("0.0.0.0", 80), None, (True, 0)),
        ("", SERVER, ("::", 80), None, (True, 0)),
        ("", SERVER, V4, None, (True, 0)),
        ("", SERVER, LOOP, None, (False, 0)),
        ("", SERVER, ("::1", 80), None, (False, 0)),
        ("", Role.UDP_CONNECT, None, V4, (False, 0)),
        # first match, by role
        ("use os tcp_client *:443\nuse xts tcp_client *:*", CLIENT, None, V4, (False, 1)),
        ("use xts tcp_client *:*\nuse os tcp_client *:443", CLIENT, None, V4, (True, 1)),
        ("use os tcp_server *:*", CLIENT, None, V4, (True, 0)),
        ("use os tcp_client *:80-442\nuse os tcp_client *:444", CLIENT, None, V4, (True, 0)),
        ("use os tcp_client *:80-443", CLIENT, None, V4, (False, 1)),
        ("use os tcp_client *:443-500", CLIENT, None, V4, (False, 1)),
        # addresses
        ("use os tcp_client 192.0.2.0/24:*", CLIENT, None, V4, (False, 1)),
        ("use os tcp_client 192.0.2.77:*", CLIENT, None, V4, (True, 0)),
        ("use os tcp_client 192.0.2.0/31:*", CLIENT, None, ("192.0.2.0", 1), (False, 1)),
        ("use os tcp_client 192.0.2.1:*", CLIENT, None, ("::ffff:192.0.2.1", 1), (False, 1)),
        ("use os tcp_client [::ffff:192.0.2.0]/120:*", CLIENT, None, V4, (False, 1)),
        ("use os tcp_client 0.0.0.0/0:*", CLIENT, None, V6, (True, 0)),
        ("use os tcp_client [::]/0:*", CLIENT, None, V4, (True, 0)),
        ("use os tcp_client [::]/0:*", CLIENT, None, V6, (False, 1)),
        ("use os tcp_client [2001:db8:8000::]/33:*", CLIENT, None, V6, (True, 0)),
        ("use os tcp_client [2001:db8::]/33:*", CLIENT, None, V6, (False, 1)),
        ("use os tcp_client *:*", CLIENT, None, V6, (False, 1)),
        # the second endpoint is the local one of a client; not known, only * fits
        ("use os tcp_client *:*:192.0.2.5:*", CLIENT, ("192.0.2.5", 9), V4, (False, 1)),
        ("use os tcp_client *:*:192.0.2.5:*", CLIENT, ("192.0.2.6", 9), V4, (True, 0)),
        ("use os tcp_client *:*:192.0.2.5:*", CLIENT, None, V4, (True, 0)),
        ("use os tcp_client *:*:*:0-65535", CLIENT, None, V4, (True, 0)),
        ("use os tcp_client *:*:*:*", CLIENT, None, V4, (False, 1)),
        ("use os tcp_server *:80:10.0.0.1:9", SERVER, ("0.0.0.0", 80), None, (False, 1)),
        # a wildcard listener is not caught by an address
        ("use os tcp_server 192.0.2.1:80", SERVER, ("0.0.0.0", 80), None, (True, 0)),
        # loopback is offloaded by xts, and by other libraries' words only where it is named
        ("use xts tcp_client *:*", CLIENT, None, LOOP, (True, 1)),
        ("use xlio tcp_client *:*", CLIENT, None, LOOP, (False, 0)),
        ("use vma tcp_client 0.0.0.0/0:*", CLIENT, None, LOOP, (False, 0)),
        ("use vma tcp_client 127.0.0.0/8:*", CLIENT, None, LOOP, (True, 1)),
        ("use vma tcp_client [::1]:*", CLIENT, None, ("::1", 1), (True, 1)),
        ("use * tcp_client *:*\nuse xts tcp_client *:443", CLIENT, None, LOOP, (True, 2)),
        ("use sdp tcp_server *:*", SERVER, ("127.0.0.1", 80), None, (False, 0)),
        ("use sa tcp_server *:*", SERVER, ("0.0.0.0", 80), None, (True, 1)),
        # default
        ("default os", CLIENT, None, V4, (False, 1)),
        ("default xts", CLIENT, None, V4, (True, 1)),
        ("default xts", CLIENT, None, LOOP, (False, 1)),
        ("default os\napplication-id app *\ndefault xts", CLIENT, None, V4, (True, 3)),
        ("default os\napplication-id app *\nuse os tcp_client *:1", CLIENT, None, V4, (False, 1)),
        ("default os\napplication-id other *\ndefault xts", CLIENT, None, V4, (False, 1)),
        # datagrams are the kernel's, unless a rule or a written default says otherwise
        ("use xts udp_sender *:*", Role.UDP_SENDER, None, V4, (True, 1)),
        ("use xts udp_sender *:*", Role.UDP_CONNECT, None, V4, (False, 0)),
        ("use os udp_receiver *:*", Role.UDP_RECEIVER, V4, None, (False, 1)),
        ("use xlio udp_connect *:*", Role.UDP_CONNECT, None, LOOP, (False, 0)),
        ("use xts udp_connect *:*", Role.UDP_CONNECT, None, LOOP, (True, 1)),
        ("default xts", Role.UDP_RECEIVER, ("0.0.0.0", 53), None, (True, 1)),
        ("default xts", Role.UDP_CONNECT, None, LOOP, (False, 1)),
        ("default xts", Role.UDP_CONNECT, LOOP, V4, (False, 1)),
        ("default os", Role.UDP_CONNECT, None, V4, (False, 1)),
    ],
)
def test_who_decides(text: str, role: Role, local: Address, peer: Address, answer: tuple[bool, int]) -> None:
    assert ask(text, role, local, peer) == answer


GROUPS = """\
application-id nginx web
use os tcp_server *:80
application-id nginx *
use os tcp_server *:81
application-id *d B?
use os tcp_server *:82
application-id nginx web
use os tcp_server *:83
application-id * *
use os tcp_server *:*
"""


@pytest.mark.parametrize(
    ("program", "id", "port", "line"),
    [
        ("nginx", "web", 80, 2),
        ("nginx", "web", 83, 8),  # the group is taken up again
        ("nginx", "web", 81, 0),  # it alone decides: the groups below are not asked
        ("nginx", None, 81, 4),
        ("nginx", "mail", 81, 4),
        ("nginx", "*", 80, 2),
        ("httpd", "B?", 82, 6),  # the pattern is the program's; the id is a word
        ("httpd", "B1", 82, 10),
        ("curl", None, 1, 10),
    ],
)
def test_groups(program: str, id: str | None, port: int, line: int) -> None:
    verdict = Rules.parse(GROUPS.encode()).group(program, id).ask(SERVER, ("192.0.2.1", port), None)
    assert verdict.line == line
    assert verdict.offload == (line == 0)


CONDITIONS = """\
application-id nginx * user www cgroup /system.slice/nginx*
use os tcp_server *:80
application-id nginx * user 33
use os tcp_server *:81
application-id * * cgroup */batch.slice*
use os tcp_server *:82
application-id nginx * user www cgroup /system.slice/nginx*
use os tcp_server *:83
"""


@pytest.mark.parametrize(
    ("user", "cgroup", "port", "line"),
    [
        ("www", "/system.slice/nginx.service", 80, 2),
        ("www", "/system.slice/nginx.service/a", 83, 8),  # the same conditions: the group is taken up again
        ("www", "/system.slice/apache.service", 80, 0),
        ("www", None, 80, 0),
        ("33", None, 81, 4),
        (33, "/", 81, 4),
        ("root", "/user.slice/batch.slice/x", 82, 6),
        (None, "/user.slice/batch.slice", 82, 6),
        (None, None, 82, 0),
    ],
)
def test_groups_by_user_and_cgroup(user: str | int | None, cgroup: str | None, port: int, line: int) -> None:
    rules = Rules.parse(CONDITIONS.encode())
    assert rules.group("nginx", None, user, cgroup).ask(SERVER, ("192.0.2.1", port), None).line == line
    assert rules.notes() == []


def test_the_user_and_cgroup_of_this_process() -> None:
    cgroup = next((t[3:] for t in Path("/proc/self/cgroup").read_text().splitlines() if t.startswith("0::")), None)
    name = pwd.getpwuid(os.geteuid()).pw_name
    conditions = [f"user {name}", f"user {os.geteuid()}", *([f"cgroup {cgroup}"] if cgroup else [])]
    for condition in conditions:
        rules = Rules.parse(f"application-id app * {condition}\nuse os tcp_client *:*".encode())
        assert rules.group_here("app", None).ask(CLIENT, None, V4).line == 2, condition
    rules = Rules.parse(b"application-id app * user nobody-of-that-name\nuse os tcp_client *:*")
    assert rules.group_here("app", None).ask(CLIENT, None, V4).line == 0


def test_rules_before_any_group_are_for_all() -> None:
    rules = Rules.parse(b"use os tcp_client *:1\napplication-id app *\nuse os tcp_client *:2\n")
    assert rules.group("app", None).ask(CLIENT, None, ("192.0.2.1", 2)).offload
    assert rules.notes() == [(2, "never applies: a group above is for every program")]


def test_lines_and_endpoints_are_told() -> None:
    text = b"endpoint far /run/far.sock\n\napplication-id app *\n# here\nuse xts@far tcp_client *:443\n"
    verdict = Rules.parse(text).group("app", None).ask(CLIENT, None, V4)
    assert (verdict.offload, verdict.line, verdict.group_line, verdict.endpoint) == (True, 5, 3, "/run/far.sock")


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("use os tcp_client *:*\nuse xlio tcp_client 10.0.0.0/8:80", {2: "never matches"}),
        ("use os tcp_client 10.0.0.0/8:1-9\nuse os tcp_client 10.1.0.0/16:9", {2: "never matches"}),
        ("use os tcp_client 10.0.0.0/8:1-9\nuse os tcp_client 10.0.0.0/7:9", {}),
        ("use os tcp_client *:*:10.0.0.1:*\nuse os tcp_client *:*", {}),
        ("use xlio tcp_client *:*\nuse os tcp_client *:80", {}),  # that still decides about loopback
        ("use xlio tcp_client *:*\nuse xlio tcp_client *:80", {2: "never matches"}),
        ("use xts tcp_client *:80", {1: "offloads loopback"}),
        ("use os tcp_client 127.0.0.0/8:*\nuse xts tcp_client *:80", {}),
        ("use os tcp_client 127.0.0.0/8:81\nuse xts tcp_client *:80", {2: "offloads loopback"}),
        ("use xts udp_sender *:80", {1: "offloads loopback"}),
        ("use os tcp_server *:80:*:*", {1: "second endpoint"}),
        ("log", {1: "no effect"}),
    ],
)
def test_notes(text: str, notes: dict[int, str]) -> None:
    found = dict(Rules.parse(text.encode()).notes())
    assert found.keys() == notes.keys()
    for line, words in notes.items():
        assert words in found[line]


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, None),
        ({"XTS_APPLICATION_ID": "", "VMA_APPLICATION_ID": "c", "XLIO_APPLICATION_ID": "b"}, "b"),
        ({"XTS_APPLICATION_ID": "a", "VMA_APPLICATION_ID": "c", "XLIO_APPLICATION_ID": "b"}, "a"),
    ],
)
def test_application_id(settings: dict[str, str], found: str | None) -> None:
    program = "from xts_socket._rules import application_id; print(application_id())"
    clean = {name: value for name, value in os.environ.items() if not name.endswith("_APPLICATION_ID")}
    done = subprocess.run([sys.executable, "-c", program], env=clean | settings, capture_output=True, check=True)
    assert done.stdout.decode().strip() == str(found)


def test_examples_of_the_manual() -> None:
    manual = (Path(__file__).resolve().parents[3] / "host_lib" / "RULES.md").read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", manual, re.MULTILINE | re.DOTALL)
    examples = [text for language, text in blocks if language == "rules"]
    assert len(examples) > 4
    for example_text in examples:
        notes = [text for _, text in Rules.parse(example_text.encode()).notes()]
        assert not [text for text in notes if "log statements" not in text], example_text
    web = Rules.parse(examples[0].encode())
    assert web.group("nginx", None).ask(CLIENT, None, ("2001:db8::1", 443)).line == 7
    assert not web.group("nginx", None).ask(CLIENT, None, ("10.1.2.3", 5432)).offload
    assert not web.group("ssh", None).ask(CLIENT, None, ("192.0.2.1", 22)).offload
