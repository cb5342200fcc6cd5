"""After install(), what is imported for the first time works as it does without; and uninstall() leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Of the standard library: everything that has to do with sockets or processes, or imports what does.
STANDARD = """asyncio asyncio.subprocess concurrent.futures concurrent.futures.process ftplib http.client http.cookiejar
http.server imaplib ipaddress logging.config logging.handlers mailbox multiprocessing multiprocessing.connection
multiprocessing.context multiprocessing.dummy multiprocessing.forkserver multiprocessing.managers multiprocessing.pool
multiprocessing.queues multiprocessing.reduction multiprocessing.resource_sharer multiprocessing.resource_tracker
multiprocessing.shared_memory multiprocessing.sharedctypes multiprocessing.spawn multiprocessing.synchronize pdb poplib
pty pydoc select selectors smtplib socketserver ssl subprocess tempfile test.support test.support.socket_helper
tracemalloc unittest unittest.mock urllib.error urllib.request urllib.robotparser uuid venv webbrowser
wsgiref.simple_server xmlrpc.client xmlrpc.server zipfile"""
#: Packages that many programs use; those that are installed are imported.
PACKAGES = """aiodns aiofiles aiohttp aiosignal alembic amqp annotated_types anyio asgiref asyncpg attr babel billiard
boto3 botocore bs4 cachetools celery certifi cffi chardet charset_normalizer click cloudpickle coverage cryptography
dateutil dask distributed django dns dnspython docker dotenv exceptiongroup execnet fastapi filelock flask fsspec google
greenlet grpc gunicorn h11 h2 hpack httpcore httpcore2 httptools httpx httpx2 hypercorn hyperframe hypothesis idna
importlib_metadata jinja2 jmespath joblib jsonschema kombu lxml mako markupsafe msgpack msgspec multidict mypy numpy
orjson outcome packaging pandas paramiko pika pip pkg_resources platformdirs pluggy priority prometheus_client propcache
psutil psycopg pyarrow pydantic pygments pymongo pymysql pynacl pyparsing pyroute2 pytest pytest_socket pytz redis
requests rich s3transfer scipy setuptools simplejson six sniffio sortedcontainers soupsieve sqlalchemy starlette
tenacity textual toml tomlkit tornado tqdm trio twisted typing_extensions tzlocal urllib3 uvicorn uvloop virtualenv
watchfiles websocket websockets werkzeug wheel wrapt wsproto xdist yaml yarl zmq zope"""

PROGRAM = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
how, *names = sys.argv[1:]
before = list(sys.meta_path)
import os, socket, ssl
kept = (socket.socket, os.read, os.write, os.close, os.fdopen, os.sendfile, vars(ssl.SSLSocket)["_create"])
if how != "plain":
    import xts_socket
    if how == "block":
        with xts_socket.offload():
            pass
    else:
        xts_socket.install()
        if how == "uninstalled":
            xts_socket.uninstall()
    if how != "installed":
        assert sys.meta_path == before, sys.meta_path
found = {}
for name in names:
    try:
        importlib.import_module(name)
        found[name] = "imported"
    except BaseException as failure:
        found[name] = f"{type(failure).__name__}: {failure}"
if how == "installed":
    xts_socket.uninstall()
now = (socket.socket, os.read, os.write, os.close, os.fdopen, os.sendfile, vars(ssl.SSLSocket)["_create"])
assert now == kept, [(a, b) for a, b in zip(now, kept) if a != b]
assert [one for one in sys.meta_path if "xts_socket" in type(one).__module__] == []
import subprocess
assert subprocess.Popen.__init__.__module__ == "subprocess", subprocess.Popen.__init__
print(json.dumps(found))
"""


def outcomes(how: str, names: list[str]) -> dict[str, str]:
    """Of a fresh interpreter that imports them in this order."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, *names], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def plain() -> dict[str, str]:
    return outcomes("plain", STANDARD.split() + PACKAGES.split())


def test_all_that_can_be_imported(plain: dict[str, str]) -> None:
    """In one interpreter, in this order."""
    here = outcomes("installed", list(plain))
    assert here == plain
    assert sum(found == "imported" for found in here.values()) > 80


@pytest.mark.parametrize("how", ["installed", "block", "uninstalled"])
@pytest.mark.parametrize(
    "first",
    [
        *("multiprocessing", "multiprocessing.reduction", "multiprocessing.connection", "multiprocessing.managers"),
        *("concurrent.futures.process", "subprocess", "asyncio"),
    ],
)
def test_what_is_imported_first(first: str, how: str) -> None:
    """Each with a fresh interpreter: what one imports hides what the next one would have to."""
    assert outcomes(how, [first]) == {first: "imported"}
