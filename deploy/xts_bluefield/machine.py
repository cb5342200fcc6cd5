"""The machine that is set up: commands, files, and the two requests that pyroute2 makes for us.

Everything goes through this one interface, so that a test can put a simulated machine in its place.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Protocol

from pyroute2 import Ethtool
from pyroute2.netlink import genlmsg
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.generic import GenericNetlinkSocket

#: A command that takes longer is ended; mlxconfig and update-grub take seconds.
COMMAND_S = 120
#: Where the tools are. No lookups in the directories of whoever calls.
TOOL_PATH = "/opt/mellanox/iproute2/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: What has each tool, for who does not have it.
PACKAGES = {
    "devlink": "iproute2",
    "ip": "iproute2",
    "tc": "iproute2",
    "mlxconfig": "mft (NVIDIA Firmware Tools)",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-ofctl": "openvswitch-switch",
    "nft": "nftables",
    "systemctl": "systemd",
    "update-grub": "grub2-common",
}
#: Files that the kernel makes: written in place.
_KERNEL_FILES = ("/sys/", "/proc/")


class ToolMissingError(OSError):
    """A command is not installed."""


class CommandError(OSError):
    """A command has failed; the text is the command and what it said."""


class Machine(Protocol):
    def run(self, argv: tuple[str, ...], text: str = "") -> str:
        """The output of a command. ToolMissingError, CommandError."""
        ...

    def has_tool(self, name: str) -> bool: ...

    def read(self, path: str) -> str | None:
        """A file's text; None: there is none."""
        ...

    def write(self, path: str, text: str | None) -> None:
        """Makes or replaces a file, with its directories; None removes it."""
        ...

    def entries(self, path: str) -> list[str]:
        """The names in a directory, sorted; of none, if there is no such directory."""
        ...

    def target(self, path: str) -> str:
        """Where a symbolic link leads, as an absolute path."""
        ...

    def has_interface(self, name: str) -> bool: ...

    def queues(self, interface: str) -> tuple[int, int] | None:
        """The queues an interface has, and may have; None: its driver does not say."""
        ...

    def set_queues(self, interface: str, count: int) -> None: ...

    def xdp_features(self, interface: str) -> int | None:
        """NETDEV_A_DEV_XDP_FEATURES; None: the kernel does not say (before 6.3)."""
        ...


def missing_tool(name: str) -> ToolMissingError:
    package = f" (package {PACKAGES[name]})" if name in PACKAGES else ""
    return ToolMissingError(errno.ENOENT, f"the command {name} is not installed{package}")


class ThisMachine:
    """The machine that the program runs on, in the network namespace of the calling thread."""

    def run(self, argv: tuple[str, ...], text: str = "") -> str:
        tool = shutil.which(argv[0], path=TOOL_PATH)
        if tool is None:
            raise missing_tool(argv[0])
        environment = os.environ | {"LC_ALL": "C", "PATH": TOOL_PATH}
        try:
            done = subprocess.run(
                [tool, *argv[1:]],
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_S,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CommandError(errno.ETIMEDOUT, f"{' '.join(argv)}: no end after {COMMAND_S} s") from None
        if done.returncode:
            said = "; ".join((done.stderr.strip() or done.stdout.strip()).splitlines())
            raise CommandError(errno.EIO, f"{' '.join(argv)}: exit status {done.returncode}: {said or 'no message'}")
        return done.stdout

    def has_tool(self, name: str) -> bool:
        return shutil.which(name, path=TOOL_PATH) is not None

    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, path: str, text: str | None) -> None:
        file = Path(path)
        if text is None:
            file.unlink(missing_ok=True)
        elif path.startswith(_KERNEL_FILES):
            with file.open("w") as kernel:
                kernel.write(text)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, text)

    def entries(self, path: str) -> list[str]:
        try:
            return sorted(entry.name for entry in Path(path).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def target(self, path: str) -> str:
        return str(Path(path).resolve())

    def has_interface(self, name: str) -> bool:
        try:
            return socket.if_nametoindex(name) > 0
        except OSError:
            return False

    def queues(self, interface: str) -> tuple[int, int] | None:
        with Ethtool() as ethtool:
            try:
                found = ethtool.get_channels(interface)
            except (OSError, NetlinkError) as error:
                if getattr(error, "errno", getattr(error, "code", 0)) in (errno.EOPNOTSUPP, errno.ENOTSUP):
                    return None
                raise OSError(errno.EIO, f"{interface}: its queues cannot be read: {error}") from None
            if found.max_combined:
                return int(found.combined_count), int(found.max_combined)
            return int(found.rx_count), min(int(found.max_rx), int(found.max_tx))

    def set_queues(self, interface: str, count: int) -> None:
        with Ethtool() as ethtool:
            try:
                found = ethtool.get_channels(interface)
                names = ("combined_count",) if found.max_combined else ("rx_count", "tx_count")
                ethtool.set_channels(interface, dict.fromkeys(names, count))
            except (OSError, NetlinkError) as error:
                raise CommandError(errno.EIO, f"{interface}: {count} queues: {error}") from None

    def xdp_features(self, interface: str) -> int | None:
        with GenericNetlinkSocket() as netlink:
            try:
                netlink.bind("netdev", _DeviceMessage)
                message = _DeviceMessage()
                message["cmd"], message["version"] = _DEV_GET, 1
                message["attrs"] = [("NETDEV_A_DEV_IFINDEX", socket.if_nametoindex(interface))]
                [answer] = netlink.nlm_request(message, msg_type=netlink.prid, msg_flags=_REQUEST | _ACK)
            except (OSError, NetlinkError, ValueError):
                return None
        return int(answer.get_attr("NETDEV_A_DEV_XDP_FEATURES") or 0)


_DEV_GET, _REQUEST, _ACK = 1, 1, 4


class _DeviceMessage(genlmsg):  # type: ignore[misc]
    """linux/netdev.h: NETDEV_CMD_DEV_GET."""

    prefix = "NETDEV_A_DEV_"
    nla_map = (
        ("NETDEV_A_DEV_UNSPEC", "none"),
        ("NETDEV_A_DEV_IFINDEX", "uint32"),
        ("NETDEV_A_DEV_PAD", "hex"),
        ("NETDEV_A_DEV_XDP_FEATURES", "uint64"),
        ("NETDEV_A_DEV_XDP_ZC_MAX_SEGS", "uint32"),
        ("NETDEV_A_DEV_XDP_RX_METADATA_FEATURES", "uint64"),
        ("NETDEV_A_DEV_XSK_FEATURES", "uint64"),
    )


def write_whole(file: Path, text: str, mode: int = 0o644) -> None:
    """Replaces a file at once: who reads it, or finds it after a loss of power, has the old text or the new."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            new.write(text)
            new.flush()
            os.fchmod(new.fileno(), mode)
            os.fsync(new.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
