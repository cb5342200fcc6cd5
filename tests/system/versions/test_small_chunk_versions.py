"""Queues with small chunks where one of library, agent and proxy is of a version that does not know them, on a wire
whose MTU asks for them; and proxies of both versions that take over from each other."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds import process_tree
from beds.patience import SLOWER
from beds.ready import readable
from beds.versions import BEFORE_SMALL_CHUNKS, TODAY, NoVersionError, Version, version_of
from xts_lab import netns
from xts_lab.loopback import ALLOW_LOOPBACK
from xts_lab.places import end

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(600)]
STEADY = Path(__file__).parent / "programs" / "steady.py"
MACS = {"xts0": "02:00:00:00:07:01", "xts1": "02:00:00:00:07:02"}
MTU = 1500
WORKERS = "xts-workers"
READY_S = 20.0 * SLOWER


@pytest.fixture(scope="module")
def versions() -> dict[str, Version]:
    try:
        return {"today": TODAY, "older": version_of(BEFORE_SMALL_CHUNKS)}
    except NoVersionError as why:
        pytest.skip(f"no older version: {why}")


class Place:
    """A namespace with both ends of a cable, and what runs there."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.name = f"xts-chunks-{os.getpid()}"
        netns.create(self.name)
        stack.callback(netns.remove, self.name)
        sizes = f"mtu {MTU} numtxqueues 3 numrxqueues 3"
        batch = ["link set lo up", f"link add xts0 {sizes} type veth peer xts1 {sizes}"]
        batch += [line for one, mac in MACS.items() for line in (f"link set {one} address {mac}", f"link set {one} up")]
        subprocess.run(["ip", "-netns", self.name, "-batch", "-"], input="\n".join(batch), text=True, check=True)
        self.configuration = folder / "proxy.toml"
        self.configuration.write_text(
            f'[proxy]\nqueue = "afxdp"\ninterface = "xts1"\npeer_mac = "{MACS["xts0"]}"\ndrain_timeout_s = 0.0\n'
            f'endpoint = "{folder}/unused.sock"\ncontrol = "{folder}/proxy.sock"\n{ALLOW_LOOPBACK}'
        )

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """A service, when it is ready."""
        ready, told = os.pipe()
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, *command, "--ready-fd", str(told)], stderr=log, pass_fds=[told]
            )
        os.close(told)
        self.stack.callback(end, process, READY_S)
        try:
            assert readable(ready, READY_S) and os.read(ready, 64), self.log()
        finally:
            os.close(ready)
        return process

    def proxy(self, version: Version) -> subprocess.Popen[bytes]:
        return self.start(*version.program("xts_proxy", "--config", str(self.configuration)))

    def upgraded(self, before: subprocess.Popen[bytes], version: Version) -> subprocess.Popen[bytes]:
        new = self.start(*version.program("xts_proxy", "--config", str(self.configuration), "upgrade"))
        assert before.wait(READY_S) == 0, self.log()
        return new

    def agent(self, version: Version) -> subprocess.Popen[bytes]:
        options = ["--interface", "xts0", "--peer-mac", MACS["xts1"], "--endpoint", f"{self.folder}/endpoint.sock"]
        return self.start(*version.program("xts_agent", *options, "--queues", "2", "--relayed-max", "0"))

    def steady(self, version: Version) -> Steady:
        environment = os.environ | {"XTS_ENDPOINT": f"{self.folder}/endpoint.sock"}
        command = ["ip", "netns", "exec", self.name, version.python, str(STEADY)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = self.stack.enter_context(subprocess.Popen(command, env=environment, text=True, bufsize=1, **pipes))
        self.stack.callback(process.kill)
        return Steady(process)

    def log(self) -> str:
        return (self.folder / "log").read_text()


class Steady:
    """A program with one connection."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.exchanges()

    def exchanges(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("\n")
        assert readable(self.process.stdout, READY_S), f"nothing in {READY_S} s"
        assert self.process.stdout.readline() == "exchanged\n"

    def chunk_bytes(self) -> int:
        """By the size of its queue's memory, which has 448 of them."""
        found = [
            fd.stat().st_size
            for fd in Path(f"/proc/{self.process.pid}/fd").iterdir()
            if str(fd.readlink()).startswith("/memfd:xts-umem")
        ]
        assert found, "it has no queue of its own"
        return found[0] // 448

    def ends(self) -> None:
        self.process.kill()
        self.process.wait(READY_S)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path, stack)


@contextmanager
def sized(program: Steady, chunk_bytes: int) -> Iterator[None]:
    assert program.chunk_bytes() == chunk_bytes
    yield
    program.exchanges()
    program.ends()


@pytest.mark.parametrize("agent", ["today", "older"])
@pytest.mark.parametrize("proxy", ["today", "older"])
def test_each_library_gets_what_it_knows(place: Place, versions: dict[str, Version], agent: str, proxy: str) -> None:
    """By turns, and both at a time: there are two queues."""
    place.proxy(versions[proxy])
    place.agent(versions[agent])
    small = 2048 if agent == "today" else 4096
    for _ in range(2):
        with sized(place.steady(versions["today"]), small), sized(place.steady(versions["older"]), 4096):
            pass
        with sized(place.steady(versions["older"]), 4096), sized(place.steady(versions["today"]), small):
            pass


def test_agents_follow_each_other(place: Place, versions: dict[str, Version]) -> None:
    """Queues of both sizes go on, and are taken back when their programs have ended."""
    place.proxy(TODAY)
    agent = place.agent(TODAY)
    programs = [place.steady(TODAY)]
    for version in (versions["older"], TODAY):
        agent.kill()
        agent.wait()
        agent = place.agent(version)
        programs.append(place.steady(versions["older"]))
        for one in programs:
            one.exchanges()
        programs.pop(0).ends()
    with sized(place.steady(TODAY), 2048):
        programs[0].exchanges()


def test_proxies_follow_each_other_with_queues_of_the_older(place: Place, versions: dict[str, Version]) -> None:
    """Forth and back; then the workers of today's are killed, which go on with these queues, too."""
    proxy = place.proxy(versions["older"])
    place.agent(TODAY)
    programs = [place.steady(TODAY), place.steady(versions["older"])]
    for version in (TODAY, versions["older"], TODAY):
        proxy = place.upgraded(proxy, version)
        for one in programs:
            one.exchanges()
    before = 0
    for _ in range(2):
        before = process_tree.one(proxy.pid, WORKERS, other_than=before)
        os.kill(before, signal.SIGKILL)
        for one in programs:
            one.exchanges()


def test_an_older_proxy_is_refused_queues_that_it_does_not_know(place: Place, versions: dict[str, Version]) -> None:
    """With a sentence that says what to do, and before anything has moved."""
    running = place.proxy(TODAY)
    place.agent(TODAY)
    program = place.steady(TODAY)
    with pytest.raises(AssertionError, match="does not know the queues' small chunks: restart with the older version"):
        place.upgraded(running, versions["older"])
    program.exchanges()
    assert running.poll() is None
    place.upgraded(running, TODAY)
    program.exchanges()
