"""Unmodified programs under the interposer, their peers on the kernel."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from beds.preload import ALL, PreloadBed, preload_library
from beds.script_outcomes import Outcomes
from beds.scripts import RUN_S
from beds.stack_modes import MODES
from system.interposer.programs.preload_scripts import KERNEL, OURS
from xts_lab.free_ports import free_ports
from xts_lab.lab import Lab

SCRIPTS = str(Path(__file__).with_name("programs") / "preload_scripts.py")


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_curl_fetches_a_file(bed: PreloadBed, tmp_path: Path) -> None:
    data = os.urandom(20_000_000)
    (tmp_path / "file").write_bytes(data)
    handler = functools.partial(QuietHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/file"
            done = bed.run(["curl", "-sS", url], env={"XTS_LOG": "1"})
        finally:
            server.shutdown()
            serving.join()
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    assert b": offloaded" in done.stderr


@pytest.fixture(scope="module")
def plain(request: pytest.FixtureRequest) -> Outcomes:
    def run(names: str, _: str) -> bytes:
        command = [sys.executable, SCRIPTS, names]
        return subprocess.run(command, check=True, timeout=RUN_S, stdout=subprocess.PIPE).stdout

    return Outcomes(request, run)


@pytest.mark.parametrize("name", sorted(KERNEL))
def test_as_the_kernel_does(name: str, plain: Outcomes) -> None:
    """What the scripts assert is true without the interposer."""
    plain.check("test_as_the_kernel_does", name)


@pytest.fixture(scope="module")
def strict(request: pytest.FixtureRequest, bed: PreloadBed) -> Outcomes:
    return Outcomes(
        request, lambda names, _: bed.run([sys.executable, SCRIPTS, names], strict=True, timeout_s=RUN_S).stdout
    )


@pytest.mark.parametrize("name", sorted(KERNEL))
def test_offloaded(name: str, strict: Outcomes) -> None:
    strict.check("test_offloaded", name)


@pytest.fixture(scope="module", params=MODES)
def in_several_stacks(request: pytest.FixtureRequest, bed: PreloadBed) -> Outcomes:
    of = MODES[request.param]
    rules = of.rules(ALL, bed.proxy.endpoint)

    def run(names: str, _: str) -> bytes:
        command = [sys.executable, SCRIPTS, names]
        return bed.run(command, rules=rules, env=of.environment, strict=True, timeout_s=RUN_S).stdout

    return Outcomes(request, run)


@pytest.mark.parametrize("name", sorted(KERNEL))
def test_in_several_stacks(name: str, in_several_stacks: Outcomes) -> None:
    in_several_stacks.check("test_in_several_stacks", name)


@pytest.mark.parametrize(
    "name",
    ["a_command_of_system", "a_command_of_popen", "a_program_of_subprocess", "a_program_of_a_shell_of_subprocess"],
)
def test_started_with_sockets_of_an_endpoint_that_only_the_rules_name(
    name: str, bed: PreloadBed, tmp_path: Path
) -> None:
    of = MODES["named"]
    env = of.environment | {"XTS_ENDPOINT": str(tmp_path / "none.sock")}
    bed.run([sys.executable, SCRIPTS, name], rules=of.rules(ALL, bed.proxy.endpoint), env=env, timeout_s=RUN_S)


# Scripts that need rules or a proxy of their own.
APART = {
    "rules_decide",
    "bound_offloaded_goes_back_to_the_kernel",
    "without_a_proxy_it_is_the_kernels",
    "strict_without_a_proxy",
    "chroot_before_the_first_socket",
    "the_capture_is_protected",
}


@pytest.mark.parametrize("name", sorted(set(OURS) - APART))
def test_interposer(name: str, bed: PreloadBed) -> None:
    bed.run([sys.executable, SCRIPTS, name])


def test_rules_decide(bed: PreloadBed) -> None:
    ports = free_ports(2)
    rules = f"use os tcp_server *:*\nuse os tcp_client 127.0.0.0/8:{ports[0]}\nuse xts tcp_client *:*\n"
    bed.run([sys.executable, SCRIPTS, "rules_decide", *map(str, ports)], rules=rules)


def test_bound_offloaded_goes_back_to_the_kernel(bed: PreloadBed) -> None:
    rules = "use os tcp_client *:*\nuse xts tcp_server 127.0.0.2:*\nuse os tcp_server *:*\n"
    bed.run([sys.executable, SCRIPTS, "bound_offloaded_goes_back_to_the_kernel"], rules=rules)


def test_default_rules_leave_loopback_alone(bed: PreloadBed) -> None:
    done = bed.run([sys.executable, SCRIPTS, "echo_both_families"], rules=None, env={"XTS_LOG": "1"})
    assert b"offloaded" not in done.stderr
    assert b"stays with the kernel (RULE)" in done.stderr


def test_without_a_proxy(bed: PreloadBed, tmp_path: Path) -> None:
    nowhere = {"XTS_ENDPOINT": str(tmp_path / "none.sock")}
    bed.run([sys.executable, SCRIPTS, "without_a_proxy_it_is_the_kernels"], env=nowhere)
    bed.run([sys.executable, SCRIPTS, "strict_without_a_proxy"], env=nowhere, strict=True)


@pytest.mark.root
def test_chroot(bed: PreloadBed) -> None:
    bed.run([sys.executable, SCRIPTS, "chroot_before_the_first_socket"])


def test_capture(bed: PreloadBed, tmp_path: Path) -> None:
    bed.run([sys.executable, SCRIPTS, "the_capture_is_protected"], env={"XTS_PCAP": str(tmp_path / "frames.pcap")})


@pytest.mark.parametrize(
    ("rules", "env", "message"),
    [
        ("use xts tcp_client *:*\nuse nonsense\nuse os\n", {}, b".rules:2:5: |.rules:3:7: |2 mistakes"),
        (None, {"XTS_RULES": "/nonexistent/rules"}, b"XTS_RULES=/nonexistent/rules: No such file"),
        (
            None,
            {"XTS_STRICT": "maybe", "XTS_SPIN_US": "x"},
            b"XTS_STRICT=maybe: must be 0 or 1|XTS_SPIN_US=x|not started",
        ),
        (None, {"XTS_CONFIG": "/nonexistent/xts.toml"}, b"/nonexistent/xts.toml: No such file|not started"),
    ],
)
def test_half_a_configuration_is_none(rules: str | None, env: dict[str, str], message: bytes, bed: PreloadBed) -> None:
    done = bed.run([sys.executable, "-c", "print('ran')"], rules=rules, env=env, check=False)
    assert done.returncode == 2
    assert done.stdout == b""
    lines = done.stderr.splitlines()
    assert len(lines) == len(message.split(b"|"))
    assert all(words in line for words, line in zip(message.split(b"|"), lines, strict=True))


def test_a_program_that_fails_with_the_interposer(bed: PreloadBed, tmp_path: Path) -> None:
    """Whoever starts it: it is known by its own name, and has the kernel's sockets."""
    sshd = tmp_path / "sshd"
    sshd.symlink_to(sys.executable)
    program = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.fileno())"
    done = bed.run(["/bin/sh", "-c", f'{sshd} -c "{program}"; {sshd} -c "{program}"'])
    said = done.stderr.decode().splitlines()
    assert len(said) == 2 and all("sandbox" in line and "stay with the kernel" in line for line in said), said
    refused = bed.run([str(sshd), "-c", program], strict=True, check=False)
    assert refused.returncode == 2 and b"sandbox" in refused.stderr and b"refused" in refused.stderr


