"""The Wireshark dissector says of every golden vector what the vector says."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from beds.native_core import TOP
from xts_messages.generate import generate_lua
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.wire_table import Kind

TSHARK = shutil.which("tshark")
DISSECTOR = TOP / "deploy/wireshark/xts.lua"

pytestmark = pytest.mark.skipif(TSHARK is None, reason="tshark is not installed")

#: tshark calls no dissector for frames that end before the EtherType's payload begins.
VECTORS: list[dict[str, Any]] = [
    vector | {"file": path.stem}
    for path in sorted((TOP / "messages/vectors").glob("*.json"))
    for vector in json.loads(path.read_text())["vectors"]
    if len(vector["frame"]) // 2 > table.ETH_BYTES
]


def write_pcap(path: Path, frames: list[bytes]) -> None:
    """Classic pcap, LINKTYPE_ETHERNET."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for number, frame in enumerate(frames):
            out.write(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)


def run_tshark(pcap: Path, *arguments: str) -> str:
    assert TSHARK is not None
    run = subprocess.run(
        [TSHARK, "-X", f"lua_script:{DISSECTOR}", "-r", str(pcap), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert "lua" not in run.stderr.lower(), run.stderr
    return run.stdout


def flatten(tree: Any, into: dict[str, list[str]]) -> dict[str, list[str]]:
    """Every field of tshark's JSON, at whatever depth, with all its values."""
    for key, value in tree.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                flatten(one, into)
            else:
                into.setdefault(key, []).append(one)
    return into


@pytest.fixture(scope="module")
def dissected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[str]]]:
    """tshark's view of each vector, all in one run."""
    pcap = tmp_path_factory.mktemp("pcap") / "vectors.pcap"
    write_pcap(pcap, [bytes.fromhex(v["frame"]) for v in VECTORS])
    packets = json.loads(run_tshark(pcap, "-T", "json", "--no-duplicate-keys"))
    assert len(packets) == len(VECTORS)
    return [flatten(p["_source"]["layers"].get("xts", {}), {}) for p in packets]


def number(seen: dict[str, list[str]], name: str) -> int:
    (value,) = seen[name]
    return int(value, 0)


def check_endpoint(seen: dict[str, list[str]], name: str, expected: dict[str, Any]) -> None:
    for part in ("port", "ip_version", "scope_id"):
        assert number(seen, f"xts.{name}.{part}") == expected[part]
    if expected["ip_version"]:
        assert seen[f"xts.{name}.address{expected['ip_version']}"] == [expected["host"]]
    else:
        assert seen[f"xts.{name}.address"][0].replace(":", "") == expected["address"]


def check_flags(seen: dict[str, list[str]], expected: list[str]) -> None:
    for name in table.FLAGS:
        assert seen[f"xts.flags.{name.lower()}"] == ["1" if name in expected else "0"], name


@pytest.mark.parametrize("index", range(len(VECTORS)), ids=[f"{v['file']}: {v['name']}" for v in VECTORS])
def test_vector(dissected: list[dict[str, list[str]]], index: int) -> None:
    vector, seen = VECTORS[index], dissected[index]
    complaints = [name for name in seen if name.startswith("xts.malformed")]
    if vector["verdict"] == "malformed":
        assert complaints
        return
    assert not complaints
    assert "xts.odd_flag" not in seen
    for head, key in (
        ("type", "code"),
        ("seqno", "seqno"),
        ("frame_ack", "frame_ack"),
        ("error", "error"),
        ("id", "id"),
    ):
        assert number(seen, f"xts.{head}") == vector[key], head
    assert ("xts.failed" in seen) == (vector["error"] != 0)
    if codec.BY_NAME[vector["type"]].refusal:
        assert number(seen, "xts.refusal") == vector["refusal"]
    else:
        check_flags(seen, vector["flags"])
    names = generate_lua.field_names()
    message = codec.BY_NAME[vector["type"]]
    for f in message.fields:
        if f.kind is Kind.ENDPOINT:
            check_endpoint(seen, f.name, vector["fields"][f.name])
        else:
            assert number(seen, names[message.stem, f.name]) == vector["fields"][f.name], f.name
    assert seen.get("xts.payload", [""])[0].replace(":", "") == vector["payload"]


