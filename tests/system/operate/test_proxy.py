"""The whole proxy as a process, over shared memory: start, status, reload, drain, death."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.operated_proxy import PROXY, START_S, Proxy, running, wait, write_config
from beds.ready import readable
from beds.scripted_host import ScriptedHost
from xts_lab.free_ports import free_port
from xts_lab.lab import Lab
from xts_messages.attaching.attach import Attachment, attach
from xts_proxy.supervisor import sandbox

LOOPBACK = "127.0.0.1"


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with running(tmp_path) as made:
        yield made


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        made.settimeout(5)
        yield made


def connected(host: ScriptedHost, server: socket.socket) -> tuple[int, socket.socket]:
    """The proxy's identifier of a connection to the server, and the server's end."""
    _, ack = host.connect(LOOPBACK, server.getsockname()[1])
    assert ack.error == 0
    peer, _ = server.accept()
    peer.settimeout(5)
    return int(ack.fields["proxy_id"]), peer


def test_a_connection_is_carried_and_shown(proxy: Proxy, server: socket.socket) -> None:
    with proxy.host() as (_, host):
        proxy_id, peer = connected(host, server)
        with peer:
            host.send("XTS_CMD_SEND", b"question", id=proxy_id)
            assert peer.recv(64) == b"question"
            status = proxy.status(connections=True)
            (channel,) = status["channels"]
            assert (channel["queue_id"], channel["pid"], channel["program"]) == (0, os.getpid(), "test")
            assert channel["link_state"] == "up"
            (connection,) = status["connections"]
            assert connection["proxy_id"] == proxy_id
            assert connection["state"] == "established"
            assert connection["peer"] == f"{LOOPBACK}:{server.getsockname()[1]}"
            assert connection["sent_bytes"] == len(b"question")
            shown = subprocess.run(
                [*PROXY, "status", "--connections", "--control", str(proxy.directory / "proxy.sock")],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            assert "established" in shown
            assert f"{LOOPBACK}:{server.getsockname()[1]}" in shown


def test_metrics_are_served_on_a_unix_socket(proxy: Proxy) -> None:
    with proxy.host():
        text = proxy.metrics()
    assert text.startswith("HTTP/1.0 200 OK")
    assert 'xts_channel_up{queue="0",worker="0"} 1.0' in text
    assert 'xts_proxy_attaches_total{result="ok"} 1.0' in text


def test_metrics_are_served_on_loopback(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, metrics=f"{LOOPBACK}:{port}"):
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=5) as answer:
            assert b'xts_worker_rounds_total{worker="0"}' in answer.read()


def test_processes_are_spread_over_workers_and_numbers_come_back(tmp_path: Path) -> None:
    with running(tmp_path, "[limits]\nclients = 3", workers=2) as proxy:
        with proxy.host(), proxy.host():
            with proxy.host() as (third, _):
                channels = proxy.status()["channels"]
                assert [channel["queue_id"] for channel in channels] == [0, 1, 2]
                assert sorted(channel["worker"] for channel in channels) == [0, 0, 1]
                with pytest.raises(OSError, match=r"limits\.clients") as refused:
                    attach(proxy.endpoint)
                assert refused.value.errno == errno.EUSERS
                assert third.queue_id == 2
            wait(lambda: len(proxy.status()["channels"]) == 2, "channel that ends")
            wait(lambda: attachable(proxy.endpoint) == 2, "free number")


#: Two threads of a process, each with a connection that it keeps until told to end.
THREADS = """
import sys, threading
import xts_socket
go = threading.Event()
def connect():
    with xts_socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10):
        print("connected", flush=True)
        go.wait()
threads = [threading.Thread(target=connect) for _ in range(2)]
for thread in threads:
    thread.start()