def test_silent_unless_asked(bed: PreloadBed) -> None:
    assert bed.run([sys.executable, SCRIPTS, "echo_both_families"]).stderr == b""


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "::"])
def test_a_wildcard_listener_serves_both_worlds(wildcard: str, lab: Lab, tmp_path: Path) -> None:
    """The device's addresses through the proxy, this host's loopback through the kernel; the accepting is one's."""
    (tmp_path / "file").write_bytes(os.urandom(1_000_000))
    command = [sys.executable, "-u", "-m", "http.server", "--bind", wildcard, "--directory", str(tmp_path), "0"]
    environment = {"LD_PRELOAD": preload_library(), "XTS_LOG": "1"}
    server = lab.popen(
        "host", command, environment=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().split(" port ")[1].split()[0]
        for role, host in (("net", "198.18.0.1"), ("host", "127.0.0.1"), ("net", "198.18.0.1"), ("host", "127.0.0.1")):
            done = lab.run(role, ["curl", "-sS", "-m", "20", f"http://{host}:{port}/file"], capture_output=True)
            assert done.stdout == (tmp_path / "file").read_bytes(), done.stderr
    finally:
        server.terminate()
        _, said = server.communicate(timeout=20)
    assert said.count("stays with the kernel (LOCAL)") == 2


@pytest.mark.parametrize("name", ["shut_down_it_ends_accept_in_a_child", "shut_down_it_may_listen_again"])
def test_a_wildcard_listener_is_shut_down_in_both_worlds(name: str, lab: Lab) -> None:
    """Whoever waits for it waits for the kernel's half, too."""
    environment = {"LD_PRELOAD": preload_library(), "XTS_LOG": "1", "LISTEN_AT": "0.0.0.0"}
    done = lab.run("host", [sys.executable, SCRIPTS, name], environment=environment, capture_output=True)
    assert done.returncode == 0 and b": offloaded" in done.stderr, done.stderr
