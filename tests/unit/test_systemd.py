"""The units that are shipped: systemd takes them as they are, and they call what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))


def test_there_is_one_for_each_daemon() -> None:
    assert [unit.stem for unit in UNITS] == ["xts-agent", "xts-proxy"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_has_nothing_to_say_against_it(unit: Path) -> None:
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], check=False, capture_output=True, text=True
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_proxys_unit_calls_it_with_options_it_has() -> None:
    from xts_proxy.__main__ import parser

    (unit,) = (unit for unit in UNITS if unit.stem == "xts-proxy")
    commands = re.findall(r"^Exec\w+=/usr/bin/env xts-proxy (.*)$", unit.read_text(), re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert vars(parser().parse_args(command.split()))
