"""xts-agent between two namespaces: a process without privilege gets its queue, and its end is told."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from beds import process_tree
from beds.running_agent import NOBODY, Running, closed, start_agent, stop, take, until
from beds.service_manager import Manager
from beds.veth_wire import Wire
from xts_agent import child, opener_protocol, privileged_opener
from xts_agent.__main__ import main
from xts_agent.config import AgentConfig
from xts_bpf.device import open_device_queues
from xts_bpf.interface_state import read_state
from xts_bpf.program import Owner
from xts_messages._native import lib
from xts_messages.attaching.attach import Attachment, attach, list_attachments
from xts_messages.attaching.status_page import read_status_page
from xts_messages.queues.queue_kinds import QueueOptions
from xts_messages.services import privilege
from xts_socket.cli.sockets import attached

pytestmark = [pytest.mark.root, pytest.mark.afxdp]


def test_a_process_without_privilege_uses_its_queue(running: Running) -> None:
    with running.echo() as (process, epoch, queue_id):
        for size in (60, 3840, 3841, 20_000, 61_440):
            running.exchange(queue_id, size)
        listed = list(list_attachments(running.endpoint))
        assert [(item.kind, item.pid, item.uid, item.epoch) for item in listed] == [
            ("afxdp", process.pid, NOBODY, epoch)
        ]
        os.close(listed[0].status_fd)


@pytest.mark.parametrize("running", [["--queues", "1"]], indirect=True)
def test_a_death_is_told_and_the_next_process_is_served(running: Running) -> None:
    epochs = set()
    for _ in range(4):
        with running.echo() as (process, epoch, queue_id):
            running.exchange(queue_id, 20_000)
            epochs.add(epoch)
            process.kill()
            assert take(running.device.queues[queue_id]) == running.goodbye(epoch)
    assert len(epochs) == 4
    assert running.device.program.counters().foreign == 0


def test_an_orderly_detach_is_told_too(running: Running) -> None:
    with attach(running.endpoint) as attachment:
        running.device.queues[attachment.queue_id].send(running.frame(60))
        take(attachment.queue)
    assert take(running.device.queues[attachment.queue_id]) == running.goodbye(attachment.epoch)


def test_a_queue_that_was_left_receives_nothing_more(running: Running) -> None:
    with running.echo() as (process, epoch, queue_id):
        process.kill()
        assert take(running.device.queues[queue_id]) == running.goodbye(epoch)
        running.device.queues[queue_id].send(running.frame(60))
    with running.echo() as (_, _, again):
        running.exchange(again, 60)
        assert running.device.queues[queue_id].receive() is None, "no echo of the frame for its predecessor"


FORKING = """
import os, sys, time
from xts_messages.attaching.attach import attach
a = attach(sys.argv[1])
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, a.epoch, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("running", [["--queues", "1"]], indirect=True)
def test_a_child_that_keeps_the_queue_delays_only_the_next_process(running: Running) -> None:
    with subprocess.Popen([sys.executable, "-c", FORKING, running.endpoint], stdout=subprocess.PIPE, text=True,
                          user=NOBODY, group=NOBODY, extra_groups=[]) as process:  # fmt: skip
        assert process.stdout
        child, epoch = map(int, process.stdout.readline().split())
        process.kill()
        assert take(running.device.queues[0]) == running.goodbye(epoch)
        with pytest.raises(OSError, match="all 1 queues of xts0 are in use"):
            attach(running.endpoint)
        os.kill(child, signal.SIGKILL)
    with attach_at_last(running.endpoint) as attachment:
        assert attachment.queue.kind == "afxdp"


#: Attaches as often as it can, closes each attachment and keeps the socket's descriptor; then tells what it was told.
KEEPING = """
import os, sys, time
from xts_messages.attaching.attach import attach
kept = []
while True:
    try:
        with attach(sys.argv[1]) as a:
            kept.append(os.dup(a.queue.fileno()))
    except OSError as error:
        print(len(kept), error.errno, error.strerror, flush=True)
        break
time.sleep(60)
"""


@pytest.mark.parametrize("running", [["--queues", "4"]], indirect=True)
def test_a_queue_is_charged_until_it_is_open_again(running: Running) -> None:
    with subprocess.Popen([sys.executable, "-c", KEEPING, running.endpoint], stdout=subprocess.PIPE, text=True,
                          user=NOBODY, group=NOBODY, extra_groups=[]) as keeper:  # fmt: skip
        assert keeper.stdout
        kept, error, reason = keeper.stdout.readline().split(maxsplit=2)
        assert (int(kept), int(error)) == (3, errno.EUSERS), "three quarters are the most"
        assert "user 65534 has 3 queues of xts0, the most allowed; 3 of them without an attachment" in reason
        assert list(list_attachments(running.endpoint)) == []
        with running.echo(uid=1234) as (_, _, queue_id):
            running.exchange(queue_id, 60)
        keeper.kill()
    until(lambda: all_served(running, 3), 10)


