"""A stand-in for Kubernetes' API server, over HTTP: nodes, resource claims and resource slices.

Of the real one it has what a driver for DRA meets: versions of resource.k8s.io, resourceVersion and its conflicts,
selectors by field, refusals as a Status, and that slices are checked against the API's own schema.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

Object = dict[str, Any]


class KubernetesApi:
    """A context manager, which may be opened again: at the same port, with what it had."""

    def __init__(self, version: str = "v1", check: Callable[[Object], None] = lambda _: None) -> None:
        """check: raises where a slice cannot be."""
        self.version, self._check = version, check
        self.node_uid = "0a0b0c0d-0000-4000-8000-000000000001"
        self.claims: dict[tuple[str, str], Object] = {}
        self.slices: dict[str, Object] = {}
        self.generations: list[int] = []  # of slices that were written, in the order they came
        self.refused: list[str] = []
        self.answers: tuple[int, str, bytes] | None = (
            None  # status, content type and body of each answer; None: its own
        )
        self._lock = threading.Lock()
        self._written = 0
        self._port = 0

    def __enter__(self) -> KubernetesApi:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with api._lock:
                    status, answer = api._answer(self.command, self.path, json.loads(body) if body else None)
                kind, data = "application/json", json.dumps(answer).encode()
                if api.answers:
                    status, kind, data = api.answers
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def kubeconfig(self, path: Path) -> Path:
        """Writes the file that leads here."""
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        path.write_text(yaml.safe_dump(made))
        return path

    def allocate(self, namespace: str, name: str, uid: str, results: list[Object], config: list[Object]) -> None:
        """Makes a claim that the scheduler has allocated these devices to."""
        self.claims[namespace, name] = {
            "apiVersion": f"resource.k8s.io/{self.version}",
            "kind": "ResourceClaim",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "spec": {"devices": {"requests": [{"name": "queue"}]}},
            "status": {"allocation": {"devices": {"results": results, "config": config}}},
        }

    def devices(self) -> set[str]:
        """Names of what a scheduler would allocate: of the newest generation, if all its slices are there."""
        with self._lock:
            found = list(self.slices.values())
        newest = max((one["spec"]["pool"]["generation"] for one in found), default=0)
        last = [one for one in found if one["spec"]["pool"]["generation"] == newest]
        if not last or any(one["spec"]["pool"]["resourceSliceCount"] != len(last) for one in last):
            return set()
        return {device["name"] for one in last for device in one["spec"]["devices"]}

    def _answer(self, method: str, target: str, body: Any) -> tuple[int, Object]:
        url = urlsplit(target)
        match url.path.strip("/").split("/"):
            case ["api", "v1", "nodes", name]:
                return 200, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": self.node_uid}}
            case ["apis", "resource.k8s.io", self.version, "namespaces", namespace, "resourceclaims", name]:
                found = self.claims.get((namespace, name))
                return (200, found) if found else _status(404, f'resourceclaims "{name}" not found')
            case ["apis", "resource.k8s.io", self.version, "resourceslices", *rest]:
                return self._slices(method, rest, body, parse_qs(url.query))
        return _status(404, "the server could not find the requested resource")

    def _slices(self, method: str, rest: list[str], body: Any, query: dict[str, list[str]]) -> tuple[int, Object]:
        if method == "GET":
            wanted = dict(part.split("=") for part in query.get("fieldSelector", [""])[0].split(",") if part)
            items = [
                one
                for one in self.slices.values()
                if all(one["spec"][name.removeprefix("spec.")] == value for name, value in wanted.items())
            ]
            return 200, {
                "apiVersion": f"resource.k8s.io/{self.version}",
                "kind": "List",
                "metadata": {},
                "items": items,
            }
        if method == "DELETE":
            return _status(200, "") if self.slices.pop(rest[0], None) else _status(404, "not found")
        name = body["metadata"]["name"]
        there = self.slices.get(name)
        if method == "POST" and there:
            return _status(409, f'resourceslices "{name}" already exists')
        if method == "PUT" and (
            not there or body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]
        ):
            return _status(409, "the object has been modified")
        try:
            self._check(body)
        except Exception as error:
            self.refused.append(str(error))
            return _status(422, str(error))
        self._written += 1
        body["metadata"]["resourceVersion"] = str(self._written)
        self.generations.append(body["spec"]["pool"]["generation"])
        self.slices[name] = body
        return 200, body


def _status(code: int, message: str) -> tuple[int, Object]:
    status = "Success" if code < 300 else "Failure"
    return code, {"kind": "Status", "apiVersion": "v1", "status": status, "code": code, "message": message}
