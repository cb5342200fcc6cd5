"""`xts dev`: a command with an offload proxy around it, whatever befalls them, and nothing left behind."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.dev import XTS, DevBed, dev_bed, wait
from beds.ready import readable
from xts_socket._dev_proxy import DevProxy
from xts_socket.cli.device.proxy_side import ask
from xts_socket.cli.verbs import dev

GIVES_UP_ROOT = str(Path(__file__).with_name("programs") / "gives_up_root.py")
LOUD = str(Path(__file__).with_name("programs") / "loud.c")
WITHOUT = str(Path(__file__).with_name("programs") / "without_calls.py")

#: A server and a client of its own; says how many of its sockets were offloaded, and how many were not.
PROGRAM = """
import os, socket
from xts_socket.cli.processes.interposed import find
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    accepted, _ = server.accept()
    client.sendall(b"x" * 100000)
    assert accepted.recv(100000, socket.MSG_WAITALL) == b"x" * 100000
page, = [page for page in find() if page.pid == os.getpid()]
print(page.offloaded, len(page.stayed), page.strict)
"""


@pytest.fixture
def bed() -> Iterator[DevBed]:
    with dev_bed() as made:
        yield made


def test_a_command_is_offloaded_loopback_included(bed: DevBed) -> None:
    done = bed.dev("--strict", "--", sys.executable, "-c", PROGRAM)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 0 True\n", "")
    assert not bed.left(), "before xts dev had ended"


#: A server of one process, and a child for each of its connections, all of which are open at the same time.
MANY = """
import os, socket
with socket.create_server(("127.0.0.1", 0)) as server:
    clients, children = [], []
    for _ in range(100):
        clients.append(socket.create_connection(server.getsockname()))
        accepted, _ = server.accept()
        if not (child := os.fork()):
            for client in clients:
                client.close()
            accepted.sendall(b"x")
            accepted.recv(1)
            os._exit(0)
        children.append(child)
        accepted.close()
    print(sum(len(client.recv(1)) for client in clients))
    for client in clients:
        client.close()
    print({os.waitpid(child, 0)[1] for child in children})
"""


def test_a_hundred_processes_at_a_time(bed: DevBed) -> None:
    done = bed.dev("--strict", "--", sys.executable, "-c", MANY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "100\n{0}\n", "")


def test_its_tables_may_have_limits(bed: DevBed, tmp_path: Path) -> None:
    (tmp_path / "tables.toml").write_text("[limits]\nclients = 5\n")
    done = bed.dev("--tables", str(tmp_path / "tables.toml"), "--", sys.executable, "-c", PROGRAM)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 0 False\n", "")


def test_xts_socket_inside(bed: DevBed) -> None:
    code = (
        "import os, xts_socket as s\nassert 'libxts-preload' not in open('/proc/self/maps').read()\n"
        "with s.create_server(('127.0.0.1', 0)) as a, s.create_connection(a.getsockname()): print(s.info().link_state)"
    )
    done = bed.dev("--no-preload", "--", sys.executable, "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "up\n", "")


#: What xts_socket gives out to be watched.
WATCHED = """
import asyncio, select, xts_socket as s
with s.create_server(("127.0.0.1", 0)) as server, s.create_connection(server.getsockname()) as client:
    accepted, _ = server.accept()
    accepted.send(b"x")
    with select.epoll() as own:
        own.register(client.fileno(), select.EPOLLIN)
        print(own.poll(20) == [(client.fileno(), select.EPOLLIN)])
    waiting = select.poll()
    waiting.register(client, select.POLLIN)
    print(waiting.poll(20000) == [(client.fileno(), select.POLLIN)])
    print(select.select([client], [], [], 20)[0] == [client])
    async def main():
        client.setblocking(False)
        print(await s.aio.sock_recv(client, 1))
    asyncio.run(main())
    accepted.close()
