"""What `xts-trace send`, `wakeups` and `queues` trace: their programs, and the rows made from the counts.

A send is followed by its position in the stream: it has reached the worker when the worker has taken that many bytes of
the connection from the host, and TCP when TCP has taken as many. On each connection one send at a time is followed, and
the next one when that has arrived, so that the cost does not grow with the load. Each stage lasts until the next
begins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from xts_bpf.probes import Watch, percentile

Row = dict[str, Any]
Counts = dict[tuple[int, int], dict[int, int]]

SEND = """
struct key_t { u64 epoch; u64 proxy_id; };
struct send_t { u64 position, called, queued, took, offered; };
BPF_TABLE("lru_hash", u64, u64, calls, 16384);
BPF_TABLE("lru_hash", struct key_t, struct send_t, sends, 16384);
enum { CALL, QUEUE, WORKER, TCP, TOTAL, UNFINISHED };
#define GIVEN_UP_NS 1000000000

static __always_inline void on_send_call(s32 descriptor, u64 bytes)
{
    u64 thread = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();

    calls.update(&thread, &now);
}

static __always_inline void on_send_taken(u64 epoch, u32 proxy_id, u64 position)
{
    u64 thread = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns(), *called = calls.lookup(&thread);
    struct key_t key = { .epoch = epoch, .proxy_id = proxy_id };
    struct send_t send = { .position = position }, *old;

    if (!called)
        return;
    send.called = *called;
    calls.delete(&thread);
    old = sends.lookup(&key);
    if (old && now - old->called < GIVEN_UP_NS)
        return;
    if (old)
        count(UNFINISHED, 0, 0);
    sends.update(&key, &send);
}

static __always_inline struct send_t *followed(u64 epoch, u32 proxy_id, u64 position)
{
    struct key_t key = { .epoch = epoch, .proxy_id = proxy_id };
    struct send_t *send = sends.lookup(&key);

    return send && position >= send->position ? send : 0;
}

static __always_inline void on_send_queued(u64 epoch, u32 proxy_id, u64 position, u32 frames, u32 window)
{
    struct send_t *send = followed(epoch, proxy_id, position);

    if (!send || send->queued)
        return;
    send->queued = bpf_ktime_get_ns();
    count(CALL, 0, send->queued - send->called);
}

static __always_inline void on_worker_took(u64 epoch, u32 proxy_id, u64 position)
{
    struct send_t *send = followed(epoch, proxy_id, position);

    if (!send || !send->queued || send->took)
        return;
    send->took = bpf_ktime_get_ns();
    count(QUEUE, 0, send->took - send->queued);
}

static __always_inline void on_worker_offers(u64 epoch, u32 proxy_id, u64 position)
{
    struct send_t *send = followed(epoch, proxy_id, position);

    if (!send || !send->took || send->offered)
        return;
    send->offered = bpf_ktime_get_ns();
    count(WORKER, 0, send->offered - send->took);
}

static __always_inline void on_worker_wrote(u64 epoch, u32 proxy_id, u64 position, u32 waiting_bytes)
{
    struct key_t key = { .epoch = epoch, .proxy_id = proxy_id };
    struct send_t *send = followed(epoch, proxy_id, position);
    u64 now = bpf_ktime_get_ns();

    if (!send || !send->offered)
        return;
    count(TCP, 0, now - send->offered);
    count(TOTAL, 0, now - send->called);
    sends.delete(&key);
}
"""
STAGES = ("call", "queue", "worker", "TCP", "total")
_UNFINISHED = 5


def send_rows(counts: Counts) -> list[Row]:
    """A row for each stage, and one for sends that were given up after a second."""
    rows = [{"stage": name, **_times(counts.get((number, 0), {}))} for number, name in enumerate(STAGES)]
    given_up = sum(counts.get((_UNFINISHED, 0), {}).values())
    return [*rows, {"stage": "unfinished", "count": given_up}] if given_up else rows


WAKEUPS = """
struct sleep_t { u64 since, woken; };
BPF_TABLE("lru_hash", u32, struct sleep_t, sleeping, 16384);
enum { ASLEEP, TO_RUN };

static __always_inline void sleeps(void)
{
    u32 thread = bpf_get_current_pid_tgid();
    struct sleep_t sleep = { .since = bpf_ktime_get_ns() };

    sleeping.update(&thread, &sleep);
}

static __always_inline void wakes(void)
{
    u32 thread = bpf_get_current_pid_tgid();
    struct sleep_t *sleep = sleeping.lookup(&thread);
    u64 now = bpf_ktime_get_ns();

    if (!sleep)
        return;
    count(ASLEEP, thread, now - sleep->since);
    if (sleep->woken)
        count(TO_RUN, thread, now - sleep->woken);
    sleeping.delete(&thread);
}