sys.stdin.read()
go.set()
"""


def test_threads_of_a_process_are_served_by_several_workers(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path, workers=2) as proxy:
        command = [sys.executable, "-c", THREADS, str(server.getsockname()[1])]
        environment = os.environ | {"XTS_ENDPOINT": proxy.endpoint, "XTS_STACKS": "thread"}
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin and process.stdout
            assert [process.stdout.readline() for _ in range(2)] == [b"connected\n"] * 2
            status = proxy.status(connections=True)
            assert sorted((channel["pid"], channel["worker"]) for channel in status["channels"]) == [
                (process.pid, 0),
                (process.pid, 1),
            ]
            assert len(status["connections"]) == 2
            process.stdin.close()
            assert process.wait(20) == 0


def attachable(endpoint: str) -> int | None:
    """The number of the queue an attaching process gets."""
    try:
        attachment = attach(endpoint)
    except OSError:
        return None
    attachment.close()
    return attachment.queue_id


def test_what_a_process_sent_last_arrives_although_it_ends_at_once(proxy: Proxy, server: socket.socket) -> None:
    with proxy.host() as (_, host):
        proxy_id, peer = connected(host, server)
        host.send("XTS_CMD_SEND", b"last words", id=proxy_id)
    with peer:
        assert peer.recv(64) == b"last words"
        assert peer.recv(64) == b""


def test_lines_of_json_say_which_tenant_was_refused(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path, "[limits]\nconnections = 1", log_format="json") as proxy:
        with proxy.host() as (_, host):
            _, peer = connected(host, server)
            with peer:
                assert host.connect(LOOPBACK, server.getsockname()[1])[1].error == errno.ENOBUFS
                proxy.process.terminate()
                wait(lambda: "refused 1 times" in proxy.log.read_text(), "line about it")
        assert proxy.ended() == 0
        lines = [json.loads(line) for line in proxy.log.read_text().splitlines()]
    (refused,) = [line for line in lines if "because of limits" in line["message"]]
    assert refused["message"] == "tenant default: refused 1 times because of limits: 1 by limits.connections"
    assert (refused["level"], refused["tenant"], refused["count"]) == ("warning", "default", 1)
    (opened,) = [line for line in lines if ": open, " in line["message"]]
    assert (opened["worker"], opened["tenant"], opened["queue"]) == (0, "default", 0)


def test_a_reload_takes_limits_and_policy_over(proxy: Proxy, server: socket.socket) -> None:
    with proxy.host() as (_, host):
        _, peer = connected(host, server)
        with peer:
            proxy.write_config('[[policy.rule]]\naction = "deny"\nwhat = "connect"\nnetwork = "127.0.0.0/8"')
            assert "is in force" in proxy.hang_up("taken")
            assert host.connect(LOOPBACK, server.getsockname()[1])[1].error == errno.EACCES
            proxy.write_config("")
            proxy.hang_up("taken")
            connected(host, server)[1].close()


@pytest.mark.parametrize(
    ("text", "changed", "told"),
    [
        ("[limits]\nconnections = 0", {}, "proxy.toml:8:15: limits.connections: expected an integer from 1"),
        ('[policy]\ndefault = "deny"', {"workers": 2}, "proxy.workers: 1 -> 2; this needs a restart"),
    ],
)
def test_a_reload_that_cannot_be_leaves_everything_as_it_was(
    proxy: Proxy, server: socket.socket, text: str, changed: dict[str, Any], told: str
) -> None:
    proxy.write_config(text, **changed)
    logged = proxy.hang_up("refused")
    assert told in logged
    assert logged.count("the configuration in force stays") == 1
    with proxy.host() as (_, host):
        connected(host, server)[1].close()


def reload(proxy: Proxy) -> subprocess.CompletedProcess[str]:
    command = [*PROXY, "--config", str(proxy.directory / "proxy.toml"), "reload"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_command_reloads_and_tells_the_outcome(proxy: Proxy, server: socket.socket) -> None:
    """It returns when the file is in force. If the file is not, it fails, and says why in one line for each reason."""
    proxy.write_config('[[policy.rule]]\naction = "deny"\nwhat = "connect"\nnetwork = "127.0.0.0/8"')
    done = reload(proxy)
    assert (done.returncode, done.stderr) == (0, "")
    with proxy.host() as (_, host):
        assert host.connect(LOOPBACK, server.getsockname()[1])[1].error == errno.EACCES
    file = proxy.write_config("", workers=2, drain_timeout_s=3)
    done = reload(proxy)
    assert done.returncode == 2
    assert done.stderr == f"{file}: proxy.workers: 1 -> 2; this needs a restart\n"
    file = proxy.write_config("[limits]\nconnections = 0")
    done = reload(proxy)
    assert done.returncode == 2 and done.stderr.startswith(f"{file}:8:15: limits.connections: expected an integer")
    assert proxy.status()["proxy"]["reloads"] == {"taken": 1, "refused": 1}
    file = proxy.write_config("", control=str(proxy.directory / "other.sock"))
    done = reload(proxy)
    assert done.returncode == 1 and "a change of proxy.control needs a restart" in done.stderr


def test_a_stop_lets_connections_end_and_then_says_goodbye(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path, drain_refuse_s=5) as proxy, proxy.host() as (attachment, host):
        proxy_id, peer = connected(host, server)
        proxy.process.send_signal(signal.SIGTERM)
        wait(lambda: proxy.status()["proxy"]["state"] == "draining", "draining")
        with pytest.raises(OSError, match="the proxy is stopping") as refused:
            attach(proxy.endpoint)
        assert refused.value.errno == errno.ESHUTDOWN
        assert host.connect(LOOPBACK, server.getsockname()[1])[1].error == errno.ESHUTDOWN
        with peer:
            host.send("XTS_CMD_SEND", b"still here", id=proxy_id)
            assert peer.recv(64) == b"still here"
            host.send("XTS_CMD_SEND", id=proxy_id, flags=0x02)  # CLOSE
            assert peer.recv(64) == b""
        assert host.wait_down() == errno.ESHUTDOWN
        assert proxy.ended() == 0
        assert readable(attachment, 5), "the connection's end tells of the proxy's"
    assert "cut off" not in proxy.log.read_text()
    assert sorted(path.name for path in proxy.directory.iterdir()) == ["log", "proxy.toml"]


def test_until_shortly_before_its_end_a_proxy_serves_newcomers(tmp_path: Path, server: socket.socket) -> None:
    """A restart refuses new sockets no longer than a crash. Who has nothing begun at the end is not waited for."""
    with running(tmp_path, drain_timeout_s=60, drain_refuse_s=0.2) as proxy, proxy.host() as (_, host):
        proxy_id, peer = connected(host, server)
        proxy.process.send_signal(signal.SIGTERM)
        wait(lambda: proxy.status()["proxy"]["state"] == "draining", "draining")
        with proxy.host() as (_, newcomer):
            second_id, second = connected(newcomer, server)
            with peer:
                host.send("XTS_CMD_SEND", id=proxy_id, flags=0x02)  # CLOSE
                assert peer.recv(64) == b""
            with second:
                newcomer.send("XTS_CMD_SEND", b"served", id=second_id, flags=0x02)
                assert second.recv(64) == b"served"
            assert newcomer.wait_down() == errno.ESHUTDOWN
        assert proxy.ended() == 0
    assert "cut off" not in proxy.log.read_text()


def test_a_stop_refuses_newcomers_before_the_end(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path, drain_timeout_s=1.2, drain_refuse_s=0.9) as proxy, proxy.host() as (_, host):
        with contextlib.ExitStack() as peers:
            peers.enter_context(connected(host, server)[1])
            proxy.process.send_signal(signal.SIGTERM)
            errors = [0]
            while not errors[-1]:
                errors.append(host.connect(LOOPBACK, server.getsockname()[1])[1].error)
                if not errors[-1]:
                    peers.enter_context(server.accept()[0])
            assert errors[-1] == errno.ESHUTDOWN and len(errors) > 2, "some were served"
            assert host.wait_down() == errno.ESHUTDOWN
            assert proxy.ended() == 0


def test_a_stop_waits_no_longer_than_it_was_told(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path, drain_timeout_s=0.3) as proxy, proxy.host() as (_, host):
        _, peer = connected(host, server)
        with peer:
            begun = time.monotonic()
            proxy.process.send_signal(signal.SIGTERM)
            assert host.wait_down() == errno.ESHUTDOWN
            assert time.monotonic() - begun >= 0.3
            assert proxy.ended() == 0
            with pytest.raises(ConnectionResetError):
                peer.recv(64)
        assert "1 connections are cut off" in proxy.log.read_text()


def test_a_second_signal_stops_at_once(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path, drain_timeout_s=3600) as proxy, proxy.host() as (_, host):
        _, peer = connected(host, server)
        with peer:
            proxy.process.send_signal(signal.SIGTERM)
            wait(lambda: proxy.status()["proxy"]["state"] == "draining", "draining")
            proxy.process.send_signal(signal.SIGINT)
            assert proxy.ended() == 0


def test_a_killed_proxy_is_noticed_and_the_next_one_serves(tmp_path: Path, server: socket.socket) -> None:
    with running(tmp_path) as proxy, proxy.host() as (attachment, host):
        _, peer = connected(host, server)
        with peer:
            proxy.process.kill()
            assert readable(attachment, 1), "the hosts know within a second"
            with pytest.raises(OSError):
                while peer.recv(64):
                    pass
                raise ConnectionResetError  # closed rather than reset: as good an end
        proxy.ended()
        with running(tmp_path) as again, again.host() as (_, host_again):
            connected(host_again, server)[1].close()


def test_a_second_proxy_on_the_same_sockets_is_refused(proxy: Proxy) -> None:
    second = subprocess.run(
        [*PROXY, "--config", str(proxy.directory / "proxy.toml")],
        check=False,
        capture_output=True,
        text=True,
        timeout=START_S,
    )
    assert second.returncode == 2, "its unit does not start it again"
    assert re.search(rf"proxy\.sock is served by \S+ \(process {proxy.process.pid}\)", second.stderr), second.stderr
    assert proxy.status()["proxy"]["state"] == "running"


def test_privileges_are_gone_while_it_serves(proxy: Proxy) -> None:
    may_stay = {
        proxy.process.pid: 1 << 2,  # CAP_DAC_READ_SEARCH, for reloads
        proxy.pid_of("xts-workers"): sum(1 << sandbox.CAPABILITIES[name] for name in sandbox.of_workers()),
        proxy.pid_of("xts-keys"): 0,
    }
    for pid, capabilities in may_stay.items():
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
            assert int(fields["CapPrm"], 16) & ~capabilities == 0
            assert int(fields["CapEff"], 16) & ~(capabilities & ~(1 << 2)) == 0
            assert int(fields["CapBnd"], 16) & ~capabilities == 0 or os.geteuid() != 0
            assert fields["NoNewPrivs"] == "1"
            assert "0" not in fields["Uid"].split()
            assert fields["Seccomp"] == ("0" if pid == proxy.process.pid else "2")


def test_what_a_process_calls_itself_does_nothing_to_a_terminal(proxy: Proxy) -> None:
    with attached(proxy.endpoint, "[red]x\x1b[2J\nforged"):
        command = [*PROXY, "status", "--control", str(proxy.directory / "proxy.sock")]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert "[red]x?[2J?forged" in shown
        assert "\x1b" not in shown + proxy.log.read_text()


def test_a_proxy_that_is_not_there_is_asked_by_another_name(proxy: Proxy) -> None:
    """As in a lab, which says by XTS_CONTROL where its proxy is asked."""
    names = Lab("named").environment("dpu"), os.environ | {"XTS_CONTROL": str(proxy.directory / "proxy.sock")}
    assert names[0]["XTS_CONTROL"] == "/run/xts/named/proxy.sock"
    absent, there = (
        subprocess.run([*PROXY, "status"], env=environment, check=False, capture_output=True, text=True)
        for environment in names
    )
    assert (there.returncode, there.stderr) == (0, "")
    assert absent.returncode == 1
    assert "asking the proxy at /run/xts/named/proxy.sock: No such file" in absent.stderr
    assert "--control or XTS_CONTROL names another socket" in absent.stderr


def attached(endpoint: str, program: str) -> contextlib.closing[Attachment]:
    return contextlib.closing(attach(endpoint, program=program))


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """One that other users can read; tmp_path is its owner's alone."""
    with tempfile.TemporaryDirectory(prefix="xts-proxy-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def test_systemd_hears_of_readiness_life_and_stopping(tmp_path: Path, open_directory: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(open_directory / "notify.sock"))
        (open_directory / "notify.sock").chmod(0o777)
        notify.settimeout(5)
        told = {"NOTIFY_SOCKET": str(open_directory / "notify.sock"), "WATCHDOG_USEC": "100000"}
        with running(tmp_path, environment=told) as proxy:
            assert notify.recv(256).startswith(b"READY=1")
            assert [notify.recv(256) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            proxy.hang_up("taken")
            heard = collect(notify, b"READY=1")
            assert any(message.startswith(b"RELOADING=1\nMONOTONIC_USEC=") for message in heard)
            proxy.process.send_signal(signal.SIGTERM)
            assert collect(notify, b"STOPPING=1")
            assert proxy.ended() == 0


def collect(notify: socket.socket, last: bytes) -> list[bytes]:
    """The messages up to one that begins with last."""
    heard = [notify.recv(256)]
    while not heard[-1].startswith(last):
        heard.append(notify.recv(256))
    return heard


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"{}\n", b"missing required field `ask`"),
        (b'{"ask": "stop"}\n', b"Invalid enum value 'stop'"),
        (b'{"ask": "status", "x": ' + b"[" * 4000 + b"\n", b"not a question"),
        (b"[1]\n", b"Expected `object`, got `array`"),
        (b"\xff\xfe\n", b"not a question"),
        (b"x" * 1_000_000, b""),
        (b"", b"not a question"),
    ],
)
def test_nonsense_on_the_control_socket_is_answered_or_ended(proxy: Proxy, sent: bytes, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(proxy.directory / "proxy.sock"))
        got = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(4096):
                got += data
    assert answer in got
    assert bool(got) == bool(answer)
    assert proxy.status()["proxy"]["state"] == "running"
    assert "Traceback" not in proxy.log.read_text()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_as_another_user_it_serves_reloads_and_stops(open_directory: Path, server: socket.socket) -> None:
    with running(open_directory, user="nobody") as proxy:
        uid = pwd.getpwnam("nobody").pw_uid
        fields = proxy_status(proxy.process.pid)
        assert fields["Uid"].split() == [str(uid)] * 4
        assert fields["Groups"].split() in ([], [fields["Gid"].split()[0]])
        assert int(fields["CapEff"], 16) == 0
        kept = sum(1 << sandbox.CAPABILITIES[name] for name in sandbox.of_workers())
        assert int(proxy_status(proxy.pid_of("xts-workers"))["CapEff"], 16) in {1 << 10, kept}
        with proxy.host() as (_, host):
            connected(host, server)[1].close()
        proxy.write_config("", user="nobody", spin_us=7)
        proxy.hang_up("taken")
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.ended() == 0
    with running(open_directory) as again:  # the sockets it could not remove are replaced
        assert again.status()["proxy"]["state"] == "running"


