"""tlsfuzzer's scripts against a listener of ours and `openssl s_server`, with the same choices: tests/tls/run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds import tlsfuzzer_scripts
from beds.tls_looked_at import Place, openssl_server, our_server, place

TLSLITE, CHECKOUT = os.environ.get("XTS_TEST_TLSLITE", ""), os.environ.get("XTS_TEST_TLSFUZZER", "")
ALL = bool(os.environ.get("XTS_TEST_TLSFUZZER_ALL"))
SEED = "32"
SEEDED = Path(__file__).with_name("programs") / "seeded.py"
SCRIPT_S = 300.0

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(2 * SCRIPT_S),
    pytest.mark.skipif(not CHECKOUT, reason="tlsfuzzer is not here: tests/tls/run"),
]


def scripts() -> list[str]:
    if not CHECKOUT:
        return ["none"]
    found = list(tlsfuzzer_scripts.every(Path(CHECKOUT)))
    return found if ALL else [name for name in tlsfuzzer_scripts.OF_RECORDS if name in found]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`failed`: the names of conversations that did not go as the script wants. `ran`: how many there were; -1: the
    script did not come to its end."""

    ran: int
    failed: frozenset[str]
    said: str


def run(script: str, port: int) -> Outcome:
    path = Path(CHECKOUT) / "tlsfuzzer" / "_apps" / f"{script}.py"
    command = [TLSLITE, str(SEEDED), CHECKOUT, SEED, script, "-h", "localhost", "-p", str(port)]
    done = subprocess.run(
        [*command, *tlsfuzzer_scripts.options(path)],
        capture_output=True,
        text=True,
        timeout=SCRIPT_S,
        check=False,
        env=os.environ | {"PYTHONHASHSEED": SEED},
    )
    total = re.search(r"^TOTAL: (\d+)$", done.stdout, re.MULTILINE)
    failed = re.search(r"^FAILED:\n((?:\t.*\n?)+)", done.stdout, re.MULTILINE)
    names = frozenset(line.strip() for line in failed[1].splitlines()) if failed else frozenset[str]()
    return Outcome(int(total[1]) if total else -1, names, (done.stdout + done.stderr)[-60000:])


@contextmanager
def both() -> Iterator[tuple[int, int]]:
    """The ports of a listener of ours, and of OpenSSL's server."""
    with ExitStack() as stack:
        made: Place = stack.enter_context(place())
        yield stack.enter_context(our_server(made)), stack.enter_context(openssl_server(made))


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    with both() as found:
        yield found


@pytest.mark.parametrize("script", scripts())
def test_no_difference(ports: tuple[int, int], script: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(lambda port: run(script, port), ports)
    assert theirs.ran > 0, theirs.said
    assert ours.ran == theirs.ran, ours.said
    listed = tlsfuzzer_scripts.DIFFERENCES.get(script, {})
    different = {name for name in ours.failed ^ theirs.failed if not any(re.search(one, name) for one in listed)}
    print(f"{script}: {ours.ran} conversations, {len(theirs.failed)} fail at both", file=sys.stderr)
    at_ours, at_theirs = different & ours.failed, different & theirs.failed
    assert not different, f"fail at ours: {at_ours}; at OpenSSL's: {at_theirs}\n{ours.said}"
