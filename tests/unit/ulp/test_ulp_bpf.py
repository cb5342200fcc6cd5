"""BPF_PARSER: programs of the operator's, from the configuration file to PDUs."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.ulp import RECEIVE, UlpBed
from xts_bpf.parser import EXAMPLE, check_parser, load_parser
from xts_messages.settings.config_mistakes import ConfigError
from xts_proxy._native import lib
from xts_proxy.config.config import Config, parse
from xts_proxy.config.config_ulp import Parser, Ulp
from xts_proxy.workers.ulp import Protocols, build

SOURCE = Path(__file__).with_name("programs") / "parsers.bpf.c"
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="loading a BPF program needs CAP_BPF")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The object of parsers.bpf.c."""
    path = tmp_path_factory.mktemp("bpf") / "parsers.bpf.o"
    include = f"-I/usr/include/{os.uname().machine}-linux-gnu"
    clang = shutil.which("clang")
    assert clang, "the package was built with it"
    subprocess.run([clang, "-target", "bpf", "-O2", "-g", include, "-c", SOURCE, "-o", path], check=True)
    return path


@pytest.fixture
def bed(programs: Path) -> Iterator[Callable[..., UlpBed]]:
    """A started bed with a program pushed."""
    beds: list[UlpBed] = []

    def make(program: str, path: Path = programs, **parameters: int) -> UlpBed:
        one = UlpBed()
        beds.append(one)
        assert lib.xts_ulp_config_add_parser(one.config, b"it", load_parser(path, program)) == 0
        one.push("BPF_PARSER", RECEIVE, program="it", **parameters)
        one.start()
        return one

    yield make
    for one in beds:
        one.close()


def frame(kind: int, payload: bytes, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, 0)) + stream.to_bytes(4, "big") + payload


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_the_example_finds_http2_frames(bed, size: int) -> None:
    frames = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        frame(4, b""),
        frame(1, b"\x82\x86\x84\x41\x8a", 1),
        frame(0, bytes(range(256)) * 64, 1),
        frame(0, b"", 1),
        frame(6, b"12345678"),
    ]
    stream = b"".join(frames)
    sizes = [size] * min(len(stream) // size, 700)
    assert [p.data for p in bed("http2_frames", EXAMPLE).feed(stream, sizes)] == frames


@pytest.mark.root
@needs_root
@pytest.mark.parametrize(
    ("program", "stream", "pdus", "error", "reason"),
    [
        ("byte", b"\1\3ab\0", [b"\1", b"\3ab"], errno.EPROTO, "returned -71 (Protocol error)"),
        ("byte", b"\2a\xff", [b"\2a"], errno.EPROTO, "gave the stream up (ESTRPIPE)"),
        ("never", bytes(255), [], None, ""),
        ("never", bytes(256), [], errno.EPROTO, "found no length in the first 256 bytes"),
        ("three", b"12345ab", [b"12345"], None, ""),
        ("byte", b"\x65", [], errno.EMSGSIZE, "a PDU of 101 bytes, and MAX_BYTES is 100"),
    ],
)
def test_what_a_program_answers(bed, program, stream, pdus, error, reason) -> None:  # noqa: PLR0917
    one = bed(program, max_bytes=100)
    one.peer_send(stream)
    parts = []
    try:
        while (part := one.read()) is not None:
            parts.append(part)
    except OSError as e:
        assert e.errno == error
        assert reason in one.error().text
        assert one.error().fault == ("parser" if error == errno.EPROTO else "too_long")
    else:
        assert error is None
    assert [p.data for p in one.join(parts)] == pdus


@pytest.mark.root
@needs_root
def test_a_pdu_has_its_time(bed) -> None:
    one = bed("three", timeout_ms=200)
    assert one.feed(b"12") == []
    assert one.wakeups[-1] == 200
    one.now_ns += 200_000_000
    with pytest.raises(OSError) as caught:
        one.read_all()
    assert caught.value.errno == errno.ETIMEDOUT


def test_a_program_that_is_not_configured_is_refused() -> None:
    with UlpBed() as one:
        with pytest.raises(OSError, match="configuration has no program http2") as caught:
            one.push("BPF_PARSER", RECEIVE, program="http2")
        assert caught.value.errno == errno.ENOENT
        with pytest.raises(OSError, match="PROGRAM is required"):
            one.push_bytes(2, b"", RECEIVE)


# --- the configuration


def test_objects_are_checked_without_loading_them(programs: Path, tmp_path: Path) -> None:
    check_parser(programs, "three")
    with pytest.raises(OSError, match="has no program four: it has byte, endless, never, no_parser, three"):
        check_parser(programs, "four")
    with pytest.raises(OSError, match="section 'xdp', which is for no parser"):
        check_parser(programs, "no_parser")
    (tmp_path / "text").write_text("not an object")
    with pytest.raises(OSError, match="text is no BPF object"):
        check_parser(tmp_path / "text", "byte")


def test_mistakes_in_the_file_are_told_with_their_places(programs: Path) -> None:
    text = f"""
[ulp]
pdu_mib_max = 0
[[ulp.parser]]
name = "a b"
object = "{programs}"
program = "byte"
"""
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    assert [str(m).split(": expected")[0] for m in caught.value.mistakes] == [
        "f:3:15: ulp.pdu_mib_max",
        "f:5:8: ulp.parser[0].name",
    ]
    text = f"""
[[ulp.parser]]
name = "a"
object = "{programs}"
program = "four"
[[ulp.parser]]
name = "b"
object = "/nowhere/at.all"
program = "byte"
"""
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    program, absent = map(str, caught.value.mistakes)
    assert program.startswith("f:5:11: ulp.parser[0].program:") and "no program four" in program
    assert absent == "f:8:10: ulp.parser[1].object: /nowhere/at.all: No such file or directory"
    twice = 2 * f'[[ulp.parser]]\nname = "a"\nobject = "{programs}"\nprogram = "byte"\n'
    with pytest.raises(ConfigError, match=r"f:6:8: ulp\.parser\[1\]\.name: a is used already"):
        parse(twice, "f")


def made(protocols: Protocols, config: Config) -> Any:
    """struct xts_ulp_config *"""
    return build(config, protocols.gather(config))[0]


@pytest.mark.root
@needs_root
def test_a_reload_keeps_programs_and_the_verifier_has_its_say(programs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.bpf.o"
    shutil.copy(programs, copy)
    good = Parser(name="good", object=str(copy), program="byte")
    with Protocols() as protocols:
        first = made(protocols, Config(ulp=Ulp(parser=[good])))
        assert lib.xts_ulp_config_parser(first, b"good") > 2
        copy.unlink()  # it is loaded, and named again only
        second = made(protocols, Config(ulp=Ulp(parser=[good], pdu_mib_max=1)))
        assert lib.xts_ulp_config_parser(second, b"good") not in (lib.xts_ulp_config_parser(first, b"good"), -1)
        assert lib.xts_ulp_config_limits(second).pdu_bytes_max == 1 << 20
        bad = Parser(name="bad", object=str(programs), program="endless")
        with pytest.raises(OSError, match="parser bad: loading endless"):
            made(protocols, Config(ulp=Ulp(parser=[good, bad])))
