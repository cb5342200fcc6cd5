"""Each libFuzzer target builds and finds nothing in a few seconds; `tests/fuzz/run --seconds N` goes on for longer."""

from __future__ import annotations

import shutil
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from xts_messages.wire import wire_table as table

RUN = Path(__file__).with_name("run")
#: Not each time, but before a release: those that are made of a whole end, or of OpenSSL's part of the proxy. What they
#: find they find in hours, and most of three seconds here went into building them.
LONG = {"fuzz_host", "fuzz_layers", "fuzz_socket_record", "fuzz_stack", "fuzz_tls", "fuzz_tls_keys", "fuzz_worker"}


def runner() -> ModuleType:
    """The script as a module; its name has no suffix."""
    spec = spec_from_loader("fuzz_run", SourceFileLoader("fuzz_run", str(RUN)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FUZZ = runner()
HERE = RUN.parent
#: Of no host or proxy: the link's own answer to frames, which has no decoder.
WITHOUT_DECODER = {"XTS_LINK_FRAME_ACK"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all targets are built: a source that several have is compiled once."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("target", sorted(FUZZ.TARGETS))
def test_target_has_a_corpus_and_a_place_in_the_table(target: str) -> None:
    inputs = (HERE / "corpora" / f"{target}.txt").read_text().split()
    assert len(inputs) > 10 and all(bytes.fromhex(line) for line in inputs)
    assert FUZZ.coverage.MAIN[target]


def test_each_message_is_in_a_program_of_those_who_read_it() -> None:
    """Of what hosts say: the proxy's target, and of what the proxy says: the library's."""

    def text(pattern: str) -> str:
        return "".join(path.read_text() for path in HERE.glob(pattern))

    names = {message.name for message in table.MESSAGES} - WITHOUT_DECODER
    assert {name for name in names if f"case {name}:" not in text("fuzz_messages.c")} == set()
    of_hosts, of_proxy = text("worker_*.h") + text("fuzz_worker.c"), text("host_*.h") + text("fuzz_host.c")
    assert {name for name in names if "_CMD_" in name and name not in of_hosts} == set()
    assert {name for name in names if "_REPLY_" in name and name not in of_proxy} == set()


@pytest.mark.slow
@pytest.mark.timeout(300)  # most of it is a compiler's
@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in sorted(FUZZ.TARGETS)]
)
def test_target_finds_nothing(target: str, out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = FUZZ.options_parser().parse_args(["--seconds", "3", "--optimise", "0", "--out", str(out)])
    found_nothing = FUZZ.run(target, options, shutil.which("clang"))
    said = capfd.readouterr()
    assert found_nothing, said.out + said.err
    assert f"{target}: " in said.out and "nothing found" in said.out
