"""Whether queues are bound with zero copy (xts_bpf.zero_copy): what a driver says, and what it does."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from xts_bpf import zero_copy
from xts_bpf.zero_copy import CopyMode, QueueBinder, decide
from xts_messages.machine.xdp_features import BASIC, REDIRECT, RX_SEVERAL, ZERO_COPY, XdpFeatures
from xts_messages.native import ffi
from xts_messages.queues.afxdp import CHUNK, SMALL_CHUNK, SMALL_CHUNK_MTU, SMALL_CHUNKS_SAID, XskSocket
from xts_messages.queues.queue_kinds import QueueOptions

LOG = logging.getLogger("test")
NATIVE = BASIC | REDIRECT
SEVERAL = XdpFeatures(NATIVE | ZERO_COPY | RX_SEVERAL, 17)
ONE = XdpFeatures(NATIVE | ZERO_COPY)


@dataclass
class Driver:
    """One made by hand. `bind_errno`: its answer to zero copy. `moves`: frames, with zero copy."""

    found: XdpFeatures | None = SEVERAL
    bind_errno: int = 0
    moves: bool = True
    answers_before: bool = True
    busy: int = 0  # so often EBUSY comes first
    frame_bytes: int = 1514  # of its interface
    refuses_small: bool = False  # chunks, with zero copy
    opened: list[QueueOptions] = field(default_factory=list)

    def features(self) -> XdpFeatures | None:
        return self.found

    def open(self, queue_id: int, options: QueueOptions, patience_s: float) -> XskSocket:
        if options.zero_copy and self.bind_errno:
            raise OSError(self.bind_errno, "no")
        small = options.chunk_bytes != CHUNK and self.frame_bytes <= SMALL_CHUNK_MTU + 14
        if options.zero_copy and self.refuses_small and small:
            raise OSError(errno.EOPNOTSUPP, "no")
        if not options.zero_copy and self.opened:
            assert patience_s >= 0.5, "the queue was closed just now"
        self.opened.append(options)
        geometry = ffi.new("struct xts_attach_reply *", {"largest_message": self.frame_bytes})
        geometry.chunk_bytes = SMALL_CHUNK if small else CHUNK
        return XskSocket("x0", queue_id, -1, -1, geometry, options.zero_copy)

    def answers(self, _queue: int, _seconds: float) -> bool:
        return self.moves or not self.opened[-1].zero_copy if self.opened else self.answers_before


@pytest.fixture
def binder(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[QueueBinder, Driver]]:
    def make(wanted: str = "auto", waits: bool = False, name: str = "nic", **driver: Any) -> tuple[QueueBinder, Driver]:
        made = Driver(**driver)
        monkeypatch.setattr(zero_copy, "driver_at", lambda *_: made)
        monkeypatch.setattr(zero_copy, "driver_of", lambda _: name)
        return QueueBinder(wanted, "ethtool", LOG, waits=waits), made

    return make


@pytest.mark.parametrize(
    ("wanted", "features", "mode"),
    [
        ("auto", SEVERAL, CopyMode(True, "the driver nic has it, and a frame has up to 17 buffers", 17)),
        (
            "auto",
            XdpFeatures(NATIVE | ZERO_COPY),
            CopyMode(True, "the driver nic has it, and a frame has one buffer", 1),
        ),
        ("auto", XdpFeatures(NATIVE | RX_SEVERAL), CopyMode(False, "the driver nic has no zero copy")),
        ("on", XdpFeatures(NATIVE | RX_SEVERAL), CopyMode(False, "the driver nic has no zero copy")),
        ("auto", XdpFeatures(NATIVE), CopyMode(False, "the driver nic has no zero copy", 1)),
        ("auto", XdpFeatures(0), CopyMode(False, "the driver nic has no zero copy")),
        ("off", SEVERAL, CopyMode(False, 'the configuration says zero_copy = "off"')),
        ("auto", None, CopyMode(False, "this kernel does not say what drivers have (Linux 6.3)")),
        ("on", None, CopyMode(True, "this kernel does not say what drivers have (Linux 6.3)", 1)),
    ],
)
def test_what_is_decided(wanted: str, features: XdpFeatures | None, mode: CopyMode) -> None:
    assert decide(wanted, "nic", features) == mode


def test_a_driver_that_keeps_its_word(binder: Callable[..., tuple[QueueBinder, Driver]]) -> None:
    made, driver = binder()
    made.begin("x0")
    xsk = made.open("x0", 3, QueueOptions(frame_window=9), answers=driver.answers)
    assert (xsk.zero_copy, made.fallbacks) == (True, 0)
    assert xsk.copying.startswith("zero copy: the driver nic has it, and a frame has up to 17 buffers; in chunks")
    assert driver.opened == [QueueOptions(frame_window=9, zero_copy=True, buffers_max=17, chunk_bytes=CHUNK)]


@pytest.mark.parametrize(
    ("name", "more", "configured", "expected"),
    [
        ("mlx5_core", {}, 0, (SMALL_CHUNK, SMALL_CHUNKS_SAID)),
        ("igb", {}, 0, (CHUNK, "; in chunks of 4096 bytes: the driver igb is not known to take smaller ones")),
        ("igb", {}, SMALL_CHUNK, (SMALL_CHUNK, SMALL_CHUNKS_SAID)),
        ("ice", {"refuses_small": True}, 0, (CHUNK, "; in chunks of 4096 bytes: the driver ice refuses smaller ones")),
        ("ice", {}, CHUNK, (CHUNK, "")),
        ("igb", {"frame_bytes": 3000}, 0, (CHUNK, "")),
        ("igb", {"found": XdpFeatures(NATIVE)}, 0, (SMALL_CHUNK, SMALL_CHUNKS_SAID)),  # the kernel copies
    ],
)
def test_small_chunks_where_the_driver_is_known_to_take_them(
    binder: Callable[..., tuple[QueueBinder, Driver]],
    name: str,
    more: dict[str, Any],
    configured: int,
    expected: tuple[int, str],
) -> None:
    """Or the configuration says so. A refusal of small ones is none of zero copy."""
    made, driver = binder(name=name, **more)
    made.begin("x0")
    for number in range(2):
        xsk = made.open("x0", number, QueueOptions(chunk_bytes=configured), answers=driver.answers, patience_s=1.0)
        shown = f"; in chunks{xsk.copying.partition('; in chunks')[2]}" if "; in chunks" in xsk.copying else ""
        assert (xsk.geometry.chunk_bytes, shown) == expected
        assert (xsk.zero_copy, made.fallbacks) == (made.mode.zero_copy, 0)
    assert len(driver.opened) == 2


def test_wanted_small_chunks_that_the_driver_refuses(binder: Callable[..., tuple[QueueBinder, Driver]]) -> None:
    made, driver = binder(name="ice", refuses_small=True)
    made.begin("x0")
    xsk = made.open("x0", 0, QueueOptions(chunk_bytes=SMALL_CHUNK), answers=driver.answers)
    assert xsk.copying.startswith("copy mode") and xsk.copying.endswith(SMALL_CHUNKS_SAID)


def test_a_driver_whose_zero_copy_moves_nothing(binder: Callable[..., tuple[QueueBinder, Driver]]) -> None:
    """The queue is bound again in copy mode, and those after it, too."""
    made, driver = binder(moves=False)
    made.begin("x0")
    for number in (2, 3):
        xsk = made.open("x0", number, QueueOptions(), answers=driver.answers, patience_s=1.0)
        assert not xsk.zero_copy
        assert xsk.copying == (
            "copy mode: the driver nic says that it has zero copy, and moved no frame on queue 2 with it, "
            "or the other end answers no more; in chunks of 2048 bytes"
        )
    assert made.fallbacks == 1
    assert [one.zero_copy for one in driver.opened] == [True, False, False]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT, errno.ENOMEM])
def test_a_driver_that_refuses_what_it_says_it_has(
    binder: Callable[..., tuple[QueueBinder, Driver]], number: int
) -> None:
    made, driver = binder(bind_errno=number)
    made.begin("x0")
    assert "refuses it" in made.open("x0", 0, QueueOptions(), answers=driver.answers).copying
    assert made.fallbacks == 1


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EPERM, errno.ENOBUFS])
def test_errors_that_say_nothing_about_zero_copy(
    binder: Callable[..., tuple[QueueBinder, Driver]], number: int
) -> None:
    made, _ = binder(bind_errno=number)
    made.begin("x0")
    with pytest.raises(OSError) as raised:
        made.open("x0", 0, QueueOptions())
    assert (raised.value.errno, made.fallbacks, made.mode.zero_copy) == (number, 0, True)


def test_on_where_it_cannot_be_had(binder: Callable[..., tuple[QueueBinder, Driver]]) -> None:
    """One sentence says what, where, and what to do."""
    made, _ = binder("on", found=XdpFeatures(NATIVE))
    with pytest.raises(OSError, match='zero copy on x0: the driver nic has no zero copy; zero_copy = "auto"') as raised:
        made.begin("x0")
    assert raised.value.errno == errno.EOPNOTSUPP
    made, driver = binder("on", bind_errno=errno.EINVAL)
    made.begin("x0")
    with pytest.raises(OSError, match=r"refuses it \(Invalid argument\)"):
        made.open("x0", 0, QueueOptions(), answers=driver.answers)
    made, driver = binder("on", moves=False)
    made.begin("x0")
    with pytest.raises(OSError, match="moved no frame on queue 0"):
        made.open("x0", 0, QueueOptions(), answers=driver.answers)


def test_silence_before_says_nothing(binder: Callable[..., tuple[QueueBinder, Driver]]) -> None:
    """Who can bind again later takes copy mode until a probe is answered; others take the driver's word, and say so."""
    made, driver = binder(answers_before=False, waits=True)
    made.begin("x0")
    assert made.open("x0", 0, QueueOptions(), answers=driver.answers).copying.startswith(
        "copy mode: no probe was answered"
    )
    assert made.postponed and not made.fallbacks
    made.begin("x0")
    assert not made.postponed and made.open("x0", 1, QueueOptions(), answers=driver.answers).zero_copy
    made, driver = binder(answers_before=False, moves=False)
    made.begin("x0")
    xsk = made.open("x0", 0, QueueOptions(), answers=driver.answers)
    assert xsk.zero_copy and "; not proved by a frame" in xsk.copying


def test_without_addresses_nothing_is_proved(binder: Callable[..., tuple[QueueBinder, Driver]]) -> None:
    made, _ = binder(moves=False)
    made.begin("x0")
    assert made.open("x0", 0, QueueOptions()).copying.endswith("; not proved by a frame")


def test_an_interface_that_was_renamed(
    binder: Callable[..., tuple[QueueBinder, Driver]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, driver = binder()
    made.begin("x0")
    asked = []
    monkeypatch.setattr(zero_copy, "driver_at", lambda name, _: asked.append(name) or driver)
    made.open("x1", 0, QueueOptions())
    made.open("x1", 1, QueueOptions())
    assert asked == ["x1"]
