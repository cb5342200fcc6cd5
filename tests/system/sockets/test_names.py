"""xts_query_name(): a DNS message goes to the device's name server, and what that says comes back."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import dns.message
import dns.rcode
from beds.name_server import IPV4, MANY, ZONE, NameServer, query
from beds.shm_proxy import ShmProxy, library

PROGRAM = "sockets/programs/query_names.py"


def names_table(server: NameServer, more: str = "") -> str:
    return f'[names]\nresolvers = ["{server.address}:{server.port}"]\n{more}'


def asked(directory: Path, tables: str, *names: str, threads: int = 1) -> list[str]:
    """The answer to each: hexadecimal, or the name of an errno."""
    with ShmProxy(directory, tables) as proxy:
        queries = [query(name).hex() for name in names]
        result: list[str] = json.loads(proxy.run(PROGRAM, library(), str(threads), *queries))
        return result


def addresses(answer: str) -> list[str]:
    return [str(item) for records in dns.message.from_wire(bytes.fromhex(answer)).answer for item in records]


def test_answers_come_back(tmp_path: Path) -> None:
    with NameServer() as server:
        host, many = asked(tmp_path, names_table(server), f"host.{ZONE}", f"many.{ZONE}")
    assert addresses(host) == [IPV4]
    assert len(addresses(many)) == MANY


def test_a_hundred_threads_ask_at_once(tmp_path: Path) -> None:
    with NameServer() as server:
        answers = asked(tmp_path, names_table(server), *[f"host{i}.{ZONE}" for i in range(100)], threads=100)
    assert [addresses(answer) for answer in answers] == [[IPV4]] * 100


def test_what_the_configuration_forbids_is_logged(tmp_path: Path) -> None:
    rule = f'[[names.rule]]\naction = "deny"\ndomains = ["{ZONE}"]\n'
    with NameServer() as server:
        denied, allowed = asked(tmp_path, names_table(server, rule), f"a\x07.b.{ZONE}", "absent.test.")
    assert denied == "EACCES" and dns.message.from_wire(bytes.fromhex(allowed)).rcode() == dns.rcode.NXDOMAIN
    assert "may not look up a?.b.example.test" in (tmp_path / "log").read_text()


def test_a_proxy_without_name_servers_does_not_serve_names(tmp_path: Path) -> None:
    assert asked(tmp_path, "[names]\nresolvers = []\n", f"host.{ZONE}") == ["EOPNOTSUPP"]


def test_queries_end_with_their_proxy(tmp_path: Path) -> None:
    with NameServer() as server, ShmProxy(tmp_path, names_table(server, "timeout_ms = 60000\n")) as proxy:
        command = proxy.command(PROGRAM, library(), "3", *[query(f"silent.{ZONE}").hex()] * 3)
        with subprocess.Popen(command, env=proxy.environment(), stdout=subprocess.PIPE) as process:
            while len(server.asked) < 3:
                assert process.poll() is None
            assert proxy.process
            proxy.process.send_signal(signal.SIGKILL)
            assert process.stdout
            assert json.loads(process.stdout.read()) == ["ENETDOWN"] * 3