"""


@pytest.mark.parametrize("how", [["--no-preload"], []])
def test_descriptors_of_xts_socket_can_be_watched(how: list[str], bed: DevBed) -> None:
    """The interposer took them for its own: EBADF."""
    done = bed.dev(*how, "--", sys.executable, "-c", WATCHED)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nTrue\nTrue\nb'x'\n", "")


def test_exit_status(bed: DevBed, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert bed.dev("--", "sh", "-c", "exit 7").returncode == 7
    assert bed.dev("sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    absent, refused, nothing = bed.dev("--", "no-such-program"), bed.dev("--", str(plain)), bed.dev()
    assert (absent.returncode, absent.stderr) == (127, "xts dev: no-such-program: not found in PATH\n")
    assert (refused.returncode, refused.stderr) == (126, f"xts dev: {plain}: not executable\n")
    assert (nothing.returncode, nothing.stderr) == (2, "xts dev: name a command to run; see xts dev --help\n")


def test_rules_and_tables(bed: DevBed, tmp_path: Path) -> None:
    rules, tables = tmp_path / "rules", tmp_path / "tables"
    rules.write_text("default os\n")
    tables.write_text("[limits]\nconnexions = 3\n")
    kept = bed.dev("--rules", str(rules), "--", sys.executable, "-c", PROGRAM)
    assert kept.stdout == "0 1 False\n", kept.stderr
    wrong = bed.dev("--tables", str(tables), "--", "true")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith(f"xts dev: the proxy could not be started: {tables}:2:1: limits.connexions: unknown")
    assert "did you mean connections?" in wrong.stderr and "Traceback" not in wrong.stderr
    missing = bed.dev("--tables", str(tmp_path / "none"), "--", "true")
    assert (missing.returncode, "No such file" in missing.stderr) == (2, True)


def test_what_is_told_without_the_interposer(bed: DevBed) -> None:
    code = (
        "import xts_socket as s\nwith s.create_server(('127.0.0.1', 0)) as a, "
        "s.create_connection(a.getsockname()) as c:"
        "\n b, _ = a.accept(); c.sendall(b'x'); b.recv(1); b.close()"
    )
    done = bed.dev("-v", "--no-preload", "--", sys.executable, "-c", code)
    told = "xts dev: through the proxy: 1 connection made, 1 accepted, 0 datagrams sent; 1 bytes sent, 1 received\n"
    assert (done.returncode, done.stderr) == (0, told)


@pytest.mark.parametrize("text", ["use os tcp_client *:22\n", "default xts\n", "# nothing\n"])
def test_rules_that_do_not_mention_loopback_leave_it_offloaded(text: str, bed: DevBed, tmp_path: Path) -> None:
    """All traffic of `xts dev` is there: with another default in a file than without one, it did nothing."""
    rules = tmp_path / "rules"
    rules.write_text(text)
    done = bed.dev("--rules", str(rules), "--strict", "--", sys.executable, "-c", PROGRAM)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 0 True\n", "")
    inside = f"import xts_socket\nwith xts_socket.dev(), xts_socket.offload(strict=True):\n exec({PROGRAM!r})\n"
    done = bed.python(inside, XTS_RULES=str(rules))
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 0 True\n", ""), "what is accepted is not counted here"


def test_its_proxy_can_be_asked_from_inside(bed: DevBed) -> None:
    shown = bed.dev("--", sys.executable, "-m", "xts_proxy", "status")
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stderr
    assert "workers" in shown.stdout.lower()


def test_signals_are_the_commands(bed: DevBed) -> None:
    """It may have its own mind about them; another one's kill(2) reaches it through us."""
    script = "trap 'echo trapped; exit 5' TERM; echo up; while :; do sleep 0.05; done"
    with bed.start([*XTS, "dev", "--", "sh", "-c", script]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.stdout.readline() == "trapped\n"
        assert process.wait(60) == 5


@pytest.mark.parametrize("delay_ms", [0, 60, 120, 180, 240, 300, 400])
def test_ctrl_c_at_any_moment(bed: DevBed, delay_ms: int) -> None:
    """While Python starts, while the proxy starts, while the command runs: which it hits differs with the machine."""
    with bed.start([*XTS, "dev", "--", "sleep", "60"]) as process:
        time.sleep(delay_ms / 1000)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (128 + signal.SIGINT, -signal.SIGINT, 1), errors
    assert "xts_proxy" not in errors
    bed.nothing_is_left()


def test_ctrl_c_while_the_proxy_starts(bed: DevBed) -> None:
    with bed.start([*XTS, "dev", "--", "sleep", "60"]) as process:
        wait(bed.proxies, lambda: "a proxy")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
        assert not bed.left()


def test_ctrl_c_that_the_command_does_not_end_of(bed: DevBed) -> None:
    """It has that of the terminal once, and we have no opinion."""
    script = "trap 'echo no' INT; echo up; i=0; while [ $i -lt 5 ]; do sleep 0.05; i=$((i+1)); done; exit 3"
    ours, terminal = os.openpty()
    with subprocess.Popen(
        [*XTS, "dev", "--", "sh", "-c", script],
        env=bed.environment(),
        stdin=terminal,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    ) as process:
        os.close(terminal)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.write(ours, b"\x03")
        assert process.communicate(timeout=60)[0] == "no\n"
        assert process.returncode == 3
    os.close(ours)


def test_the_terminal_goes_away(bed: DevBed) -> None:
    """The kernel tells the leader of its session alone, and that is `xts dev`, as in a window of its own or a
    container: it tells the command."""
    ours, terminal = os.openpty()
    with subprocess.Popen(
        [*XTS, "dev", "--", "sh", "-c", "trap 'exit 7' HUP; echo $$; while :; do sleep 0.05; done"],
        env=bed.environment(),
        stdin=terminal,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    ) as process:
        os.close(terminal)
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdecimal()
        os.close(ours)
        try:
            assert process.wait(60) == 7
        finally:
            if process.poll() is None:
                process.kill()
    bed.nothing_is_left()


def test_a_container_is_stopped(bed: DevBed) -> None:
    """The sender of the signal has no number in there."""
    rights = ["--user", "--map-root-user"] if os.getuid() else []
    if subprocess.run(["unshare", *rights, "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no process namespaces")
    script = "trap 'echo trapped; exit 5' TERM; echo up; while :; do sleep 0.05; done"
    inside = [*XTS, "dev", "--", "sh", "-c", script]
    with bed.start(["unshare", *rights, "--pid", "--fork", "--kill-child", *inside]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        (first,) = (int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(first, signal.SIGTERM)
        assert readable(process.stdout, 60) and process.stdout.readline() == "trapped\n"
        assert process.wait(60) == 5


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP], ids=lambda n: str(n.name))
def test_xts_dev_itself_is_killed(bed: DevBed, number: signal.Signals) -> None:
    with bed.start([*XTS, "dev", "--", "sh", "-c", "echo $$; exec sleep 60"]) as process:
        assert process.stdout is not None
        command = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(60) == (-number if number == signal.SIGKILL else 128 + number)
        wait(lambda: not Path(f"/proc/{command}").exists(), lambda: "the command goes on")
        bed.nothing_is_left()


def test_it_is_killed_while_the_proxy_starts(bed: DevBed) -> None:
    with bed.start([*XTS, "dev", "--", "sleep", "60"]) as process:
        wait(bed.proxies, lambda: "a proxy")
        process.kill()
        bed.nothing_is_left()


def test_what_was_sent_is_delivered_when_the_command_has_ended(bed: DevBed) -> None:
    """As it is by the kernel; and Ctrl-C ends the waiting for a peer that takes nothing."""
    code = (
        "import socket, sys\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)\ns.sendall(b'x' * 60000)"
    )
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        command = [*XTS, "dev", "--", sys.executable, "-c", code, str(listener.getsockname()[1])]
        for taken in (True, False):
            with bed.start(command) as process, listener.accept()[0] as peer:
                assert process.stderr is not None
                told = process.stderr.readline()
                assert told == "xts dev: waiting for 1 connection to finish sending; Ctrl-C cuts them off\n"
                if taken:
                    with peer.makefile("rb") as file:
                        assert file.read() == b"x" * 60000
                else:
                    os.killpg(process.pid, signal.SIGINT)
                assert process.wait(60) == (0 if taken else 128 + signal.SIGINT)
                assert not bed.left()


class SlowProxy:
    """A proxy that has been asked to stop and takes its time."""

    def __init__(self, control: str) -> None:
        self.control = control

    def request_stop(self) -> bool:
        return True

    def wait(self, _: float) -> bool:
        return False


@pytest.mark.parametrize("connected", [False, True])
def test_only_connections_that_there_are_are_waited_for(connected: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """The proxy is asked how many: it took longer than a second to end, and there were none."""
    with DevProxy() as proxy, socket.create_server(("127.0.0.1", 0)) as listener:
        code = "import sys, xts_socket; s = xts_socket.create_connection(('127.0.0.1', int(sys.argv[1]))); input()"
        command = [sys.executable, "-c", code, str(listener.getsockname()[1])]
        with subprocess.Popen(
            command, env=proxy.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as program:
            listener.accept()[0].close()
            if not connected:
                program.communicate(b"\n", timeout=60)
                wait(lambda: not ask(proxy.control).connections, lambda: "the connection is there")
            dev._drain(SlowProxy(proxy.control))  # type: ignore[arg-type]
            if connected:
                program.communicate(b"\n", timeout=60)
    told = "xts dev: waiting for 1 connection to finish sending; Ctrl-C cuts them off\n" if connected else ""
    assert capsys.readouterr().err == told
    dev._drain(SlowProxy("/nowhere"))  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


def test_two_at_once_a_nested_one_and_a_port_in_use(bed: DevBed) -> None:
    server = "import socket, sys; s = socket.create_server(('', int(sys.argv[1]))); print(*s.getsockname()); input()"
    with bed.start([*XTS, "dev", "--", sys.executable, "-uc", server.replace("input()", "s.accept()"), "0"]) as one:
        assert one.stdout is not None
        port = one.stdout.readline().split()[1]
        inner = [*XTS, "dev", "--", sys.executable, "-c", server, port]
        for command in (inner, [*XTS, "dev", "--", *inner]):
            second = bed.run(*command)
            assert (second.returncode, second.stdout) == (1, "")
            assert "Address already in use" in second.stderr
        socket.create_connection(("127.0.0.1", int(port))).close()
        assert one.wait(60) == 0


def test_the_proxy_dies_first(bed: DevBed) -> None:
    code = "import sys; print('up', flush=True); sys.stdin.read(); import time; time.sleep(0.2); sys.exit(4)"
    with subprocess.Popen(
        [*XTS, "dev", "--", sys.executable, "-c", code],
        env=bed.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.kill(bed.proxies()[0], signal.SIGKILL)
        _, errors = process.communicate("", timeout=60)
    assert process.returncode == 4
    assert "the proxy has ended (killed by SIGKILL); the command goes on without it" in errors


@pytest.mark.parametrize("secret", ["", "rB0x"], ids=["as of earlier versions", "as now"])
def test_sockets_of_killed_ones_are_removed(bed: DevBed, secret: str) -> None:
    """Where proxy and starter were killed together, the next one cleans up; what is another's, or in use, stays."""
    stale = bed.place / "xts-dev-0123"
    inner = stale / secret
    inner.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as endpoint:
        endpoint.bind(str(inner / "endpoint.sock"))
        endpoint.listen()
        assert bed.dev("--", "true").returncode == 0
        assert stale.exists()
    assert bed.dev("--", "true").returncode == 0
    assert not stale.exists()


def test_no_place_for_its_sockets(bed: DevBed, tmp_path: Path) -> None:
    """A long name is passed over; where no place is left it says which were tried."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    assert bed.dev("--", "true", TMPDIR=str(long)).returncode == 0
    code = (
        "from xts_socket import _dev_directory as d, _dev_proxy as p\n"
        "d._places = lambda: iter([p.Path('/nowhere'), p.Path('/' + 'x' * 99)])\n"
        "try: p.DevProxy().start()\nexcept OSError as error: print(error.strerror)"
    )
    told = bed.python(code).stdout
    assert f"tried /nowhere (not to be written to), /{'x' * 99} (its name does not fit a Unix socket); TMPDIR" in told


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        ("memfd_create", "needs memfd_create(), of Linux 3.17"),
        ("pidfd_open", "needs pidfd_open(), of Linux 5.3"),
        ("pidfd_send_signal", ""),
        ("seccomp", "restricting system calls"),
        ("bpf,io_uring_setup,landlock_create_ruleset,AF_XDP", ""),
    ],
)
def test_a_kernel_without(bed: DevBed, calls: str, sentence: str) -> None:
    """What is needed and not there is told in a sentence; what is not needed is not missed."""
    done = bed.run(sys.executable, WITHOUT, calls, *XTS, "dev", "--strict", "--", sys.executable, "-c", PROGRAM)
    assert "Traceback" not in done.stderr, done.stderr
    if sentence:
        assert (done.returncode, sentence in done.stderr) == (1, True), done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, "3 0 True\n"), done.stderr


@pytest.mark.root
@pytest.mark.parametrize("how", ["full", "absent"])
def test_dev_shm_is(bed: DevBed, how: str) -> None:
    """Shared memory is of no file system."""
    script = {
        "full": "mount -t tmpfs -o size=4k none /dev/shm; ! dd if=/dev/zero of=/dev/shm/x bs=64k count=1 2>/dev/null",
        "absent": "mkdir $TMPDIR/d; mount -t tmpfs none $TMPDIR/d; cp -a /dev/null /dev/zero /dev/urandom $TMPDIR/d;"
        " mount --move $TMPDIR/d /dev; rmdir $TMPDIR/d; ! [ -e /dev/shm ]",
    }[how]
    command = [*XTS, "dev", "--strict", "--", sys.executable, "-c", PROGRAM]
    done = bed.run("unshare", "-m", "sh", "-ec", f'{script}; exec "$@"', "-", *command)
    assert (done.returncode, done.stdout) == (0, "3 0 True\n"), done.stderr


def test_in_a_user_namespace_with_one_user(bed: DevBed) -> None:
    """As in a container that is started without root: root there may not change its groups."""
    if subprocess.run(["unshare", "-r", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no user namespaces")
    done = bed.run("unshare", "-r", *XTS, "dev", "--strict", "--", sys.executable, "-c", PROGRAM)
    assert (done.returncode, done.stdout) == (0, "3 0 True\n"), done.stderr


def test_what_is_told_at_the_end_and_what_the_proxy_logs(bed: DevBed) -> None:
    program = (sys.executable, "-c", "import socket; socket.create_server(('127.0.0.1', 0))")
    told, logged = bed.dev("-v", "--", *program).stderr, bed.dev("--proxy-log", "--", *program).stderr
    assert re.search(r"libxts: .* 1 offloaded", told) and "xts-proxy" not in told, told
    assert "xts-proxy INFO ready" in logged and "libxts:" not in logged, logged


@pytest.mark.root
def test_a_server_that_gives_up_root(bed: DevBed) -> None:
    """Its workers are other users', and are served; who has not inherited the endpoint's name does not find it."""
    done = bed.dev("--", sys.executable, GIVES_UP_ROOT)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["worker"] == ["from 65534", 2, 0]  # client and accepted
    assert told["stranger"] == []
    assert told["modes"] == {"endpoint.sock": "0o666", "proxy.sock": "0o600"}


@pytest.mark.root
@pytest.mark.parametrize("how", ["variable", "XDG_RUNTIME_DIR", "umask"])
def test_a_place_that_others_may_enter(bed: DevBed, tmp_path: Path, how: str) -> None:
    """Root's places, and what it allows others by default, are often its own alone."""
    closed = bed.place / "c"
    closed.mkdir(mode=0o700)
    variables = {"XDG_RUNTIME_DIR": {"XDG_RUNTIME_DIR": str(closed)}, "variable": {"TMPDIR": str(closed)}, "umask": {}}
    done = bed.run("sh", "-c", "umask 077; exec $0 $@", *XTS, "dev", "--", sys.executable, GIVES_UP_ROOT,
                   **variables[how])  # fmt: skip
    closed.rmdir()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["worker"] == ["from 65534", 2, 0]  # client and accepted


@pytest.mark.root
def test_only_an_ordinary_user_may_enter_its_directories(bed: DevBed) -> None:
    bed.place.chmod(0o777)
    code = (
        "import os, pathlib as p; e = p.Path(os.environ['XTS_ENDPOINT']).parent\nfor d in e, e.parent: print(d.stat())"
    )
    alone = bed.run("setpriv", "--reuid", "65534", "--clear-groups", *XTS, "dev", "--", sys.executable, "-c", code)
    assert alone.returncode == 0, alone.stderr
    assert alone.stdout.count("st_mode=16832,") == 2, alone.stdout  # a directory, 0700


def test_what_the_program_preloads_is_not_the_proxys(bed: DevBed, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    library, told = tmp_path / "libloud.so", tmp_path / "told"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), LOUD], check=True)
    done = bed.dev("--strict", "--", sys.executable, "-c", PROGRAM, LD_PRELOAD=str(library), LOUD=str(told))
    assert (done.returncode, done.stdout) == (0, "3 0 True\n"), done.stderr
    assert "import os, socket" in told.read_text()
    assert "xts_proxy" not in told.read_text()
