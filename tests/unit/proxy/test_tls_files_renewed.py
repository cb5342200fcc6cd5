"""Files of TLS that are replaced while the proxy runs: each way of replacing them, and what does not fit together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from beds.authority import Authority, Issued
from cryptography.hazmat.primitives import serialization
from xts_proxy.config.config import Config, parse
from xts_proxy.supervisor.log import LOG
from xts_proxy.tls import file_signatures, file_watch, tls_files
from xts_proxy.tls.file_watch import FileWatch
from xts_proxy.tls.keys import Key
from xts_proxy.tls.renewal import Renewal, Renewing
from xts_proxy.tls.tls_files import TlsFiles

AUTHORITY, OTHER_AUTHORITY = Authority(), Authority("Another authority")
#: The third has the first one's key.
OLD, NEW, AGAIN = (AUTHORITY.issue("localhost", kind=kind) for kind in ("ec", "rsa", "ec"))


class Keys:
    """As the process with the keys, which tells nothing but the public part."""

    def __init__(self) -> None:
        self.held: dict[int, Key] = {}
        self._last = 0

    def load(self, descriptor: int) -> Key:
        data = os.read(descriptor, 1 << 16)
        try:
            private = serialization.load_pem_private_key(data, None)
        except ValueError as error:
            raise OSError(22, str(error)) from error
        public = private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._last += 1
        self.held[self._last] = Key(self._last, public)
        return self.held[self._last]

    def forget(self, key: Key) -> None:
        del self.held[key.number]


# --- ways of writing a certificate with its key --------------------------------------------------------


def in_place(folder: Path, issued: Issued) -> None:
    (folder / "www.pem").write_bytes(issued.certificate)
    (folder / "www.key").write_bytes(issued.key)
    (folder / "www.key").chmod(0o600)


def renamed(folder: Path, issued: Issued) -> None:
    """Each is written next to its place, and moved there."""
    for name, data in (("www.pem", issued.certificate), ("www.key", issued.key)):
        fresh = folder / f"{name}.new"
        fresh.touch(0o600)
        fresh.write_bytes(data)
        fresh.replace(folder / name)


def linked(folder: Path, issued: Issued) -> None:
    """As certbot: new files in an archive, and then the links."""
    archive = folder / "archive"
    archive.mkdir(exist_ok=True)
    number = len(list(archive.iterdir()))
    for name, data in (("www.pem", issued.certificate), ("www.key", issued.key)):
        file = archive / f"{number}{name}"
        file.touch(0o600)
        file.write_bytes(data)
        link = folder / f"{name}.link"
        link.symlink_to(file)
        link.replace(folder / name)


def mounted(folder: Path, issued: Issued) -> None:
    """As a mounted secret of Kubernetes: one link above all files, `..data`, is replaced."""
    fresh = folder / f"..{len(list(folder.iterdir()))}"
    fresh.mkdir()
    in_place(fresh, issued)
    (folder / "..data.new").symlink_to(fresh.name)
    (folder / "..data.new").replace(folder / "..data")
    for name in ("www.pem", "www.key"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


Put = Callable[[Path, Issued], None]
WAYS: list[Put] = [in_place, renamed, linked, mounted]


# --- what is found in the files ------------------------------------------------------------------------


def table(folder: Path, name: str = "www", **more: str) -> str:
    values = {"name": name, "certificate": f"{folder}/www.pem", "key": f"{folder}/www.key"} | more
    return "[[tls.identity]]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items())


class Bed:
    """A configuration whose files were read, and its files in a folder."""

    def __init__(self, text: str) -> None:
        self.config = parse(f"[tls]\nwatch_files_s = 0.01\n{text}", "f")[0]
        self.keys = Keys()
        self.files = tls_files.gather(self.config.tls, self.keys.load)
        self.state = "running"
        self.renewing = Renewing(self.keys.load, self.keys.forget, lambda key: key.number in self.keys.held)

    def now(self) -> Renewal:
        """What is there now, of what has changed."""
        tls, seen = self.config.tls, self.files.seen
        names = {name for name, now in file_signatures.look(tls).items() if now != seen[name]}
        return self.renewing.of(tls, self.files, names)


@pytest.mark.parametrize("put", WAYS)
def test_each_way_of_replacing(tmp_path: Path, put: Put) -> None:
    put(tmp_path, OLD)
    bed = Bed(table(tmp_path))
    put(tmp_path, NEW)
    renewal = bed.now()
    assert renewal.changed == ["identity www"] and not renewal.problems
    assert renewal.files.contents[f"{tmp_path}/www.pem"] == NEW.certificate
    assert renewal.files.keys[0] == renewal.loaded[0] == bed.keys.held[2]
    assert bed.files.contents[f"{tmp_path}/www.pem"] == OLD.certificate, "what is in force was changed"


@pytest.mark.parametrize("put", WAYS)
def test_the_same_contents_are_no_change(tmp_path: Path, put: Put) -> None:
    put(tmp_path, OLD)
    bed = Bed(table(tmp_path))
    put(tmp_path, OLD)
    renewal = bed.now()
    assert renewal.looked_at == ["identity www"]
    assert not renewal.changed and not renewal.problems and not renewal.loaded
    assert renewal.files.keys == bed.files.keys and len(bed.keys.held) == 1


def test_a_certificate_for_the_same_key(tmp_path: Path) -> None:
    """Of which nothing has to be loaded."""
    in_place(tmp_path, OLD)
    bed = Bed(table(tmp_path))
    (tmp_path / "www.pem").write_bytes(AGAIN.certificate)
    renewal = bed.now()
    assert renewal.changed == ["identity www"] and not renewal.problems and not renewal.loaded
    assert renewal.files.keys == bed.files.keys and len(bed.keys.held) == 1


def test_a_key_that_the_process_has_lost(tmp_path: Path) -> None:
    """It has ended while the file was not there. The same file is taken, though nothing in it has changed."""
    in_place(tmp_path, OLD)
    bed = Bed(table(tmp_path))
    bed.keys.held.clear()
    (tmp_path / "www.key").touch()
    renewal = bed.now()
    assert renewal.changed == ["identity www"] and [key.number for key in renewal.loaded] == [2]


def certificate_only(folder: Path) -> None:
    (folder / "www.pem").write_bytes(NEW.certificate)


def key_only(folder: Path) -> None:
    (folder / "www.key").write_bytes(NEW.key)


def half(folder: Path) -> None:
    (folder / "www.pem").write_bytes(NEW.certificate[:300])
    (folder / "www.key").write_bytes(NEW.key)


def half_a_key(folder: Path) -> None:
    (folder / "www.pem").write_bytes(NEW.certificate)
    (folder / "www.key").write_bytes(NEW.key[:100])


def emptied(folder: Path) -> None:
    (folder / "www.pem").write_bytes(b"")


def deleted(folder: Path) -> None:
    (folder / "www.pem").unlink()


def key_deleted(folder: Path) -> None:
    (folder / "www.key").unlink()


def for_everybody(folder: Path) -> None:
    (folder / "www.key").chmod(0o644)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (certificate_only, "tls.identity[0].certificate: certificate and key do not belong together"),
        (key_only, "certificate and key do not belong together"),
        (half, "tls.identity[0].certificate: certificate: "),
        (half_a_key, "tls.identity[0].key: key (it must not be encrypted)"),
        (emptied, "www.pem: is empty"),
        (deleted, "www.pem: No such file or directory"),
        (key_deleted, "www.key: No such file or directory"),
        (for_everybody, "is a key that everybody may read"),
    ],
)
def test_what_does_not_fit_keeps_what_was_there(tmp_path: Path, what: Callable[[Path], None], why: str) -> None:
    in_place(tmp_path, OLD)
    bed = Bed(table(tmp_path))
    what(tmp_path)
    renewal = bed.now()
    assert why in renewal.problems["identity www"]
    assert not renewal.changed and not renewal.loaded
    assert (renewal.files.contents, renewal.files.keys) == (bed.files.contents, bed.files.keys)
    assert len(bed.keys.held) == 1, "a key that nobody uses is left"


def test_one_that_does_not_fit_holds_up_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        in_place(tmp_path / name, OLD)
    (tmp_path / "roots.pem").write_bytes(AUTHORITY.certificate)
    trust = f'[[tls.trust]]\nname = "lab"\nfile = "{tmp_path}/roots.pem"\n'
    bed = Bed(table(tmp_path / "a", "a") + table(tmp_path / "b", "b") + trust)
    certificate_only(tmp_path / "a")
    in_place(tmp_path / "b", NEW)
    (tmp_path / "roots.pem").write_bytes(OTHER_AUTHORITY.certificate)
    renewal = bed.now()
    assert renewal.changed == ["identity b", "trust lab"]
    assert list(renewal.problems) == ["identity a"]
    assert renewal.files.keys[0] == bed.files.keys[0] != renewal.files.keys[1]


def test_who_has_a_file_in_common_changes_with_it_or_not_at_all(tmp_path: Path) -> None:
    """Two identities with the same certificate, and each a file with its key: one of these is the old one still."""
    in_place(tmp_path, OLD)
    other = tmp_path / "other.key"
    other.touch(0o600)
    other.write_bytes(OLD.key)
    bed = Bed(table(tmp_path) + table(tmp_path, "other", key=str(other)))
    in_place(tmp_path, NEW)
    renewal = bed.now()
    assert list(renewal.problems) == ["identity other", "identity www"] and not renewal.changed
    assert (renewal.files.contents, renewal.files.keys) == (bed.files.contents, bed.files.keys)
    other.write_bytes(NEW.key)
    assert bed.now().changed == ["identity www", "identity other"]


def test_roots_and_lists_of_what_is_revoked(tmp_path: Path) -> None:
    roots, lists, folder = tmp_path / "roots.pem", tmp_path / "crl.pem", tmp_path / "folder"
    folder.mkdir()
    roots.write_bytes(AUTHORITY.certificate)
    lists.write_bytes(AUTHORITY.revoke(OLD))
    (folder / "one.pem").write_bytes(AUTHORITY.certificate)
    bed = Bed(
        f'[[tls.trust]]\nname = "a"\nfile = "{roots}"\ncrl = "{lists}"\n'
        f'[[tls.trust]]\nname = "b"\ndirectory = "{folder}"\n'
    )
    lists.write_bytes(AUTHORITY.revoke(OLD, NEW))
    (folder / "two.pem").write_bytes(OTHER_AUTHORITY.certificate)
    assert bed.now().changed == ["trust a", "trust b"]
    lists.write_bytes(b"nothing")
    (folder / "two.pem").unlink()
    renewal = bed.now()
    assert not renewal.changed and "tls.trust[0].crl: " in renewal.problems["trust a"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_roots_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Where the configuration has none called "default". What is no roots keeps what was there, as when an update of
    them has been half done."""
    place = tmp_path / "certs"
    file = place / "ca.pem" if kind == "folder" else place
    if kind == "folder":
        place.mkdir()
    file.write_bytes(AUTHORITY.certificate)
    places = (str(place), "") if kind == "file" else ("", str(place))
    monkeypatch.setattr(file_signatures, "_places", lambda: places)
    bed = Bed("")
    assert not bed.now().looked_at
    file.write_bytes(AUTHORITY.certificate + OTHER_AUTHORITY.certificate)
    renewal = bed.now()
    assert renewal.changed == ["trust default, of this machine"] and not renewal.problems
    assert OTHER_AUTHORITY.certificate.strip() in renewal.files.contents[str(place)]  # type: ignore[operator]
    for broken in (b"", b"-----BEGIN CERTIFICATE-----\nhalf"):
        file.write_bytes(broken)
        renewal = bed.now()
        assert not renewal.changed and renewal.problems.keys() == {"trust default, of this machine"}
        assert renewal.files.contents[str(place)] == bed.files.contents[str(place)]
    file.unlink()
    assert not bed.now().changed
    (tmp_path / "own.pem").write_bytes(AUTHORITY.certificate)
    with_default = Bed(f'[[tls.trust]]\nname = "default"\nfile = "{tmp_path}/own.pem"\n')
    assert str(place) not in with_default.files.contents


