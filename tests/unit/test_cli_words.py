"""What the commands say of mistakes on the command line, and how wide it is."""

from __future__ import annotations

import pytest
from xts_agent import config as agent
from xts_socket import Reason, cli
from xts_socket.cli import doctor, run
from xts_socket.cli.checks import Check
from xts_socket.cli.text_table import print_table


def test_a_verb_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    for given, advice in (("stat", "did you mean status?"), ("qqq", "the verbs are run, dev, status,")):
        with pytest.raises(SystemExit) as ended:
            cli.main([given])
        assert ended.value.code == 2
        assert f"there is no verb {given}: {advice}" in capsys.readouterr().err


def test_a_table_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("name", "word " * 40, "word " * 40)]
    print_table(("A", "B", "C"), rows)
    assert max(map(len, capsys.readouterr().out.splitlines())) > 300
    print_table(("A", "B", "C"), rows, piped_columns=100)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert " ".join(lines[2:]).split().count("word") == 80


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
    with pytest.raises(agent.ConfigError, match=r"the command line: --interface and --peer-mac must be given \(see"):
        agent.load(agent.parser().parse_args([]))
    with pytest.raises(agent.ConfigError, match=r"the command line: --peer-mac must be given"):
        agent.load(agent.parser().parse_args(["--interface", "xts0"]))
