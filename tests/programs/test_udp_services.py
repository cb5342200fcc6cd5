"""Real services over UDP, on the host and asked from outside, or asked by the host: CoAP, NTP, a caching resolver,
memcached, syslog, a DNS server in Python, and nginx, whose workers are forked."""

from __future__ import annotations

import os
import signal
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from beds.real_programs import NET4, Bed, ended, need, wait_until

pytestmark = [pytest.mark.root]

PORT = "5353"
UPSTREAM_PORT = "5354"
ANSWER = "192.0.2.7"
WHERE = pytest.mark.parametrize("ends", [("host", "net"), ("net", "host")], ids="-asks-".join)


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that offload UDP, for programs on the host."""
    rules = tmp_path / "udp.rules"
    rules.write_text("default xts\n")
    monkeypatch.setenv("XTS_RULES", str(rules))


def address_of(bed: Bed, role: str) -> str:
    """Where a service of the role is reached by the other."""
    return NET4 if role == "net" else bed.here4


@contextmanager
def service(bed: Bed, role: str, *command: str, name: str, says: str) -> Iterator[Path]:
    """A service, once its log says it is ready; the log."""
    log = bed.folder / f"{name}.log"
    with bed.program(role, *command, name=name) as process:
        wait_until(lambda: says in log.read_text(errors="replace") or process.poll() is not None, f"{name} to start")
        assert process.poll() is None, bed.logs()
        yield log


@contextmanager
def dnsmasq(bed: Bed, role: str, port: str) -> Iterator[Path]:
    """A name server that knows device.example."""
    need("dnsmasq")
    command = (
        *("dnsmasq", "--keep-in-foreground", f"--port={port}", "--no-resolv", "--no-hosts", "--user=root"),
        *("--conf-file=/dev/null", "--pid-file=", "--log-facility=-", "--log-queries", "--local-ttl=60"),
        f"--address=/device.example/{ANSWER}",
    )
    with service(bed, role, *command, name="dnsmasq", says="started") as log:
        yield log


def dig(bed: Bed, role: str, address: str, port: str) -> str:
    """What a name server says of device.example."""
    need("dig")
    return bed.run(role, "dig", f"@{address}", "-p", port, "+short", "+tries=3", "+time=5", "device.example").strip()


@WHERE
def test_coap(bed: Bed, ends: tuple[str, str]) -> None:
    """aiocoap's file server and client: 100 blocks of 1 KB, each a request of its own."""
    pytest.importorskip("aiocoap")
    client, server = ends
    content = os.urandom(50_000).hex()
    folder = bed.folder / "coap"
    folder.mkdir()
    (folder / "file.txt").write_text(content)
    address = address_of(bed, server)
    programs = Path(sys.executable).parent
    command = (sys.executable, "-u", str(programs / "aiocoap-fileserver"), "-v", "--bind", address, str(folder))
    client_command = (sys.executable, str(programs / "aiocoap-client"), f"coap://{address}/file.txt")
    with bed.program(server, *command, name="coap"):  # it does not say when it is ready: the client is run again
        wait_until(lambda: content in bed.run(client, *client_command, check=False), "the file")


def test_ntp(bed: Bed) -> None:
    """chronyd asks the time once, and changes nothing: it uses time stamps where it can, and a connected socket."""
    need("chronyd")
    settings = bed.folder / "chrony.conf"
    settings.write_text(f"local stratum 5\nallow\nport 1123\ncmdport 0\npidfile {bed.folder}/chronyd.pid\n")
    with service(bed, "net", "chronyd", "-d", "-x", "-u", "root", "-f", str(settings), name="chronyd", says="starting"):
        asked = f"server {NET4} port 1123 iburst maxsamples 1"
        client = ("chronyd", "-Q", "-t", "20", "-u", "root", asked, f"pidfile {bed.folder}/chronyc.pid", "cmdport 0")
        said = bed.run("host", *client)
    assert abs(bed.number(r"System clock wrong by (\S+) seconds", said)) < 0.1


