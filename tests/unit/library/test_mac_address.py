"""The peer's MAC address: agent, proxy and xts-bluefield take the same ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from xts_agent.__main__ import main as agent
from xts_bluefield import wanted
from xts_messages.machine import mac_address
from xts_proxy.__main__ import main as proxy

GOOD = ("02:00:00:00:00:01", "FE:ff:ff:ff:ff:ff", "00:00:00:00:00:01")
WRONG = {
    "01:00:5e:00:00:01": "group address",
    "33:33:00:00:00:01": "group address",
    "ff:ff:ff:ff:ff:ff": "broadcast address",
    "00:00:00:00:00:00": "address zero",
    "02:00:00:00:00": "six octets",
    "02-00-00-00-00-01": "six octets",
    "02:00:00:00:00:0g": "six octets",
    "02:00:00:00:00:01\n": "six octets",
}


def check(program: str, folder: Path, address: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit status of --check, and what it said."""
    text = address.replace("\n", "\\n")
    path = folder / "config.toml"
    if program == "agent":
        path.write_text(f'interface = ["lo"]\npeer_mac = ["{text}"]\nuser = "root"\n')
        status = agent(["--check", str(path)])
    else:
        lines = ['[proxy]\nqueue = "afxdp"\ninterface = "lo"\nqueues = "0"', f'peer_mac = "{text}"\n']
        path.write_text("\n".join(lines))
        status = proxy(["--check", str(path)])
    said = capsys.readouterr()
    return status, said.out + said.err


@pytest.mark.parametrize("program", ["agent", "proxy"])
@pytest.mark.parametrize("address", [*GOOD, *WRONG])
def test_check(program: str, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = check(program, tmp_path, address, capsys)
    if address in GOOD:
        assert status == 0, said
    else:
        assert status != 0
        assert WRONG[address] in said and "peer_mac" in said


@pytest.mark.parametrize("address", [*GOOD, *(wrong for wrong in WRONG if wrong.isprintable())])
def test_the_plan_of_a_card_takes_the_same(address: str) -> None:
    assert bool(re.search(get_args(wanted.Mac)[1].pattern, address)) == (address in GOOD)


def test_octets() -> None:
    assert [mac_address.station(address).hex(":") for address in GOOD] == [address.lower() for address in GOOD]
