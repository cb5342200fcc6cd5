"""Python's http.server, gunicorn with several workers, a Node server and a Node client, all on the host."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections import Counter

import pytest
from beds.real_programs import NET4, Bed, Site, need, nginx, wait_until

pytestmark = [pytest.mark.root]

APPLICATION = """
import os
def application(environ, start_response):
    body = os.environb.get(b"BODY", b"") + str(os.getpid()).encode() + b"\\n"
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
NODE_SERVER = """
const http = require('http'), fs = require('fs');
http.createServer((request, response) => fs.createReadStream(process.argv[2]).pipe(response)).listen(8080);
"""
NODE_CLIENT = """
const http = require('http'), crypto = require('crypto');
http.get(process.argv[2], response => {
  const hash = crypto.createHash('sha256');
  response.on('data', data => hash.update(data));
  response.on('end', () => console.log(hash.digest('hex')));
});
"""


def fetch(bed: Bed, url: str) -> str:
    out = bed.folder / "fetched"
    bed.run("net", "curl", "-sS", "--fail", "-o", str(out), url)
    return hashlib.sha256(out.read_bytes()).hexdigest()


def test_http_server_of_python(bed: Bed, site: Site) -> None:
    command = [sys.executable, "-m", "http.server", "8000", "-d", str(site.root)]
    with bed.program("host", *command, name="http.server") as process:
        bed.wait_for_port("net", bed.here4, 8000, process)
        assert fetch(bed, f"http://{bed.here4}:8000/large.bin") == site.sha256


@pytest.mark.parametrize("worker", ["sync", "gthread"])
def test_gunicorn_with_workers(bed: Bed, worker: str) -> None:
    pytest.importorskip("gunicorn")
    (bed.folder / "application.py").write_text(APPLICATION)
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "-w",
        "3",
        "-k",
        worker,
        "-b",
        "0.0.0.0:8001",
        "--chdir",
        str(bed.folder),
    ]
    with bed.program("host", *command, "application", name="gunicorn") as process:
        bed.wait_for_port("net", bed.here4, 8001, process)
        pids = Counter()  # type: Counter[str]
        for _ in range(5):
            urls = [f"http://{bed.here4}:8001/"] * 60
            pids.update(
                bed.run(
                    "net", "curl", "-sS", "--fail", "--no-progress-meter", "--parallel", "--parallel-max", "30", *urls
                ).split()
            )
        assert sum(pids.values()) == 300
        assert len(pids) == 3, pids
        os.kill(int(next(iter(pids))), signal.SIGKILL)
        wait_until(
            lambda: bed.run("net", "curl", "-sS", "--fail", f"http://{bed.here4}:8001/", check=False), "an answer"
        )
        again = set(bed.run("net", "curl", "-sS", "--fail", *([f"http://{bed.here4}:8001/"] * 100)).split())
        assert again, again


def node_script(bed: Bed, text: str) -> str:
    path = bed.folder / "program.js"
    path.write_text(text)
    return str(path)


def test_node_as_server(bed: Bed, site: Site) -> None:
    node = need("node")
    with bed.program("host", node, node_script(bed, NODE_SERVER), str(site.large), name="node") as process:
        bed.wait_for_port("net", bed.here4, 8080, process)
        assert fetch(bed, f"http://{bed.here4}:8080/") == site.sha256
        urls = [f"http://{bed.here4}:8080/?{n}" for n in range(5)]
        bed.run(
            "net",
            "curl",
            "-sS",
            "--fail",
            "--no-progress-meter",
            "--parallel",
            *[part for url in urls for part in ("-o", "/dev/null", url)],
        )


def test_node_as_client(bed: Bed, site: Site) -> None:
    node = need("node")
    command, _ = nginx(bed, "net", site, name="nginx")
    with bed.program("net", *command, name="nginx") as process:
        bed.wait_for_port("net", NET4, 80, process)
        output = bed.run("host", node, node_script(bed, NODE_CLIENT), f"http://{NET4}/large.bin")
    assert output.strip() == site.sha256


def python_client(bed: Bed, url: str) -> str:
    script = (
        "import hashlib, sys, urllib.request as u; print(hashlib.sha256(u.urlopen(sys.argv[1]).read()).hexdigest())"
    )
    return bed.run("host", sys.executable, "-c", script, url).strip()


def test_python_as_client(bed: Bed, site: Site) -> None:
    command, _ = nginx(bed, "net", site, name="nginx")
    with bed.program("net", *command, name="nginx") as process:
        bed.wait_for_port("net", NET4, 80, process)
        assert python_client(bed, f"http://{NET4}/large.bin") == site.sha256
