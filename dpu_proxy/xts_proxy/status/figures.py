"""What a running proxy says of itself: answers for `xts-proxy status`, and figures for its metrics."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from xts_messages.version import __version__

from xts_proxy.device import device_network
from xts_proxy.queues.shm_channels import ShmChannels
from xts_proxy.supervisor.heartbeat import answers
from xts_proxy.workers.workers import LINK_STATES

if TYPE_CHECKING:
    from xts_proxy.status.control_socket import Question
    from xts_proxy.supervisor.children import Child
    from xts_proxy.supervisor.supervisor import Supervisor
    from xts_proxy.workers.remote_worker import RemoteWorker


class Figures:
    """Of one proxy, which this only reads. Workers that stand still are left out, so that nobody waits for them."""

    def __init__(self, proxy: Supervisor) -> None:
        self._proxy = proxy

    def answer(self, question: Question) -> dict[str, Any]:
        """Answers a question of the control socket. OSError: it cannot be answered."""
        if question.ask == "route":
            return device_network.route_of(question.local, question.peer)
        programs = self._proxy.channels.programs() if self._proxy.channels else {}
        awake = [worker for worker in self._proxy.workers if answers(worker)]
        channels = []
        for worker in awake:
            for row in worker.channels():
                pid, program = programs.get(row["queue_id"], (row["pid"], ""))
                row |= {"worker": worker.index, "pid": pid, "program": program}
                row["link_state"] = LINK_STATES[row["link_state"]]
                channels.append(row)
        result: dict[str, Any] = {
            "proxy": {
                "version": __version__,
                "pid": os.getpid(),
                "processes": {child.name: child.pid for child in self._children()},
                "state": self._proxy.state,
                "queue": self._proxy.config.proxy.queue,
                "config": str(self._proxy.path) if self._proxy.path else None,
                "uptime_s": time.time() - self._proxy.started_at,
                "reloading": bool(self._proxy.reloading and self._proxy.reloading.runs),
                "reloads": self._reloads(),
                "upgrade": self._upgrade_row(),
                "crashes": self._crashes_row(),
            },
            "interface": self._proxy.channels.interface() if self._proxy.channels else {},
            "rdma": self._proxy.channels.rdma() if self._proxy.channels else [],
            "workers": [self._worker_row(worker, worker in awake) for worker in self._proxy.workers],
            "tenants": [
                {"tenant": name} | figures | self._rate_and_mark(name) for name, figures in self.tenants().items()
            ],
            "steering": self._proxy.steering.rows(),
            "filters": [{"filter": name} | totals for name, totals in self._filters().items()],
            "tls": self.tls_counts(),
            "tls_files": self._tls_files(),
            "channels": sorted(channels, key=lambda row: row["queue_id"]),
        }
        if question.connections:
            result["connections"] = connections = []
            for worker in awake:
                for row in worker.connections():
                    row["worker"] = worker.index
                    connections.append(row)
            result["network"] = device_network.read()
        return result

    def _upgrade_row(self) -> dict[str, Any]:
        """What it has taken over, and what it has given so far; empty: nothing."""
        one = self._proxy.successors.giving or self._proxy.taking
        row: dict[str, Any] = {"channels": one.moved, "sockets": one.sockets, "reset": one.reset} if one else {}
        if self._proxy.successors.giving and (waits := self._proxy.successors.giving.waiting()):
            row["waits"] = waits
        return row

    def _crashes_row(self) -> dict[str, int]:
        """How often the workers have died, and with how many sockets others went on."""
        return {"count": self._proxy.crashes.count, "sockets": self._proxy.crashes.recovered}

    def _reloads(self) -> dict[str, int]:
        """How many were taken, and how many refused."""
        return dict(self._proxy.reloading.counts) if self._proxy.reloading else {}

    def _worker_row(self, worker: RemoteWorker, awake: bool) -> dict[str, Any]:
        stands_s, reports = self._proxy.heartbeat.figures(worker)
        row: dict[str, Any] = {"worker": worker.index, "no_progress_s": round(stands_s, 1), "no_progress": reports}
        if not awake:
            return row
        stats = worker.stats()
        refused = stats["refused_policy"] + stats["refused_limit"]
        kept = stats["kept_listeners"] + stats["parked_connections"]
        hits = f"{stats['hits'] / stats['rounds']:.0%}" if stats["rounds"] else ""
        polling = f"{stats['poll_ns'] / stats['cpu_ns']:.0%}" if stats["cpu_ns"] else ""
        return row | {**stats, "refused": refused, "kept": kept, "hit_rate": hits, "polling": polling}

    def _children(self) -> list[Child]:
        own = (self._proxy.process, self._proxy.keys, self._proxy.metrics)
        of_channels = self._proxy.channels.children() if self._proxy.channels else []
        understudy = self._proxy.process.understudy if self._proxy.process else None
        return [*(process.child for process in own if process), *([understudy] if understudy else []), *of_channels]

    def _answers(self) -> bool:
        """Does the workers' process answer (whatever its workers do)?"""
        if not self._proxy.process or not self._proxy.workers:
            return False
        self._proxy.workers[0].pulse()
        return not self._proxy.process.silent_s

    def tenants(self) -> dict[str, dict[str, dict[str, int]]]:
        """What each has in use, and its limits, as the workers' process knows; empty: it does not answer."""
        return self._proxy.process.tenants() if self._proxy.process and self._answers() else {}

    def _rate_and_mark(self, name: str) -> dict[str, int | None]:
        """What its table says. A tenant that the file no longer names has neither."""
        of_it = next((tenant for tenant in self._proxy.config.tenant if tenant.name == name), None)
        return {"pacing_bytes_s": of_it.pacing_bytes_s if of_it else 0, "dscp": of_it.dscp if of_it else None}

    def _filters(self) -> dict[str, dict[str, int]]:
        return self._proxy.process.filters() if self._proxy.process and self._answers() else {}

    def tls_counts(self) -> dict[str, int]:
        """Of handshakes and keys; empty: the workers' process does not answer."""
        return self._proxy.process.tls_counts() if self._proxy.process and self._answers() else {}

    def _tls_files(self) -> dict[str, Any]:
        """How often files that were replaced were taken over, and what does not fit now, with the reason."""
        watch = self._proxy.watch
        return watch.counts | {"waiting": dict(watch.refused)} if watch else {}

    def of_metrics(self) -> dict[str, Any]:
        """The figures that metrics are made from (metrics.families())."""
        proxy, channels = self._proxy, self._proxy.channels
        awake = [worker for worker in proxy.workers if answers(worker)]
        counters = channels.counters() if channels else {}
        over_shm = isinstance(channels, ShmChannels)
        return {
            "info": {"version": __version__, "queue": proxy.config.proxy.queue},
            "proxy": {
                "started_at": proxy.started_at,
                "draining": int(proxy.state == "draining"),
                "reloads": self._reloads(),
                "tls_files": dict(proxy.watch.counts) if proxy.watch else {},
                "tls_waiting": len(proxy.watch.refused) if proxy.watch else 0,
            },
            "shm": counters if over_shm else {},
            "steer": {} if over_shm else counters,  # over RDMA there are none
            "interface": channels.interface() if channels else {},
            "rdma": channels.rdma() if channels else [],
            "progress": [self._progress(worker) for worker in proxy.workers],
            "workers": [worker.stats() | {"worker": worker.index} for worker in awake],
            "tenants": self.tenants(),
            "channels": [row | {"worker": worker.index} for worker in awake for row in worker.channels()],
            "filters": self._filters(),
            "tls": self.tls_counts(),
        }

    def _progress(self, worker: RemoteWorker) -> dict[str, float]:
        stands_s, reports = self._proxy.heartbeat.figures(worker)
        return {"worker": worker.index, "stands_s": stands_s, "reports": reports}