def _summary(pcap: Path, *arguments: str) -> str:
    return run_tshark(pcap, "-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info", *arguments).strip()


def test_summary_line(tmp_path: Path) -> None:
    frame = codec.Frame(
        "XTS_CMD_SEND",
        {"post_credits": 100},
        b"hello",
        seqno=3,
        frame_ack=2,
        id=0x200007,
        error=104,
        flags=codec.flags("FIN", "MORE"),
    )
    write_pcap(tmp_path / "one.pcap", [codec.encode(frame)])
    assert _summary(tmp_path / "one.pcap") == (
        "XTS\tSEND seq=3 ack=2 id=0x200007 [FIN,MORE] ECONNRESET post_credits=100 length=5"
    )


def test_a_refusal_is_named(tmp_path: Path) -> None:
    frame = codec.Frame("XTS_REPLY_LISTEN_ACK", error=13, flags=table.REFUSALS["LISTEN_POLICY"][0])
    write_pcap(tmp_path / "one.pcap", [codec.encode(frame)])
    assert " EACCES LISTEN_POLICY" in _summary(tmp_path / "one.pcap")


def test_a_flag_without_meaning_is_noted(tmp_path: Path) -> None:
    frame = codec.Frame("XTS_CMD_SEND", flags=codec.flags("EOS"))
    write_pcap(tmp_path / "one.pcap", [codec.encode(frame)])
    assert "SEND" in _summary(tmp_path / "one.pcap", "-Y", "xts.odd_flag")


def test_a_bundle_shows_all_its_frames(tmp_path: Path) -> None:
    frames = [codec.encode(codec.Frame(name)) for name in ("XTS_LINK_PING", "XTS_LINK_FRAME_ACK", "XTS_CMD_SEND")]
    payload = b"".join(struct.pack(">H", len(f)) + f for f in frames)
    bundle = codec.Frame("XTS_LINK_BUNDLE", fields={"length": len(payload)}, payload=payload)
    write_pcap(tmp_path / "one.pcap", [codec.encode(bundle)])
    shown = _summary(tmp_path / "one.pcap", "-Y", "xts")
    assert [part.split()[0] for part in shown.split("\t")[1].split("; ")] == ["BUNDLE", "PING", "FRAME_ACK", "SEND"]
    assert _summary(tmp_path / "one.pcap", "-Y", "_ws.malformed || xts.malformed.short || xts.malformed.length") == ""
    assert "SEND" in _summary(tmp_path / "one.pcap", "-Y", "xts.post_credits == 0")


def test_another_ethertype(tmp_path: Path) -> None:
    """The preference moves the dissector; the default then no longer applies."""
    mine = codec.encode(codec.Frame("XTS_LINK_PING", ethertype=0x88B5))
    usual = codec.encode(codec.Frame("XTS_LINK_PING"))
    write_pcap(tmp_path / "two.pcap", [mine, usual])
    assert _summary(tmp_path / "two.pcap", "-Y", "xts").startswith("XTS\tPING")
    moved = run_tshark(
        tmp_path / "two.pcap",
        "-o",
        f"xts.ethertype:{0x88B5}",
        "-Y",
        "xts",
        "-T",
        "fields",
        "-e",
        "frame.number",
        "-e",
        "_ws.col.Info",
    )
    assert moved.split("\t")[0] == "1"
    assert moved.count("\n") == 1


def test_every_field_has_a_unit_or_meaning_in_the_field_list() -> None:
    """`tshark -G fields` documents each filter name."""
    assert TSHARK is not None
    listing = subprocess.run(
        [TSHARK, "-G", "fields", "-X", f"lua_script:{DISSECTOR}"], check=True, capture_output=True, text=True
    ).stdout
    fields = {
        line.split("\t")[2]: line.split("\t")
        for line in listing.splitlines()
        if "\txts." in line and line.startswith("F")
    }
    for (stem, name), abbreviation in generate_lua.field_names().items():
        (f,) = (f for f in next(m for m in table.MESSAGES if m.stem == stem).fields if f.name == name)
        assert f.meaning in fields[abbreviation][-1]