def test_unbound_forwards(bed: Bed) -> None:
    """A caching resolver on the host: a socket that serves, and one with a port of its own for each question."""
    need("unbound")
    settings = bed.folder / "unbound.conf"
    settings.write_text(
        f'server:\n interface: {bed.here4}@{PORT}\n access-control: 0.0.0.0/0 allow\n chroot: ""\n'
        f' username: ""\n use-syslog: no\n logfile: ""\n verbosity: 2\n pidfile: "{bed.folder}/unbound.pid"\n'
        f' directory: "{bed.folder}"\n do-ip6: no\n module-config: "iterator"\n do-not-query-localhost: no\n'
        f'remote-control:\n control-enable: no\nforward-zone:\n name: "."\n'
        f" forward-addr: {NET4}@{UPSTREAM_PORT}\n"
    )
    with (
        dnsmasq(bed, "net", UPSTREAM_PORT) as asked,
        service(bed, "host", "unbound", "-d", "-c", str(settings), name="unbound", says="start of service"),
    ):
        for _ in range(2):  # the second from its cache
            assert dig(bed, "net", bed.here4, PORT) == ANSWER, bed.logs()
        assert asked.read_text().count("query[A] device.example") == 1


def test_memcached(bed: Bed) -> None:
    """memcached's own frames: a value set and got, by a client that knows nothing of us."""
    memcached = need("memcached")
    client = bed.folder / "client.py"
    client.write_text(
        "import socket, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.settimeout(5)\n"
        "s.connect((sys.argv[1], 11211))\n"
        "def ask(number, line):\n"
        "    s.send(number.to_bytes(2, 'big') + bytes.fromhex('000000010000') + line)\n"
        "    return s.recv(2000)\n"
        "print(ask(1, b'set k 0 0 5\\r\\nhello\\r\\n'), ask(2, b'get k\\r\\n'))\n"
    )
    command = (memcached, "-u", "root", "-U", "11211", "-l", bed.here4, "-vv")
    with service(bed, "host", *command, name="memcached", says="server listening (udp)"):
        said = bed.run("net", sys.executable, str(client), bed.here4)
    header = struct.pack(">4H", 2, 0, 1, 0)
    assert repr(struct.pack(">4H", 1, 0, 1, 0) + b"STORED\r\n") in said
    assert repr(header + b"VALUE k 0 5\r\nhello\r\nEND\r\n") in said


def test_syslog(bed: Bed) -> None:
    """util-linux's logger: one socket for each call, and nobody waits for an answer."""
    need("logger")
    receiver = bed.folder / "receiver.py"
    receiver.write_text(
        "import socket, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.bind((sys.argv[1], 1514))\n"
        "print('ready', flush=True)\n"
        "while True:\n    print(s.recv(2000).decode(), flush=True)\n"
    )
    with service(bed, "net", sys.executable, str(receiver), NET4, name="receiver", says="ready") as log:
        for number in range(5):
            bed.run("host", "logger", "--udp", "--server", NET4, "--port", "1514", "-t", "xts", f"line {number}")
        wait_until(lambda: all(f"line {number}" in log.read_text() for number in range(5)), "five lines")


def test_a_dns_server_in_python(bed: Bed) -> None:
    """dnslib's server on the host: socketserver's threads."""
    pytest.importorskip("dnslib")
    program = bed.folder / "server.py"
    program.write_text(
        "import sys\n"
        "from dnslib.server import DNSServer\n"
        "from dnslib.zoneresolver import ZoneResolver\n"
        f"zone = ZoneResolver('device.example. 60 IN A {ANSWER}')\n"
        "server = DNSServer(zone, address=sys.argv[1], port=int(sys.argv[2]))\n"
        "print('ready', flush=True)\n"
        "server.start()\n"
    )
    with service(bed, "host", sys.executable, str(program), bed.here4, PORT, name="dnslib", says="ready"):
        assert dig(bed, "net", bed.here4, PORT) == ANSWER, bed.logs()


