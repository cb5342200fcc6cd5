"""What the commands say of mistakes on the command line, and how wide it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import pytest
from xts_agent import config as agent
from xts_agent.__main__ import main as agent_main
from xts_bluefield.__main__ import make_parser as bluefield_parser
from xts_lab.__main__ import _parser as lab_parser
from xts_messages.settings.config_mistakes import ConfigError
from xts_messages.terminal.text_table import print_table
from xts_proxy.__main__ import main as proxy_main
from xts_proxy.__main__ import parser as proxy_parser
from xts_socket import Reason, cli
from xts_socket.cli.checks import Check
from xts_socket.cli.processes import control_pages
from xts_socket.cli.verbs import doctor, run


def test_a_verb_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    for given, advice in (("stat", "did you mean status?"), ("qqq", "the verbs are run, dev, status,")):
        with pytest.raises(SystemExit) as ended:
            cli.main([given])
        assert ended.value.code == 2
        assert f"there is no verb {given}: {advice}" in capsys.readouterr().err


def test_what_verbs_share_imports_no_verb() -> None:
    """A verb is a leaf: what two of them need is in another folder."""
    folder = Path(cli.__file__).parent
    shared = [path for path in folder.glob("*/*.py") if path.parent.name != "verbs"]
    assert len(shared) > 20
    found = [str(path) for path in shared if re.search(r"^\s*from \.+verbs\b", path.read_text(), re.MULTILINE)]
    assert not found


def test_the_help_imports_no_verb() -> None:
    """Each takes time to import, and the help says one line of each."""
    program = (
        "import sys; from xts_socket import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(*[m for m in sys.modules if m.startswith('xts_socket.cli.')], file=sys.stderr)"
    )
    for given, imported in (
        (["--help"], set()),
        (["--version"], set()),
        (["--endpoint", "ping"], {"ping"}),  # it may be the verb
        (["env", "--help"], {"env"}),
        (["--print-completion", "bash"], set(cli.VERBS)),
    ):
        done = subprocess.run([sys.executable, "-c", program, *given], capture_output=True, text=True, check=True)
        modules = {name.removeprefix("xts_socket.cli.verbs.") for name in done.stderr.splitlines()[-1].split()}
        assert {verb for verb in cli.VERBS if verb.replace("-", "_") in modules} == imported, given
    assert all(f"    {verb} " in cli.make_parser(()).format_help() for verb in cli.VERBS)


@pytest.mark.parametrize(
    ("parser", "given", "said"),
    [
        (cli.make_parser, "top --by proces", "xts top: --by: unknown value 'proces'; did you mean process?"),
        (cli.make_parser, "top --by x", "xts top: --by: unknown value 'x'; it can be socket, process,"),
        (cli.make_parser, "dev --profile throughputt true", "unknown value 'throughputt'; did you mean throughput?"),
        (cli.make_parser, "status --pdi 3", "xts: unrecognized arguments: --pdi 3; did you mean --pid?"),
        (cli.make_parser, "status --pid x", "xts status: --pid: invalid int value: 'x' (see `xts status --help`)"),
        (agent.parser, "--log-format jsno", "xts-agent: --log-format: unknown value 'jsno'; did you mean json?"),
        (proxy_parser, "statsu", "xts-proxy: COMMAND: unknown value 'statsu'; did you mean status?"),
        (lab_parser, "up --queue smh", "xts-lab up: --queue: unknown value 'smh'; did you mean shm?"),
        (bluefield_parser, "plan", "xts-bluefield plan: the following arguments are required: FILE"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    parser: Callable[[], ArgumentParser], given: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The usage of four to six lines hid it."""
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(given.split())
    printed = capsys.readouterr().err
    assert ended.value.code == 2 and said in printed and len(printed.splitlines()) == 1
    assert "--help`)" in printed


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each says what to do: for want of a file, of a folder, and of rights."""
    (tmp_path / "web.rules").write_text("")
    for arguments, said in (
        (["rules", "check", f"{tmp_path}/web.rule"], f"did you mean {tmp_path}/web.rules?"),
        (["rules", "check", f"{tmp_path}/no/web.rules"], f"there is no folder {tmp_path}/no"),
        (["config", "import", f"{tmp_path}"], "Is a directory; give a file in it"),
        (["config", "check", "/nonexistent"], "give the name of a file that is there"),
        (["capture", "--output", f"{tmp_path}/no/x", "--", "true"], f"there is no folder {tmp_path}/no: make it first"),
        (["capture", "--output", f"{tmp_path}/web.rules", "--", "true"], "it is there and is not overwritten"),
        (["report", "--output", f"{tmp_path}/no/x.tar.gz"], "make it first, or choose another"),
        (["run", "--rules", f"{tmp_path}/web.rule", "--", "true"], "did you mean"),
        (["dev", "--tables", f"{tmp_path}/web.rule", "--", "true"], "did you mean"),
    ):
        assert cli.main(arguments) in (1, 2), arguments
        assert said in capsys.readouterr().err, arguments
    for main in (agent_main, proxy_main):
        assert main(["--config", f"{tmp_path}/web.rule"]) in (1, 2)
        assert f"did you mean {tmp_path}/web.rules?" in capsys.readouterr().err


def test_why_a_process_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was three guesses in one sentence."""
    assert control_pages.unreachable(2**22 + 1).startswith("there is no process 4194305")
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            while not Path(f"/proc/{other.pid}/comm").read_text().startswith("sleep"):
                pass
            assert f"process {other.pid} (sleep) has not loaded libxts" in control_pages.unreachable(other.pid)
            assert "start it with `xts run`" in control_pages.unreachable(other.pid)
        finally:
            other.kill()
    with subprocess.Popen(
        [sys.executable, "-c", "import xts_socket; print('there', flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as ours:  # fmt: skip
        assert ours.stdout is not None
        assert ours.stdout.readline() == "there\n"
        assert "has had no socket yet" in control_pages.unreachable(ours.pid)
        ours.communicate("\n", timeout=60)

    def denied(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    assert "may not look at it" in control_pages.unreachable(os.getpid())


def test_a_table_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("name", "word " * 40, "word " * 40)]
    print_table(("A", "B", "C"), rows)
    assert max(map(len, capsys.readouterr().out.splitlines())) > 300
    print_table(("A", "B", "C"), rows, piped_columns=100)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert " ".join(lines[2:]).split().count("word") == 80


def test_a_path_does_not_take_the_room_of_sentences(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path is broken after its slashes before the column next to it has a word in each line."""
    monkeypatch.setenv("COLUMNS", "80")
    path = "/srv/some/where/lib/python3.11/site-packages/xts_socket/libxts-preload.so"
    print_table(("Found", "To do"), [(path, "-"), ("nothing", "start the agent, or the proxy; " * 2)])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) == 7
    assert "".join(line.split()[0] for line in lines[2:5]) == path


def test_doctor_names_what_would_work(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    doctor._print([Check("endpoint", "fail", "/nowhere does not exist", "start one")], False)
    assert "`xts dev -- PROGRAM`" in capsys.readouterr().out
    doctor._print([Check("endpoint", "fail", "none", "start one"), Check("interposer", "fail", "none", "")], False)
    assert "xts dev" not in capsys.readouterr().out
    from xts_socket.cli.checks import endpoint

    monkeypatch.setenv("XTS_ENDPOINT", "/nowhere")
    (check,) = endpoint.checks()
    assert check.mend.endswith("or correct XTS_ENDPOINT")


def test_a_warning_is_of_the_verb(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Static:
        path, runs, obstacle = "/bin/static", "/bin/static", "is linked statically"
        sandboxed = False

    monkeypatch.setattr(run, "look_at", lambda _: Static)
    for arguments, verb in (((), "run"), (("dev",), "dev")):
        run.program_for("true", {}, *arguments)
        assert capsys.readouterr().err.startswith(f"xts {verb}: /bin/static is linked statically: ")


def test_a_reason_is_printed_by_its_name() -> None:
    assert (str(Reason.NO_QUEUE), f"{Reason.NONE}", f"{Reason.NO_QUEUE:d}") == ("NO_QUEUE", "NONE", "16")
    assert Reason.NO_QUEUE == 16


def test_the_agent_names_the_options_that_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"the command line: --interface and --peer-mac must be given \(see"):
        agent.load(agent.parser().parse_args([]))
    with pytest.raises(ConfigError, match=r"the command line: --peer-mac must be given"):
        agent.load(agent.parser().parse_args(["--interface", "xts0"]))
