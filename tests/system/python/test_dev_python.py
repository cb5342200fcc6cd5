"""`with xts_socket.dev():`, each in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.dev import DevBed, dev_bed
from beds.proxy_process import running_proxy
from beds.ready import readable

HEAD = """
import os, socket, sys, threading, time
import xts_socket
from xts_socket import dev

def echo():
    with xts_socket.create_server(("127.0.0.1", 0)) as server:
        with xts_socket.create_connection(server.getsockname()) as client:
            accepted, _ = server.accept()
            with accepted:
                client.sendall(b"x" * 5000)
                assert accepted.recv(5000, socket.MSG_WAITALL) == b"x" * 5000
                return xts_socket.info().link_state

def error(call):
    try:
        call()
    except OSError as failure:
        return failure
"""


@pytest.fixture
def bed() -> Iterator[DevBed]:
    with dev_bed() as made:
        yield made


def output(bed: DevBed, source: str, *arguments: str, status: int = 0) -> list[str]:
    done = bed.python(HEAD + source, *arguments)
    assert (done.returncode, done.stderr) == (status, ""), done.stdout + done.stderr
    assert not bed.left(), "before the process had ended"
    return done.stdout.split()


def test_sockets_of_the_block_and_again(bed: DevBed) -> None:
    code = """
before = dict(os.environ)
for _ in range(2):
    with dev() as proxy:
        assert os.environ["XTS_ENDPOINT"] == proxy.endpoint
        print(echo())
        left = xts_socket.create_server(("127.0.0.1", 0))
    assert dict(os.environ) == before
    assert error(left.accept).errno == 100, error(left.accept)  # ENETDOWN
    left.close()
assert error(xts_socket.socket).errno == 100
print("/run/xts/endpoint.sock" in str(error(xts_socket.socket)))
"""
    assert output(bed, code) == ["up", "up", "True"]


def test_blocks_nest_and_threads_share(bed: DevBed) -> None:
    code = """
def body():
    with dev() as proxy:
        endpoints.add(proxy.endpoint)
        barrier.wait()
        echo()
endpoints, barrier = set(), threading.Barrier(4)
with dev() as proxy:
    with dev() as same:
        assert same is proxy
    print(echo())
