"""Runs: one client at a time on core 0, everything else on core 1, placements set and verified before
each."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from . import accepted, haproxy, resumed, served, udp_proxy
from .analysis import WATCHED, Run
from .beds import CROWDED_QUEUES, Bed, LoopbackBed
from .certificates import TLS_NAME, TRUST_NAME, Certificates
from .foreign import Foreign
from .native_programs import Programs
from .subjects import GROUP, PEER_PORT, UDP_PORT, UDP_SERVICES, Subject, Workload
from .subjects import Path as Way

RUN_TIMEOUT_S = 60
QUEUE_FREE_S = 5.0
#: Share of a core that others may use during a run.
DISTURBED = 0.04


@dataclass(frozen=True, slots=True)
class Session:
    """Beds with their peers and HAProxy running."""

    beds: Mapping[str, Bed]
    baseline: Bed
    programs: Programs
    haproxy_pid: int
    #: Everything of ours that runs all the time.
    pids: tuple[int, ...]
    patience_s: float
    certificates: Certificates
    warmup_s: float = 0.3
    udp_proxy_pid: int = 0

    def bed(self, subject: Subject) -> Bed:
        return self.beds[subject.queue] if subject.queue else self.baseline

    def has(self, subject: Subject) -> bool:
        """Can this session measure it? Without privilege the kernel places the work of its TCP as it likes (r0)."""
        if subject.path is Way.HAPROXY and not self.haproxy_pid:
            return False
        if subject.path is Way.UDP_PROXY and not self.udp_proxy_pid:
            return False
        if isinstance(self.baseline, LoopbackBed) and subject.placement not in ("", "r0"):
            return False
        return subject.queue is None or subject.queue in self.beds

    def client(self, subject: Subject, workload: Workload) -> list[str]:
        """The client's command line, without its times."""
        if workload.aio:
            program = [sys.executable, str(Path(__file__).with_name("aioclient.py")), "--loop", subject.loop]
            program += ["--connections", str(workload.connections)]
            if subject.path is Way.XTS:
                program.append("--xts")
        elif workload.name == "udp-quic":
            program = [sys.executable, str(Path(__file__).with_name("quic.py")), "fetch"]
            program += ["--tls-name", TLS_NAME, "--tls-trust", str(self.certificates.trust)]
            if subject.path is Way.XTS:
                program.append("--xts")
        elif workload.python or subject.python:
            module = "xts_socket" if subject.path is Way.XTS else "socket"
            program = [
                sys.executable,
                str(Path(__file__).with_name("pyclient.py")),
                workload.name,
                "--module",
                module,
                "--request-bytes",
                str(workload.request_bytes),
            ]
            if workload.tls:
                trust = TRUST_NAME if module == "xts_socket" else str(self.certificates.trust)
                program += ["--tls-name", TLS_NAME, "--tls-trust", trust]
        else:
            program = [str(self._client_program(subject, workload)), workload.name]
            program += ["--connections", str(workload.connections), "--request-bytes", str(workload.request_bytes)]
            if workload.name.startswith("udp-"):
                program += ["--batch", str(workload.batch), "--segments", str(workload.segments)]
                program += ["--rate", str(workload.rate_per_s), "--groups", str(workload.idle_groups)]
                program += ["--interface", self.bed(subject).member(subject.path is Way.XTS)]
            if workload.name == "processes-request":
                program += ["--rate", str(workload.rate_per_s), *self._watched(subject)]
            if workload.spin_us is not None:
                program += ["--spin", str(workload.spin_us)]
        bed = self.bed(subject)
        address = bed.device if subject.path in (Way.HAPROXY, Way.UDP_PROXY) else bed.peer
        return [
            *program,
            "--address",
            address,
            "--port",
            str(subject.port(workload.name, workload.secured)),
            "--core",
            "0",
        ]

    def _watched(self, subject: Subject) -> list[str]:
        """What the client takes samples of besides: the programs of this path."""
        bed = self.bed(subject)
        if subject.path is not Way.XTS or not bed.relay_pid:
            return []
        pids = {"relay": (bed.relay_pid,), "agent": bed.agent_pids, "proxy": (bed.proxy_pid,)}
        assert tuple(pids) == WATCHED
        return [word for name, of in pids.items() for word in ("--watch", f"{name}={','.join(map(str, of))}")]

    def _client_program(self, subject: Subject, workload: Workload) -> Path:
        if subject.path is Way.XTS:
            return self.programs.client_xts_tls if workload.tls else self.programs.client_xts
        in_host = workload.tls and subject.path is Way.DIRECT
        return self.programs.client_openssl if in_host else self.programs.client_kernel

    def spawn(
        self, subject: Subject, command: list[str], *, resumes: bool = False, **streams: Any
    ) -> subprocess.Popen[str]:
        """Starts a command where the application of this subject lives. `resumes`: it may resume sessions of TLS."""
        bed = self.bed(subject)
        more = {"BENCH_RESUMES": "1"} if resumes else {}
        if subject.path is Way.XTS:
            environment = {"XTS_ENDPOINT": bed.endpoint, "BENCH_TRUST": TRUST_NAME, "XTS_STACKS": subject.stacks}
            environment |= dict(subject.settings) | more
            return bed.spawn("host", command, environment, **streams)
        return bed.spawn("kern", command, {"BENCH_CA": str(self.certificates.trust)} | more, **streams)

    def run(self, workload: Workload, subject: Subject, repetition: int, seconds: float) -> Run:
        """One run, made again while others disturb it, for `patience_s` at most. The least disturbed one counts; how
        much they took of it is in its result. RuntimeError, with what the client said, when it failed, saw wrong data
        or hung.
        """
        deadline = time.monotonic() + self.patience_s
        best, best_share = None, 0.0
        while True:
            foreign, begin = Foreign(self.pids), time.monotonic()
            run = self._run_once(workload, subject, repetition, seconds)
            share = foreign.look() / (time.monotonic() - begin)
            if best is None or share < best_share:
                best, best_share = run, share
            if share <= DISTURBED or time.monotonic() > deadline:
                return replace(best, result={**best.result, "foreign_share": best_share})

    def _run_once(self, workload: Workload, subject: Subject, repetition: int, seconds: float) -> Run:
        placement = self.bed(subject).place(subject.placement)
        if workload.served:
            result = served.measure(self.bed(subject), workload, subject, seconds * workload.stretch)
            return Run(workload.key, subject.key, repetition, result, placement)
        if workload.name == "accept":
            window_s, fixed = seconds * workload.stretch, (self.programs, self.certificates, self.haproxy_pid)
            result = accepted.measure(self.bed(subject), workload, subject, window_s, fixed)
            return Run(workload.key, subject.key, repetition, result, placement)
        command = [*self.client(subject, workload), "--seconds", f"{seconds * workload.stretch:.2f}"]
        command += ["--warmup", f"{self.warmup_s:.2f}"]
        deadline = time.monotonic() + QUEUE_FREE_S
        before = resumed.counts(self.bed(subject)) if workload.resumed else None
        while True:
            result = self._finish(subject, command, resumes=workload.resumed)
            if before:
                result = {**result, "resumed_share": resumed.share(self.bed(subject), before)}
            if fault := wrong_queues(workload, subject, result):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{subject.label}, {workload.key}: {fault}")
                continue
            return Run(workload.key, subject.key, repetition, result, placement)

    def check(self, subject: Subject, check_bytes: int) -> Mapping[str, float | str]:
        """Every byte of so much data each way, compared; not timed."""
        self.bed(subject).place(subject.placement)
        command = self.client(subject, Workload("check", "", "check", ()))
        return self._finish(subject, [*command, "--check-bytes", str(check_bytes)])

    def _finish(self, subject: Subject, command: list[str], *, resumes: bool = False) -> Mapping[str, float | str]:
        """Runs a client to its end. The only queue may still be the client's before: on a busy machine its agent hears
        of that one's end a moment later, and answers EUSERS until then."""
        deadline = time.monotonic() + QUEUE_FREE_S
        while True:
            try:
                return self._client_ended(subject, command, resumes)
            except RuntimeError as error:
                if os.strerror(errno.EUSERS) not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _client_ended(self, subject: Subject, command: list[str], resumes: bool) -> Mapping[str, float | str]:
        process = self.spawn(subject, command, resumes=resumes, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            err = process.communicate()[1]
            raise RuntimeError(f"{subject.label}: no end after {RUN_TIMEOUT_S} s: {' '.join(command)}\n{err}") from None
        finally:
            process.kill()  # where we are interrupted; else it has ended
        if process.returncode != 0:
            raise RuntimeError(f"{subject.label}: exit status {process.returncode}: {' '.join(command)}\n{err.strip()}")
        result: Mapping[str, float | str] = json.loads(out)
        return result


def wrong_queues(workload: Workload, subject: Subject, result: Mapping[str, float | str]) -> str | None:
    """Of more processes than queues: not as many as there are have one. A queue of the last run may not be free yet
    when the first processes of the next one attach."""
    if workload.name != "processes-request" or subject.path is not Way.XTS:
        return None
    expected = min(workload.connections, CROWDED_QUEUES - 1)
    found = (result["own_queues"], result["relayed"])
    if found == (expected, workload.connections - expected):
        return None
    return f"{found[0]} processes had a queue of their own and {found[1]} the relay; {expected} should have had one"


@contextmanager
def session(
    baseline: Bed,
    beds: Mapping[str, Bed],
    programs: Programs,
    patience_s: float,
    certificates: Certificates,
    *,
    warmup_s: float = 0.3,
) -> Iterator[Session]:
    """Starts a peer in each bed and HAProxy, where it is installed, in the baseline's, and stops them at the end."""
    with ExitStack() as stack:
        pids: list[int] = []
        different = [baseline, *(bed for bed in beds.values() if bed is not baseline)]
        for bed in different:
            peer = [str(programs.peer), bed.peer, str(PEER_PORT), str(certificates.rsa), str(certificates.ecdsa)]
            pids += [stack.enter_context(_peer(bed, peer)).pid, *bed.pids]
            pids += [
                stack.enter_context(_peer(bed, command)).pid for command in _datagram_peers(bed, programs, certificates)
            ]
            wrong = {role: name for role, name in bed.congestion_controls().items() if name != "cubic"}
            if wrong and not isinstance(bed, LoopbackBed):
                raise RuntimeError(f"lab {bed.name}: congestion control is not cubic: {wrong}")
        haproxy_pid = udp_proxy_pid = 0

        def spawn(command: list[str], log: IO[str]) -> subprocess.Popen[str]:
            # It goes back to where it was started, which an ordinary user may not be allowed to enter.
            return baseline.spawn("dpu", command, stdout=log, stderr=log, cwd=certificates.directory)

        if haproxy.installed():
            servers = (
                [] if isinstance(baseline, LoopbackBed) else [*served.behind_haproxy(), *accepted.behind_haproxy()]
            )
            program = haproxy.running(spawn, baseline.device, baseline.peer, servers, certificates)
            haproxy_pid = stack.enter_context(program).pid
            pids.append(haproxy_pid)
        if not isinstance(baseline, LoopbackBed):
            pids.append(stack.enter_context(_peer(baseline, _router(baseline), "dpu")).pid)
        if udp_proxy.installed() and not isinstance(baseline, LoopbackBed):
            nginx = udp_proxy.running(spawn, baseline.device, baseline.peer, certificates.directory)
            udp_proxy_pid = stack.enter_context(nginx).pid
            pids.append(udp_proxy_pid)
        fixed = (programs, haproxy_pid, tuple(pids), patience_s, certificates, warmup_s, udp_proxy_pid)
        yield Session(beds, baseline, *fixed)


def _datagram_peers(bed: Bed, programs: Programs, certificates: Certificates) -> Iterator[list[str]]:
    yield [str(programs.datagram_peer), bed.peer, str(UDP_PORT)]
    if find_spec("aioquic"):
        program = str(Path(__file__).with_name("quic.py"))
        port = str(UDP_PORT + UDP_SERVICES - 1)
        yield [sys.executable, program, "serve", bed.peer, port, str(certificates.rsa)]


def _router(bed: Bed) -> list[str]:
    """What passes the peer's group on to the host without offload."""
    program = str(Path(__file__).with_name("multicast_router.py"))
    return [sys.executable, program, bed.peer, GROUP, bed.member(True), bed.device]


@contextmanager
def _peer(bed: Bed, command: list[str], role: str = "net") -> Iterator[subprocess.Popen[str]]:
    process = bed.spawn(role, command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the peer did not start: is its address in the net namespace?")
        yield process
    finally:
        process.terminate()
        process.wait(10)
