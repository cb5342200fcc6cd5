"""Runs the scripts of call_multicast.py against a proxy: `python multicast_proxy.py DIRECTORY libxts|preload|apart …`.

Both are started here, since both have to be in the same network namespace. Under the interposer the scripts' own
peers are offloaded, too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from beds.groups import GROUP, sender
from beds.preload import preloaded
from beds.scripts import RUN_S
from beds.shm_proxy import ShmProxy, library

PROGRAM = "sockets/programs/call_multicast.py"
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


def main() -> None:
    directory = Path(sys.argv[1])
    with ShmProxy(directory) as proxy:
        if sys.argv[2] == "interfaces":
            command = [sys.executable, "-m", "xts_socket.cli", "status", "--interfaces", "--json"]
            subprocess.run(["unshare", "--net", *command], env=proxy.environment(), check=True)
            return
        if sys.argv[2] == "apart":
            print(apart(proxy, directory, sys.argv[3]))
            return
        print(interposed(proxy, directory) if sys.argv[2] == "preload" else proxy.run(PROGRAM, library()))


if __name__ == "__main__":
    main()
