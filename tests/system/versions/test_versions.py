"""Library, agent and proxy of today and of an older version talk with each other, in all combinations, on both
queues; and an agent of one version takes over from one of another."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds.name_server import IPV4, ZONE, NameServer
from beds.ready import readable
from beds.versions import TODAY, NoVersionError, Version, previous
from xts_lab import netns
from xts_lab.loopback import ALLOW_LOOPBACK
from xts_lab.places import end
from xts_lab.topology import XTS_MTU

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
PROGRAMS = Path(__file__).parent / "programs"
RUN_S = 120.0
READY_S = 20.0
#: What every version does with every other.
ALWAYS = ("connect", "many", "refused", "listen", "datagrams", "names")
#: What the older one may lack. It works where each version has it by itself; else it works, or is refused.
NEWER = ("stamps", "filters", "errors", "groups")
REFUSED = ("ENOPROTOOPT", "EOPNOTSUPP", "EPERM", "EINVAL")
RESOLVER = 5359
NAME = f"alias.{ZONE}".rstrip(".")
MACS = {"xts0": "02:00:00:00:07:01", "xts1": "02:00:00:00:07:02"}
COMBINATIONS = [each for each in itertools.product(("today", "previous"), repeat=3) if set(each) != {"previous"}]


@pytest.fixture(scope="module")
def versions() -> dict[str, Version]:
    try:
        return {"today": TODAY, "previous": previous()}
    except NoVersionError as why:
        if "XTS_TEST_PREVIOUS" in os.environ:
            raise
        pytest.skip(f"no older version: {why}")


@contextmanager
def service(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that writes a line to --ready-fd when it serves. It serves to the end, unless the test kills it."""
    ready, told = os.pipe()
    with log.open("a") as output:
        process = subprocess.Popen(
            [*command, "--ready-fd", str(told)], stdout=output, stderr=output, stdin=subprocess.DEVNULL, pass_fds=[told]
        )
    os.close(told)
    try:
        assert readable(ready, READY_S) and os.read(ready, 64), log.read_text()
        yield process
        assert process.poll() in (None, -signal.SIGKILL), log.read_text()
    finally:
        os.close(ready)
        end(process, READY_S)


