"""Runtimes that would rather go to the kernel by themselves: libuv's io_uring, in uvloop and in Node."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from beds.real_programs import NET4, Bed, Site, need

pytestmark = [pytest.mark.root]

IO_URING = {"UV_USE_IO_URING": "1"}

UVLOOP_SERVER = """
import asyncio, uvloop
async def serve(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", 9001)
    async with server:
        await server.serve_forever()
uvloop.run(main())
"""
ECHO_CLIENT = """
import hashlib, socket, sys, threading
data = hashlib.shake_128(b"seed").digest(4 << 20)
def echo():
    with socket.create_connection((sys.argv[1], 9001), timeout=30) as s:
        thread = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        thread.start()
        back = b"".join(iter(lambda: s.recv(65536), b""))
        thread.join()
        assert back == data, len(back)
threads = [threading.Thread(target=echo) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print("echoed")
"""
NODE_HTTPS_SERVER = """
const https = require('https'), fs = require('fs');
const [certificate, key, file] = process.argv.slice(2);
https.createServer({cert: fs.readFileSync(certificate), key: fs.readFileSync(key)},
  (request, response) => fs.createReadStream(file).pipe(response)).listen(8443);
"""
NODE_HTTPS_CLIENT = """
const https = require('https'), crypto = require('crypto'), fs = require('fs');
const [url, certificate] = process.argv.slice(2);
https.get(url, {ca: fs.readFileSync(certificate)}, response => {
  const hash = crypto.createHash('sha256');
  response.on('data', data => hash.update(data));
  response.on('end', () => console.log(hash.digest('hex')));
});
"""


def script(bed: Bed, name: str, text: str) -> str:
    path = bed.folder / name
    path.write_text(text)
    return str(path)


def assert_io_uring_was_refused(bed: Bed, process: subprocess.Popen[bytes]) -> None:
    """It is counted, and shown."""
    if bed.queue == "kernel":
        return
    done = bed.lab.run("host", ["xts", "status", "--processes", "--json"], capture_output=True, text=True, timeout=30)
    found = {each["pid"]: each for each in json.loads(done.stdout)["processes"]}
    assert found[process.pid]["unseen"] >= 1, found


def test_uvloop_server(bed: Bed) -> None:
    pytest.importorskip("uvloop")
    program = script(bed, "server.py", UVLOOP_SERVER)
    client = Path(script(bed, "client.py", ECHO_CLIENT))
    with bed.program("host", sys.executable, program, name="uvloop", environment=IO_URING) as process:
        bed.wait_for_port("net", bed.here4, 9001, process)
        assert_io_uring_was_refused(bed, process)
        assert "echoed" in bed.run("net", sys.executable, str(client), bed.here4)


def test_node_server_with_tls(bed: Bed, site: Site) -> None:
    node = need("node", "curl")
    program = script(bed, "server.js", NODE_HTTPS_SERVER)
    command = [node, program, str(site.certificate), str(site.key), str(site.large)]
    with bed.program("host", *command, name="node", environment=IO_URING) as process:
        bed.wait_for_port("net", bed.here4, 8443, process)
        assert_io_uring_was_refused(bed, process)
        out = bed.folder / "out"
        url = f"https://{bed.here4}:8443/"
        bed.run("net", "curl", "-sS", "--fail", "--cacert", str(site.certificate), "-o", str(out), url)
        assert hashlib.sha256(out.read_bytes()).hexdigest() == site.sha256


@pytest.mark.parametrize("client", ["node", "curl"])
def test_client_of_a_node_server_with_tls(bed: Bed, site: Site, client: str) -> None:
    """The server is outside, on the kernel."""
    node = need("node", "curl")
    program = script(bed, "server.js", NODE_HTTPS_SERVER)
    command = [node, program, str(site.certificate), str(site.key), str(site.large)]
    url = f"https://{NET4}:8443/"
    with bed.program("net", *command, name="node-server") as process:
        bed.wait_for_port("net", NET4, 8443, process)
        if client == "node":
            got = bed.run("host", node, script(bed, "client.js", NODE_HTTPS_CLIENT), url, str(site.certificate)).strip()
        else:
            out = bed.folder / "out"
            bed.run("host", "curl", "-sS", "--fail", "--cacert", str(site.certificate), "-o", str(out), url)
            got = hashlib.sha256(out.read_bytes()).hexdigest()
    assert got == site.sha256
