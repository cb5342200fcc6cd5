"""Two thousand connections leave nothing behind: no descriptor and no memory, in the program and in the proxy."""

from __future__ import annotations

from pathlib import Path

import pytest
from beds.real_programs import Bed, Site, need, nginx, wait_until
from test_nginx import children
from test_redis import server
from xts_proxy.status import control_socket

pytestmark = [pytest.mark.root]

CONNECTIONS = 2000
GROWTH_KB = 2048  # of resident memory, for all of them: a kilobyte each


def descriptors(pids: list[int]) -> dict[int, int]:
    return {pid: len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids}


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def watched(bed: Bed, programs: list[int]) -> list[int]:
    """The programs, and the proxy."""
    if bed.queue == "kernel":
        return programs
    record = bed.lab.record("proxy")
    assert record
    return [*programs, record.pid, control_socket.workers_pid(str(bed.lab.directory / "proxy.sock"))]


def nothing_is_left(pids: list[int], before: dict[int, int], resident: dict[int, int]) -> None:
    wait_until(lambda: all(descriptors([pid])[pid] <= before[pid] for pid in pids), f"descriptors {before} again", 15)
    growth = {pid: resident_kb(pid) - resident[pid] for pid in pids}
    assert all(kb < GROWTH_KB for kb in growth.values()), growth


def curl(bed: Bed, count: int) -> None:
    urls = [f"http://{bed.here4}/index.html?{n}" for n in range(count)]
    configuration = bed.folder / "urls"
    configuration.write_text("".join(f'url = "{url}"\noutput = "/dev/null"\n' for url in urls))
    options = ["-sS", "--fail", "--no-progress-meter", "--no-keepalive", "-H", "Connection: close"]
    bed.run("net", "curl", *options, "--parallel", "--parallel-max", "50", "-K", str(configuration))


def test_nginx(bed: Bed, site: Site) -> None:
    need("curl")
    command, pid_file = nginx(bed, "host", site, name="nginx", workers=2)
    with bed.program("host", *command, name="nginx") as process:
        bed.wait_for_port("net", bed.here4, 443, process)
        master = int(wait_until(lambda: pid_file.exists() and pid_file.read_text(), "nginx's pid file"))
        wait_until(lambda: len(children(master)) == 2, "both workers")
        pids = watched(bed, [master, *sorted(children(master))])
        curl(bed, CONNECTIONS)  # pools fill once; receive buffers are used in turn, so all of them have been
        before, resident = descriptors(pids), {pid: resident_kb(pid) for pid in pids}
        curl(bed, CONNECTIONS)
        nothing_is_left(pids, before, resident)


def test_redis(bed: Bed) -> None:
    need("redis-benchmark")
    with server(bed, "host", bed.here4) as process:
        pids = watched(bed, [process.pid])
        command = ["redis-benchmark", "-h", bed.here4, "-k", "0", "-c", "50", "-t", "get", "-q"]
        bed.run("net", *command, "-n", str(CONNECTIONS // 4))
        before, resident = descriptors(pids), {pid: resident_kb(pid) for pid in pids}
        bed.run("net", *command, "-n", str(CONNECTIONS))
        nothing_is_left(pids, before, resident)