threads = [threading.Thread(target=body) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(len(endpoints))
"""
    assert output(bed, code) == ["up", "1"]


def test_an_exception_and_the_interpreters_end(bed: DevBed) -> None:
    code = """
try:
    with dev():
        echo()
        raise KeyError(1)
except KeyError:
    print("passed")
context = dev()
context.__enter__()
s = xts_socket.create_server(("127.0.0.1", 0))
sys.exit(3)
"""
    assert output(bed, code, status=3) == ["passed"]


def test_fork(bed: DevBed) -> None:
    """The child's sockets are the proxy's, too; its leaving the block, or its end, is not the proxy's."""
    code = """
import warnings
warnings.simplefilter("error")
with dev() as proxy:
    echo()
    pid = os.fork()
    if pid:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    else:
        echo()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
else:
    assert os.path.exists(proxy.endpoint)
    sys.exit(0)
print("parent")
"""
    assert output(bed, code) == ["parent"]


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"], ids=["exit", "kill"])
def test_the_process_ends_without_leaving(bed: DevBed, end: str, paused: bool) -> None:
    """Also with a thread that is not the main one having started it, and with a child that lives on."""
    code = """
context = dev()
thread = threading.Thread(target=context.__enter__)
thread.start(), thread.join()
echo()
from xts_socket import _dev
PAUSE
if os.fork() == 0:
    print("child", flush=True)
    time.sleep(1)
    os._exit(0)
END
"""
    source = HEAD + code.replace("PAUSE", "_dev._proxy.pause()" if paused else "").replace("END", end)
    with bed.start([sys.executable, "-c", source]) as process:
        assert process.wait(60) in (0, -signal.SIGKILL)
        bed.nothing_is_left()


def test_the_keeper_is_late(bed: DevBed) -> None:
    """The process has ended and has been waited for when the keeper looks: its pidfd says more then than that it can be
    read."""
    code = """
context = dev()
context.__enter__()
from xts_socket import _dev
_dev._proxy.pause()
print(_dev._proxy._process.pid, flush=True)
time.sleep(60)
"""
    with bed.start([sys.executable, "-c", HEAD + code]) as process:
        assert process.stdout is not None and readable(process.stdout, 60)
        status = Path(f"/proc/{int(process.stdout.readline())}/stat").read_text()
        keeper = int(status.rpartition(")")[2].split()[1])
        os.kill(keeper, signal.SIGSTOP)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        os.kill(keeper, signal.SIGCONT)
        bed.nothing_is_left()


def test_what_closed_sockets_have_sent_is_delivered(bed: DevBed) -> None:
    code = """
with dev():
    s = xts_socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    s.sendall(b"x" * 60000)
    s.close()
    print("closed", flush=True)
"""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with bed.start([sys.executable, "-c", HEAD + code, str(listener.getsockname()[1])]) as process:
            with listener.accept()[0] as peer, peer.makefile("rb") as file:
                assert process.stdout is not None
                assert process.stdout.readline() == "closed\n"
                assert file.read() == b"x" * 60000
            assert process.wait(60) == 0


def test_what_cannot_be(bed: DevBed, tmp_path: Path) -> None:
    """Errors are OSErrors with a sentence, and leave things as they were."""
    code = """
before = dict(os.environ)
wrong = error(lambda: dev(tables="[limits]\\nconnexions = 3").__enter__())
assert (wrong.errno, "did you mean connections?" in wrong.strerror) == (100, True), wrong
sys.executable, good = "/nowhere/python", sys.executable
wrong = error(lambda: dev().__enter__())
assert wrong.errno == 2, wrong
sys.executable = good
assert dict(os.environ) == before
os.environ["XTS_ENDPOINT"] = sys.argv[1]
xts_socket.configure(endpoint=sys.argv[1])
s = xts_socket.socket()
wrong = error(lambda: dev().__enter__())
assert (wrong.errno, "enter dev() before its first XTS socket" in wrong.strerror) == (16, True), wrong
s.bind(("127.0.0.1", 0))
print("as", "before")
"""
    with running_proxy(tmp_path) as proxy:
        assert output(bed, code, proxy.endpoint) == ["as", "before"]


def test_under_xts_dev_it_is_that_proxy(bed: DevBed) -> None:
    code = """
with dev() as proxy:
    print(echo(), os.environ["XTS_ENDPOINT"] == proxy.endpoint)
    for fault in (proxy.kill, proxy.pause):
        assert error(fault).errno == 1, error(fault)
print(echo(), error(lambda: dev("x = 1").__enter__()).errno)
"""
    done = bed.dev("--", sys.executable, "-c", HEAD + code)
    assert (done.returncode, done.stdout.split()) == (0, ["up", "True", "up", "16"]), done


def test_the_proxys_environment_is_not_the_programs(bed: DevBed) -> None:
    """What is set for the program that is worked on does nothing to the proxy; nor does what lies in its directory."""
    folder = bed.place / "work"
    folder.mkdir()
    (folder / "asyncio.py").write_text("raise SystemExit('shadowed')")
    code = "import os; os.chdir(sys.argv[1])\nwith dev(): print(echo())\nos.remove('asyncio.py'); os.rmdir(os.getcwd())"
    done = bed.python(HEAD + code, str(folder), PYTHONINSPECT="", PYTHONWARNINGS="error", PYTHONSAFEPATH="1")
    assert (done.returncode, done.stdout) == (0, "up\n"), done.stderr


def test_many_descriptors_are_open(bed: DevBed) -> None:
    code = "files = [os.dup(0) for _ in range(1100)]\nwith dev(): print(echo())"
    raised = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(7)[1]))\n"
    assert output(bed, raised + code) == ["up"]


def test_a_process_that_waits_for_all_its_children(bed: DevBed) -> None:
    """It does not find the proxy: not when it waits, not by SIGCHLD, and not after the proxy has been killed."""
    code = """
import signal
def collect():
    found = []
    try:
        while True:
            found.append(os.wait()[0])
    except ChildProcessError:
        return found
signal.alarm(20)
with dev() as proxy:
    died = []
    signal.signal(signal.SIGCHLD, lambda *_: died.append(1))
    print(echo())
    child = os.fork()
    if not child:
        os._exit(0)
    assert collect() == [child] and collect() == []
    del died[:]
    os.killpg(os.getpgid(proxy.pid), signal.SIGKILL)
    while proxy.ended() is None:
        time.sleep(0.01)
    assert collect() == [] and died == []
    proxy.kill()
    proxy.start()
    print(echo())
assert collect() == []
"""
    assert output(bed, code) == ["up", "up"]


