"""The agent's configuration: all mistakes at once, `--check`, its example, and what a reload takes over."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from xts_agent.__main__ import main
from xts_agent.agent import Agent
from xts_agent.config import RELOADABLE, AgentConfig, parse, render, restart_needed
from xts_messages.services.readiness import Readiness
from xts_messages.settings.config_mistakes import ConfigError

EXAMPLE = Path(__file__).parents[3] / "deploy" / "xts-agent.toml"
LEAST = 'interface = "xts0"\npeer_mac = "02:00:00:00:00:01"\n'


def mistakes(text: str, **given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f", given)
    return str(caught.value).splitlines()


def test_all_mistakes_at_once() -> None:
    text = 'interface = 5\nqueus = 3\nframe_window = 500\npeer_mac = "x"\nraise_queues = 1\nmetrics = "nowhere"\n'
    found = mistakes(text)
    assert [line.split(": ")[0] for line in found] == ["f:1:13", "f:2:1", "f:3:16", "f:4:12", "f:5:16", "f:6:11"]
    assert "unknown key; did you mean queues?" in found[1] and "128, found 500" in found[2]
    assert "expected the name of an interface such as" in found[0] and found[4].endswith("true or false, found 1")
    last = mistakes("queues = -1", interface="xts0", spares=-5)[-1]
    assert last == "f: peer_mac must be given, here or by --peer-mac"
    assert any(line.startswith("the command line: --spares: ") for line in mistakes(LEAST, spares=-5))
    assert len(mistakes("zzz = 1")) == 2
    assert mistakes(LEAST + "chunk_bytes = 1024") == [
        'f:3:15: chunk_bytes: expected 2048 or 4096 or "auto", found 1024'
    ]
    assert mistakes(LEAST + "per_uid_max = -1") == ["f:3:15: per_uid_max: expected an integer of at least 0, found -1"]


@pytest.mark.parametrize("text", ["interface = [", "interface = \0", 'interface = "a"\ninterface = "b"'])
def test_what_is_not_toml(text: str) -> None:
    (found,) = mistakes(text)
    assert re.match(r"f:\d+:\d+: is not TOML: ", found)


@pytest.mark.parametrize("value", ['"x"', '["x"]', "5"])
def test_a_mac_address_is_told_as_the_proxy_tells_it(value: str) -> None:
    [found] = mistakes(f'interface = "a"\npeer_mac = {value}\n')
    assert found.startswith(
        'f:2:12: peer_mac: expected an Ethernet address such as "02:00:00:00:00:01", or an array of'
    )


def test_the_command_line_goes_before_the_file() -> None:
    assert parse(LEAST + "frame_window = 500\n", "f", {"frame_window": 32}).frame_window == 32


def test_the_example_has_every_key_at_its_default() -> None:
    """Those without a default are there as comments, with an example."""
    text = EXAMPLE.read_text()
    raw = tomllib.loads(text)
    fields = {field.name: field for field in msgspec.structs.fields(AgentConfig)}
    commented = set(re.findall(r"^# ([a-z_]+) = ", text, re.MULTILINE))
    assert set(raw) | commented == set(fields) and not set(raw) & commented
    assert {name for name, field in fields.items() if field.default in (msgspec.NODEFAULT, None, ())} == commented
    config = parse(LEAST + text, "f", {})
    for name in raw:
        assert getattr(config, name) == fields[name].default, name
    # Those of RDMA are refused without it (test_agent_rdma.py).
    parse(re.sub(r"^# (?=(?!rdma_)[a-z_]+ = )", "", text, flags=re.MULTILINE), "f", {})


def test_what_check_prints_is_the_same_configuration() -> None:
    config = parse(LEAST + 'per_uid_max = 3\nmetrics = "127.0.0.1:1"\nendpoint_mode = 0o600\n', "f", {})
    assert parse(render(config, ["interface"]), "f", {}) == config


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(LEAST.replace("xts0", "lo") + 'user = "root"\n')
    assert main(["--check", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ok\n") and 'interface = "lo"\n' in out and "spares = 0  # default\n" in out
    file.write_text(LEAST + 'qeues = 1\nuser = "root"\n')
    assert main(["--check", str(file)]) == 2
    assert capsys.readouterr().err == f"{file}:3:1: qeues: unknown key; did you mean queues?\n"
    file.write_text(LEAST + f'user = "root"\ntoken_key = "{tmp_path}/none"\nmetrics_token = "{tmp_path}/none"\n')
    assert main(["--check", str(file)]) == 2
    printed = capsys.readouterr().err
    assert "no interface xts0 here" in printed
    assert f"{file}:4:13: token_key: " in printed and f"{file}:5:17: metrics_token: " in printed
    assert main(["--check", str(tmp_path / "none")]) == 2
    file.write_bytes(b"\xff")
    assert main(["--check", str(file)]) == 2


def test_check_for_a_unit_prints_mistakes_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(LEAST + 'user = "root"\n')
    assert main(["--check", str(file), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    file.write_text(LEAST + "spares = -1\n")
    assert main(["--check", str(file), "--quiet"]) == 2
    assert capsys.readouterr().err.startswith(f"{file}:3:10: spares: expected an integer from 0 to ")


def test_what_needs_a_restart() -> None:
    old = parse(LEAST, "f", {})
    new = parse(LEAST + "queues = 4\nper_uid_max = 2\nspares = 1\n", "f", {})
    assert restart_needed(old, new) == ["queues"]
    assert set(AgentConfig.__struct_fields__) >= RELOADABLE


class _Endpoint:
    def __init__(self) -> None:
        self.keep_s = -1.0

    def keep_ended(self, keep_s: float) -> None:
        self.keep_s = keep_s

    def retry(self) -> None:
        pass


class _Pool:
    count, spares_wanted, refilled = 8, 0, False

    def refill(self) -> None:
        self.refilled = True


def test_a_reload_takes_over_what_may_change(caplog: pytest.LogCaptureFixture) -> None:
    texts = [LEAST + "per_uid_max = 2\nspares = 3\nended_keep_s = 5\nqueues = 2\n", "queues = ["]
    agent = object.__new__(Agent)  # without queues of an interface
    agent.config = parse(LEAST, "f", {})
    agent.pools, agent.relays = [_Pool()], []  # type: ignore[list-item]
    agent.endpoint = _Endpoint()  # type: ignore[assignment]
    agent._read_again = lambda: parse(texts.pop(0), "f", {})
    agent.reload(Readiness(None))
    assert (agent.per_uid_max, agent.pools[0].spares_wanted, agent.endpoint.keep_s) == (2, 3, 5)  # type: ignore[attr-defined]
    assert agent.config.queues == 0 and "queues has changed, which takes effect with a restart" in caplog.text
    agent.reload(Readiness(None))
    assert agent.per_uid_max == 2 and "not reloaded: f:1:11: is not TOML: " in caplog.text
