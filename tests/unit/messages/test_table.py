"""The wire table is consistent in itself, and everything generated from it is what is committed."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from beds.native_core import NATIVE, TOP, compiler, load
from xts_messages.generate import __main__ as generate
from xts_messages.generate import generate_lua
from xts_messages.wire import wire_table as table
from xts_messages.wire.wire_table import Kind, Message

each_message = pytest.mark.parametrize("message", table.MESSAGES, ids=lambda m: m.stem)


def test_codes_names_and_stems_are_unique() -> None:
    for attribute in ("code", "name", "stem"):
        values = [getattr(m, attribute) for m in table.MESSAGES]
        assert len(set(values)) == len(values), attribute


def test_flags_are_one_bit_each() -> None:
    bits = [bit for bit, _ in table.FLAGS.values()]
    assert all(bit.bit_count() == 1 and bit < 256 for bit in bits)
    assert len(set(bits)) == len(bits)


@each_message
def test_message_is_well_formed(message: Message) -> None:
    names = [f.name for f in message.fields]
    assert len(set(names)) == len(names)
    assert set(message.flags) <= set(table.FLAGS)
    assert message.sender in ("host", "proxy", "both")
    assert message.fixed_bytes <= 128, "the link looks at the first 128 bytes"
    for f in message.fields:
        assert f.meaning
        assert f.limit is None or f.limit < 1 << (8 * f.kind.bytes)
    if message.payload:
        (length,) = (f for f in message.fields if f.name == message.payload)
        assert length.kind is Kind.U32
        assert length.limit is not None
        assert length.limit <= table.FRAME_BYTES_MAX


def test_the_papers_types_keep_their_names() -> None:
    papers = [
        "XTS_CMD_CONNECT",
        "XTS_REPLY_CONNECT_ACK",
        "XTS_CMD_LISTEN",
        "XTS_REPLY_LISTEN_ACK",
        "XTS_REPLY_NEWCONN",
        "XTS_CMD_NEWCONN_ACK",
        "XTS_CMD_SEND",
        "XTS_REPLY_RECV",
    ]
    assert [m.name for m in table.MESSAGES if m.source == "paper"] == papers


def test_generated_files_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check", "--top", str(TOP)]) == 0, capsys.readouterr().err


def test_check_notices_a_changed_and_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--top", str(tmp_path)]) == 0
    assert generate.main(["--check", "--top", str(tmp_path)]) == 0
    header = tmp_path / "messages/native/wire/wire.h"
    header.write_text(header.read_text().replace("XTS_CMD_SEND", "XTS_CMD_SENT", 1))
    (tmp_path / "messages/vectors/send.json").unlink()
    capsys.readouterr()
    assert generate.main(["--check", "--top", str(tmp_path)]) == 1
    complaint = capsys.readouterr().err
    assert "messages/native/wire/wire.h is out of date" in complaint
    assert "messages/vectors/send.json is out of date" in complaint


def test_generating_is_deterministic() -> None:
    """Two interpreters with different hash seeds write the same bytes."""
    program = (
        "import hashlib; from xts_messages.generate import __main__ as generate\n"
        "print(hashlib.sha256(repr([(n, f()) for n, f in generate.OUTPUTS.items()]).encode()).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]


def _breaks(tmp_path: Path, text: str) -> str:
    source = tmp_path / "include_wire.c"
    (tmp_path / "wire").mkdir(exist_ok=True)
    (tmp_path / "wire" / "wire.h").write_text(text)
    source.write_text('#include "wire/wire.h"\n')
    run = subprocess.run(
        [compiler(), "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", f"-I{tmp_path}", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stderr if run.returncode else ""


def test_layout_assertions_can_fail(tmp_path: Path) -> None:
    """A field of another width, or two exchanged, does not compile."""
    header = (NATIVE / "wire/wire.h").read_text()
    struct = (
        "struct xts_wire_newconn_ack {\n\tstruct xts_wire_head head;\n\t__be32 xts_socket;\n\t__be32 post_credits;\n"
    )
    assert struct in header
    assert _breaks(tmp_path, header) == ""
    wider = header.replace(struct, struct.replace("__be32 xts_socket", "__be64 xts_socket"))
    assert "newconn_ack: size" in _breaks(tmp_path, wider)
    exchanged = header.replace(
        struct, struct.replace("xts_socket", "tmp").replace("post_credits", "xts_socket").replace("tmp", "post_credits")
    )
    assert "newconn_ack.xts_socket: offset" in _breaks(tmp_path, exchanged)


def test_a_bpf_program_can_include_the_header(tmp_path: Path) -> None:
    clang = shutil.which("clang")
    if clang is None:
        pytest.skip("clang is not installed")
    source = tmp_path / "steer.bpf.c"
    source.write_text(
        '#include "wire/wire.h"\nint main_bytes(struct xts_wire_head *h)'
        "{ return h->type == XTS_CMD_SEND ? XTS_SEND_BYTES : XTS_ETHERTYPE; }\n"
    )
    triplet = subprocess.run(
        [compiler(), "-print-multiarch"], capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run(
        [
            clang,
            "-target",
            "bpf",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-I/usr/include/{triplet}",
            f"-I{NATIVE}",
            "-c",
            str(source),
            "-o",
            str(tmp_path / "steer.o"),
        ],
        check=True,
    )


def test_type_functions_say_what_the_table_says() -> None:
    ffi, core = load()
    known = {m.code: m for m in table.MESSAGES}
    for code in range(256):
        m = known.get(code)
        assert core.xts_type_bytes(code) == (m.fixed_bytes if m else 0)
        assert core.xts_type_flags(code) == (sum(table.FLAGS[name][0] for name in m.flags) if m else 0)
        assert core.xts_type_to_host(code) == (m is not None and m.sender != "host")
        assert core.xts_type_to_proxy(code) == (m is not None and m.sender != "proxy")
        assert core.xts_type_sequenced(code) == (code not in (*range(16, 32), *range(240, 256)))
        assert ffi.string(core.xts_type_name(code)).decode() == (m.name if m else "unknown")


def test_refusals_have_a_number_and_an_errno_each() -> None:
    ffi, core = load()
    numbers = [number for number, _, _ in table.REFUSALS.values()]
    assert numbers == list(range(1, len(numbers) + 1))
    for number, error, sentence in table.REFUSALS.values():
        assert core.xts_refusal_errno(number) == error
        assert ffi.string(core.xts_refusal_text(number)).decode() == sentence
    for unknown in (0, len(numbers) + 1, 255):
        assert core.xts_refusal_errno(unknown) == 0
        assert core.xts_refusal_text(unknown) == ffi.NULL


def test_errno_names_of_the_dissector_are_linux() -> None:
    for number, name in enumerate(generate_lua.ERRNO_NAMES, 1):
        if name != "-":
            # Older Pythons do not know a few of the names.
            assert getattr(errno, name, number) == number
    assert set(errno.errorcode) - {0} <= {n for n, name in enumerate(generate_lua.ERRNO_NAMES, 1) if name != "-"}


@each_message
def test_secret_fields_are_one_piece_whose_place_is_known(message: Message) -> None:
    _, core = load()
    at, secret = table.HEAD_BYTES, set()
    for f in message.fields:
        if f.secret:
            secret |= set(range(at, at + f.kind.bytes))
        at += f.kind.bytes
    first, length = core.xts_type_secret(message.code), core.xts_type_secret_bytes(message.code)
    assert secret == set(range(first, first + length)) if secret else not first and not length
