"""A reload that takes long: the proxy shows that it lives, and answers, meanwhile. And one after another.

The process with the keys is stopped, so that a reload takes as long as the test wants.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds import process_tree
from beds.operated_proxy import Proxy, running, wait
from beds.operated_tls import OTHER, WWW, directory, host_of, identity
from beds.service_manager import Manager

__all__ = ["directory"]  # fixture

LOOKS = 5


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    process_tree.stop(pid)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # it was killed
            os.kill(pid, signal.SIGCONT)


def serves(proxy: Proxy, name: str) -> bool:
    """Is an identity of this name accepted in a push?"""
    with host_of(proxy) as host:
        answer = host.push(number=host.new_socket(), ulp="TLS", role=2, identity=name)
        assert answer.error in (0, errno.ENOENT)
        return answer.error == 0


@pytest.fixture
def proxy(directory: Path) -> Iterator[Proxy]:
    with running(directory, identity(directory, "www", WWW)) as started:
        yield started


def hang_up(proxy: Proxy) -> None:
    proxy.process.send_signal(signal.SIGHUP)
    wait(lambda: proxy.status()["proxy"]["reloading"], "reload that has begun")


def ended(proxy: Proxy) -> bool:
    return not proxy.status()["proxy"]["reloading"]


def test_it_lives_and_answers_meanwhile(directory: Path) -> None:
    text = identity(directory, "www", WWW)
    with (
        Manager() as manager,
        running(directory, text, {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "200000"}) as proxy,
    ):
        keys = proxy.pid_of("xts-keys")
        proxy.write_config(text + identity(directory, "other", OTHER))
        with stopped(keys):
            hang_up(proxy)
            seen = manager.heard.count("WATCHDOG=1")
            wait(lambda: manager.heard.count("WATCHDOG=1") >= seen + LOOKS, "signs of life")
            assert "xts_proxy_reloads_total" in proxy.metrics()
            assert not ended(proxy)
            with proxy.host():  # who attaches is served
                pass
        wait(lambda: ended(proxy), "end of the reload")
        assert proxy.status()["proxy"]["reloads"] == {"taken": 1, "refused": 0}
        assert serves(proxy, "other")
        states = [message.split("\n")[0] for message in manager.heard if not message.startswith("WATCHDOG")]
        assert states[-2:] == ["RELOADING=1", "READY=1"]


def test_a_file_that_changes_during_a_reload_is_read_again(proxy: Proxy, directory: Path) -> None:
    text = identity(directory, "www", WWW)
    with stopped(proxy.pid_of("xts-keys")):
        hang_up(proxy)
        proxy.write_config(text + identity(directory, "other", OTHER))
        for _ in range(3):
            proxy.process.send_signal(signal.SIGHUP)
        assert not ended(proxy)
    wait(lambda: ended(proxy), "end of the reloads")
    assert proxy.status()["proxy"]["reloads"] == {"taken": 2, "refused": 0}
    assert serves(proxy, "other")


def test_a_mistake_that_is_found_late_leaves_what_was(proxy: Proxy, directory: Path) -> None:
    """The workers' process finds it: the certificate does not belong to the key."""
    wrong = identity(directory, "other", OTHER)
    (directory / "other.pem").write_bytes((directory / "www.pem").read_bytes())
    proxy.write_config(identity(directory, "www", WWW) + wrong)
    assert "the configuration in force stays" in proxy.hang_up("refused")
    assert serves(proxy, "www") and not serves(proxy, "other")


def test_it_stops_during_a_reload(proxy: Proxy) -> None:
    with stopped(proxy.pid_of("xts-keys")):
        hang_up(proxy)
        proxy.process.terminate()
        assert proxy.ended() == 0