def test_a_process_that_waits_for_its_children_in_no_way(bed: DevBed) -> None:
    code = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwith dev(): print(echo())"
    assert output(bed, code) == ["up"]


def test_pause_and_kill(bed: DevBed) -> None:
    code = """
with dev() as proxy:
    with xts_socket.create_server(("127.0.0.1", 0)) as server:
        proxy.pause()
        client = xts_socket.socket()
        client.settimeout(0.2)
        assert isinstance(error(lambda: client.connect(server.getsockname())), TimeoutError)
        proxy.resume()
        client.close()
    print(echo())
    server = xts_socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.2)
    proxy.kill()
    assert isinstance(error(server.accept), TimeoutError)  # it is back with the next proxy
    proxy.start()
    print(echo())
    proxy.kill()  # while nobody waits for anything
    proxy.start()
    time.sleep(0.3)  # the time of a ping
    print(echo())
"""
    assert output(bed, code) == ["up", "up", "up"]


def test_ctrl_c_when_the_process_of_the_proxy_has_just_been_made(bed: DevBed) -> None:
    """It is known by then, and ends."""
    code = """
import signal, subprocess
from xts_socket import _dev_proxy
made = []
class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        made.append(self.pid)
        signal.raise_signal(signal.SIGINT)
_dev_proxy.subprocess.Popen = Popen
def handling():
    return signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, ())
before = handling()
try:
    _dev_proxy.DevProxy().start()
except KeyboardInterrupt:
    print(len(made), os.path.exists(f"/proc/{made[0]}"), handling() == before)
"""
    assert output(bed, code) == ["1", "False", "True"]


def test_kill_waits_for_all_processes_of_the_proxy(bed: DevBed) -> None:
    """Also for one that takes long to end, since it has much memory."""
    code = """
import subprocess
from xts_socket import _dev_proxy
slow = "import os, signal, sys\\nif not os.fork(): memory = b'x' * (400 << 20); os.write(int(sys.argv[1]), b'x')\\n" \
    "signal.pause()"
class Popen(subprocess.Popen):
    def __init__(self, command, **options):
        ready = command[command.index("--ready-fd") + 1]
        super().__init__([sys.executable, "-c", slow, ready], **options)
_dev_proxy.subprocess.Popen = Popen
proxy = _dev_proxy.DevProxy().start()
group = proxy.pid
print(len(list(_dev_proxy._states(group))))
proxy.kill()
print(all(state in "ZX" for state in _dev_proxy._states(group)))
"""
    assert output(bed, code) == ["2", "True"]


def test_a_directory_that_is_there_already(bed: DevBed) -> None:
    """Whoever made it: the proxy uses none but its own."""
    done = bed.run(sys.executable, "-m", "xts_proxy", "--make-dir", str(bed.place))
    assert (done.returncode, done.stderr) == (2, f"xts-proxy: {bed.place} cannot be made: File exists\n")


def test_tables_are_a_text_or_a_file(bed: DevBed, tmp_path: Path) -> None:
    good, wrong = tmp_path / "good.toml", tmp_path / "wrong.toml"
    good.write_text("[limits]\nclients = 9\n")
    wrong.write_text("[limits]\nclints = 9\n")
    code = """
from pathlib import Path
for tables in (Path(sys.argv[1]), sys.argv[1], "[limits]\\nclients = 9\\n", "# nothing"):
    with dev(tables):
        print(echo())
def enter(tables):
    with dev(tables):
        pass
for tables in (sys.argv[2], "/nowhere/tls.toml"):
    print(str(error(lambda: enter(tables))).replace(" ", "_"))
"""
    *states, mistake, missing = output(bed, code, str(good), str(wrong))
    assert states == 4 * ["up"]
    assert f"{wrong}:2:1:_limits.clints:_unknown_key" in mistake
    assert "tables:_/nowhere/tls.toml:_No_such_file_or_directory_(taken_for_the_path_of_a_file" in missing
