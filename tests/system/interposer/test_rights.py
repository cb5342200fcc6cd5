"""Processes that give up root: they go on with what they have, and what they have closed they do not get back."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.calls import until
from beds.patience import SLOWER
from beds.preload import PreloadBed, preload_bed
from beds.real_programs import need
from xts_lab.free_ports import free_port

PATIENCE_S = 20.0 * SLOWER
REQUESTS = 20

pytestmark = pytest.mark.root

#: The cache has processes of its own, which close the listeners and live on.
NGINX = """
user {user};
worker_processes 2;
daemon off;
pid {folder}/pid;
error_log {folder}/errors;
events {{}}
http {{
  access_log off;
  proxy_cache_path {folder}/cache keys_zone=all:1m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 "worker $pid\\n"; }} }}
}}
"""


@pytest.fixture
def bed() -> Iterator[PreloadBed]:
    """One whose endpoint other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with preload_bed(folder) as made:
            yield made


def ask(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return client.makefile("rb").read().rpartition(b"\r\n\r\n")[2]


def answers(port: int) -> set[int]:
    """Which workers answer; each request has to be answered."""
    said = [ask(port) for _ in range(REQUESTS)]
    assert all(line.startswith(b"worker ") for line in said), said
    return {int(line.split()[1]) for line in said}


def listens(port: int) -> bool:
    try:
        return bool(ask(port))
    except OSError:
        return False


def user_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def test_workers_of_nginx_that_have_another_user_keep_accepting(bed: PreloadBed) -> None:
    """One of them is killed, all are started again by a reload, and each time the keys are renewed."""
    port, user = free_port(), pwd.getpwnam("www-data")
    configuration = bed.folder / "nginx.conf"
    configuration.write_text(NGINX.format(user=user.pw_name, folder=bed.folder, port=port))
    with bed.start([need("nginx"), "-c", str(configuration)], env={"XTS_STRICT": "1"}) as nginx:
        until(lambda: listens(port))
        first = answers(port)
        assert {user_of(pid) for pid in first} == {user.pw_uid}
        os.kill(killed := min(first), signal.SIGKILL)
        until(lambda: killed not in answers(port))
        nginx.send_signal(signal.SIGHUP)
        until(lambda: not answers(port) & first)
        assert {user_of(pid) for pid in answers(port)} == {user.pw_uid}
        errors = (bed.folder / "errors").read_text().splitlines()
        assert [line for line in errors if f"process {killed} exited on signal 9" not in line] == []
