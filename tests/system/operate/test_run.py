"""`xts run`: what it does before it becomes the program, and that it then is the program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from beds.proxy_process import running_proxy
from xts_messages.settings.profiles import NAMES, PROFILES
from xts_socket import cli
from xts_socket.cli.verbs import run as run_verb
from xts_socket.cli.verbs.run import preload_library

XTS = [sys.executable, "-m", "xts_socket.cli"]
LIBRARY = str(preload_library())
CC = shutil.which("cc")

needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("XTS_", "LC_", "LANG"))}
    return subprocess.run(
        [*XTS, "run", *arguments],
        env={**clean, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def variables(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.conf"
    path.write_text("use os tcp_client *:53\n")
    return path


def test_environment_of_the_program(rules: Path) -> None:
    plain = variables(run("--", "env"))
    assert plain["LD_PRELOAD"].split(":")[-1] == LIBRARY
    assert [name for name in plain if name.startswith(("XTS_", "LC_"))] == ["XTS_ROOT_PID"]
    relative = os.path.relpath(rules)
    full = variables(
        run("--rules", relative, "--strict", "--profile", "low-cpu", "--endpoint", "run/x.sock", "--", "env")
    )
    assert full["XTS_RULES"] == str(Path(relative).absolute())
    assert full["XTS_ENDPOINT"] == str(Path("run/x.sock").absolute())
    assert (full["XTS_STRICT"], full["XTS_PROFILE"]) == ("1", "low-cpu")


def test_environment_that_is_there_is_kept(rules: Path) -> None:
    there = {"XTS_SPIN_US": "7", "XTS_RULES": str(rules), "XTS_STRICT": "1", "FOO": "bar"}
    kept = variables(run("--profile", "low-latency", "--", "env", **there))
    assert {name: kept[name] for name in there} == there


def test_another_preloaded_library_comes_before(tmp_path: Path) -> None:
    if CC is None:
        pytest.skip("no C compiler")
    other = tmp_path / "other.so"
    subprocess.run([CC, "-shared", "-o", str(other), "-x", "c", "/dev/null"], check=True)
    before = os.environ.get("LD_PRELOAD")
    present = f"{before}:{other}" if before else str(other)
    assert variables(run("--", "env", LD_PRELOAD=present))["LD_PRELOAD"] == f"{present}:{LIBRARY}"
    nested = variables(run("--", *XTS, "run", "--", "env", LD_PRELOAD=present))
    assert nested["LD_PRELOAD"] == f"{present}:{LIBRARY}"


def test_it_becomes_the_program() -> None:
    process = subprocess.Popen([*XTS, "run", "--", "sh", "-c", "echo $$ $0 $1; readlink /proc/$$/exe", "a b", "--json"],
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
    output, _ = process.communicate(timeout=60)
    pid, name, option, exe = output.replace("a b", "a-b").split()
    assert (int(pid), name, option) == (process.pid, "a-b", "--json")
    assert "python" not in exe


def test_exit_status_and_signals() -> None:
    assert run("--", "sh", "-c", "exit 7").returncode == 7
    assert run("--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    ignored = run("--", "grep", "SigIgn", "/proc/self/status").stdout.split()[1]
    assert not int(ignored, 16) & 1 << signal.SIGPIPE - 1, "Python's ignored SIGPIPE was handed on"


def test_options_after_the_program_are_its_own() -> None:
    assert run("echo", "--strict", "-h").stdout == "--strict -h\n"
    assert run("--", "echo", "--", "x").stdout == "-- x\n"


def test_wrong_rules_and_nothing_is_started(tmp_path: Path, rules: Path) -> None:
    touched = tmp_path / "touched"
    rules.write_text("use os tcp_client *:53\nuse os tcp_cleint *:54\n")
    for done in (run("--rules", str(rules), "--", "touch", str(touched)),
                 run("--", "touch", str(touched), XTS_RULES=str(rules))):  # fmt: skip
        assert done.returncode == 2
        assert f"{rules}:2:8: expected a role" in done.stderr
        assert "did you mean 'tcp_client'" in done.stderr
        assert "use os tcp_cleint *:54\n           ^" in done.stderr
    missing = run("--rules", str(tmp_path / "none"), "--", "touch", str(touched))
    assert (missing.returncode, f"{tmp_path}/none: No such file" in missing.stderr) == (2, True)
    assert not touched.exists()


def test_wrong_settings_and_nothing_is_started(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    done = run("--", "touch", str(touched), XTS_SPIN_US="soon", XTS_STRICT="yes")
    assert (done.returncode, touched.exists()) == (2, False)
    assert done.stderr == (
        "xts run: XTS_STRICT=yes: must be 0 or 1\n"
        "xts run: XTS_SPIN_US=soon: must be a number from 0 to 4294967295 (microseconds)\n"
    )
    done = run("--", "touch", str(touched), XTS_SPINUS="7")
    assert (done.returncode, touched.exists()) == (2, False)
    assert done.stderr == "xts run: XTS_SPINUS is not a variable of xts-offload: did you mean XTS_SPIN_US?\n"


def test_the_interposer_does_not_run_on_half_of_the_settings() -> None:
    done = run("--", "env", "XTS_DEAD_MS=1", "XTS_IO_URING=perhaps", "true")
    first, second, last = done.stderr.splitlines()
    assert (done.returncode, first) == (2, "libxts-preload: XTS_IO_URING=perhaps: must be refuse or allow")
    assert second.startswith("libxts-preload: XTS_DEAD_MS=1: must be") and last.endswith("the program is not started")


def test_what_cannot_be_started(tmp_path: Path) -> None:
    absent = run("--", "no-such-program-anywhere")
    assert (absent.returncode, "not found in PATH" in absent.stderr) == (127, True)
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert run("--", str(plain)).returncode == 126
    plain.chmod(0o755)
    assert run("--", str(plain)).returncode == 126
    assert run("--", str(tmp_path)).returncode == 126
    assert run().returncode == 2
    assert run("--profile", "fast", "--", "true").returncode == 2


@needs_cc
def test_a_program_that_cannot_be_interposed(tmp_path: Path) -> None:
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text('#include <stdio.h>\nint main(void) { puts("started"); return 3; }\n')
    subprocess.run([str(CC), "-static", "-o", str(program), str(source)], check=True)
    done = run("--", str(program))
    assert (done.returncode, done.stdout) == (3, "started\n")
    assert "statically linked" in done.stderr
    assert "stay with the kernel" in done.stderr
    script = tmp_path / "script"
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    for refused in (run("--strict", "--", str(program)), run("--", str(script), XTS_STRICT="1")):
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "statically linked" in refused.stderr
        assert "refused" in refused.stderr


def test_a_program_that_fails_with_the_interposer(tmp_path: Path) -> None:
    """It is said before it starts, and it starts without."""
    sshd = shutil.copy(str(shutil.which("env")), tmp_path / "sshd")
    done = run("--", str(sshd))
    assert done.returncode == 0 and "libxts-preload" not in done.stdout
    assert "sandbox" in done.stderr and "stay with the kernel" in done.stderr
    assert run("--strict", "--", str(sshd)).returncode == 2


def test_profiles_are_listed() -> None:
    listed = json.loads(run("--list-profiles", "--json").stdout)["profiles"]
    assert {profile["name"]: profile["sets"] for profile in listed} == {one.name: one.sets for one in PROFILES}
    text = run("--list-profiles").stdout
    assert all(name in text for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_profiles_set_what_the_library_takes(name: str) -> None:
    """A setting that it finds wrong would be EINVAL, and not a proxy that is not there."""
    code = "import errno, xts_socket\ntry: xts_socket.socket()\nexcept OSError as e: print(errno.errorcode[e.errno])"
    environment = {**os.environ, "XTS_PROFILE": name, "XTS_ENDPOINT": "/nowhere/endpoint.sock"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("ENETDOWN\n", "")


def test_without_the_library_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_verb, "preload_library", lambda: tmp_path / "libxts-preload.so")
    assert cli.main(["run", "--", "true"]) == 2
    assert "libxts-preload.so is not there" in capsys.readouterr().err


#: An offloaded listener and its client; a client that a rule keeps with the kernel; a datagram socket.
PROGRAM = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
accepted, _ = listener.accept()
client.sendall(b"x" * 1000)
assert accepted.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
kernel = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(listener.fileno(), client.fileno(), accepted.fileno(), kernel.fileno(), flush=True)
sys.stdin.read()
"""


