"""What a program and its user are told of a failure, or of sockets that were not offloaded: once for each reason among
the processes of one `xts run`; at the end, with -v; and the sentence with the reason in C and in Python."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import xts_socket
from beds.multicast_namespace import is_possible, unshare
from beds.proxy_process import ProxyProcess, running_proxy
from beds.shm_proxy import library
from xts_messages.wire import wire_table as table
from xts_socket.cli.processes import interposed

XTS = [sys.executable, "-m", "xts_socket.cli"]
DEADLINE_S = 60
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()"
ALL = "use xts tcp_client *:*\n"


@pytest.fixture
def server() -> Iterator[list[str]]:
    """Address and port of a listener of the kernel's."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield ["127.0.0.1", str(listener.getsockname()[1])]


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.conf"
    path.write_text(ALL)
    return str(path)


def settings(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("XTS_")} | more


def xts_run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*XTS, "run", *arguments], env=settings(**more), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


# --- once among them -------------------------------------------------------------------------------


def tree(server: list[str]) -> list[str]:
    """A shell that starts three clients, one after the other, one of them through another shell."""
    client = f"{sys.executable} -c '{CONNECT}' {' '.join(server)}"
    return ["sh", "-c", f'{client}; {client}; sh -c "$0"; echo done', client]


def test_each_reason_once_among_the_processes_of_a_run(tmp_path: Path, rules: str, server: list[str]) -> None:
    where = ("--rules", rules, "--endpoint", str(tmp_path / "nowhere"))
    done = xts_run(*where, "--", *tree(server))
    assert done.stdout == "done\n", done.stderr
    (line,) = done.stderr.splitlines()
    assert re.match(
        r"libxts: python\S* \(process \d+\): not offloaded, sockets stay with the kernel \(NO_ENDPOINT\): no ", line
    )
    assert xts_run("-q", *where, "--", *tree(server)).stderr == ""
    alone = xts_run(*where, "--", *tree(server), XTS_ROOT_PID="1")  # another run, begun inside one, tells it again
    assert alone.stderr.count("(NO_ENDPOINT)") == alone.stderr.count("\n") == 1


def test_strict_names_the_reason_of_a_call_that_fails(rules: str, tmp_path: Path, server: list[str]) -> None:
    with running_proxy(tmp_path) as proxy:
        strict = xts_run(
            "--rules", rules, "--strict", "--endpoint", proxy.endpoint, "--", sys.executable, "-c",
            "import socket, sys\n"
            "for option in ((socket.IPPROTO_TCP, 30, 1), (socket.IPPROTO_TCP, 30, 1)):\n"
            "    s = socket.socket(); s.setsockopt(*option)\n"
            "    try: s.connect((sys.argv[1], int(sys.argv[2])))\n"
            "    except OSError as failure: print(failure.strerror)\n",
            *server,
        )  # fmt: skip
    assert strict.stdout == 2 * (os.strerror(errno.EOPNOTSUPP) + "\n")
    line, end = strict.stderr.splitlines()
    assert f"to {server[0]}:{server[1]}: not offloaded, so its call fails with " in line
    assert '"Operation not supported" (FASTOPEN, strict): the program has set TCP_FASTOPEN_CONNECT' in line
    assert end.endswith(
        "--strict: no socket was offloaded, and 2 that the rules offload were refused (FASTOPEN): "
        "exit status 3 instead of 0"
    )


def test_a_refused_call_is_told_once(denying: ProxyProcess, rules: str, server: list[str]) -> None:
    later = f"s=socket.socket(); s.setblocking(False); s.connect_ex(('{server[0]}', {server[1]})); "
    later += "import select; select.select([], [s], []); print(os.strerror(s.getsockopt(1, 4)))"
    for program in (CONNECT, "import os, socket; " + later):
        command = f'{sys.executable} -c "{program}" {" ".join(server)}'
        done = xts_run("--rules", rules, "--endpoint", denying.endpoint, "--", "sh", "-c", f"{command}; {command}")
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("libxts: ")]
        assert line.endswith(f' to {server[0]}:{server[1]}: "Permission denied": {table.REFUSALS["CONNECT_POLICY"][2]}')