def test_nginx_forwards_datagrams(bed: Bed) -> None:
    """nginx's stream module on the host: a datagram of a client goes to the name server from a socket of its own."""
    nginx = need("nginx")
    if not Path("/usr/lib/nginx/modules/ngx_stream_module.so").exists():
        pytest.skip("nginx's stream module is not installed")
    settings = bed.folder / "nginx.conf"
    settings.write_text(
        "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n"
        f"daemon off; user root; worker_processes 2; pid {bed.folder}/nginx.pid;\n"
        "error_log stderr notice; events {}\n"
        f"stream {{ server {{ listen {bed.here4}:{PORT} udp reuseport; proxy_responses 1;\n"
        f"proxy_pass {NET4}:{UPSTREAM_PORT}; }} }}\n"
    )
    command = (nginx, "-p", str(bed.folder), "-c", str(settings))
    with (
        dnsmasq(bed, "net", UPSTREAM_PORT),
        service(bed, "host", *command, name="nginx", says="start worker process "),
    ):
        for _ in range(4):
            assert dig(bed, "net", bed.here4, PORT) == ANSWER, bed.logs()


def test_rsyslog(bed: Bed) -> None:
    """rsyslogd on the host: it binds, becomes a daemon, and receives in a thread. What logger sends it is written."""
    need("rsyslogd", "logger")
    written, pid_file = bed.folder / "written.log", bed.folder / "rsyslog.pid"
    settings = bed.folder / "rsyslog.conf"
    settings.write_text(
        f'global(workDirectory="{bed.folder}" net.enableDNS="off")\n'
        f'module(load="imudp")\ninput(type="imudp" address="{bed.here4}" port="1514")\n'
        f'action(type="omfile" file="{written}" template="RSYSLOG_SyslogProtocol23Format")\n'
    )
    bed.run("host", "rsyslogd", "-f", str(settings), "-i", str(pid_file))
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), "rsyslogd to detach")
    pid = int(pid_file.read_text())
    try:
        log = ("logger", "--udp", "--server", bed.here4, "--port", "1514", "-t", "xts")
        wait_until(lambda: written.exists() or bed.run("net", *log, "are you there?") is None, "rsyslogd to receive")
        for number in range(20):
            bed.run("net", *log, f"line {number}")
        lines = [f"line {number}" for number in range(20)]
        wait_until(lambda: all(f"{line}\n" in written.read_text() for line in lines), "twenty lines")
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: ended(pid), "rsyslogd to end")


SN_PORT = "2442"


@pytest.mark.parametrize("gateway_on", ["host", "net"])
def test_mqtt_sn(bed: Bed, gateway_on: str) -> None:
    """An unmodified client of MQTT-SN 1.2 on the host: it subscribes, and another publishes, with QoS 0 and 1, at a
    gateway that is on the host, too, or outside."""
    pytest.importorskip("mqttsn12", reason="mqtt-sn-12 of PyPI")
    where = ("-h", address_of(bed, gateway_on), "-p", SN_PORT, "-t", "house/kitchen")
    program = str(Path(__file__).with_name("programs") / "sn_gateway.py")
    gateway = (sys.executable, program, address_of(bed, gateway_on), SN_PORT)
    publish, subscribe = ((sys.executable, "-u", "-m", f"mqttsn12.mqtt_sn_{name}") for name in ("pub", "sub"))
    with service(bed, gateway_on, *gateway, name="gateway", says="ready") as log:
        for qos in ("0", "1"):
            word, client = f"19.{qos} degrees", f"subscriber-{qos}"
            with bed.program("host", *subscribe, *where, "-q", qos, "-1", "-i", client, name=client) as process:
                wait_until(lambda name=client: has_subscribed(log, name), "the subscription")
                bed.run("host", *publish, *where, "-q", qos, "-m", word, "-i", f"publisher-{qos}")
                assert process.wait(30) == 0
            assert (bed.folder / f"{client}.log").read_text().strip() == word
        said = log.read_text()
    for client in ("subscriber-0", "subscriber-1", "publisher-0", "publisher-1"):
        assert f"disconnected {client}\n" in said, said


def has_subscribed(log: Path, client: str) -> bool:
    """By what the gateway says."""
    return "subscribed" in log.read_text().partition(f"connected {client}\n")[2]
