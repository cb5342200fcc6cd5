"""New contents of files that [tls] names, for the configuration in force: taken where they fit together.

Theory of operation. Whoever renews a certificate writes several files, one after the other. So what is found may be a
new certificate with the old key, or half of a file. Each identity, and each set of trust roots, is looked at by itself:
all its files are read again, its key is loaded by the process with the keys, and it is checked as at the start. What
does not fit keeps what is in force, certificate and key, and prevents nothing of the others. Identities with a file in
common are looked at together, for this file has one content.

A key whose public part is the one in force is that key: no other private key belongs to it. So it stays where it is,
under its number, unless the process with the keys has ended since, and the next one could not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from xts_messages.settings.toml_positions import dotted

from xts_proxy.config.config_tls import Identity, Tls, Trust
from xts_proxy.tls import tls_files, ulp_tls
from xts_proxy.tls.file_signatures import files_of, of_this_machine, read_here
from xts_proxy.tls.keys import Key
from xts_proxy.tls.tls_files import TlsFiles


@dataclass(frozen=True, slots=True)
class Item:
    """An identity or trust of the configuration, by its place in it."""

    what: str  # "identity www"
    of: Identity | Trust
    index: int


def items_of(tls: Tls) -> list[Item]:
    identities = [Item(f"identity {one.name}", one, i) for i, one in enumerate(tls.identity)]
    trusts = [Item(f"trust {one.name}", one, i) for i, one in enumerate(tls.trust)]
    roots = of_this_machine(tls)
    return identities + trusts + ([Item("trust default, of this machine", roots, len(tls.trust))] if roots else [])


@dataclass(slots=True)
class Renewal:
    """`looked_at`: all that was. `changed`: what has other contents than before. `problems`: what keeps what it had,
    and why. `loaded`: keys that the key process has loaded for it."""

    files: TlsFiles
    looked_at: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    loaded: list[Key] = field(default_factory=list)


class Renewing:
    """How files are renewed. `load` makes a key from an open file, `forget` takes it back. `is_held`: does the process
    have this key?"""

    def __init__(
        self, load: Callable[[int], Key], forget: Callable[[Key], None], is_held: Callable[[Key], bool]
    ) -> None:
        self._load, self._forget, self._is_held = load, forget, is_held

    def of(self, tls: Tls, before: TlsFiles, names: set[str]) -> Renewal:
        """What is in these files now, for everything that has one of them."""
        touched = _touched(items_of(tls), names)
        files = replace(before, contents=dict(before.contents), keys=dict(before.keys))
        renewal = Renewal(files, [item.what for item in touched])
        for item in touched:
            for name in read_here(item.of):
                renewal.files.contents[name] = tls_files.content(item.of, name)
            if isinstance(item.of, Identity):
                renewal.files.keys[item.index] = self._key(item.of.key, before.keys[item.index], renewal)
        while bad := _problems(tls, renewal.files, [item for item in touched if item.what not in renewal.problems]):
            for item, problem in bad:
                renewal.problems[item.what] = problem
                self._revert(item, before, renewal)
        renewal.changed = [item.what for item in touched if _differs(item, before, renewal.files)]
        return renewal

    def _key(self, name: str, known: Key | str, renewal: Renewal) -> Key | str:
        """The key that is in this file now."""
        key = tls_files.key(name, self._load)
        if not isinstance(key, Key):
            return key
        if isinstance(known, Key) and key.data == known.data and self._is_held(known):
            self._give_back(key)
            return known
        renewal.loaded.append(key)
        return key

    def _revert(self, item: Item, before: TlsFiles, renewal: Renewal) -> None:
        for name in read_here(item.of):
            renewal.files.contents[name] = before.contents[name]
        if not isinstance(item.of, Identity):
            return
        key = renewal.files.keys[item.index]
        renewal.files.keys[item.index] = before.keys[item.index]
        if isinstance(key, Key) and key in renewal.loaded:
            renewal.loaded.remove(key)
            self._give_back(key)

    def _give_back(self, key: Key) -> None:
        with suppress(OSError):  # it is told again
            self._forget(key)


def _touched(items: Sequence[Item], names: set[str]) -> list[Item]:
    """Those with one of these files, and those that have a file in common with one of them, and so on."""
    found: list[Item] = []
    names, count = set(names), -1
    while count != len(names):
        count = len(names)
        found = [item for item in items if not names.isdisjoint(files_of(item.of))]
        names.update(name for item in found for name in read_here(item.of))
    return found


def _problems(tls: Tls, files: TlsFiles, items: Sequence[Item]) -> list[tuple[Item, str]]:
    return [(item, problem) for item in items for problem in _problem(tls, files, item)]


def _problem(tls: Tls, files: TlsFiles, item: Item) -> Iterator[str]:
    """The first mistake, if there is one."""
    if isinstance(item.of, Identity):
        mistakes = list(ulp_tls.mistakes_of_identity(tls, files, item.index))
    else:
        mistakes = list(ulp_tls.mistakes_of_trust(item.of, files, item.index))
    if mistakes:
        path, problem = mistakes[0]
        yield f"{dotted(path)}: {problem}" if item.of in (*tls.identity, *tls.trust) else problem


def _differs(item: Item, before: TlsFiles, now: TlsFiles) -> bool:
    other_key = isinstance(item.of, Identity) and now.keys[item.index] != before.keys[item.index]
    return other_key or any(now.contents[name] != before.contents[name] for name in read_here(item.of))