# --- when they are read --------------------------------------------------------------------------------


class Reloading:
    """As the proxy's, without workers."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self.failures: list[OSError] = []

    async def renew(self, look: Callable[[Config, TlsFiles], Renewal]) -> Renewal:
        renewal = look(self._bed.config, self._bed.files)
        if self.failures:
            raise self.failures.pop()
        if renewal.changed:
            self._bed.files = renewal.files
        return renewal


class Watched:
    """A watch, and what it says."""

    def __init__(self, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bed, self.said = bed, list[str]()
        self.reloading = Reloading(bed)
        self.watch = FileWatch(bed, self.reloading, bed.renewing)  # type: ignore[arg-type] # all that is used of it
        for level in ("info", "warning"):
            monkeypatch.setattr(LOG, level, lambda text, *values, **_: self.said.append(text % values))

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not reached():
                await asyncio.sleep(0.005)

    def run(self, steps: Callable[[], object]) -> None:
        """The watch runs meanwhile."""

        async def body() -> None:
            self.watch.start()
            try:
                await steps()  # type: ignore[misc]
            finally:
                self.watch.stop()

        asyncio.run(body())


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr(file_watch, "SETTLES_S", 0.01)
    in_place(tmp_path, OLD)
    return Watched(Bed(table(tmp_path)), monkeypatch)


def test_a_pair_is_taken_and_half_of_one_is_told_once(watched: Watched, tmp_path: Path) -> None:
    watch, bed = watched.watch, watched.bed

    async def steps() -> None:
        certificate_only(tmp_path)
        await watched.until(lambda: bool(watch.refused))
        looks = count_looks(watched)
        await watched.until(lambda: looks() >= 5)
        assert watch.counts == {"taken": 0, "refused": 1} and len(watched.said) == 1
        assert "identity www have changed, and do not fit" in watched.said[0]
        key_only(tmp_path)
        await watched.until(lambda: watch.counts["taken"] == 1)
        assert not watch.refused
        assert watched.said[1:] == ["tls: new contents of files are in force: identity www"]
        assert bed.files.contents[f"{tmp_path}/www.pem"] == NEW.certificate

    watched.run(steps)


def count_looks(watched: Watched) -> Callable[[], int]:
    """How often it has looked since."""
    count, look = [0], watched.watch._look

    async def counted() -> bool:
        count[0] += 1
        return await look()

    watched.watch._look = counted  # type: ignore[method-assign]
    return lambda: count[0]


def test_what_was_touched_is_read_once_and_not_taken(watched: Watched, tmp_path: Path) -> None:
    watch = watched.watch
    calls = list[set[str]]()
    of = watched.bed.renewing.of

    def noted(tls: object, before: object, names: set[str]) -> Renewal:
        calls.append(names)
        return of(tls, before, names)  # type: ignore[arg-type]

    watched.bed.renewing.of = noted  # type: ignore[method-assign]

    async def steps() -> None:
        (tmp_path / "www.pem").touch()
        await watched.until(lambda: bool(calls))
        looks = count_looks(watched)
        await watched.until(lambda: looks() >= 5)
        assert calls == [{f"{tmp_path}/www.pem"}]
        assert watch.counts == {"taken": 0, "refused": 0} and not watched.said

    watched.run(steps)


def test_a_file_that_is_being_written_is_not_read(watched: Watched, tmp_path: Path) -> None:
    """Only when it has been the same for a while."""
    watch = watched.watch

    async def steps() -> None:
        signatures = file_watch._signatures
        read_early = list[bool]()

        def writes(tls: object) -> dict[str, tuple[object, ...]]:
            if len(read_early) < 5:
                read_early.append(bool(watch.refused or watched.said))
                (tmp_path / "www.pem").write_bytes(NEW.certificate[: -len(read_early)])
            return signatures(tls)  # type: ignore[arg-type]

        file_watch._signatures = writes  # type: ignore[assignment]
        try:
            await watched.until(lambda: len(read_early) == 5)
            assert not any(read_early)
            await watched.until(lambda: bool(watch.refused))
        finally:
            file_watch._signatures = signatures

    watched.run(steps)


def test_a_failure_that_is_not_the_files_is_told_once_and_tried_again(watched: Watched, tmp_path: Path) -> None:
    watch = watched.watch
    watched.reloading.failures = [OSError(11, "no thread") for _ in range(3)]

    async def steps() -> None:
        in_place(tmp_path, NEW)
        await watched.until(lambda: watch.counts["taken"] == 1)

    watched.run(steps)
    assert len(watched.said) == 2 and "cannot be put in force now: [Errno 11] no thread" in watched.said[0]


def test_what_did_not_fit_is_tried_again_after_a_while(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though no signature changes: here the process with the keys does not answer."""
    watch, keys = watched.watch, watched.bed.keys
    monkeypatch.setattr(file_watch, "AGAIN_S", 0.05)
    load = keys.load

    def late(descriptor: int) -> Key:
        raise OSError(110, "the process with the keys has not answered")

    async def steps() -> None:
        watched.bed.renewing._load = late
        in_place(tmp_path, NEW)
        await watched.until(lambda: bool(watch.refused))
        watched.bed.renewing._load = load
        await watched.until(lambda: watch.counts["taken"] == 1)

    watched.run(steps)


def test_a_reload_has_seen_what_it_has_read(watched: Watched, tmp_path: Path) -> None:
    """What it has taken over is no change any more, and what did not fit before is forgotten."""
    watch, bed = watched.watch, watched.bed

    async def steps() -> None:
        certificate_only(tmp_path)
        await watched.until(lambda: bool(watch.refused))
        key_only(tmp_path)
        bed.files = tls_files.gather(bed.config.tls, bed.keys.load)
        watch.start()
        looks = count_looks(watched)
        await watched.until(lambda: looks() >= 5)
        assert not watch.refused and watch.counts == {"taken": 0, "refused": 1}

    watched.run(steps)


def test_it_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_place(tmp_path, OLD)
    bed = Bed(table(tmp_path))
    bed.config = parse(f"[tls]\nwatch_files_s = 0\n{table(tmp_path)}", "f")[0]
    watched = Watched(bed, monkeypatch)

    async def steps() -> None:
        looks = count_looks(watched)
        in_place(tmp_path, NEW)
        await asyncio.sleep(0.1)  # nothing is to happen
        assert looks() == 0

    watched.run(steps)
