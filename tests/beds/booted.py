"""A machine with a real systemd as its first process, in a container (systemd-nspawn), for tests of units and packages.

It has a network of its own without any interface; `cable()` makes one between two machines. Its files are those of a
root which is not changed: what it writes lies in a folder that goes with it. No service manager is needed outside, and
control groups are given to it as one hierarchy (version 2), also where this machine still has the first version.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from beds.patience import SLOWER

START_S = 60.0 * SLOWER
COMMAND_S = 120.0 * SLOWER
#: In a mount namespace of its own: files and control groups as the machine is to see them.
BEGIN = """
set -e
name=$1 root=$2 own=$3 packages=$4
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/$name
echo $$ >/sys/fs/cgroup/$name/cgroup.procs
mount -t overlay -o lowerdir=$root,upperdir=$own/changes,workdir=$own/work overlay $own/root
status=0
systemd-nspawn --quiet --boot --directory=$own/root --machine=$name --register=no --keep-unit --private-network \\
	--capability=CAP_BPF,CAP_PERFMON,CAP_IPC_LOCK \\
	--system-call-filter="bpf seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self" \\
	--resolv-conf=off --link-journal=no --console=pipe --bind-ro=$packages:/packages </dev/null || status=$?
echo $$ >/sys/fs/cgroup/cgroup.procs
find /sys/fs/cgroup/$name -depth -type d -exec rmdir {} +
exit $status
"""


class Machine:
    """A context manager: the machine is up inside."""

    def __init__(self, name: str, root: Path, packages: Path) -> None:
        """packages: a folder that the machine sees as /packages."""
        self.name = f"{name}-{os.getpid()}"
        self.pid = 0
        self._own = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root.parent))
        for folder in ("changes", "work", "root"):
            (self._own / folder).mkdir()
        self._log = (self._own / "console").open("w+")
        places = [str(place) for place in (root, self._own, packages)]
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "bash", "-c", BEGIN, "begin", self.name, *places],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> Self:
        try:
            self._wait_up()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop()

    def command(self, *command: str, user: str = "") -> list[str]:
        """What runs a command in the machine, from outside; as another user in a session of its own."""
        names = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root"]
        enter = ["nsenter", "--target", str(self.pid), *names, "--", *environment, "DEBIAN_FRONTEND=noninteractive"]
        if user:
            enter += ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", f"--uid={user}", "--"]
        return [*enter, *command]

    def run(self, *command: str, user: str = "", timeout_s: float = COMMAND_S, check: bool = True) -> str:
        """Its output, both kinds. AssertionError with it if the command fails."""
        done = subprocess.run(
            self.command(*command, user=user),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{self.name}: {' '.join(command)}: {done.stdout}"
        return done.stdout

    def succeeds(self, *command: str) -> bool:
        done = subprocess.run(self.command(*command), capture_output=True, timeout=COMMAND_S, check=False)
        return done.returncode == 0

    def write(self, path: str, text: str) -> None:
        subprocess.run(self.command("tee", path), input=text, text=True, stdout=subprocess.DEVNULL, check=True)

    def property(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def console(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text(errors="replace")

    def _wait_up(self) -> None:
        deadline = time.monotonic() + START_S
        while not (self.pid and self.succeeds("systemctl", "is-system-running")):
            assert self._process.poll() is None, f"the machine did not boot: {self.console()}"
            assert time.monotonic() < deadline, f"the machine is not up: {self._why()}"
            self.pid = self.pid or self._first_process()
            time.sleep(0.1)

    def _why(self) -> str:
        return self.console() + (self.run("systemctl", "--failed", check=False) if self.pid else "")

    def _first_process(self) -> int:
        """The grandchild that is number 1 in a namespace of its own."""
        waiting = [self._process.pid]
        while waiting:
            pid = waiting.pop()
            try:
                status = Path(f"/proc/{pid}/status").read_text()
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            except OSError:
                continue
            [numbers] = [line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")]
            if len(numbers) > 1 and numbers[-1] == "1" and "systemd\n" in status:
                return pid
            waiting += [int(child) for child in children.split()]
        return 0

    def _stop(self) -> None:
        if self._process.poll() is None:
            if self.pid:
                os.kill(self.pid, signal.SIGRTMIN + 4)  # power off
            else:
                self._process.terminate()
            try:
                self._process.wait(START_S)
            except subprocess.TimeoutExpired:
                if self.pid:
                    os.kill(self.pid, signal.SIGKILL)
                self._process.kill()
                self._process.wait()
        self._log.close()
        shutil.rmtree(self._own)


def cable(pid: int, peer_pid: int, interface: str, *, queues: int = 2, mtu: int = 1500) -> None:
    """A veth pair between the networks of two processes, both ends up and with this name."""
    sizes = ["mtu", str(mtu), "numtxqueues", str(queues), "numrxqueues", str(queues)]
    ip = ["ip", "link", "add", interface, "netns", str(pid), *sizes, "type", "veth"]
    subprocess.run([*ip, "peer", "name", interface, *sizes, "netns", str(peer_pid)], check=True)
    for inside in (pid, peer_pid):
        subprocess.run(["nsenter", "--target", str(inside), "--net", "ip", "link", "set", interface, "up"], check=True)