def test_a_refused_server_is_told(tmp_path: Path) -> None:
    deny = '[[policy.rule]]\naction = "deny"\nwhat = "listen"\nnetwork = "127.0.0.1"\n'
    rules = tmp_path / "rules"
    rules.write_text("use xts tcp_server *:*\n")
    with running_proxy(tmp_path, deny) as proxy:
        done = xts_run("--rules", str(rules), "--endpoint", proxy.endpoint, "--", sys.executable, "-c",
                       "import socket; socket.create_server(('127.0.0.1', 0))")  # fmt: skip
    assert "PermissionError" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("libxts: ")]
    assert table.REFUSALS["LISTEN_POLICY"][2] in line


@pytest.mark.parametrize("way", ["interposed", "installed"])
def test_each_reason_once_among_the_processes_of_xts_dev(way: str, tmp_path: Path, server: list[str]) -> None:
    (tmp_path / "tables").write_text("[limits]\nclients = 1\n")
    install = "" if way == "interposed" else "import xts_socket; xts_socket.install(); "
    program = install + CONNECT
    holding = f"""
import subprocess, sys, xts_socket
held = xts_socket.socket()
for _ in range(3):
    subprocess.run([sys.executable, "-c", {program!r}, *sys.argv[1:]], check=True)
"""
    preload = [] if way == "interposed" else ["--no-preload"]
    done = subprocess.run(
        [*XTS, "dev", *preload, "--tables", str(tmp_path / "tables"), "--", sys.executable, "-c", holding, *server],
        env=settings(), capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "(NO_QUEUE)" in line


def test_what_is_meant_is_not_told(tmp_path: Path, server: list[str]) -> None:
    """Loopback stays with the kernel by the default rules."""
    done = xts_run("--endpoint", str(tmp_path / "nowhere"), "--", sys.executable, "-c", CONNECT, *server)
    assert (done.returncode, done.stderr) == (0, "")


MULTICAST = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.7.7.1") + bytes(4))
    try:
        s.bind(("0.0.0.0", 0))
    except OSError as error:
        print(error.errno, error)
"""


@pytest.mark.skipif(not is_possible(), reason="no network namespaces")
@pytest.mark.parametrize("way", ["interposed", "strict", "install"])
def test_the_option_that_failed_is_named(way: str, tmp_path: Path) -> None:
    """Without a route for the group, its join fails on the device. "(OPTION, strict): the program had set a socket
    option that the proxy does not accept" was wrong in each word, and the summary had no socket."""
    rules = tmp_path / "rules.conf"
    rules.write_text("use xts udp_receiver *:*\n")
    preload = ["--no-preload"] if way == "install" else ["--strict"] if way == "strict" else []
    program = f"import xts_socket; xts_socket.install()\n{MULTICAST}" if way == "install" else MULTICAST
    command = [*XTS, "dev", "-v", *preload, "--rules", str(rules), "--", sys.executable, "-c", program]
    done = subprocess.run(
        [*unshare(), "sh", "-c", 'ip link set lo up; exec "$@"', "sh", *command],
        env=settings(), capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    code = errno.EOPNOTSUPP if way == "strict" else errno.ENODEV
    assert done.returncode == (3 if way == "strict" else 0), done.stderr
    assert done.stdout.startswith(f"{code} "), done.stdout + done.stderr
    told = done.stdout if way == "install" else done.stderr
    why = "IP_ADD_MEMBERSHIP, which the program had set, fails: No such device: the device has no interface or route"
    assert why in told and "`xts status --interfaces`" in told
    assert ("strict" in told) == (way == "strict")
    if way != "install":
        assert "calls that failed, since their sockets could not be offloaded: 1" in told


@pytest.mark.parametrize("left", range(6))
def test_a_process_without_descriptors_hears_that(left: int, tmp_path: Path, server: list[str]) -> None:
    """It was told of the limit of sockets."""
    program = f"""
import os, resource, socket, sys
address = sys.argv[1], int(sys.argv[2])
made = socket.socket()
highest = os.open("/dev/null", os.O_RDONLY)
resource.setrlimit(resource.RLIMIT_NOFILE, (highest + {left}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
made.connect(address)
"""
    rules = tmp_path / "rules.conf"
    rules.write_text(ALL)
    with running_proxy(tmp_path) as proxy:
        where = ("--rules", str(rules), "--endpoint", proxy.endpoint)
        done = xts_run(*where, "--", sys.executable, "-c", program, *server)
    assert "(LIMIT): no descriptor is left for a queue: raise the limit of this process (`ulimit -n`)" in done.stderr


# --- at the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["exit", "_exit", "killed"])
def test_a_summary_at_the_end(end: str, tmp_path: Path, server: list[str]) -> None:
    endings = {"exit": "pass", "_exit": "os._exit(0)", "killed": "os.kill(os.getpid(), 15)"}
    program = f"""
import os, socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:
    s.sendall(1500 * b"x")
socket.create_connection((sys.argv[1], int(sys.argv[3]))).close()
{endings[end]}
"""
    rules = tmp_path / "rules.conf"
    with running_proxy(tmp_path) as proxy, socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        rules.write_text(f"use os tcp_client *:{port}\n{ALL}")
        where = ("-v", "--rules", str(rules), "--endpoint", proxy.endpoint)
        done = xts_run(*where, "--", sys.executable, "-c", program, *server, port)
        assert xts_run(*where, "--", "true").stderr == "", "it had no socket"
    if end == "killed":
        assert (done.returncode, done.stderr) == (-15, "")
        return
    assert re.fullmatch(
        r"libxts: python\S* \(process \d+\): sockets: "
        r"1 offloaded \(1\.5 kB sent, 0 bytes received\); 1 not \(1 RULE\); "
        r"CPU \d+\.\d\d s user, \d+\.\d\d s system\n",
        done.stderr,
    ), done.stderr


def test_the_summary_counts_the_bytes_of_every_endpoint(tmp_path: Path, server: list[str]) -> None:
    program = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:
    s.sendall(1500 * b"x")
"""
    rules = tmp_path / "rules.conf"
    with running_proxy(tmp_path) as proxy:
        rules.write_text(f"endpoint one {proxy.endpoint}\nuse xts@one tcp_client *:*\n")
        done = xts_run("-v", "--rules", str(rules), "--", sys.executable, "-c", program, *server)
    assert "sockets: 1 offloaded (1.5 kB sent, 0 bytes received); 0 not" in done.stderr, done.stderr


def test_the_summary_leaves_out_what_nobody_offloads(tmp_path: Path) -> None:
    """UDP without a rule for it, as the lookup of a name uses it. SCTP could have been TCP, and is told."""
    made = "import socket; [socket.socket(type=socket.SOCK_DGRAM) for _ in range(3)]"
    where = ("-v", "--endpoint", str(tmp_path / "nowhere"), "--", sys.executable, "-c")
    done = xts_run(*where, made)
    assert "sockets: 0 offloaded (0 bytes sent, 0 bytes received); 0 not; CPU" in done.stderr
    sctp = "\ntry: socket.socket(proto=132)\nexcept OSError: print('none')"
    done = xts_run(*where, made + sctp)
    assert "none" in done.stdout or "; 1 not (1 PROTOCOL); CPU" in done.stderr


def test_the_summary_has_the_cpu_time_since_exec(tmp_path: Path) -> None:
    """As `xts run` becomes the program, what it used before that counts in getrusage(), and not in the summary."""
    program = "import resource, socket; socket.socket(); u = resource.getrusage(0); print(u.ru_utime + u.ru_stime)"
    before = f"""
import os, sys, time
begun = time.process_time()
while time.process_time() < begun + 1: pass
os.execv(sys.executable, [sys.executable, "-c", {program!r}])
"""
    done = xts_run("-v", "--endpoint", str(tmp_path / "nowhere"), "--", sys.executable, "-c", before)
    user, system = re.search(r"CPU (\S+) s user, (\S+) s system", done.stderr).groups()  # type: ignore[union-attr]
    assert float(user) + float(system) < float(done.stdout)


# --- the reason, in Python -------------------------------------------------------------------------


def in_python(program: str, *arguments: str, **more: str) -> list[str]:
    """What it prints: the type of an exception, its reason and its text, a line each."""
    text = (
        "import socket, sys, xts_socket\ntry:\n"
        + "".join(f"    {line}\n" for line in program.splitlines())
        + "except OSError as e:\n    print(type(e).__name__, e.reason, e, sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], env=settings(**more), capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


DENY = '[[policy.rule]]\naction = "deny"\nwhat = "connect"\nnetwork = "127.0.0.0/8"\n'


@pytest.fixture
def denying(tmp_path: Path) -> Iterator[ProxyProcess]:
    with running_proxy(tmp_path, DENY) as proxy:
        yield proxy


def test_why_there_is_no_proxy(tmp_path: Path) -> None:
    kind, reason, text = in_python("xts_socket.socket()", XTS_ENDPOINT=str(tmp_path / "nowhere"))
    assert (kind, reason.startswith(f"no offload proxy can be reached at {tmp_path}/nowhere")) == ("OSError", True)
    assert text == f"[Errno {errno.ENETDOWN:d}] {os.strerror(errno.ENETDOWN)}: {reason}"


def test_why_a_setting_is_refused() -> None:
    _, reason, _ = in_python("xts_socket.socket()", XTS_SPIN_US="soon")
    assert reason == "XTS_SPIN_US=soon: must be a number from 0 to 4294967295 (microseconds)"


def test_why_policy_refuses(denying: ProxyProcess, server: list[str]) -> None:
    connect = "xts_socket.create_connection((sys.argv[1], int(sys.argv[2])))"
    later = """
import select
s = xts_socket.socket()
s.setblocking(False)
s.connect_ex((sys.argv[1], int(sys.argv[2])))
select.select([], [s], [])
raise xts_socket._errors.error(s.getsockopt(1, 4))
"""
    for program in (connect, later):
        kind, reason, _ = in_python(program, *server, XTS_ENDPOINT=denying.endpoint)
        assert (kind, reason.startswith("the proxy's policy forbids this host to connect")) == ("PermissionError", True)


CALLS = {
    "CONNECTIONS": "t = [xts_socket.socket() for _ in range(2)]\nfor s in t: s.bind(('', 0))",
    "LISTENERS": "t = xts_socket.create_server(('', 0))\nxts_socket.create_server(('', 0))",
    "LISTEN_POLICY": "xts_socket.create_server(('127.0.0.1', 9))",
    "OPTION": "xts_socket.socket().setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 7)",
}


def test_the_proxy_tells_what_it_refuses(tmp_path: Path, server: list[str]) -> None:
    deny = '[[policy.rule]]\naction = "deny"\nwhat = "listen"\nnetwork = "127.0.0.1"\nports = "9"\n'
    with running_proxy(tmp_path, "[limits]\nconnections = 1\nlisteners = 1\n" + deny) as proxy:
        for name, program in CALLS.items():
            _, error, sentence = table.REFUSALS[name]
            _, reason, text = in_python(program, *server, XTS_ENDPOINT=proxy.endpoint)
            assert (reason, text) == (sentence, text)
            assert text.startswith(f"[Errno {error:d}] {os.strerror(error)}: {sentence}")


def test_asyncio_and_type_checkers_have_the_reason(denying: ProxyProcess, server: list[str]) -> None:
    program = """
import asyncio
from xts_socket import aio
try:
    asyncio.run(aio.open_connection(sys.argv[1], int(sys.argv[2])))
except OSError as error:
    assert isinstance(error, xts_socket.WithReason)
    raise
"""
    kind, reason, text = in_python(program, *server, XTS_ENDPOINT=denying.endpoint)
    assert (kind, reason) == ("PermissionError", table.REFUSALS["CONNECT_POLICY"][2])
    assert "Connect call failed" in text
    caught: OSError = xts_socket._errors.error(errno.EACCES, "because")
    assert isinstance(caught, xts_socket.WithReason)
    told: str = caught.reason  # mypy knows it from here on
    assert (told, type(caught)) == ("because", PermissionError)
    assert not isinstance(OSError(errno.EACCES, "of somebody else's"), xts_socket.WithReason)


def test_why_a_connection_has_ended(tmp_path: Path, server: list[str]) -> None:
    program = """
import os, signal
s = xts_socket.create_connection((sys.argv[1], int(sys.argv[2])))
os.kill(int(sys.argv[3]), signal.SIGKILL)
s.recv(1)
"""
    with running_proxy(tmp_path) as proxy:
        kind, reason, _ = in_python(program, *server, str(proxy.process.pid), XTS_ENDPOINT=proxy.endpoint)
    assert (kind, "connection to the offload proxy was lost" in reason) == ("ConnectionResetError", True)


def test_what_errno_says_is_the_reason_where_there_is_no_more(tmp_path: Path) -> None:
    with running_proxy(tmp_path) as proxy, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = str(closed.getsockname()[1])
        program = "xts_socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
        kind, reason, text = in_python(program, port, XTS_ENDPOINT=proxy.endpoint)
    assert (kind, reason) == ("ConnectionRefusedError", os.strerror(errno.ECONNREFUSED))
    assert text == f"[Errno {errno.ECONNREFUSED:d}] {reason}"


def test_why_a_protocol_is_refused(tmp_path: Path, server: list[str]) -> None:
    program = """
s = xts_socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.push(xts_socket.Tls(server_hostname="a", ca="nowhere"))
"""
    with running_proxy(tmp_path) as proxy:
        kind, _, text = in_python(program, *server, XTS_ENDPOINT=proxy.endpoint)
    assert "nowhere" in text, kind


def test_a_strict_scope_names_the_reason(tmp_path: Path, rules: str) -> None:
    program = "xts_socket.install(sys.argv[1], strict=True)\nsocket.create_connection(('198.51.100.1', 80))"
    _, reason, text = in_python(program, rules, XTS_ENDPOINT=str(tmp_path / "nowhere"), XTS_QUIET="1")
    assert reason.startswith("not offloaded (NO_ENDPOINT, strict): no offload proxy can be reached")
    assert reason in text


# --- and in C --------------------------------------------------------------------------------------

C = f"""
import ctypes, json, socket, struct, sys, threading
lib = ctypes.CDLL({library()!r}, use_errno=True)
lib.xts_last_error.restype = ctypes.c_char_p
said = lambda: lib.xts_last_error().decode()
where = struct.pack("=HH4s8x", 2, socket.htons(int(sys.argv[1])), socket.inet_aton("127.0.0.1"))
out = [said()]
s = lib.xts_socket(2, 1, 0)
if s >= 0:
    out.append(lib.xts_connect(s, where, 16))
out += [ctypes.get_errno(), said()]
thread = threading.Thread(target=lambda: out.append(said()))
thread.start()
thread.join()
ctypes.set_errno(77)
said()
out.append(ctypes.get_errno())
lib.xts_close(-1)
out.append(said())
print(json.dumps(out))
"""


def in_c(port: str, **more: str) -> list[str | int]:
    done = subprocess.run(
        [sys.executable, "-c", C, port],
        env=settings(**more),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[str | int] = json.loads(done.stdout)
    return found


def test_last_error_without_a_proxy(tmp_path: Path) -> None:
    before, code, text, other_thread, kept, bad = in_c("1", XTS_ENDPOINT=str(tmp_path / "nowhere"))
    assert (before, code, other_thread, kept) == ("", errno.ENETDOWN, "", 77)
    assert str(text).startswith(f"no offload proxy can be reached at {tmp_path}/nowhere")
    assert bad == os.strerror(errno.EBADF)


def test_last_error_of_policy(denying: ProxyProcess, server: list[str]) -> None:
    _, result, code, text, *_ = in_c(server[1], XTS_ENDPOINT=denying.endpoint)
    assert (result, code) == (-1, errno.EACCES)
    assert str(text).startswith("the proxy's policy forbids this host to connect to that address")


# --- status and repr -------------------------------------------------------------------------------


def test_status_lists_the_programs_of_its_own_endpoint(tmp_path: Path, rules: str, server: list[str]) -> None:
    (tmp_path / "other").mkdir()
    with running_proxy(tmp_path) as proxy, running_proxy(tmp_path / "other") as other:
        command = [*XTS, "run", "--rules", rules, "--endpoint", other.endpoint, "--", sys.executable, "-c",
                   CONNECT + "; print(1, flush=True); sys.stdin.read()", *server]  # fmt: skip
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=settings()) as process:
            assert process.stdout and process.stdin and process.stdout.readline()
            pids = []
            for arguments in ((), ("--all",), ("--endpoint", other.endpoint)):
                where = () if "--endpoint" in arguments else ("--endpoint", proxy.endpoint)
                done = subprocess.run([*XTS, "status", "--processes", "--json", *where, *arguments],
                                      capture_output=True, check=True, env=settings())  # fmt: skip
                pids.append(process.pid in [shown["pid"] for shown in json.loads(done.stdout)["processes"]])
            process.stdin.close()
            assert process.wait(DEADLINE_S) == 0
    assert pids == [False, True, True]


def test_programs_that_have_ended_are_not_denied(capsys: pytest.CaptureFixture[str]) -> None:
    """`xts status --processes` knows only who runs: nothing follows from it about earlier programs."""
    interposed._print_none(None, None, 0)
    assert re.match(r"no process( of yours)? with a socket runs under `xts run` now", capsys.readouterr().out)


def test_an_idle_endpoint_says_so(xts_endpoint: ProxyProcess) -> None:
    empty = subprocess.run([*XTS, "status", "--pid", "1", "--endpoint", xts_endpoint.endpoint],
                           capture_output=True, text=True, check=True, env=settings())  # fmt: skip
    assert empty.stdout == f"process 1 is not attached to {xts_endpoint.endpoint}\n"


def test_status_is_watched(tmp_path: Path) -> None:
    with running_proxy(tmp_path) as proxy:
        command = [*XTS, "status", "--watch", "0.1", "--endpoint", proxy.endpoint]
        # Python heeds no signal that was ignored when it began, as this one is in what a shell runs in the background.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings()) as process:
            signal.signal(signal.SIGINT, before)
            assert process.stdout
            lines = [process.stdout.readline() for _ in range(3)]
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 130
    assert set(lines) == {f"no process is attached to {proxy.endpoint}\n"} or "of yours" in lines[0]


@pytest.mark.usefixtures("xts_endpoint")
def test_a_socket_shows_its_state() -> None:
    with xts_socket.create_server(("127.0.0.1", 0)) as listener:
        assert repr(listener).startswith("<xts_socket.socket listening, xts=")
        fresh = xts_socket.socket()
        assert " unconnected, xts=" in repr(fresh) and "fd=" not in repr(fresh)
        fresh.connect(listener.getsockname())
        accepted, _ = listener.accept()
        assert " connected, xts=" in repr(fresh) and "raddr=" in repr(fresh)
        accepted.close()
        assert fresh.recv(1) == b""
        assert " end of stream received, xts=" in repr(fresh)
        number = fresh.fileno()
        assert f", fd={number}," in repr(fresh)
        fresh.close()
        assert repr(fresh).startswith("<xts_socket.socket [closed], xts=-1")