def test_what_became_of_its_sockets_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_proxy(tmp_path) as proxy, socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        rules = tmp_path / "rules.conf"
        rules.write_text(f"# a comment\nuse os tcp_client *:{port}\nuse xts tcp_client *:*\nuse xts tcp_server *:*\n")
        command = ["run", "--rules", str(rules), "--endpoint", proxy.endpoint, "--", sys.executable, "-c", PROGRAM]
        with subprocess.Popen(
            [*XTS, *command, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            listener, client, accepted, kernel = map(int, process.stdout.readline().split())
            assert cli.main(["status", "--processes", "--json", "--pid", str(process.pid)]) == 0
            (shown,) = json.loads(capsys.readouterr().out)["processes"]
            process.stdin.close()
            assert process.wait(60) == 0
    assert (shown["rules"], shown["strict"], shown["offloaded"]) == (str(rules), False, 3)
    assert {reason["name"]: reason["count"] for reason in shown["stayed"]}["RULE"] == 1
    sockets = {entry["fd"]: entry for entry in shown["descriptors"]}
    assert {sockets[fd]["kind"] for fd in (listener, client, accepted)} == {"offloaded"}
    assert (sockets[kernel]["kind"], sockets[kernel]["reason_name"]) == ("kernel", "RULE")
    assert (sockets[kernel]["rule_line"], sockets[kernel]["peer"]) == (2, f"127.0.0.1:{port}")
    assert (sockets[listener]["rule_line"], sockets[client]["rule_line"]) == (4, 3)


def test_strict_fails_the_call_instead(tmp_path: Path) -> None:
    code = "import socket; socket.create_connection(('198.51.100.1', 80), timeout=20)"
    done = run("--strict", "--endpoint", str(tmp_path / "nowhere"), "--", sys.executable, "-c", code)
    assert done.returncode == 3, "not the 1 of a Python program that fails: test_strict_outcome.py"
    assert "Network is down" in done.stderr


@pytest.mark.parametrize("written", ["a struct, up to version 8", "a later version"])
def test_a_socket_of_another_version_is_lost_with_a_reason(tmp_path: Path, written: str) -> None:
    """What a program of another libxts leaves over exec, as far as it can be known."""
    with socket.socket() as place:
        fd = place.fileno()
        later = struct.pack(">IiIIII", 0x58545352, fd, 0, 0, 8, 0) + struct.pack(">HHI", 99, 99, 0)
        older = struct.pack("=IIIi", 0x58545342, 8, 1, fd) + bytes(600)
        records = os.memfd_create("records", 0)
        os.write(records, later if "later" in written else older)
        os.lseek(records, 0, os.SEEK_SET)
        command = [*XTS, "run", "-v", "--endpoint", str(tmp_path / "nobody.sock"), "--", sys.executable, "-c", ""]
        environment = os.environ | {"XTS_INHERITED": str(records)}
        done = subprocess.run(
            command, env=environment, pass_fds=(records, fd), capture_output=True, text=True, timeout=60, check=True
        )
        os.close(records)
    assert "VERSION" in done.stderr, done.stderr
