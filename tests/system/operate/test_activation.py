"""Endpoints that systemd has made: a process that attaches before the service runs, or while it starts again, waits."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.operated_proxy import PROXY, START_S, user_to_become, wait, write_config
from beds.service_manager import Manager
from xts_messages.attaching.attach import attach


@pytest.fixture
def directory() -> Iterator[Path]:
    """One that other users can read."""
    with tempfile.TemporaryDirectory(prefix="xts-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_process_waits_for_the_proxy_to_start_and_to_start_again(directory: Path) -> None:
    config = write_config(directory, metrics="off", control=f"{directory}/c/proxy.sock")
    (directory / "c").mkdir(mode=0o777)
    (directory / "c").chmod(0o777)
    path = str(directory / "endpoint.sock")
    user = user_to_become() if os.geteuid() == 0 else ""
    with Manager() as manager, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        Path(path).chmod(0o666)
        listener.listen()
        for _ in range(2):
            kinds: list[str] = []

            def early(kinds: list[str] = kinds) -> None:
                with contextlib.closing(attach(path, program="early", timeout_ms=20_000)) as attachment:
                    kinds.append(attachment.queue.kind)

            thread = threading.Thread(target=early)
            thread.start()
            with manager.start([*PROXY, "--config", str(config)], user=user, sockets=[listener]) as process:
                try:
                    thread.join(START_S)
                    assert kinds == ["shm"], process.kill() or process.communicate()[1]
                finally:
                    process.kill()
        assert Path(path).is_socket(), "its file is systemd's"


def test_signs_of_life_end_with_the_proxy(directory: Path) -> None:
    config = write_config(directory, metrics="off")
    with Manager() as manager, manager.start([*PROXY, "--config", str(config)], watchdog_ms=200) as process:
        try:
            wait(lambda: manager.heard.count("WATCHDOG=1") >= 3, "signs of life", START_S)
        finally:
            process.terminate()
            process.wait(START_S)
        assert any(message.startswith("STOPPING=1") for message in manager.heard)
