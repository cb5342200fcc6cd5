"""Open vSwitch, the real one, in a network namespace, with a directory and a data base of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

from xts_lab import netns

from beds.patience import SLOWER

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_START_S = int(20 * SLOWER)


def missing() -> str:
    """Why it cannot run here; empty: it can."""
    if not SCHEMA.exists() or not all(map(shutil.which, ("ovs-vswitchd", "ovsdb-server", "ovs-vsctl"))):
        return "Open vSwitch is not installed (Debian's package openvswitch-switch)"
    return "" if Path("/dev/net/tun").exists() else "no /dev/net/tun, which bridges in user space need"


@contextmanager
def open_vswitch(namespace: str) -> Iterator[None]:
    """Runs in the namespace for the duration of the block; ovs-vsctl and ovs-ofctl of this process find it."""
    folder = Path(tempfile.mkdtemp(prefix="xts-ovs-"))
    places = dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"), str(folder))
    started: list[subprocess.Popen[bytes]] = []
    try:
        with mock.patch.dict(os.environ, places):
            subprocess.run(["ovsdb-tool", "create", folder / "conf.db", SCHEMA], check=True, timeout=_START_S)
            database = f"unix:{folder}/db.sock"
            with netns.inside(namespace):
                started.append(_start(folder, "ovsdb-server", f"{folder}/conf.db", f"--remote=p{database}"))
                ask = ["ovs-vsctl", f"--timeout={_START_S}", f"--db={database}"]
                subprocess.run([*ask, "--no-wait", "--retry", "init"], check=True, timeout=_START_S + 5)
                started.append(_start(folder, "ovs-vswitchd", database))
            subprocess.run([*ask, "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"], check=True)
            yield
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(_START_S)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, *argv: str) -> subprocess.Popen[bytes]:
    with suppress(FileNotFoundError), (folder / f"{argv[0]}.out").open("wb") as log:
        return subprocess.Popen([*argv, f"--unixctl={folder}/{argv[0]}.ctl"], stdout=log, stderr=log)
    raise AssertionError(argv)
