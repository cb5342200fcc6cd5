"""ssh on the host as a client of an sshd outside: a command, data both ways, a session in the background."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.unmodified import NET4, Bed, need

pytestmark = [pytest.mark.root]

PORT = 2222


@pytest.fixture
def options(bed: Bed) -> Iterator[list[str]]:
    """An sshd outside that lets this very user in with a key of this test; what ssh needs to reach it."""
    sshd = need("sshd", "ssh", "ssh-keygen")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(bed.folder / name)], check=True)
    bed.folder.chmod(0o700)
    keys = bed.folder / "authorized_keys"
    keys.write_text((bed.folder / "user.pub").read_text())
    configuration = bed.folder / "sshd_config"
    configuration.write_text(
        f"Port {PORT}\nListenAddress {NET4}\nHostKey {bed.folder}/host\nAuthorizedKeysFile {keys}\nStrictModes no\n"
        f"PasswordAuthentication no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True, mode=0o755)
    with bed.program("net", sshd, "-D", "-e", "-f", str(configuration), name="sshd") as process:
        bed.wait_for_port("net", NET4, PORT, process)
        yield [
            *("-p", str(PORT), "-i", str(bed.folder / "user"), "-F", "none", "-o", "BatchMode=yes"),
            *("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={bed.folder}/known", "-o", "LogLevel=ERROR"),
            f"{os.environ.get('USER', 'root')}@{NET4}",
        ]


def test_a_command_and_its_exit_status(bed: Bed, options: list[str]) -> None:
    assert "hello from outside" in bed.run("host", "ssh", *options, "echo hello from outside")
    done = bed.lab.run(bed.place("host"), bed.offloaded("ssh", *options, "exit 7"), capture_output=True, timeout=30)
    assert done.returncode == 7


def test_data_through_it_both_ways(bed: Bed, options: list[str]) -> None:
    data = os.urandom(8 << 20)
    done = bed.lab.run(
        bed.place("host"), bed.offloaded("ssh", *options, "cat"), input=data, stdout=subprocess.PIPE, timeout=60
    )
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


def test_a_session_that_goes_to_the_background(bed: Bed, options: list[str]) -> None:
    """`ssh -f` forks after it has connected, and the parent exits: the connection is the child's."""
    mark = bed.folder / "mark"
    bed.run("host", "ssh", "-f", *options, f"sleep 0.3; echo done > {mark}")
    from beds.unmodified import wait_until

    wait_until(mark.exists, "the command in the background")
