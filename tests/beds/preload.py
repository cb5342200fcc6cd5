"""Programs under libxts-preload.so: a proxy of their own over shared memory, real TCP on loopback, no privilege."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from beds.patience import SLOWER
from beds.proxy_process import ProxyProcess, running_proxy

RUN_S = 60.0 * SLOWER
# The proxy of these tests is on this very host: what it offers are loopback addresses, which the default rules leave
# to the kernel.
ALL = "use xts tcp_client *:*\nuse xts tcp_server *:*\n"
SETTINGS = ("XTS_", "XLIO_", "VMA_")


def preload_library() -> str:
    """The installed libxts-preload.so, or another build of it that $XTS_TEST_PRELOAD names."""
    if named := os.environ.get("XTS_TEST_PRELOAD"):
        return named
    spec = find_spec("xts_socket")
    assert spec is not None and spec.submodule_search_locations
    places = [Path(where) for where in spec.submodule_search_locations]
    found = [str(path) for where in places for path in where.glob("libxts-preload.so")]
    assert found, "libxts-preload.so is not installed"
    return found[0]


#: A port that is shared with SO_REUSEPORT is one user's, and here both halves of a listener are on one machine.
_OUR_USER = f'user = "{pwd.getpwuid(os.geteuid()).pw_name}"\n'


def preloaded() -> str:
    """LD_PRELOAD of a program under the interposer. A sanitizer's run-time library, where there is one, is first."""
    return ":".join(filter(None, [os.environ.get("LD_PRELOAD"), preload_library()]))


@dataclass(frozen=True, slots=True)
class PreloadBed:
    """`run` and `start` put programs under the interposer. Its listeners are at 127.0.0.1 as everybody else's."""

    proxy: ProxyProcess
    folder: Path

    def environment(self, rules: str | None = ALL, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """For a program under the interposer. `rules`: the text of a file, or None for the default rules."""
        out = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
        out["LD_PRELOAD"] = preloaded()
        out["XTS_ENDPOINT"] = self.proxy.endpoint
        if rules is not None:
            path = self.folder / f"{abs(hash(rules)):x}.rules"
            path.write_text(rules)
            out["XTS_RULES"] = str(path)
        return out | dict(env or {})

    def run(
        self,
        argv: Sequence[str],
        *,
        rules: str | None = ALL,
        env: Mapping[str, str] | None = None,
        timeout_s: float = RUN_S,
        check: bool = True,
        strict: bool = False,
        stdin: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a program to its end under the interposer. With `check` it has to succeed; with `strict` (XTS_STRICT)
        sockets stay with the kernel for no other reason than a rule."""
        env = {"XTS_STRICT": str(int(strict))} | dict(env or {})
        done = subprocess.run(
            argv, env=self.environment(rules, env), input=stdin, capture_output=True, timeout=timeout_s, check=False
        )
        if check:
            assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout!r}\n{done.stderr.decode()}"
        return done

    @contextmanager
    def start(
        self, argv: Sequence[str], *, rules: str | None = ALL, env: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs until the block ends; its output is piped."""
        process = subprocess.Popen(
            argv,
            env=self.environment(rules, env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=10 * SLOWER)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


@contextmanager
def preload_bed(folder: Path, extra: str = "") -> Iterator[PreloadBed]:
    """A proxy in `folder` (`extra`: more of its configuration) and programs under the interposer that use it."""
    with running_proxy(folder, f"{_OUR_USER}{extra}") as proxy:
        yield PreloadBed(proxy, folder)
