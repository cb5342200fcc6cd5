"""A network namespace for one program, made without privilege: two interfaces that carry multicast, mc0 and mc1.

`python multicast_namespace.py PROGRAM …` becomes the program there. As another user than root, it is root of a user
namespace of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

INTERFACES = {"mc0": ("10.77.0.1/24", "10.77.0.2/24", "fd77::1/64"), "mc1": ("10.77.1.1/24", "fd77:1::1/64")}


def command(*program: str) -> list[str]:
    """What runs the program in such a namespace."""
    return [sys.executable, __file__, *program]


def is_possible() -> bool:
    made = subprocess.run([*unshare(), "true"], capture_output=True, check=False)
    return made.returncode == 0


def unshare() -> list[str]:
    return ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--user", "--map-root-user"]


def batch() -> str:
    """The interfaces, as `ip -batch` makes them."""
    lines = ["link set lo up"]
    for name, addresses in INTERFACES.items():
        lines += [f"link add {name} type veth peer name {name}p", f"link set {name} up", f"link set {name}p up"]
        lines += [f"addr add {each} dev {name}{' nodad' if ':' in each else ''}" for each in addresses]
    return "\n".join(lines)


if __name__ == "__main__":
    if os.environ.get("XTS_TEST_NETWORK") is None:
        os.environ["XTS_TEST_NETWORK"] = "own"
        os.execvp("unshare", [*unshare(), sys.executable, __file__, *sys.argv[1:]])
    subprocess.run(["ip", "-batch", "-"], input=batch(), text=True, check=True)
    os.execvp(sys.argv[1], sys.argv[1:])
