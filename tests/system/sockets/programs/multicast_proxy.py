"""Runs the scripts of call_multicast.py, and more about groups, against a proxy: `python multicast_proxy.py DIRECTORY
libxts|preload|apart|later …`.

Both are started here, since both have to be in the same network namespace. Under the interposer the scripts' own
peers are offloaded, too.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from beds.groups import GROUP, MC0, OTHER, index, mreq, sender
from beds.preload import preloaded
from beds.scripts import RUN_S
from beds.shm_proxy import ShmProxy, library

PROGRAM = "sockets/programs/call_multicast.py"
#: An interface that comes later.
COMES = """\
link add mc2 type veth peer name mc2p
addr add 10.77.2.1/24 dev mc2
link set mc2p up
link set mc2 up
"""
RULES = "use xts udp_sender *:*\nuse xts udp_receiver *:*\nuse xts udp_connect *:*\n"


def interposed(proxy: ShmProxy, directory: Path) -> str:
    rules = directory / "rules"
    rules.write_text(RULES)
    settings = {"LD_PRELOAD": preloaded(), "XTS_RULES": str(rules), "XTS_STRICT": "1"}
    done = subprocess.run(
        proxy.command(PROGRAM, "kernel"), env=proxy.environment(**settings), text=True, capture_output=True,
        timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    return done.stdout


def apart(proxy: ShmProxy, directory: Path, how: str) -> str:
    """A member in a network namespace without interfaces; datagrams to the group until it has one."""
    rules = directory / "rules"
    rules.write_text(RULES if how != "kernel" else "use xts udp_sender *:*\n")
    settings = {"XTS_RULES": str(rules)} | ({} if how == "install" else {"LD_PRELOAD": preloaded()})
    command = ["unshare", "--net", *proxy.command("sockets/programs/group_member.py", how)]
    with (
        subprocess.Popen(command, env=proxy.environment(**settings), stdout=subprocess.PIPE, text=True) as member,
        sender() as peer,
    ):
        assert member.stdout
        line = member.stdout.readline()
        if line.startswith("port"):
            peer.sendto(b"hello", (GROUP, int(line.split()[1])))
            line = member.stdout.readline()
        return line


def told(proxy: ShmProxy) -> dict[str, int]:
    """The device's interfaces, as a host is told them, with their numbers."""
    command = [sys.executable, "-m", "xts_socket.cli", "status", "--interfaces", "--json"]
    done = subprocess.run(command, env=proxy.environment(), check=True, capture_output=True)
    return {one["name"]: one["index"] for one in json.loads(done.stdout)["interfaces"]}


def until(proxy: ShmProxy, name: str, there: bool) -> int:
    """Waits until the proxy says that there is such an interface, or none any more; its number."""
    deadline = time.monotonic() + 20
    while (name in (found := told(proxy))) != there:
        assert time.monotonic() < deadline, f"{found}\n{proxy.log.read_text()}"
    return found.get(name, 0)


def later(proxy: ShmProxy) -> str:
    """An interface comes while the proxy runs, and goes; sockets of a host join there meanwhile, where the proxy
    looks for the interface of a join among those that it knows."""
    subprocess.run(["ip", "-batch", "-"], input=COMES, text=True, check=True)
    number = until(proxy, "mc2", True)
    os.environ.update(proxy.environment())
    import xts_socket  # which reads it

    with xts_socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, sender("10.77.2.1", "mc2") as peer:
        s.settimeout(10)
        s.bind(("0.0.0.0", 0))
        for group, interface in ((OTHER, MC0), (GROUP, "10.77.2.1")):
            s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, mreq(group, interface))
        peer.sendto(b"hello", (GROUP, s.getsockname()[1]))
        received = s.recv(100).decode()
    same = number == index("mc2")
    subprocess.run(["ip", "link", "del", "mc2"], check=True)
    return json.dumps({"received": received, "same number": same, "after": until(proxy, "mc2", False)})


def main() -> None:
    directory = Path(sys.argv[1])
    if sys.argv[2] == "interfaces":  # one that is down
        subprocess.run(["ip", "link", "add", "mc8", "type", "veth", "peer", "name", "mc8p"], check=True)
    with ShmProxy(directory) as proxy:
        if sys.argv[2] == "interfaces":
            command = [sys.executable, "-m", "xts_socket.cli", "status", "--interfaces", "--json"]
            subprocess.run(["unshare", "--net", *command], env=proxy.environment(), check=True)
            return
        if sys.argv[2] == "later":
            print(later(proxy))
            return
        if sys.argv[2] == "apart":
            print(apart(proxy, directory, sys.argv[3]))
            return
        print(interposed(proxy, directory) if sys.argv[2] == "preload" else proxy.run(PROGRAM, library()))


if __name__ == "__main__":
    main()