def proxy_status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


@pytest.mark.parametrize(
    ("changed", "told", "status"),
    [
        ({"user": "no-such-user-xts"}, "no-such-user-xts", 2),
        ({"metrics": "unix:/nonexistent/metrics.sock"}, "/nonexistent/metrics.sock: there is no directory", 2),
        ({"queue": "afxdp", "interface": "nodev0", "peer_mac": "02:00:00:00:00:01"}, "nodev0", 1),
    ],
)
def test_what_cannot_be_opened_is_told_and_nothing_is_left(
    tmp_path: Path, changed: dict[str, Any], told: str, status: int
) -> None:
    """With 1 its unit starts it again: the interface may come."""
    config = write_config(tmp_path, **changed)
    ended = subprocess.run(
        [*PROXY, "--config", str(config)], check=False, capture_output=True, text=True, timeout=START_S
    )
    assert ended.returncode == status
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["proxy.toml"]


def test_explain_names_the_rule_that_decides(tmp_path: Path) -> None:
    config = write_config(tmp_path, '[[policy.rule]]\naction = "deny"\nports = "25"\nqueues = "3"')

    def explain(*arguments: str) -> str:
        command = [*PROXY, "--config", str(config), "--explain", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert explain("connect", "198.18.0.2:25", "--queue", "3").startswith("deny: policy.rule[0]")
    assert explain("connect", "198.18.0.2:25").startswith("allow: no rule matches")


def test_check_tells_mistakes_or_values(tmp_path: Path) -> None:
    config = write_config(tmp_path, "[limits]\nlisteners = 5")
    good = subprocess.run([*PROXY, "--check", str(config)], check=False, capture_output=True, text=True)
    assert good.returncode == 0
    assert good.stdout.startswith("ok\n")
    assert "listeners = 5\n" in good.stdout
    assert "connections = 16384  # default\n" in good.stdout
    config = write_config(tmp_path, "[limits]\nlistners = 5")
    bad = subprocess.run([*PROXY, "--check", str(config)], check=False, capture_output=True, text=True)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == f"{config}:8:1: limits.listners: unknown key; did you mean listeners?\n"


@pytest.mark.parametrize(
    "key, mode, said",
    [
        (b"k" * 32, 0o600, ""),
        (b"k" * 32, 0o644, "may be read by others"),
        (b"short", 0o600, "has 5 bytes; expected 32 to 128"),
        (None, 0, "token.key: No such file"),
    ],
)
def test_check_tries_the_key_that_is_shared_with_the_agent(
    tmp_path: Path, key: bytes | None, mode: int, said: str
) -> None:
    """What would keep the proxy from starting is told before it is to start."""
    file = tmp_path / "token.key"
    if key is not None:
        file.write_bytes(key)
        file.chmod(mode)
    config = tmp_path / "proxy.toml"
    config.write_text(f'[proxy]\ninterface = "xts0"\npeer_mac = "02:00:00:00:00:01"\ntoken_key = "{file}"\n')
    done = subprocess.run([*PROXY, "--check", str(config)], check=False, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (2 if said else 0, False)
    assert said in done.stderr
    assert not said or done.stderr.startswith(f"{config}:4:13: proxy.token_key: ")
