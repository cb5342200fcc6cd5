"""The proxy's processes: what each may, that none outlives another, and that private keys are in one of them only."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from beds import process_tree
from beds.authority import Authority, Issued, self_signed_pss
from beds.operated_proxy import Proxy, running, wait
from beds.operated_tls import OTHER, READY, WWW, directory, host_of, identity, trust
from beds.process_memory import memory_of
from beds.ready import readable
from beds.scripted_host import ScriptedHost
from beds.ulp_tls import client_context, server_context, takes_signatures
from beds.worker import Conn, connected, receive_exactly, server
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from xts_messages.attaching.attach import attach
from xts_messages.services import landlock
from xts_proxy._native import lib

__all__ = ["directory", "server"]  # fixtures
AUTHORITY = Authority()
TOLD_S = 1.0
RESTRICTED = ["rsa-pss-sha256", "rsa-pss-sha384", "rsa-pss-sha512"]
KINDS = ["ec", "ec384", "rsa", "rsa-pss", *RESTRICTED, "ed25519", "ed448"]
ONE_TWO, ONE_THREE = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


# --- what each may -------------------------------------------------------------------------------------

#: For each of the arguments but the first: a process gives up rights as the proxy's do, and does it.
CONFINED = """
import ctypes, json, mmap, os, select, socket, sys
from xts_proxy._native import ffi, lib
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
ends = []
for thing in sys.argv[2:]:
    code = compile(thing, thing, "exec")
    if (pid := os.fork()) == 0:
        assert lib.xts_calls_only(int(sys.argv[1])) == 0
        try:
            exec(code)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(ends))
"""
FORBIDDEN = [
    "os.execv('/bin/true', ['true'])",
    "os.fork()",
    "os.kill(os.getppid(), 0)",
    "socket.socket(socket.AF_UNIX)",
    "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
    "libc.ptrace(0, 0, 0, 0)",
    "libc.syscall(425, 1, 0)",  # io_uring_setup
    "libc.unshare(0x10000000)",
    "libc.setsid()",
]
OPEN, ASK = "os.open('/etc/passwd', os.O_RDONLY)", "os.stat('/etc/passwd')"
#: A block that malloc() has mapped, and made larger than any room that is left behind it.
GROW = """
libc.malloc.restype = libc.realloc.restype = ctypes.c_void_p
block = libc.malloc(ctypes.c_size_t(1 << 23))
ctypes.memset(block, 7, 1 << 23)
block = libc.realloc(ctypes.c_void_p(block), ctypes.c_size_t(1 << 27))
os._exit(0 if ctypes.string_at(block, 1 << 23) == bytes([7]) * (1 << 23) else 1)
"""
RUN_PARSER, LOAD_PARSER = (
    f"libc.syscall({{bpf}}, {command}, ctypes.create_string_buffer(128), 128)" for command in (10, 5)
)
RENAME, SET_NICE = "libc.prctl(15, b'other', 0, 0, 0)", "libc.setpriority(0, 0, 1)"
READ_CLOCK = "libc.clock_adjtime(0, ctypes.create_string_buffer(256))"
REAL_TIME = "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
BPF = 321 if platform.machine() == "x86_64" else 280


def ends(calls: int, *things: str) -> tuple[list[int], str]:
    """Exit statuses, and what was said."""
    command = [sys.executable, "-c", CONFINED, str(calls), *(thing.format(bpf=BPF) for thing in things)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
    return json.loads(ended.stdout), ended.stderr


@pytest.mark.parametrize(
    "calls",
    [lib.XTS_CALLS_OF_KEYS, lib.XTS_CALLS_OF_RELAY, lib.XTS_CALLS_OF_WORKERS | lib.XTS_CALLS_OF_PARSERS],
)
def test_a_system_call_that_none_needs_ends_the_process(calls: int) -> None:
    found, said = ends(calls, *FORBIDDEN, LOAD_PARSER)
    assert dict(zip(FORBIDDEN, found, strict=False)) == dict.fromkeys(FORBIDDEN, 159)
    assert found[-1] == 159
    lines = said.splitlines()
    assert len(lines) == len(FORBIDDEN) + 1
    assert all("made a system call that none of its kind needs: number " in line for line in lines)


def test_no_file_can_be_opened() -> None:
    """The C library tries to when it gives memory back, and does without."""
    for calls in (lib.XTS_CALLS_OF_KEYS, lib.XTS_CALLS_OF_RELAY, lib.XTS_CALLS_OF_WORKERS):
        assert ends(calls, OPEN, ASK) == ([errno.EACCES] * 2, "")


def test_memory_grows_without_the_call_that_moves_it() -> None:
    for calls in (lib.XTS_CALLS_OF_KEYS, lib.XTS_CALLS_OF_RELAY, lib.XTS_CALLS_OF_WORKERS):
        assert ends(calls, GROW) == ([0], "")


def test_bpf_is_for_parsers_only() -> None:
    assert ends(lib.XTS_CALLS_OF_WORKERS | lib.XTS_CALLS_OF_PARSERS, RUN_PARSER)[0] == [0]
    assert ends(lib.XTS_CALLS_OF_WORKERS, RUN_PARSER)[0] == [159]


def test_a_relay_has_few_system_calls_and_no_sockets() -> None:
    assert lib.xts_calls_count(lib.XTS_CALLS_OF_RELAY) <= 28
    for call in ("socket.socket()", RENAME, SET_NICE, "os.eventfd(0)", RUN_PARSER):
        assert ends(lib.XTS_CALLS_OF_RELAY, call)[0] == [159], call


def test_workers_that_run_have_few_system_calls(directory: Path) -> None:
    """Those that only a start needs are over then: threads have begun, and have their names."""
    assert lib.xts_calls_count(lib.XTS_CALLS_OF_WORKERS | lib.XTS_CALLS_OF_PARSERS) <= 41
    assert lib.xts_calls_count(lib.XTS_CALLS_OF_KEYS) <= 20
    for call in (RENAME, SET_NICE, REAL_TIME, READ_CLOCK, "os.eventfd(0)", "select.epoll()"):
        assert ends(lib.XTS_CALLS_OF_WORKERS, call)[0] == [159], call
    with running(directory) as proxy, proxy.host():
        tasks = Path(f"/proc/{proxy.pid_of('xts-workers')}/task").iterdir()
        assert {(task / "comm").read_text().strip() for task in tasks} == {"xts-workers", "xts-worker", "xts-handshake"}
        assert f"{lib.xts_calls_count(lib.XTS_CALLS_OF_WORKERS)} system calls" in proxy.log.read_text()


def test_no_connection_makes_the_table_of_descriptors_grow(directory: Path) -> None:
    """Growing it in a process with threads waits for all processors (RCU), and everybody's connections with it."""
    with running(directory) as proxy:
        status = Path(f"/proc/{proxy.pid_of('xts-workers')}/status").read_text(encoding="ascii")
    table = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("FDSize:"))
    assert table >= min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 1 << 20)


