"""A rolling update of the chart with a surge: the new pod's proxy takes over from the old one's, and nobody notices."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from beds.crashes import program
from beds.operated_proxy import wait
from beds.pods import STARTS_S, Node, node
from beds.upgrades import UPGRADE_S
from xts_messages.services import exit_status
from xts_proxy.status import control_socket

pytestmark = pytest.mark.root
KINDS = ["shm", pytest.param("afxdp", marks=pytest.mark.afxdp)]


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest) -> Iterator[Node]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-pods-")))
        folder.chmod(0o755)
        yield stack.enter_context(node(request.param, folder))


def proxy_of(where: Node) -> dict[str, object]:
    control = str(where.config.parent / "proxy.sock")
    said = control_socket.ask(control, control_socket.Question("status"))["proxy"]
    assert isinstance(said, dict)
    return said


def test_a_rolling_update(where: Node) -> None:
    old = where.start()
    old.wait_until_it_serves()
    with program(where.place, 20) as on:
        on.does("busy")
        for _ in range(2):
            new = where.start()
            new.wait_until_it_serves()
            wait(lambda old=old: "waits until its pod is stopped" in old.log.read_text(), "the pod before", UPGRADE_S)
            assert old.runs()  # else its container would be started again, and take over
            assert old.stop() == 0
            assert proxy_of(where)["upgrade"]["reset"] == 0
            said = on.does("carried")
            assert (said["hangs"], said["busy"], said["under way"]) == ([], [], [])
            old = new
        on.does("quiet")
        assert on.does("use")["failures"] == []
        assert on.does("connect")["failures"] == []
    assert old.stop() == 0


@pytest.mark.parametrize("theirs", ["another", "none"])
def test_who_does_not_show_the_key_takes_nothing(where: Node, theirs: str) -> None:
    """And the proxy that runs goes on."""
    running = where.start()
    running.wait_until_it_serves()
    key = where.place.directory / "another.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(32))
    line = next(line for line in where.config.read_text().splitlines() if line.startswith("upgrade_key"))
    config = where.config.with_name("other.toml")
    config.write_text(where.config.read_text().replace(line, f'upgrade_key = "{key if theirs == "another" else ""}"'))
    with program(where.place, 5) as on:
        other = where.start(config)
        assert other.process.wait(STARTS_S) == exit_status.MISTAKE
        assert "proxy.upgrade_key" in other.log.read_text()
        assert not other.serves()
        assert "upgrade: refused" in running.log.read_text() or theirs == "another"
        assert on.does("use")["failures"] == []
    assert running.stop() == 0