def all_served(running: Running, count: int) -> bool:
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        for _ in range(count):
            stack.enter_context(attach(running.endpoint))
        return True
    return False


def attach_at_last(endpoint: str, seconds: float = 10) -> Attachment:
    """When the queues that were left are free again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return attach(endpoint)
        except OSError as error:
            if error.errno not in (errno.EUSERS, errno.EAGAIN) or time.monotonic() > deadline:
                raise


def test_an_idle_agent_uses_no_processor(running: Running) -> None:
    def ticks() -> int:
        fields = Path(f"/proc/{running.agent.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    with running.echo():
        begun = ticks()
        time.sleep(1)
        assert ticks() - begun <= 1


def test_more_processes_than_queues(running: Running) -> None:
    with (
        running.echo(),
        running.echo(uid=1234),
        pytest.raises(OSError, match="all 2 queues of xts0 are in use") as refused,
    ):
        attach(running.endpoint)
    assert refused.value.errno == errno.EUSERS
    with running.echo() as (_, _, queue_id):
        running.exchange(queue_id, 60)


@pytest.mark.parametrize("running", [["--queues", "3", "--per-uid-max", "1"]], indirect=True)
def test_a_user_has_a_limit(running: Running) -> None:
    with running.echo(), running.echo(uid=1234):
        assert "user 65534 has 1 queues of xts0, the most allowed" in running.refusal()
        with attach(running.endpoint):
            pass


def test_a_reload_changes_the_limit(wire: Wire, folder: str) -> None:
    """Also after the sandbox has begun, and by a file that was replaced."""
    file, endpoint = Path(folder) / "agent.toml", f"{folder}/endpoint.sock"

    def write(text: str) -> None:
        spare = file.with_suffix(".new")
        spare.write_text(text)
        spare.rename(file)

    write("per_uid_max = 1\n")
    agent = start_agent(wire, endpoint, "--queues", "3", "--config", str(file))
    with wire.inside(wire.device):
        device = open_device_queues(wire.device_if, 8, wire.host_mac, options=QueueOptions(single_chunk=False))
    with device:
        running = Running(wire, agent, endpoint, device)

        def second() -> bool:
            try:
                with running.echo():
                    return "has 2 queues" in running.refusal()
            except AssertionError:  # refused
                return False

        with running.echo():
            write("per_uid_max = [")
            agent.send_signal(signal.SIGHUP)
            assert "has 1 queues" in running.refusal()
            write("per_uid_max = 2\n")
            agent.send_signal(signal.SIGHUP)
            until(second)
        assert stop(agent) == 0


@pytest.mark.parametrize("running", [["--queues", "4", "--spares", "1"]], indirect=True)
def test_one_spare_is_enough_for_many(running: Running) -> None:
    with running.echo() as (_, _, a), running.echo() as (_, _, b), running.echo() as (_, _, c):
        assert len({a, b, c}) == 3
        for queue_id in (a, b, c):
            running.exchange(queue_id, 61_440)


@pytest.mark.parametrize("running", [["--queues", "1", "--single-chunk"]], indirect=True)
def test_single_chunk_queues(running: Running) -> None:
    with running.echo() as (_, _, queue_id):
        running.exchange(queue_id, 3840)


def test_limits_asked_for(running: Running) -> None:
    with attach(running.endpoint, frame_window_max=8) as attachment:
        assert attachment.queue.frame_window == 8
    with pytest.raises(OSError, match="bytes of memory, not 1000"):
        attach(running.endpoint, umem_bytes_max=1000)


def test_descriptors_of_the_queue_are_not_inherited(running: Running) -> None:
    with attach(running.endpoint) as attachment:
        assert not os.get_inheritable(attachment.queue.fileno())
        assert not os.get_inheritable(attachment.fileno())


def test_stopping_ends_no_queue(running: Running) -> None:
    """The next agent finds them, and says GOODBYE for a process that has ended meanwhile."""
    with running.wire.inside(running.wire.host):
        before = read_state(running.wire.host_if)
    with running.echo() as (process, epoch, queue_id):
        assert stop(running.agent) == 0
        assert not Path(running.endpoint).exists()
        with running.wire.inside(running.wire.host):
            assert read_state(running.wire.host_if) == before, "the program is there"
        running.exchange(queue_id, 20_000)
        running.agent = start_agent(running.wire, running.endpoint, "--queues", "2")
        running.exchange(queue_id, 20_000)
        assert stop(running.agent) == 0
        process.kill()
        process.wait(10)
    running.agent = start_agent(running.wire, running.endpoint, "--queues", "2")
    assert take(running.device.queues[queue_id]) == running.goodbye(epoch)


def test_after_a_stop_the_program_is_taken_off_by_a_command(running: Running) -> None:
    wire = running.wire
    command = [sys.executable, "-m", "xts_agent", "--interface", wire.host_if, "--peer-mac", wire.device_mac.hex(":")]
    command += ["--endpoint", running.endpoint, "--detach"]

    def detach() -> tuple[int, str]:
        with wire.inside(wire.host):
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return done.returncode, done.stdout

    assert detach() == (1, ""), "an agent is there"
    assert stop(running.agent) == 0
    assert detach() == (0, f"{wire.host_if}: the XDP program is detached\n")
    with wire.inside(wire.host):
        state = read_state(wire.host_if)
    assert state and not state.program_id


def test_an_agent_that_was_killed_is_succeeded(running: Running) -> None:
    with running.echo() as (process, _, queue_id):
        running.kill_agent()
        running.exchange(queue_id, 20_000)  # its queue goes on without the agent
        process.kill()
        process.wait(10)
        running.agent = start_agent(running.wire, running.endpoint, "--queues", "2")
        with running.echo() as (_, _, again):
            running.exchange(again, 60)


@pytest.mark.parametrize("pause_s", [0, pytest.param(0.5, marks=pytest.mark.long)])
def test_a_queue_in_use_outlives_agents_without_losing_a_frame(running: Running, pause_s: float) -> None:
    stop_traffic = threading.Event()
    crossed = 0

    def exchange_on_and_on(queue_id: int) -> None:
        nonlocal crossed
        while not stop_traffic.is_set():
            running.exchange(queue_id, 3000)
            crossed += 1

    with running.echo() as (_, _, queue_id), ThreadPoolExecutor(1) as pool:
        traffic = pool.submit(exchange_on_and_on, queue_id)
        try:
            for _ in range(3):
                running.kill_agent()
                time.sleep(pause_s)
                before = crossed
                running.agent = start_agent(running.wire, running.endpoint, "--queues", "2")
                until(lambda: crossed > before + 10 or traffic.done())  # noqa: B023
                with running.echo(uid=1234) as (_, _, other):
                    running.exchange(other, 60)
        finally:
            stop_traffic.set()
        traffic.result()
        admitted = running.device.program.counters().admitted
        assert admitted >= crossed


def test_stopping_leaves_a_queue_alone_that_a_dead_agent_gave_away(running: Running) -> None:
    with running.echo() as (_, _, queue_id):
        running.kill_agent()
        running.agent = start_agent(running.wire, running.endpoint, "--queues", "2")
        assert stop(running.agent) == 0
        running.exchange(queue_id, 60)
        running.agent = start_agent(running.wire, running.endpoint, "--queues", "2")
        running.exchange(queue_id, 60)


class TestPrivilege:
    """What the processes of an agent may do."""

    def opener(self, agent: subprocess.Popen[str]) -> int:
        return process_tree.one(agent.pid, "xts-opener")

    def status(self, pid: int) -> dict[str, str]:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return dict(line.split(":\t", 1) for line in lines if ":\t" in line)

    def test_who_talks_with_everybody_may_nothing(self, running: Running) -> None:
        found = self.status(running.agent.pid)
        assert "0" not in found["Uid"].split()
        assert "0" not in found["Gid"].split()
        assert [int(found[f"Cap{kind}"], 16) for kind in ("Eff", "Prm", "Bnd", "Amb")] == [0, 0, 0, 0]
        assert found["NoNewPrivs"] == "1"
        assert found["Groups"].strip() == ""

    def test_the_opener_keeps_what_it_needs(self, running: Running) -> None:
        found = self.status(self.opener(running.agent))
        kept = sum(1 << number for number in privileged_opener.KEPT)
        assert [int(found[f"Cap{kind}"], 16) & ~kept for kind in ("Eff", "Prm", "Bnd", "Amb")] == [0, 0, 0, 0]
        assert found["NoNewPrivs"] == "1"

    def test_the_starter_keeps_what_its_children_begin_with(self, running: Running) -> None:
        found = self.status(process_tree.one(running.agent.pid, "xts-starter"))
        kept = {*privileged_opener.BEGINS_WITH, privilege.SETUID, privilege.SETGID}
        mask = sum(1 << number for number in {*kept, privilege.SETPCAP, privilege.DAC_OVERRIDE})
        assert [int(found[f"Cap{kind}"], 16) & ~mask for kind in ("Eff", "Prm", "Bnd", "Amb")] == [0, 0, 0, 0]
        assert found["NoNewPrivs"] == "1"

    def test_another_opener_takes_over_and_no_queue_ends(self, running: Running) -> None:
        with running.echo() as (process, epoch, queue_id):
            opener = self.opener(running.agent)
            os.kill(opener, signal.SIGKILL)
            process_tree.one(running.agent.pid, "xts-opener", other_than=opener)
            running.exchange(queue_id, 60)
            with running.echo(NOBODY - 1) as (_, _, other):
                assert other != queue_id
                running.exchange(other, 60)
            process.kill()
            queue = running.device.queues[queue_id]
            assert take(queue) == running.goodbye(epoch), "the new opener says GOODBYE for a process of the old one's"
            with running.echo() as (_, _, again):
                running.exchange(again, 60)
        assert stop(running.agent) == 0

    def test_the_death_of_the_starter_ends_the_agent_and_no_queue(self, running: Running) -> None:
        with running.echo() as (_, _, queue_id):
            process_tree.kill(process_tree.one(running.agent.pid, "xts-starter"))
            with running.agent:
                assert running.agent.wait(10) == 1
            running.exchange(queue_id, 60)
            running.agent = start_agent(running.wire, running.endpoint, "--queues", "2")
            running.exchange(queue_id, 60)

    @pytest.mark.parametrize(
        "request_bytes",
        [
            b"?",
            opener_protocol.Request(opener_protocol.Ask.OPEN, 2).pack(),
            opener_protocol.Request(opener_protocol.Ask.ADMIT, 0).pack(),
            opener_protocol.Request(opener_protocol.Ask.ADMIT, 0, Owner(1, 2, 3)).pack(),
            struct.pack("=HHIIIQ", 9, 0, 0, 0, 0, 0),
        ],
    )
    def test_the_opener_ends_when_asked_nonsense(self, wire: Wire, folder: str, request_bytes: bytes) -> None:
        script = "import sys; from test_agent import ask_nonsense; ask_nonsense(*sys.argv[1:])"
        with wire.inside(wire.host):
            done = subprocess.run(
                [sys.executable, "-c", script, wire.host_if, wire.device_mac.hex(":"), folder, request_bytes.hex()],
                cwd=Path(__file__).parent,
                env=os.environ | {"PYTHONPATH": f"{Path(__file__).parent.parent}"},
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
        assert "broke the protocol" in done.stderr
        assert done.stdout == "1\n"


def ask_nonsense(interface: str, peer_mac: str, folder: str, request: str) -> None:
    """In a process of its own, which becomes the parent of an opener; prints its exit status."""
    config = AgentConfig(interface=interface, peer_mac=peer_mac, endpoint=f"{folder}/e.sock", queues=2)
    connection, process = child.fork("xts-opener", privileged_opener.role(config).main)
    assert len(opener_protocol.receive_ready(connection)) == 2
    connection.send(bytes.fromhex(request))
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


def test_a_queue_of_an_agent_before_is_listed(running: Running) -> None:
    """To root and to its user, until the process has ended and the queue is open again."""
    with running.echo() as (process, epoch, queue_id):
        running.kill_agent()
        running.agent = start_agent(running.wire, running.endpoint, "--queues", "2")
        listed = list(list_attachments(running.endpoint))
        for listing in listed:
            page, entries = attached.read_page(read_status_page(listing.status_fd))
            os.close(listing.status_fd)
            assert page.link_state == lib.XTS_STATUS_ADOPTED and not entries
        found = [(one.kind, one.queue_id, one.epoch, one.pid, one.uid, one.program) for one in listed]
        assert found == [("afxdp", queue_id, epoch, process.pid, NOBODY, "python")]
        for user, seen in ((NOBODY, True), (4321, False)):
            command = [sys.executable, "-m", "xts_socket.cli", "status", "--endpoint", running.endpoint]
            told = subprocess.run(
                command, capture_output=True, text=True, user=user, group=user, extra_groups=[], check=True, timeout=20
            ).stdout
            assert (f"python ({process.pid})" in told) == seen == ("adopted: it has its queue from" in told)
        process.kill()
        process.wait(10)
        until(lambda: not closed(list_attachments(running.endpoint)))


def test_a_new_agent_serves_although_a_process_of_the_old_one_lives(running: Running) -> None:
    with running.echo() as (process, epoch, held):
        running.kill_agent()
        running.agent = start_agent(running.wire, running.endpoint, "--queues", "2")
        assert running.refusal().endswith("user 65534 has 1 queues of xts0, the most allowed\n")
        with running.echo(uid=1234) as (_, _, other):
            assert other != held
            running.exchange(other, 60)
            running.exchange(held, 60)
            process.kill()
            assert take(running.device.queues[held]) == running.goodbye(epoch), "by the agent that did not see it begin"
            with attach_at_last(running.endpoint) as attachment:
                assert attachment.queue_id == held


class TestBadInput:
    def run(self, *options: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "xts_agent", *options], capture_output=True, text=True, timeout=30, check=False
        )
        return done.returncode, done.stderr

    @pytest.mark.parametrize(
        "options, said",
        [
            ([], "--interface and --peer-mac must be given"),
            (["--interface", "x0"], "--peer-mac must be given"),
            (["--interface", "x0", "--peer-mac", "zz"], "--peer-mac: "),
            (["--interface", "x0", "--peer-mac", "02:00:00:00:00:02", "--frame-window", "3"], "--frame-window: "),
            (["--interface", "x0", "--peer-mac", "02:00:00:00:00:02", "--queues", "-1"], "--queues: "),
            (["--config", "/nonexistent.toml"], "/nonexistent.toml"),
        ],
    )
    def test_configuration(self, options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(options) == 2
        assert said in capsys.readouterr().err

    @pytest.mark.parametrize("text", ["frame_windoww = 3", "queues = [", "endpoint = ''"])
    def test_file(self, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "agent.toml"
        file.write_text(text)
        assert main(["--config", str(file), "--interface", "x0", "--peer-mac", "02:00:00:00:00:02"]) == 2
        assert str(file) in capsys.readouterr().err

    def test_the_command_line_overrides_the_file(self, tmp_path: Path) -> None:
        file = tmp_path / "agent.toml"
        file.write_text("interface = 5")
        code, text = self.run("--config", str(file), "--interface", "nowhere0", "--peer-mac", "02:00:00:00:00:02")
        assert code == 1
        assert "nowhere0" in text

    def test_no_such_interface(self) -> None:
        code, text = self.run("--interface", "nowhere0", "--peer-mac", "02:00:00:00:00:02")
        assert (code, "Traceback" in text) == (1, False)
        assert "nowhere0" in text

    def test_an_interface_without_native_xdp(self, folder: str) -> None:
        code, text = self.run("--interface", "lo", "--peer-mac", "02:00:00:00:00:02", "--endpoint", f"{folder}/e")
        assert code == 2
        assert "native mode" in text


def test_readiness_is_told_on_a_descriptor(wire: Wire, folder: str) -> None:
    reader, writer = os.pipe()
    with wire.inside(wire.host):
        agent = subprocess.Popen(
            [sys.executable, "-m", "xts_agent", "--interface", wire.host_if, "--endpoint", f"{folder}/e.sock",
             "--peer-mac", wire.device_mac.hex(":"), "--queues", "1", "--ready-fd", str(writer)],
            pass_fds=[writer], stdout=subprocess.DEVNULL, text=True)  # fmt: skip
    os.close(writer)
    with os.fdopen(reader) as told:
        assert told.readline().startswith("ready:")
        assert told.read() == ""
    assert stop(agent) == 0


def test_an_agent_of_systemd(wire: Wire, folder: str) -> None:
    """Its endpoint is made before it, and systemd hears that it is ready and lives."""
    path = f"{folder}/endpoint.sock"
    options = ["--interface", wire.host_if, "--peer-mac", wire.device_mac.hex(":"), "--endpoint", path, "--queues", "1"]
    command = [sys.executable, "-m", "xts_agent", *options]
    with Manager() as manager, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, wire.inside(wire.host):
        listener.bind(path)
        listener.listen()
        with manager.start(command, sockets=[listener], watchdog_ms=200) as agent:
            with attach(path, timeout_ms=20_000) as attachment:
                assert attachment.queue.kind == "afxdp"
            until(lambda: manager.heard.count("WATCHDOG=1") >= 3)
            assert manager.heard[0].startswith("READY=1")
            assert stop(agent) == 0
        assert Path(path).is_socket(), "its file is systemd's"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):  # it would start the next agent at once
            listener.accept()