def proxy_command(proxy: Version, folder: Path, **values: str) -> list[str]:
    values = {"endpoint": str(folder / "endpoint.sock"), "control": str(folder / "proxy.sock")} | values
    path = folder / "proxy.toml"
    lines = ["[proxy]", "drain_timeout_s = 0.0", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    path.write_text("\n".join(lines) + f'\n[names]\nresolvers = ["127.0.0.1:{RESOLVER}"]\n{ALLOW_LOOPBACK}')
    return proxy.program("xts_proxy", "--config", str(path))


def exchanged(library: Version, folder: Path, inside: Sequence[str]) -> dict[str, str]:
    """What an application of this version could do."""
    environment = os.environ | {"XTS_ENDPOINT": str(folder / "endpoint.sock")}
    done = subprocess.run(
        [*inside, library.python, str(PROGRAMS / "exchange.py"), NAME, IPV4],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    logs = "".join(log.read_text() for log in folder.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    found: dict[str, str] = json.loads(done.stdout)
    return found


def verify(found: dict[str, str], alone: dict[str, dict[str, str]], library: str, proxy: str) -> None:
    """alone: what each version can do with itself."""
    if library == proxy:
        assert found == alone[library]
    assert {name: found[name] for name in ALWAYS} == dict.fromkeys(ALWAYS, "ok")
    for name in NEWER if library != proxy else ():
        wanted = ("ok",) if all(one[name] == "ok" for one in alone.values()) else ("ok", *REFUSED)
        assert found[name].startswith(wanted), f"{name}: {found[name]}"


def over_shared_memory(library: Version, proxy: Version, folder: Path) -> dict[str, str]:
    command = proxy_command(proxy, folder, queue="shm")
    with NameServer(wanted_port=RESOLVER), service(command, folder / "proxy.log"):
        return exchanged(library, folder, [])


@pytest.fixture(scope="module")
def alone(versions: dict[str, Version], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What each version can do with itself; today's can do everything."""
    found = {name: over_shared_memory(one, one, tmp_path_factory.mktemp("alone")) for name, one in versions.items()}
    assert found["today"] == dict.fromkeys([*ALWAYS, *NEWER], "ok")
    return found


@pytest.fixture
def network() -> Iterator[str]:
    """A network namespace with both ends of the cable between host and device. Its loopback is the device's."""
    name = f"xts-versions-{os.getpid()}"
    sizes = f"mtu {XTS_MTU} numtxqueues 2 numrxqueues 2"
    batch = ["link set lo up", f"link add xts0 {sizes} type veth peer xts1 {sizes}"]
    batch += [line for each, mac in MACS.items() for line in (f"link set {each} address {mac}", f"link set {each} up")]
    netns.create(name)
    try:
        subprocess.run(["ip", "-netns", name, "-batch", "-"], input="\n".join(batch), text=True, check=True)
        yield name
    finally:
        netns.remove(name)


def inside(network: str) -> list[str]:
    return ["ip", "netns", "exec", network]


@contextmanager
def over_afxdp(proxy: Version, network: str, folder: Path) -> Iterator[None]:
    """The device's end of the cable."""
    command = proxy_command(proxy, folder, queue="afxdp", interface="xts1", peer_mac=MACS["xts0"])
    with ExitStack() as stack:
        with netns.inside(network):
            stack.enter_context(NameServer(wanted_port=RESOLVER))
        stack.enter_context(service([*inside(network), *command], folder / "proxy.log"))
        yield


@contextmanager
def running_agent(agent: Version, network: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    options = ["--interface", "xts0", "--peer-mac", MACS["xts1"], "--endpoint", str(folder / "endpoint.sock")]
    with service([*inside(network), *agent.program("xts_agent", *options)], folder / "agent.log") as process:
        yield process


@pytest.mark.parametrize(("library", "proxy"), [("today", "previous"), ("previous", "today")])
def test_over_shared_memory(
    versions: dict[str, Version], alone: dict[str, dict[str, str]], library: str, proxy: str, tmp_path: Path
) -> None:
    verify(over_shared_memory(versions[library], versions[proxy], tmp_path), alone, library, proxy)


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("named", COMBINATIONS, ids="-".join)
def test_over_afxdp(
    versions: dict[str, Version],
    alone: dict[str, dict[str, str]],
    named: tuple[str, str, str],
    network: str,
    tmp_path: Path,
) -> None:
    """named: the versions of library, agent and proxy."""
    library, agent, proxy = named
    with over_afxdp(versions[proxy], network, tmp_path), running_agent(versions[agent], network, tmp_path):
        verify(exchanged(versions[library], tmp_path, inside(network)), alone, library, proxy)


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("agents", [("previous", "today"), ("today", "previous")], ids="-".join)
@pytest.mark.parametrize("library", ["today", "previous"])
def test_an_agent_takes_over_from_another(
    versions: dict[str, Version], library: str, agents: tuple[str, str], network: str, tmp_path: Path
) -> None:
    """Connections go on when their agent dies, and there is room for others when the next one has come."""
    killed, later = agents
    steady = [*inside(network), versions[library].python, str(PROGRAMS / "steady.py")]
    environment = os.environ | {"XTS_ENDPOINT": str(tmp_path / "endpoint.sock")}
    with ExitStack() as stack:
        stack.enter_context(over_afxdp(versions["today"], network, tmp_path))
        agent = stack.enter_context(running_agent(versions[killed], network, tmp_path))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        client = stack.enter_context(subprocess.Popen(steady, env=environment, text=True, bufsize=1, **pipes))
        stack.callback(client.kill)
        exchange(client)
        agent.kill()
        agent.wait()
        stack.enter_context(running_agent(versions[later], network, tmp_path))
        exchange(client)
        other = exchanged(versions[library], tmp_path, inside(network))
        assert {name: other[name] for name in ALWAYS} == dict.fromkeys(ALWAYS, "ok")
        exchange(client)


def exchange(client: subprocess.Popen[str]) -> None:
    assert client.stdin and client.stdout
    client.stdin.write("\n")
    assert readable(client.stdout, READY_S), f"nothing in {READY_S} s"
    assert client.stdout.readline() == "exchanged\n"
