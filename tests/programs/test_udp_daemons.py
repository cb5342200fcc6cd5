"""Programs that detach from who has started them, or are given their socket, with UDP: unbound and dnsmasq as daemons,
and a service that systemd's socket activation starts. Many sockets on one port."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from beds.real_programs import Bed, ended, need, wait_until

pytestmark = [pytest.mark.root]

PORT = "5353"
ANSWER = "192.0.2.7"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that offload UDP, for programs on the host."""
    rules = tmp_path / "udp.rules"
    rules.write_text("default xts\n")
    monkeypatch.setenv("XTS_RULES", str(rules))


def test_unbound_as_a_daemon(bed: Bed) -> None:
    """It binds, forks, and its parent exits: the socket is the child's. It is asked from outside."""
    need("unbound", "dig")
    pid_file, log = bed.folder / "unbound.pid", bed.folder / "unbound-daemon.log"
    settings = bed.folder / "unbound.conf"
    settings.write_text(
        f'server:\n interface: {bed.here4}@{PORT}\n access-control: 0.0.0.0/0 allow\n chroot: ""\n'
        f' username: ""\n use-syslog: no\n logfile: "{log}"\n verbosity: 1\n pidfile: "{pid_file}"\n'
        f' directory: "{bed.folder}"\n do-ip6: no\n module-config: "iterator"\n do-daemonize: yes\n'
        f' local-data: "device.example. 60 IN A {ANSWER}"\nremote-control:\n control-enable: no\n'
    )
    bed.run("host", "unbound", "-c", str(settings))
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), "unbound to detach")
    pid = int(pid_file.read_text())
    try:
        dig = ("dig", f"@{bed.here4}", "-p", PORT, "+short", "+tries=3", "+time=5", "device.example")
        for _ in range(2):
            assert bed.run("net", *dig).strip() == ANSWER, log.read_text()
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: ended(pid), "unbound to end")


def test_dnsmasq_as_a_daemon(bed: Bed) -> None:
    """With an address to bind. Else it binds those of this host's interfaces, or looks there for the number of the
    interface that a question came by, which is the device's."""
    need("dnsmasq", "dig")
    pid_file = bed.folder / "dnsmasq.pid"
    bed.run(
        "host",
        *("dnsmasq", f"--port={PORT}", "--no-resolv", "--no-hosts", "--user=root", "--conf-file=/dev/null"),
        *(f"--pid-file={pid_file}", f"--log-facility={bed.folder}/dnsmasq.log", f"--address=/device.example/{ANSWER}"),
        *("--bind-interfaces", f"--listen-address={bed.here4}"),
    )
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), "dnsmasq to detach")
    pid = int(pid_file.read_text())
    try:
        dig = ("dig", f"@{bed.here4}", "-p", PORT, "+short", "+tries=3", "+time=5", "device.example")
        for options in ((), ("+tcp",)):
            assert bed.run("net", *dig, *options).strip() == ANSWER, (bed.folder / "dnsmasq.log").read_text()
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: ended(pid), "dnsmasq to end")


def test_a_service_that_is_started_for_its_datagram_socket(bed: Bed) -> None:
    """systemd-socket-activate binds, waits for the first datagram and becomes the service (LISTEN_FDS). That datagram
    was sent to the process as it polled (DIFFERENCES.md), so the client asks again."""
    activate = need("systemd-socket-activate")
    service = bed.folder / "service.py"
    service.write_text(
        "import socket\n"
        "s = socket.socket(fileno=3)\n"
        "while True:\n"
        "    data, peer = s.recvfrom(2000)\n"
        "    s.sendto(b'served ' + data, peer)\n"
    )
    client = bed.folder / "client.py"
    client.write_text(
        "import socket, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.settimeout(1)\n"
        "for n in range(30):\n"
        "    s.sendto(b'%d' % n, (sys.argv[1], int(sys.argv[2])))\n"
        "    try:\n"
        "        print(s.recv(100).decode(), flush=True)\n"
        "        break\n"
        "    except TimeoutError:\n"
        "        pass\n"
    )
    # It starts the service with an environment of its own.
    kept = r"$(env | sed -n 's/^\(XTS_[A-Z_]*\|LD_PRELOAD\)=.*/-E \1/p')"
    line = f'exec "$0" {kept} --datagram -l {bed.here4}:{PORT} {sys.executable} {service}'
    with bed.program("host", "sh", "-c", line, activate, name="activated") as process:
        log = bed.folder / "activated.log"
        wait_until(lambda: "Listening" in log.read_text() or process.poll() is not None, "the socket")
        said = bed.run("net", sys.executable, str(client), bed.here4, PORT)
    assert said.startswith("served "), bed.logs()


def test_many_sockets_on_one_port(bed: Bed) -> None:
    """SO_REUSEPORT: the device's kernel spreads the peers over them, and a peer keeps to one."""
    program = bed.folder / "many.py"
    program.write_text(
        "import selectors, socket, sys\n"
        "chosen = selectors.DefaultSelector()\n"
        "for n in range(16):\n"
        "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "    s.bind((sys.argv[1], int(sys.argv[2])))\n"
        "    chosen.register(s, selectors.EVENT_READ, n)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    for key, _ in chosen.select():\n"
        "        data, peer = key.fileobj.recvfrom(100)\n"
        "        key.fileobj.sendto(b'%d' % key.data, peer)\n"
    )
    client = bed.folder / "peers.py"
    client.write_text(
        "import socket, sys\n"
        "for peer in range(64):\n"
        "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "    s.settimeout(5)\n"
        "    s.connect((sys.argv[1], int(sys.argv[2])))\n"
        "    said = set()\n"
        "    for _ in range(3):\n"
        "        s.send(b'who?')\n"
        "        said.add(s.recv(100).decode())\n"
        "    print(*said)\n"
    )
    with bed.program("host", sys.executable, str(program), bed.here4, PORT, name="many") as process:
        log = bed.folder / "many.log"
        wait_until(lambda: "ready" in log.read_text() or process.poll() is not None, "the sockets")
        said = bed.run("net", sys.executable, str(client), bed.here4, PORT).splitlines()
    assert len(said) == 64 and all(line.isdigit() for line in said), "a peer has met more than one socket"
    assert len(set(said)) >= 8, said
