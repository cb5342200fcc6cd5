"""A whole proxy with tenants: who gets what, and where it is told."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from beds.operated_proxy import PROXY, running, write_config
from xts_lab.loopback import ALLOW_LOOPBACK
from xts_messages.attaching.attach import attach
from xts_messages.wire.codec import Endpoint
from xts_proxy.status import status

NOBODY = 65534
TENANTS = f"""
[limits]
clients = 4
[[tenant]]
name = "me"
users = ["{os.getuid()}"]
limits = {{ clients = 2, connections = 7 }}
[[tenant]]
name = "other"
users = ["{NOBODY}"]
"""
#: Attaches until it is refused, and says how often it was let in, and why not.
AS_NOBODY = f"""
import os, sys
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
from xts_messages.attaching.attach import attach
held = []
try:
    while True:
        held.append(attach(sys.argv[1], program="nobody"))
except OSError as error:
    print(len(held), error.errno, error)
"""


def as_nobody(endpoint: str) -> str:
    """What AS_NOBODY prints."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, endpoint], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_processes_are_counted_to_their_tenant_and_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path, TENANTS) as proxy, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(proxy.host())
        with pytest.raises(OSError, match="tenant me has 2 processes attached") as refused:
            attach(proxy.endpoint, program="third")
        assert refused.value.errno == errno.EUSERS
        answer = proxy.status()
        assert [row["tenant"] for row in answer["channels"]] == ["me", "me"]
        accounts = {row["tenant"]: row for row in answer["tenants"]}
        assert list(accounts) == ["me", "other", "default"]
        assert accounts["me"]["used"]["descriptors"] == 16 and accounts["other"]["used"]["descriptors"] == 0
        assert accounts["me"]["pool_guaranteed"]["descriptors"] > 0
        status.show(str(tmp_path / "proxy.sock"), as_json=False, connections=False)
        assert re.search(r"^me +0 +0 +16 ", capsys.readouterr().out, re.MULTILINE)
        log = proxy.log.read_text()
        assert "tenant me: queue 0: attached by process" in log and "refused: tenant me has 2" in log


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user for a while")
def test_a_user_leaves_a_quarter_of_the_queues_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    with running(tmp_path, "[limits]\nclients = 4") as proxy:
        said = as_nobody(proxy.endpoint)
        assert said.startswith(f"3 {errno.EUSERS} ") and "limits.clients_per_user" in said
        with proxy.host():
            pass


def explained(config: Path, *arguments: str) -> str:
    command = [*PROXY, "--config", str(config), "--explain", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def test_the_policy_of_tenants_is_explained(tmp_path: Path) -> None:
    config = tmp_path / "xts.toml"
    config.write_text(
        TENANTS + '[[policy.rule]]\naction = "allow"\nwhat = "listen"\nports = "8080"\ntenants = ["other"]\n'
    )
    assert explained(config, "connect", "198.18.0.2:80", "--tenant", "me").startswith("allow: no rule matches")
    assert explained(config, "listen", "0.0.0.0:8080", "--tenant", "other").startswith("allow: policy.rule[0]")
    narrow = explained(config, "listen", "0.0.0.0:8080", "--tenant", "me")
    assert narrow.endswith('policy.listen = "auto", which is deny here\n')
    for own in ("127.0.0.1:80", "[::ffff:127.0.0.1]:80", "[64:ff9b::7f00:1]:80", "0.0.0.0:80", "[fe80::1]:80"):
        assert "the device's own, loopback or link-local" in explained(config, "connect", own)


def test_the_loopback_of_the_device_is_not_for_hosts_unless_it_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with running(tmp_path) as proxy:
            with proxy.host() as (_, host):
                assert host.connect("127.0.0.1", port)[1].error == 0
            config = proxy.write_config()
            config.write_text(config.read_text().replace(ALLOW_LOOPBACK, ""))
            proxy.hang_up("taken")
            with proxy.host() as (_, host):
                for name in ("127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0", "::", "64:ff9b::7f00:1"):
                    assert host.connect(name, port)[1].error == errno.EACCES, name
                local = Endpoint.of("127.0.0.1", 0)
                host.send("XTS_CMD_BIND", xts_socket=host.new_socket(), token=1, domain=4, local=local)
                assert host.expect("XTS_REPLY_BIND_ACK").error == errno.EACCES


def test_guarantees_that_exceed_the_machine_are_warned_of(tmp_path: Path) -> None:
    text = TENANTS + "guaranteed = { descriptors = 1000000, memory_mib = 16000000 }\n"
    config = write_config(tmp_path, text)
    said = subprocess.run(
        ["prlimit", "--nofile=1000:1000", *PROXY, "--check", str(config)],
        check=False, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert said.returncode == 0 and said.stdout.startswith("ok\n")
    assert (
        "warning: tenants are guaranteed 1000" in said.stderr
        and "descriptors together, and there are 744" in said.stderr
    )
    assert "MiB together, and there are" in said.stderr
    fine = subprocess.run(
        [*PROXY, "--check", str(write_config(tmp_path, TENANTS))],
        check=False, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert fine.stderr == ""


#: Connects so many sockets to a listener of its own in the kernel, and keeps them until all are there.
CONNECTS = """
import socket as kernel, sys
import xts_socket as socket
kept = []
with kernel.create_server(("127.0.0.1", 0)) as listener:
    for _ in range(int(sys.argv[1])):
        kept.append((socket.create_connection(listener.getsockname()), listener.accept()[0]))
print(len(kept))
"""


def test_a_tenant_alone_has_more_than_it_is_guaranteed(tmp_path: Path) -> None:
    """With 600 descriptors 344 are for tenants, of which the only one is guaranteed a half: the rest is common."""
    with running(tmp_path, under=["prlimit", "--nofile=600", "--"]) as proxy:
        command = [sys.executable, "-c", CONNECTS, "250"]
        environment = os.environ | {"XTS_ENDPOINT": proxy.endpoint}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == "250\n", done.stderr
        (tenant,) = proxy.status()["tenants"]
        assert tenant["pool_guaranteed"]["descriptors"] == (600 - 256) // 2
        assert tenant["pool_refused"]["descriptors"] == 0