def test_processes_have_no_files_and_no_others_sockets(directory: Path) -> None:
    with running(directory) as proxy, proxy.host():
        for name in ("xts-workers", "xts-keys"):
            pid = proxy.pid_of(name)
            opened = {str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
            files = {path for path in opened if path.startswith("/") and not path.startswith("/memfd:")}
            keys = {"/secretmem (deleted)"} if name == "xts-workers" else set()  # for the next process of the workers
            assert files <= {str(proxy.log)} | keys, "stderr, and the memory for keys"
            assert Path(f"/proc/{pid}/comm").read_text().strip() == name
        confined = landlock.version() and not lib.xts_calls_sanitized()
        assert ("sandbox of workers: Landlock" in proxy.log.read_text()) == bool(confined)


# --- their ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["xts-workers", "xts-keys"])
def test_the_end_of_one_is_the_end_of_all_and_told(directory: Path, name: str) -> None:
    with running(directory, crashes_max=0) as proxy:  # else another process goes on
        attachment = attach(proxy.endpoint, program="test")
        try:
            os.kill(proxy.pid_of(name), signal.SIGKILL)
            assert readable(attachment, TOLD_S), "the host is told"
        finally:
            attachment.close()
        assert proxy.ended(TOLD_S) == 1
        assert f"{name}: killed by SIGKILL; the proxy ends" in proxy.log.read_text()


def test_none_outlives_the_supervisor(directory: Path) -> None:
    with running(directory) as proxy:
        names = ("xts-workers", "xts-keys", "xts-understudy")
        others = [os.pidfd_open(proxy.pid_of(name)) for name in names]
        proxy.process.kill()
        for pidfd in others:
            assert readable(pidfd, TOLD_S)
            os.close(pidfd)


# --- keys ----------------------------------------------------------------------------------------------


def issue(kind: str) -> Issued:
    return self_signed_pss(kind) if kind.startswith("rsa-pss") else AUTHORITY.issue("localhost", kind=kind)


def talk(c: Conn, peer: ssl.SSLSocket) -> None:
    assert c.receive().fields["control_type"] == READY
    c.send(b"through the proxy")
    assert receive_exactly(peer, 17) == b"through the proxy"


@pytest.fixture(scope="module")
def identities() -> dict[str, Issued]:
    return {kind: issue(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def proxy(identities: dict[str, Issued]) -> Iterator[Proxy]:
    """One that has them all."""
    with tempfile.TemporaryDirectory(prefix="xts-proxy-") as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "roots.pem").write_bytes(AUTHORITY.certificate)
        text = "".join(identity(path, kind, issued) for kind, issued in identities.items())
        with running(path, text + trust(path)) as made:
            yield made


@pytest.mark.parametrize("version", [ONE_TWO, ONE_THREE], ids=["1.2", "1.3"])
@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_each_kind_sign(
    proxy: Proxy, identities: dict[str, Issued], server: socket.socket, kind: str, version: ssl.TLSVersion
) -> None:
    """As a server's, and as a client's."""
    own = identities[kind]
    with host_of(proxy) as host, connected(host, server) as c:
        assert c.push("TLS", role=2, identity=kind).error == 0
        context = client_context(None, minimum_version=version, maximum_version=version)
        with context.wrap_socket(c.peer) as peer:
            assert peer.getpeercert(True) == own.der
            talk(c, peer)
    with host_of(proxy) as host, connected(host, server) as c:
        assert c.push("TLS", server_name="localhost", identity=kind).error == 0
        context = server_context(AUTHORITY.issue("localhost"), verify_mode=ssl.CERT_REQUIRED, maximum_version=version)
        context.load_verify_locations(cadata=(AUTHORITY.certificate + own.certificate).decode())
        with context.wrap_socket(c.peer, server_side=True) as peer:
            assert peer.getpeercert(True) == own.der
            talk(c, peer)


@pytest.mark.parametrize("version", [ONE_TWO, ONE_THREE], ids=["1.2", "1.3"])
@pytest.mark.parametrize("kind", RESTRICTED)
def test_a_client_that_takes_nothing_a_key_is_for(
    proxy: Proxy, server: socket.socket, kind: str, version: ssl.TLSVersion
) -> None:
    """That is found out in time for the right alert."""
    others = ":".join(f"rsa_pss_pss_{digest}" for digest in ("sha256", "sha384", "sha512") if digest not in kind)
    with host_of(proxy) as host, connected(host, server) as c:
        assert c.push("TLS", role=2, identity=kind).error == 0
        context = takes_signatures(client_context(None, minimum_version=version, maximum_version=version), others)
        with pytest.raises(ssl.SSLError, match=r"HANDSHAKE_FAILURE"), context.wrap_socket(c.peer):
            pass


def test_a_secret_without_forward_secrecy_is_decrypted(directory: Path, server: socket.socket) -> None:
    text = identity(directory, "www", issue("rsa")) + '[tls]\nciphers = "AES128-GCM-SHA256"\n'
    with running(directory, text) as proxy, host_of(proxy) as host, connected(host, server) as c:
        assert c.push("TLS", role=2, identity="www").error == 0
        context = client_context(None, maximum_version=ONE_TWO)
        context.set_ciphers("AES128-GCM-SHA256")
        with context.wrap_socket(c.peer) as peer:
            talk(c, peer)


def secrets_of(www: Issued) -> list[bytes]:
    """What its key is made of, as it may lie in memory."""
    key = serialization.load_pem_private_key(www.key, None)
    numbers: list[tuple[int, int]] = []
    if isinstance(key, rsa.RSAPrivateKey):
        private = key.private_numbers()
        numbers = [(private.p, 128), (private.q, 128), (private.d, 256)]
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        numbers = [(key.private_numbers().private_value, 32)]
    pem = [line for line in www.key.splitlines() if b"-----" not in line and len(line) > 30]
    return pem + [number.to_bytes(size, order) for number, size in numbers for order in ("little", "big")]


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_private_keys_are_in_one_process_while_they_are_needed(
    directory: Path, server: socket.socket, kind: str
) -> None:
    www = AUTHORITY.issue("localhost", kind=kind)
    secrets = secrets_of(www)
    with running(directory, identity(directory, "www", www)) as proxy:
        keys, workers = proxy.pid_of("xts-keys"), proxy.pid_of("xts-workers")

        def has_some(pid: int) -> bool:
            return any(secret in content for _, content in memory_of(pid) for secret in secrets)

        try:
            next(memory_of(keys))
        except OSError as error:
            pytest.skip(f"the proxy's memory cannot be read: {error.strerror}")
        with host_of(proxy) as host, connected(host, server) as c:
            assert c.push("TLS", role=2, identity="www").error == 0
            with client_context(None).wrap_socket(c.peer) as peer:
                talk(c, peer)
            assert has_some(keys), "they are looked for in the wrong place"
            assert not has_some(proxy.process.pid)
            assert not has_some(workers)
        proxy.write_config(identity(directory, "other", AUTHORITY.issue("localhost", kind="ec384")))
        proxy.hang_up("taken")
        wait(lambda: not has_some(keys), "end of the key")
        assert not has_some(proxy.process.pid)


def test_workers_that_stand_still_do_not_block_the_supervisor(tmp_path: Path) -> None:
    """It tells of them in its log, status and metrics, and all goes on when they do."""
    with running(tmp_path) as proxy:
        workers = proxy.pid_of("xts-workers")
        process_tree.stop(workers)
        try:
            wait(lambda: "its process does not answer" in proxy.log.read_text(), "line in the log", 10)
            row = proxy.status()["workers"][0]
            assert row["no_progress_s"] > 0
            assert "rounds" not in row
            assert "xts_worker_stalled_seconds" in proxy.metrics()
        finally:
            os.kill(workers, signal.SIGCONT)
        wait(lambda: "goes on after" in proxy.log.read_text(), "end of it", 10)
        assert proxy.status()["workers"][0]["rounds"] > 0
        with proxy.host():
            pass


def end_stop(pid: int) -> None:
    with suppress(ProcessLookupError):  # it was killed
        os.kill(pid, signal.SIGCONT)


@contextmanager
def keys_stopped(proxy: Proxy, server: socket.socket, count: int) -> Iterator[list[tuple[Conn, ssl.SSLSocket]]]:
    """xts-keys is stopped, and these servers' handshakes wait for it. It goes on at the end."""
    keys = proxy.pid_of("xts-keys")
    with ExitStack() as stack:
        os.kill(keys, signal.SIGSTOP)
        stack.callback(end_stop, keys)
        waiting = []
        for _ in range(count):
            c = stack.enter_context(connected(stack.enter_context(host_of(proxy)), server))
            assert c.push("TLS", role=2, identity="www").error == 0
            peer = stack.enter_context(client_context(None).wrap_socket(c.peer, do_handshake_on_connect=False))
            peer.setblocking(False)
            with suppress(ssl.SSLWantReadError):
                peer.do_handshake()
            waiting.append((c, peer))
        yield waiting


def ends_well(c: Conn, peer: ssl.SSLSocket) -> None:
    peer.settimeout(10)
    peer.do_handshake()
    talk(c, peer)


def test_keys_that_are_late_are_told_and_waited_for(directory: Path, server: socket.socket) -> None:
    """In the log and the metrics, while handshakes wait. More of them than there are threads on either side."""
    with running(directory, identity(directory, "www", AUTHORITY.issue("localhost"))) as proxy:
        with keys_stopped(proxy, server, count=12) as waiting:
            wait(lambda: "xts-keys is slow" in proxy.log.read_text(), "line in the log", 10)
            metrics = proxy.metrics()
            assert re.search(r"^xts_tls_late_signatures_waiting [1-9]", metrics, re.MULTILINE)
            assert re.search(r"^xts_tls_late_signatures_total [1-9]", metrics, re.MULTILINE)
            os.kill(proxy.pid_of("xts-keys"), signal.SIGCONT)
            for c, peer in waiting:
                ends_well(c, peer)
        with host_of(proxy) as host, connected(host, server) as c:
            assert c.push("TLS", role=2, identity="www").error == 0
            with client_context(None).wrap_socket(c.peer) as peer:
                talk(c, peer)
        assert "xts_tls_late_signatures_waiting 0.0" in proxy.metrics()


@pytest.mark.slow
def test_keys_that_are_later_than_anybody_waits(directory: Path, server: socket.socket) -> None:
    """Those that waited have been ended by their time-out. Whoever comes later is served."""
    with running(directory, identity(directory, "www", AUTHORITY.issue("localhost"))) as proxy:
        with keys_stopped(proxy, server, count=4) as waiting:
            for _, peer in waiting:
                peer.settimeout(15)
                with pytest.raises(OSError):
                    peer.do_handshake()
        for _ in range(8):
            with host_of(proxy) as host, connected(host, server) as c:
                assert c.push("TLS", role=2, identity="www").error == 0
                with client_context(None).wrap_socket(c.peer) as peer:
                    talk(c, peer)


def served(proxy: Proxy, server: socket.socket, name: str = "www") -> None:
    with host_of(proxy) as host, connected(host, server) as c:
        assert c.push("TLS", role=2, identity=name).error == 0
        with client_context(None).wrap_socket(c.peer) as peer:
            talk(c, peer)


def kill_keys(proxy: Proxy) -> None:
    """Returns when another process has the keys."""
    killed = proxy.pid_of("xts-keys")
    said = proxy.log.read_text().count("another process has its keys")
    os.kill(killed, signal.SIGKILL)
    wait(
        lambda: proxy.log.read_text().count("another process has its keys") > said, "another process with the keys", 10
    )
    assert proxy.pid_of("xts-keys") != killed


def test_another_process_has_the_keys_of_one_that_was_killed(directory: Path, server: socket.socket) -> None:
    """Handshakes that waited for it end well, connections go on, and the keys are where they were, also for the workers
    that go on when theirs have died."""
    with running(directory, identity(directory, "www", AUTHORITY.issue("localhost")), crashes_max=100) as proxy:
        with keys_stopped(proxy, server, count=6) as waiting:
            kill_keys(proxy)
            for c, peer in waiting:
                ends_well(c, peer)
        served(proxy, server)
        proxy.write_config(identity(directory, "www", WWW) + identity(directory, "other", OTHER), crashes_max=100)
        assert "is in force" in proxy.hang_up("taken")
        for _ in range(2):
            kill_keys(proxy)
            served(proxy, server)
            served(proxy, server, "other")
        workers = proxy.pid_of("xts-workers")
        os.kill(workers, signal.SIGKILL)
        wait(lambda: "another process goes on" in proxy.log.read_text(), "other workers", 10)
        served(proxy, server, "other")
        kill_keys(proxy)
        served(proxy, server, "other")
        proxy.write_config(identity(directory, "third", AUTHORITY.issue("localhost")), crashes_max=100)
        assert "is in force" in proxy.hang_up("taken")
        served(proxy, server, "third")


def test_a_key_that_another_one_has_replaced_is_told(directory: Path, server: socket.socket) -> None:
    """Its file has another one when it is loaded again. The identity serves nobody, until that is in force."""
    text = identity(directory, "www", WWW) + identity(directory, "other", OTHER)
    with running(directory, text) as proxy:
        identity(directory, "www", OTHER)
        kill_keys(proxy)
        told = "www.key has another key than the one in force: reload the configuration"
        wait(lambda: told in proxy.log.read_text(), "a word about it")
        served(proxy, server, "other")
        with host_of(proxy) as host, connected(host, server) as c:
            assert c.push("TLS", role=2, identity="www").error == 0
            with pytest.raises(OSError):
                client_context(None).wrap_socket(c.peer)
        identity(directory, "www", WWW)
        proxy.hang_up("taken")
        served(proxy, server)


def policies(pid: int, name: str) -> list[int]:
    """Of the threads of a process that have this name, the first one of all left out."""
    others = [thread for thread in Path(f"/proc/{pid}/task").iterdir() if thread.name != str(pid)]
    named = [int(thread.name) for thread in others if (thread / "comm").read_text() == f"{name}\n"]
    return sorted(os.sched_getscheduler(thread) for thread in named)


def may_leave_idle(pid: int) -> bool:
    capabilities = re.search(r"^CapEff:\t(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    limit = re.search(r"^Max nice priority +(\w+)", Path(f"/proc/{pid}/limits").read_text(), re.MULTILINE)
    assert capabilities and limit
    return bool(int(capabilities[1], 16) >> 23 & 1) or limit[1] == "unlimited" or int(limit[1]) >= 20


def test_who_computes_for_long_gives_way_to_workers(directory: Path) -> None:
    """Except for one thread each, for a core that is never idle. At rest a thread is an ordinary one, where allowed: a
    process ends when its last thread has run once more, which idle ones do when nobody else wants to. That took 1.6 s
    with two others on a core, and hosts learned of the end only then."""
    with running(directory, identity(directory, "www", issue("rsa"))) as proxy, proxy.host():
        visitors = may_leave_idle(proxy.pid_of("xts-workers"))
        assert visitors or os.geteuid() != 0
        for name, found in (
            ("xts-handshake", policies(proxy.pid_of("xts-workers"), "xts-handshake")),
            ("xts-keys", policies(proxy.pid_of("xts-keys"), "xts-keys")),
        ):
            assert len(found) >= 2, name
            assert found[0] != os.SCHED_IDLE, name
            assert set(found[1:]) == {os.SCHED_IDLE if name == "xts-keys" or not visitors else os.SCHED_BATCH}, name


def spins_and_yields(proxy: Proxy) -> tuple[int, int]:
    worker = proxy.status()["workers"][0]
    return worker["spins"], worker["yields"]


@contextmanager
def handshakes_begun(
    host: ScriptedHost, server: socket.socket, count: int
) -> Iterator[list[tuple[Conn, ssl.SSLSocket]]]:
    """So many, of which the proxy has the next step to do."""
    with ExitStack() as stack:
        begun = []
        for _ in range(count):
            c = stack.enter_context(connected(host, server))
            assert c.push("TLS", role=2, identity="www").error == 0
            peer = stack.enter_context(client_context(None).wrap_socket(c.peer, do_handshake_on_connect=False))
            peer.setblocking(False)
            with suppress(ssl.SSLWantReadError):
                peer.do_handshake()
            begun.append((c, peer))
        yield begun


def test_a_worker_gives_its_core_to_no_handshake(directory: Path, server: socket.socket) -> None:
    """Who gives way waits for as long as a step of a handshake takes; who wakes, or goes on, does not. So it keeps its
    core while there is another for the handshakes, and else sleeps: their threads get what nobody else wants."""

    def stays(spins: int) -> bool:
        before = spins_and_yields(proxy)
        wait(lambda: spins_and_yields(proxy)[0] >= before[0] + spins, "spinning worker")
        return spins_and_yields(proxy)[1] == before[1]

    def sleeps() -> bool:
        """It is woken by whoever asks, and spins neither before nor after."""
        before = spins_and_yields(proxy)[0]
        return [spins_and_yields(proxy)[0] for _ in range(10)][-1] <= before + 10

    www = AUTHORITY.issue("localhost", kind="ec")
    others = len(os.sched_getaffinity(0)) - 1  # one is the worker's
    with running(directory, identity(directory, "www", www), spin_us=1_000_000) as proxy, host_of(proxy) as host:
        assert not stays(1)
        keys = proxy.pid_of("xts-keys")
        os.kill(keys, signal.SIGSTOP)  # a step of the handshake lasts until it goes on
        try:
            with handshakes_begun(host, server, others) as some:
                if some:
                    wait(lambda: stays(100), "worker that keeps its core")
                with handshakes_begun(host, server, 1) as more:
                    wait(sleeps, "worker that leaves its core")
                    os.kill(keys, signal.SIGCONT)
                    for c, peer in some + more:
                        peer.setblocking(True)
                        peer.do_handshake()
                        talk(c, peer)
                    assert not stays(1)
        finally:
            os.kill(keys, signal.SIGCONT)


def cpus_of(pid: int) -> list[tuple[str, set[int]]]:
    """Names of its threads, and where each may run."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    return [((task / "comm").read_text().strip(), os.sched_getaffinity(int(task.name))) for task in tasks]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU, which all share")
def test_python_leaves_the_cpus_that_workers_are_pinned_to(directory: Path) -> None:
    """A worker interrupts no ordinary thread: it would wait for what Python does for each process that attaches."""
    allowed = os.sched_getaffinity(0)
    pinned, others = {max(allowed)}, allowed - {max(allowed)}
    with running(directory, cpus=sorted(pinned)) as proxy, proxy.host():
        assert cpus_of(proxy.process.pid) == [(name, others) for name, _ in cpus_of(proxy.process.pid)]
        found = dict(cpus_of(proxy.pid_of("xts-workers")))
        assert found == {"xts-workers": others, "xts-worker": pinned, "xts-handshake": allowed}


def test_python_stays_where_workers_have_every_cpu(directory: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    with running(directory, cpus=allowed, workers=len(allowed)) as proxy, proxy.host():
        assert {frozenset(cpus) for _, cpus in cpus_of(proxy.process.pid)} == {frozenset(allowed)}
