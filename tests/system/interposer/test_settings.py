"""Settings of a running program: what `xts config explain` shows, and what `xts log` and `xts rules reload` change."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from beds.preload import ALL, PreloadBed, preload_bed
from beds.shm_proxy import library
from xts_socket import cli

WAIT_S = 30
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 0x2
OS = "use os tcp_client *:*\nuse os tcp_server *:*\n"

#: Connects for each line on standard input. `thread FILE`: in a thread with rules of its own.
PROGRAM = """
import ctypes, os, socket, sys, threading
def connect(file):
    if file:
        libxts = ctypes.CDLL(sys.argv[2], use_errno=True)
        if libxts.xts_rules_thread(os.fsencode(file) if file != "none" else None) < 0:
            print("errno", ctypes.get_errno(), flush=True)
            return
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
        s.sendall(b"x")
        print("done", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "thread":
        thread = threading.Thread(target=connect, args=(words[1],))
        thread.start()
        thread.join()
    elif words[0] == "fork":
        if os.fork() == 0:
            connect(None)
            os._exit(0)
        os.wait()
    else:
        connect(None)
"""


class Program:
    """PROGRAM, running."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def ask(self, words: str = "connect") -> str:
        """What was written until it was done."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()
        said = ""
        while line := self.process.stdout.readline():
            if line.startswith(("done", "errno")):
                return said + line
            said += line
        raise AssertionError(said)


Start = Callable[..., Program]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreloadBed]:
    with preload_bed(tmp_path_factory.mktemp("bed")) as found:
        yield found


@pytest.fixture
def start(bed: PreloadBed) -> Iterator[Start]:
    running: list[Program] = []
    with listening() as port:

        def begin(rules: Path, **environment: str) -> Program:
            command = [sys.executable, "-c", PROGRAM, str(port), library()]
            process = subprocess.Popen(
                command,
                env=bed.environment(None, {"XTS_CONFIG": "/dev/null", "XTS_RULES": str(rules)} | environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            running.append(Program(process))
            return running[-1]

        yield begin
        for program in running:
            program.process.communicate("", timeout=WAIT_S)


@contextmanager
def listening() -> Iterator[int]:
    """A listener that is enough for any number of short connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield listener.getsockname()[1]


def xts(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = cli.main(list(arguments))
    printed = capsys.readouterr()
    return status, printed.out + printed.err


def explained(capsys: pytest.CaptureFixture[str], pid: int) -> dict[str, Any]:
    status, out = xts(capsys, "config", "explain", "--pid", str(pid), "--json")
    assert status == 0
    return {one["name"]: one for one in json.loads(out)["settings"]}


def test_explain(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, file = tmp_path / "rules", tmp_path / "xts.toml"
    rules.write_text(ALL)
    file.write_text("spin_us = 11\nwindow_bytes = 4096\n")
    program = start(rules, XTS_CONFIG=str(file), XTS_WINDOW_BYTES="8192", XTS_PROFILE="low-cpu")
    assert xts(capsys, "config", "explain", "--pid", str(program.pid))[0] == 1, "it has had no socket"
    program.ask()
    found = explained(capsys, program.pid)
    assert (found["XTS_WINDOW_BYTES"]["value"], found["XTS_WINDOW_BYTES"]["origin"]) == ("8192", "environment")
    assert (found["XTS_SPIN_US"]["value"], found["XTS_SPIN_US"]["where"]) == ("0", "profile low-cpu")
    assert (found["XTS_DEAD_MS"]["value"], found["XTS_DEAD_MS"]["origin"]) == ("3000", "default")
    assert found["XTS_RULES"]["value"] == str(rules) and "XTS_ROOT_PID" not in found
    assert "spin_us" in xts(capsys, "config", "explain", "--pid", str(program.pid))[1]


def test_what_the_program_configures_itself(bed: PreloadBed, capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys, xts_socket; xts_socket.configure(spin_us=7, dead_ms=900)\n"
        "s = xts_socket.socket(); print('ready', flush=True); sys.stdin.read()"
    )
    environment = bed.environment(None) | {"XTS_CONFIG": "/dev/null", "LD_PRELOAD": os.environ.get("LD_PRELOAD", "")}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        found = explained(capsys, process.pid)
        process.communicate("", timeout=WAIT_S)
    assert (found["XTS_SPIN_US"]["value"], found["XTS_SPIN_US"]["origin"]) == ("7", "call")
    assert (found["XTS_DEAD_MS"]["value"], found["XTS_DEAD_MS"]["where"]) == ("900", "xts_configure()")
    assert found["XTS_ENDPOINT"]["origin"] == "environment"


def test_the_level_of_the_log(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules"
    rules.write_text(ALL)
    program = start(rules)
    assert program.ask() == "done\n"
    assert xts(capsys, "log", "info", "--pid", str(program.pid))[0] == 0
    assert ": offloaded" in program.ask()
    assert ": offloaded" in program.ask("fork"), "a child goes on with it"
    assert explained(capsys, program.pid)["XTS_LOG"]["where"] == "xts log"
    assert xts(capsys, "log", "none", "--pid", str(program.pid))[0] == 0
    assert program.ask() == "done\n"
    assert "info" not in xts(capsys, "log", "settings", "--pid", str(program.pid))[1]
    assert program.ask() == "done\n"
    assert xts(capsys, "log", "info", "--pid", "1073741823")[0] == 1


def test_levels_by_the_environment(start: Start, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text(ALL)
    said = start(rules, XTS_LOG="debug").ask()
    assert "libxts: attached to " in said and ": offloaded" in said
    assert start(rules, XTS_LOG="debug", XTS_QUIET="1").ask() == "done\n"


def test_rules_are_read_again(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules"
    rules.write_text(ALL)
    program = start(rules, XTS_LOG="1")
    assert ": offloaded" in program.ask()
    rules.write_text(OS)
    assert ": offloaded" in program.ask(), "not asked yet"
    status, out = xts(capsys, "rules", "reload", "--pid", str(program.pid))
    assert status == 0 and "with its next socket" in out
    said = program.ask()
    assert "rules read again" in said and "(RULE)" in said
    rules.write_text("use nonsense\n")
    status, out = xts(capsys, "rules", "reload", "--pid", str(program.pid))
    assert status == 1 and f"not asked: {rules}:1:5: expected a transport" in out
    assert "(RULE)" in program.ask("fork"), "a child has its own page, and the rules of its parent"
    assert "(RULE)" in program.ask()


def test_rules_that_become_wrong_in_between(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules"
    rules.write_text(ALL)
    program = start(rules, XTS_LOG="1")
    program.ask()
    xts(capsys, "rules", "reload", "--pid", str(program.pid))
    rules.write_text("use nonsense\nuse os\n")
    said = program.ask()
    assert "those before hold: 1:5: expected a transport" in said and "and more" in said and ": offloaded" in said
    rules.unlink()
    status, out = xts(capsys, "rules", "reload", "--pid", str(program.pid), "--json")
    assert status == 1 and json.loads(out)["processes"][0]["state"] == "wrong"


def test_rules_of_a_thread(start: Start, tmp_path: Path) -> None:
    rules, of_thread, wrong = (tmp_path / name for name in ("rules", "thread", "wrong"))
    rules.write_text(ALL)
    of_thread.write_text(OS)
    wrong.write_text("use nonsense\n")
    program = start(rules, XTS_LOG="1")
    assert "(RULE)" in program.ask(f"thread {of_thread}")
    assert ": offloaded" in program.ask("thread none")
    assert ": offloaded" in program.ask()
    assert program.ask(f"thread {wrong}") == "errno 22\n"
    assert program.ask(f"thread {tmp_path}/none") == "errno 2\n"


def test_pages_of_others_are_not_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A memfd of that name with anything in it."""
    from xts_socket.cli.processes.control_pages import page_of

    fd = os.memfd_create("xts-control")
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[fd]) as other:
            for content in (b"", os.urandom(16384), bytes(100000)):
                os.ftruncate(fd, 0)
                os.pwrite(fd, content, 0)
                with page_of(other.pid) as page:
                    assert page is None
            assert xts(capsys, "log", "--pid", str(other.pid))[0] == 1
            other.communicate()
    finally:
        os.close(fd)


def test_a_page_that_its_process_may_cut_off_is_not_mapped() -> None:
    """It would end the reader by SIGBUS. The library seals its own."""
    from xts_socket._native import ffi, lib
    from xts_socket.cli.processes.control_pages import page_of

    sound: Any = ffi.new("struct xts_control_page *")
    sound.magic, sound.version = lib.XTS_CONTROL_MAGIC, lib.XTS_CONTROL_VERSION
    fd = os.memfd_create("xts-control", os.MFD_ALLOW_SEALING)
    try:
        os.pwrite(fd, bytes(ffi.buffer(sound)), 0)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[fd]) as other:
            with page_of(other.pid) as page:
                assert page is None
            fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
            with page_of(other.pid) as page:
                assert page is not None
            other.communicate()
    finally:
        os.close(fd)


@pytest.mark.parametrize("command", [["log", "info"], ["log", "settings"], ["rules", "reload"]])
def test_a_change_needs_to_be_told_whose(
    command: list[str], bed: PreloadBed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root it would be every process of the machine."""
    from xts_socket.cli.processes import control_pages

    def none() -> list[int]:
        raise AssertionError("it has looked at all processes")

    monkeypatch.setattr(control_pages, "pids", none)
    status, _ = xts(capsys, *command)
    assert status == 2
    monkeypatch.setattr(control_pages, "pids", lambda: [os.getpid()])
    assert xts(capsys, *command, "--all")[0] == 0


def test_nobody_to_ask(capsys: pytest.CaptureFixture[str]) -> None:
    assert xts(capsys, "rules", "reload", "--pid", "1073741823")[0] == 1
    assert xts(capsys, "config", "explain", "--pid", "1073741823")[0] == 1
