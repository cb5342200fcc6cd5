"""Unmodified programs look up names from a host without a network: through the proxy, as the C library would."""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds.lab import raise_or_skip
from beds.name_server import IPV4, IPV6, MANY, ZONE, NameServer
from xts_lab.lab import Lab

TABLES = f"""
[names]
resolvers = ["{IPV4}"]
timeout_ms = 300
[[names.rule]]
action = "deny"
domains = ["denied.{ZONE}"]
"""
DOMAIN = ZONE.rstrip(".")
LOOK_UP = """
import json, socket, sys
found = {}
for name in sys.argv[1:]:
    try:
        rows = socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        found[name] = sorted({row[4][0] for row in rows})
    except socket.gaierror as error:
        found[name] = socket.EAI_NONAME == error.errno and "NONAME" or error.errno
print(json.dumps(found))
"""


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"hello {self.headers['Host']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@dataclass(frozen=True)
class Site:
    """A host with nothing but its queue, and a network with a name server and a web server."""

    lab: Lab
    names: NameServer

    def run(self, *command: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """On the host, under the interposer, in a namespace of its own that has no addresses."""
        argv = ["unshare", "--net", sys.executable, "-m", "xts_socket.cli", "run", "--", *command]
        done = self.lab.run("host", argv, environment=environment, capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def look_up(self, *names: str, **environment: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.run("/usr/bin/python3", "-c", LOOK_UP, *names, **environment).stdout)
        return found


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("shm", marks=[pytest.mark.root]),
        pytest.param("afxdp", marks=[pytest.mark.root, pytest.mark.afxdp]),
    ],
)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        lab = raise_or_skip(request.param, "names", tables=TABLES)
        stack.callback(lab.down)
        with lab.inside("net"):
            names = stack.enter_context(NameServer(IPV4, 53))
            web = stack.enter_context(http.server.ThreadingHTTPServer((IPV4, 80), Page))
        threading.Thread(target=web.serve_forever, daemon=True).start()
        stack.callback(web.shutdown)
        yield Site(lab, names)


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


@pytest.mark.parametrize("name", ["host", "alias"])
def test_curl_finds_a_server_by_its_name(site: Site, name: str) -> None:
    done = site.run(need("curl"), "-sS", "-m", "20", f"http://{name}.{DOMAIN}/")
    assert done.stdout == f"hello {name}.{DOMAIN}\n"


def test_node_finds_a_server_by_its_name(site: Site) -> None:
    script = f"fetch('http://host.{DOMAIN}/').then(r => r.text()).then(t => process.stdout.write(t))"
    assert site.run(need("node"), "-e", script).stdout == f"hello host.{DOMAIN}\n"


def test_a_program_with_a_resolver_of_its_own(site: Site, tmp_path: Path) -> None:
    """Node's dns.resolve() is c-ares, which asks a name server by datagrams."""
    rules = tmp_path / "udp.rules"
    rules.write_text("default xts\n")
    script = (
        f"const dns = require('dns').promises; dns.setServers(['{IPV4}']);"
        f"Promise.all([dns.resolve4('host.{DOMAIN}'), dns.resolve6('host.{DOMAIN}')]).then(a => console.log(a.join()))"
    )
    assert site.run(need("node"), "-e", script, XTS_RULES=str(rules)).stdout == f"{IPV4},{IPV6}\n"


def test_java_finds_a_server_by_its_name(site: Site, tmp_path: Path) -> None:
    program = tmp_path / "Fetch.java"
    program.write_text(
        "import java.net.*;\n"
        "class Fetch {\n"
        "    public static void main(String[] names) throws Exception {\n"
        "        System.out.println(InetAddress.getByName(names[0]).getHostAddress());\n"
        '        var body = new URL("http://" + names[0] + "/").openStream();\n'
        "        System.out.print(new String(body.readAllBytes()));\n"
        "    }\n"
        "}\n"
    )
    done = site.run(need("java"), str(program), f"host.{DOMAIN}", check=False)
    if "jdk.compiler" in done.stderr:
        pytest.skip("this Java has no compiler")
    assert done.stdout == f"{IPV4}\nhello host.{DOMAIN}\n", done.stderr


def test_what_the_c_library_makes_of_answers(site: Site) -> None:
    found = site.look_up(*(f"{what}.{DOMAIN}" for what in ("host", "four", "six", "absent", "servfail", "wrongid")))
    both = sorted([IPV4, IPV6])
    expected = [both, [IPV4], [IPV6], "NONAME", socket.EAI_AGAIN, both]
    assert list(found.values()) == expected


def test_many_addresses_come_over_tcp(site: Site) -> None:
    (found,) = site.look_up(f"many.{DOMAIN}").values()
    assert isinstance(found, list) and len(found) == MANY + 1


def test_a_name_that_nobody_answers_for_and_one_that_may_not_be_asked_for(site: Site) -> None:
    done = site.run("/usr/bin/python3", "-c", LOOK_UP, f"silent.{DOMAIN}", f"denied.{DOMAIN}", f"denied.{DOMAIN}")
    assert list(json.loads(done.stdout).values()) == [socket.EAI_AGAIN, socket.EAI_FAIL]
    notices = [line for line in done.stderr.splitlines() if "a name could not be looked up" in line]
    assert len(notices) == 2
    assert "no name server of the device has answered" in notices[0] and "lets this host not look up" in notices[1]


def test_names_of_addresses_and_the_older_calls(site: Site) -> None:
    script = f"""
import socket
print(socket.gethostbyname("alias.{DOMAIN}"))
print(socket.gethostbyname_ex("alias.{DOMAIN}"))
print(socket.gethostbyaddr("{IPV4}")[0], socket.getnameinfo(("{IPV4}", 80), 0)[0])
"""
    names = f"('host.{DOMAIN}', ['alias.{DOMAIN}', 'second.{DOMAIN}'], ['{IPV4}'])"
    lines = site.run("/usr/bin/python3", "-c", script).stdout.splitlines()
    assert lines == [IPV4, names, f"host.{DOMAIN} host.{DOMAIN}"]


def test_the_search_list(site: Site) -> None:
    found = site.look_up("host", "host.example", LOCALDOMAIN=f"nowhere.test {DOMAIN} test")
    assert list(found.values()) == [sorted([IPV4, IPV6])] * 2
    site.names.asked.clear()
    site.look_up("absent.", LOCALDOMAIN=DOMAIN)
    assert {name for name, *_ in site.names.asked} == {"absent."}


def test_files_come_first_and_nobody_is_asked(site: Site) -> None:
    site.names.asked.clear()
    site.look_up("localhost", IPV4)
    assert not site.names.asked


def test_a_hundred_lookups_at_once(site: Site) -> None:
    script = f"""
import socket
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(100) as pool:
    rows = pool.map(lambda i: len(socket.getaddrinfo(f"host{{i}}.{DOMAIN}", 80, type=socket.SOCK_STREAM)), range(100))
    print(set(rows))
"""
    assert site.run("/usr/bin/python3", "-c", script).stdout == "{2}\n"
