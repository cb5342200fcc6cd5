"""`xts rules check` and `xts rules explain`: what they print, and their exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from xts_socket import cli

FILE = """\
# for the web servers
log min-level 3
application-id curl *
use os tcp_client *:*
application-id nginx *
use os tcp_client *:53      # name lookups
\tuse xlio tcp_client [2001:db8::]/32:443
use os tcp_server *:80
"""


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "web.conf"
    path.write_text(FILE)
    return str(path)


def xts(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(["rules", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    status, out, err = xts(capsys, "explain", *arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_check(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = xts(capsys, "check", rules)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"{rules} is right: 4 rules",
        f"{rules}:2: note: log statements are accepted and have no effect",
    ]
    status, out, _ = xts(capsys, "check", rules, "--json")
    assert status == 0
    assert json.loads(out) == {
        "file": rules,
        "valid": True,
        "notes": [{"line": 2, "text": "log statements are accepted and have no effect"}],
    }


def test_check_points_at_the_fault(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(rules).write_text(FILE.replace("xlio tcp_client", "xlio\ttcp_clent"))
    status, out, err = xts(capsys, "check", rules)
    assert (status, out) == (1, "")
    place, line, pointer = err.splitlines()
    assert place.startswith(f"{rules}:7:11: expected a role")
    assert place.endswith("found 'tcp_clent': did you mean 'tcp_client'?")
    assert line.index("tcp_clent") == pointer.index("^")
    status, out, err = xts(capsys, "check", rules, "--json")
    found = json.loads(out)
    assert (status, found["valid"], found["mistakes"], err) == (1, False, 1, "")
    assert [(fault["line"], fault["column"]) for fault in found["errors"]] == [(7, 11)]


def test_check_says_all_that_is_wrong_at_once(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(rules).write_text(FILE.replace("xlio tcp_client", "xlio\ttcp_clent").replace("*:80", "*:80000"))
    status, _, err = xts(capsys, "check", rules)
    assert (status, [line.split(": ")[0] for line in err.splitlines()[::3]]) == (1, [f"{rules}:7:11", f"{rules}:8:21"])
    Path(rules).write_text("uses os\n" * 40)
    status, _, err = xts(capsys, "check", rules)
    assert (status, err.splitlines()[-1]) == (1, f"{rules}: and 8 more")
    assert json.loads(xts(capsys, "check", rules, "--json")[1])["mistakes"] == 40


def test_check_of_what_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = xts(capsys, "check", str(tmp_path / "none"))
    there = "No such file or directory; give the name of a file that is there"
    assert (status, err) == (1, f"xts: {tmp_path}/none: {there}\n")


def test_explain(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (rules, "--app", "nginx", "--role", "tcp_client", "--peer", "[2001:db8::1]:443")
    status, out, _ = xts(capsys, "explain", *asked)
    first, why, *table = out.splitlines()
    assert (status, why) == (0, "the rule offloads it")
    assert first == f"offloaded, by {rules}:7: use xlio tcp_client [2001:db8::]/32:443"
    lines = [row.split()[0] for row in table if row.strip()[:1].isdecimal()]
    assert lines == ["3", "5", "6", "7"]
    answer = explained(capsys, *asked)
    assert (answer["offload"], answer["line"], answer["group_line"], answer["endpoint"]) == (True, 7, 5, None)
    assert answer["peer"] == "[2001:db8::1]:443"
    assert answer["tried"][2] == {"line": 6, "statement": "use os tcp_client *:53", "mismatch": "another peer port"}


def test_explain_what_no_rule_decides(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = explained(capsys, rules, "--app", "nginx", "--role", "tcp_server", "--local", "127.0.0.1:81")
    assert (answer["offload"], answer["line"], answer["statement"]) == (False, 0, None)
    assert "loopback" in answer["why"]
    assert explained(capsys, rules, "--app", "ssh", "--role", "tcp_client", "--peer", "10.0.0.1:22")["offload"]


@pytest.mark.parametrize(("peer", "offload"), [("192.0.2.1:80", True), ("127.0.0.1:80", False), ("[::1]:80", False)])
def test_explain_without_a_file(peer: str, offload: bool, capsys: pytest.CaptureFixture[str]) -> None:
    answer = explained(capsys, "--app", "curl", "--role", "tcp_client", "--peer", peer)
    assert (answer["file"], answer["offload"], answer["tried"]) == (None, offload, [])


def test_explain_refuses_half_a_question(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = xts(capsys, "explain", rules, "--app", "nginx", "--role", "tcp_client", "--local", "10.0.0.1:1")
    assert (status, out) == (2, "")
    assert "give --peer" in err
    for wrong in ("localhost:80", "10.0.0.1", "10.0.0.1:70000", "2001:db8::1:80", "[10.0.0.1]:80", "[::1]:x"):
        with pytest.raises(SystemExit) as stopped:
            cli.main(["rules", "explain", "--app", "a", "--role", "tcp_client", "--peer", wrong])
        assert stopped.value.code == 2
        assert "is not like" in capsys.readouterr().err


def test_explain_as_under_xts_dev(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One default for one word: the file says nothing of loopback."""
    path = tmp_path / "team.rules"
    path.write_text("use os tcp_client *:22\nuse xlio tcp_client *:9000\n")
    asked = (str(path), "--app", "curl", "--role", "tcp_client", "--peer")
    for port, offloaded, with_dev in (("80", False, True), ("9000", False, True), ("22", False, False)):
        peer = f"127.0.0.1:{port}"
        assert explained(capsys, *asked, peer, "--dev")["offload"] == with_dev
        assert explained(capsys, *asked, peer)["offload"] == offloaded
    path.write_text("default os\n")
    assert not explained(capsys, *asked, "127.0.0.1:80", "--dev")["offload"]
