"""ssh, scp and sftp on the host as clients of an sshd outside; and sshd on the host, which `xts run` names and leaves
to the kernel, where it serves logins."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds.real_programs import KERN4, NET4, Bed, need, wait_until

pytestmark = [pytest.mark.root]

PORT = 2222
SESSIONS = 8


def user() -> str:
    return os.environ.get("USER", "root")


def configured(bed: Bed, address: str) -> tuple[str, Path]:
    """The path of sshd, and a configuration that lets this very user in with a key of this test."""
    sshd = need("sshd", "ssh", "scp", "sftp", "ssh-keygen")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(bed.folder / name)], check=True)
    bed.folder.chmod(0o700)
    keys = bed.folder / "authorized_keys"
    keys.write_text((bed.folder / "user.pub").read_text())
    configuration = bed.folder / "sshd_config"
    configuration.write_text(
        f"Port {PORT}\nListenAddress {address}\nHostKey {bed.folder}/host\nAuthorizedKeysFile {keys}\nStrictModes no\n"
        f"PasswordAuthentication no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
        f"MaxStartups {2 * SESSIONS}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True, mode=0o755)
    return sshd, configuration


def client_options(bed: Bed) -> list[str]:
    """What ssh, scp and sftp need to get in."""
    return [
        *("-i", str(bed.folder / "user"), "-F", "none", "-o", f"Port={PORT}", "-o", "BatchMode=yes"),
        *("-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={bed.folder}/known", "-o", "LogLevel=ERROR"),
    ]


@pytest.fixture
def options(bed: Bed) -> Iterator[list[str]]:
    """An sshd outside, and what a client needs to reach it."""
    sshd, configuration = configured(bed, NET4)
    with bed.program("net", sshd, "-D", "-e", "-f", str(configuration), name="sshd") as process:
        bed.wait_for_port("net", NET4, PORT, process)
        yield client_options(bed)


def copies(bed: Bed, role: str, options: list[str], address: str) -> None:
    """8 MB there and back, by scp and by sftp."""
    data = os.urandom(8 << 20)
    source, there, back = (bed.folder / name for name in ("source", "there", "back"))
    source.write_bytes(data)
    for program, command in (
        ("scp", ["scp", "-q", *options, str(source), f"{user()}@{address}:{there}"]),
        ("sftp", ["sftp", "-q", *options, f"{user()}@{address}:{there}", str(back)]),
    ):
        bed.run(role, *command)
        written = there if program == "scp" else back
        assert hashlib.sha256(written.read_bytes()).digest() == hashlib.sha256(data).digest(), program


# --- clients on the host --------------------------------------------------------------------------------------------


def test_a_command_and_its_exit_status(bed: Bed, options: list[str]) -> None:
    target = f"{user()}@{NET4}"
    assert "hello from outside" in bed.run("host", "ssh", *options, target, "echo hello from outside")
    command = bed.offloaded("ssh", *options, target, "exit 7")
    done = bed.lab.run(bed.place("host"), command, capture_output=True, timeout=30)
    assert done.returncode == 7


def test_data_through_it_both_ways(bed: Bed, options: list[str]) -> None:
    data = os.urandom(8 << 20)
    command = bed.offloaded("ssh", *options, f"{user()}@{NET4}", "cat")
    done = bed.lab.run(bed.place("host"), command, input=data, stdout=subprocess.PIPE, timeout=60)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


def test_a_session_that_goes_to_the_background(bed: Bed, options: list[str]) -> None:
    """`ssh -f` forks after it has connected, and the parent exits: the connection is the child's."""
    mark = bed.folder / "mark"
    bed.run("host", "ssh", "-f", *options, f"{user()}@{NET4}", f"sleep 0.3; echo done > {mark}")
    wait_until(mark.exists, "the command in the background")


def test_files_are_copied(bed: Bed, options: list[str]) -> None:
    """scp and sftp start ssh and talk with it over pipes: the connection is that child's."""
    copies(bed, "host", options, NET4)


# --- sshd on the host -----------------------------------------------------------------------------------------------


@contextmanager
def sshd_on_the_host(bed: Bed, *run_options: str) -> Iterator[subprocess.Popen[bytes]]:
    """sshd under `xts run`, on a host that has a network of the kernel besides."""
    sshd, configuration = configured(bed, KERN4)
    command = bed.offloaded(sshd, "-D", "-e", "-f", str(configuration), options=run_options)
    environment = {"XTS_ENDPOINT": str(bed.lab.endpoint)}
    with bed.program("kern", *command, name="sshd", environment=environment) as process:
        yield process


def test_sshd_is_named_before_it_starts_and_serves_logins(bed: Bed) -> None:
    """A key login, a command, several sessions at once, scp and sftp: all by the kernel."""
    with sshd_on_the_host(bed) as process, ExitStack() as sessions:
        bed.wait_for_port("net", KERN4, PORT, process)
        if bed.queue != "kernel":
            said = (bed.folder / "sshd.log").read_text()
            assert "sshd" in said and "reads from each connection in a sandbox" in said
            assert "stay with the kernel" in said
            assert said.index("sandbox") < said.index("Server listening"), "before it starts"
        options = client_options(bed)
        command = ["ssh", *options, f"{user()}@{KERN4}", "read line && echo got $line"]
        clients = [
            sessions.enter_context(
                bed.lab.popen("net", command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(SESSIONS)
        ]
        # Each is logged in, or soon will be, and waits for its line; the last one gets its line first.
        for number, client in reversed(list(enumerate(clients))):
            answer, _ = client.communicate(f"{number}\n", timeout=30)
            assert (answer, client.returncode) == (f"got {number}\n", 0)
        copies(bed, "net", options, KERN4)


def test_sshd_is_refused_where_all_must_be_offloaded(bed: Bed) -> None:
    if bed.queue == "kernel":
        pytest.skip("there is nothing that could refuse it")
    with sshd_on_the_host(bed, "--strict") as process:
        assert process.wait(30) == 2
    said = (bed.folder / "sshd.log").read_text()
    assert "sandbox" in said and "refused" in said
