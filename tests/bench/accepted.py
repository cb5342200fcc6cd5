"""Handshakes as a server: clients in the network connect to a TLS listener of the host's.

The server is the same program on each path (native/workloads_accept.c): with TLS pushed onto its listener, with OpenSSL
in its own process, or plain behind HAProxy, which has the certificate. The clients (native/tls_load.c) are the same for
all, and on the device's core. All servers give out tickets, as they come; clients with sessions offer one each time.
Of what the device is besides them, HAProxy or the proxy's processes, the CPU time is told, too: other programs on the
core do not change it. Of XTS also that of the process with the private keys, which is a part of it.
"""

from __future__ import annotations

import json

from .beds import Bed
from .certificates import Certificates
from .foreign import threads_s
from .native_programs import Programs
from .pyclient import sample, window
from .served import DEVICE, HOST, Result, Target, serving
from .subjects import Path as Way
from .subjects import Subject, Workload

_PORTS = {"rsa": 9411, "ecdsa": 9412}
_WARM_UP_S = 0.2


def behind_haproxy() -> list[tuple[str, str, int, str]]:
    """What HAProxy does TLS for: device address, host address, port of both, kind of certificate."""
    return [(DEVICE, HOST, port, kind) for kind, port in _PORTS.items()]


def _server(subject: Subject, programs: Programs, port: int) -> list[str]:
    program = {
        Way.XTS: programs.client_xts_tls,
        Way.DIRECT: programs.client_openssl,
        Way.HAPROXY: programs.client_kernel,
    }[subject.path]
    return [str(program), "accept", "--address", "0.0.0.0", "--port", str(port), "--core", "0"]


def _environment(bed: Bed, subject: Subject, certificates: Certificates, kind: str) -> dict[str, str]:
    if subject.path is Way.XTS:
        return {"XTS_ENDPOINT": bed.endpoint, "BENCH_IDENTITY": kind, **dict(subject.settings)}
    return {"BENCH_CERTIFICATE": str(certificates.of(kind))}


def _worked(bed: Bed, subject: Subject, haproxy_pid: int) -> dict[str, float]:
    """What each part of the device has worked so far."""
    if subject.path is Way.HAPROXY:
        return {"own_s": threads_s(haproxy_pid)}
    if subject.path is not Way.XTS:
        return {}
    keys_s = threads_s(bed.keys_pid)
    return {"own_s": threads_s(bed.proxy_pid) + keys_s, "keys_s": keys_s}


def measure(
    bed: Bed, workload: Workload, subject: Subject, seconds: float, fixed: tuple[Programs, Certificates, int]
) -> Result:
    """One run with a server of its own; fixed: what is built and made, and HAProxy. RuntimeError when one fails."""
    port, (programs, certificates, haproxy_pid) = _PORTS[workload.tls], fixed
    target = Target(bed, HOST if subject.path is Way.DIRECT else DEVICE, port, workload.connections, workload.load)

    def load(seconds: float) -> Result:
        clients = (target.address, str(port), f"{seconds:.2f}", str(target.connections), str(certificates.trust))
        found: Result = json.loads(target.run(str(programs.tls_load), *clients, *target.load))
        return found

    environment = _environment(bed, subject, certificates, workload.tls)
    with serving(bed, subject, _server(subject, programs, port), port, environment):
        load(_WARM_UP_S)
        begin, before = sample(), _worked(bed, subject, haproxy_pid)
        result = load(seconds)
        cores, after = window(begin, sample()), _worked(bed, subject, haproxy_pid)
        cores |= {part: after[part] - before[part] for part in before}
    # Over the run of the clients; while they start and end the host does nothing.
    return {**cores, **result, "run_seconds": cores["seconds"]}