static __always_inline void on_host_sleep(void) { sleeps(); }
static __always_inline void on_host_wake(void) { wakes(); }
static __always_inline void on_worker_sleep(void) { sleeps(); }
static __always_inline void on_worker_wake(void) { wakes(); }

TRACEPOINT_PROBE(sched, sched_waking)
{
    u32 thread = args->pid;
    struct sleep_t *sleep = sleeping.lookup(&thread);

    if (sleep)
        sleep->woken = bpf_ktime_get_ns();
    return 0;
}
"""


def _thread(number: int) -> tuple[int | None, str]:
    """The process of a thread, and its name; None, "": it has ended."""
    try:
        status = Path("/proc", str(number), "status").read_text(errors="replace").splitlines()
    except OSError:
        return None, ""
    fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    return int(fields["Tgid"]), fields["Name"]


def wakeup_rows(counts: Counts) -> list[Row]:
    """A row for each thread: how often and how long it slept, and how long it took to run again."""
    rows = []
    for (what, thread), asleep in sorted(counts.items()):
        if what:
            continue
        to_run = counts.get((1, thread), {})
        pid, name = _thread(thread)
        rows.append(
            {
                "pid": pid,
                "thread": thread,
                "name": name,
                "sleeps": sum(asleep.values()),
                "asleep_p50_us": percentile(asleep, 0.5) / 1000,
                "wakeups": sum(to_run.values()),
                "to_run_p50_us": percentile(to_run, 0.5) / 1000,
                "to_run_p99_us": percentile(to_run, 0.99) / 1000,
            }
        )
    return sorted(rows, key=lambda row: -row["sleeps"])


QUEUES = """
enum { TO_DEVICE, FOUND, TO_HOST, SPILLED };

static __always_inline void on_send_queued(u64 epoch, u32 proxy_id, u64 position, u32 frames, u32 window)
{
    count(TO_DEVICE, bpf_get_current_pid_tgid() >> 32, frames);
}
static __always_inline void on_worker_frames(u32 queue, u32 frames) { count(FOUND, queue, frames); }
static __always_inline void on_worker_replies(u32 queue, u32 frames, u32 window) { count(TO_HOST, queue, frames); }
static __always_inline void on_worker_wrote(u64 epoch, u32 proxy_id, u64 position, u32 waiting_bytes)
{
    count(SPILLED, 0, waiting_bytes);
}
"""
DEPTHS = (
    ("frames in flight at a send", "process"),
    ("frames found at a look", "queue"),
    ("frames in flight to the host at a doorbell", "queue"),
    ("bytes in a spill buffer after a write", ""),
)


def queue_rows(counts: Counts) -> list[Row]:
    """A row for each depth, process and queue."""
    rows = []
    for (what, who), values in sorted(counts.items()):
        depth, kind = DEPTHS[what]
        of = {"process": f"process {who}", "queue": f"queue {who}"}.get(kind, "")
        numbers = {name: percentile(values, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}
        rows.append({"depth": depth, "of": of, "count": sum(values.values()), **numbers})
    return rows


def _times(values: dict[int, int]) -> Row:
    return {
        "count": sum(values.values()),
        "p50_us": percentile(values, 0.5) / 1000,
        "p99_us": percentile(values, 0.99) / 1000,
        "histogram_us": {limit / 1000: number for limit, number in sorted(values.items())},
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a verb of xts-trace."""

    source: str
    probes: tuple[str, ...]
    rows: Callable[[Counts], list[Row]]
    summary: str

    def watch(self, pids: Collection[int] = ()) -> Watch:
        """Begins now, for these processes, or for all. TraceError: it is not possible here."""
        return Watch(self.source, self.probes, pids)


SUBJECTS = {
    "send": Subject(
        SEND,
        ("send_call", "send_taken", "send_queued", "worker_took", "worker_offers", "worker_wrote"),
        send_rows,
        "how long sends take, by stage: call, queue, worker, TCP",
    ),
    "wakeups": Subject(
        WAKEUPS,
        ("host_sleep", "host_wake", "worker_sleep", "worker_wake"),
        wakeup_rows,
        "how often threads sleep, and how long they take to run when they are woken",
    ),
    "queues": Subject(
        QUEUES,
        ("send_queued", "worker_frames", "worker_replies", "worker_wrote"),
        queue_rows,
        "how many frames are in the queues, and bytes in the spill buffers",
    ),
}
