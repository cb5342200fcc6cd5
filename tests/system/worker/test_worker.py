"""The worker against a host made by hand and TCP peers on loopback: what each message does, and what it bounds."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from beds.scripted_host import WINDOW, ScriptedHost, Worker
from xts_lab.free_ports import free_port
from xts_messages.wire import codec
from xts_messages.wire.codec import Endpoint, flags

LOOPBACK = "127.0.0.1"


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


@pytest.fixture
def host(worker: Worker) -> Iterator[ScriptedHost]:
    with worker.attach() as made:
        yield made.open()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        made.settimeout(5)
        yield made


def connected(host: ScriptedHost, server: socket.socket, window: int = WINDOW) -> tuple[int, int, int, socket.socket]:
    """A connection to the server: XTS socket, proxy's identifier, credits, and the server's end."""
    number, ack = host.connect(LOOPBACK, server.getsockname()[1], window)
    assert ack.error == 0 and ack.id == number
    peer, _ = server.accept()
    peer.settimeout(5)
    return number, ack.fields["proxy_id"], ack.fields["post_credits"], peer


def close(host: ScriptedHost, proxy_id: int, read_bytes: int, *names: str) -> codec.Frame:
    """CLOSE and its answer; whatever crosses it is passed over."""
    host.send("XTS_CMD_SEND", id=proxy_id, flags=flags("CLOSE", *names), post_credits=read_bytes)
    while not (answer := host.expect("XTS_REPLY_RECV")).flags & flags("CLOSED"):
        pass
    return answer


def test_connect_tells_both_addresses_and_grants_credits(host: ScriptedHost, server: socket.socket) -> None:
    _number, ack = host.connect(LOOPBACK, server.getsockname()[1])
    peer, address = server.accept()
    with peer:
        local = ack.fields["local"]
        assert (local.host, local.port) == address
        assert ack.fields["peer"].port == server.getsockname()[1]
        assert ack.fields["post_credits"] == WINDOW


def test_a_refused_connect_leaves_a_socket_that_can_try_again(host: ScriptedHost, server: socket.socket) -> None:
    port = free_port()
    number, ack = host.connect(LOOPBACK, port)
    assert ack.error == errno.ECONNREFUSED
    assert ack.fields["local"].port, "the attempt has given it one, as in the kernel"
    host.send(
        "XTS_CMD_CONNECT",
        id=ack.fields["proxy_id"],
        xts_socket=number,
        post_credits=WINDOW,
        domain=4,
        peer=Endpoint.of(LOOPBACK, server.getsockname()[1]),
    )
    assert host.expect("XTS_REPLY_CONNECT_ACK").error == 0


def test_data_both_ways_and_half_close(host: ScriptedHost, server: socket.socket) -> None:
    number, proxy_id, _, peer = connected(host, server)
    with peer:
        host.send("XTS_CMD_SEND", b"question", id=proxy_id, flags=flags("FIN"))
        assert peer.recv(100) == b"question"
        assert peer.recv(100) == b""
        peer.sendall(b"answer")
        frame = host.expect("XTS_REPLY_RECV")
        assert frame.payload == b"answer" and frame.id == number
    assert host.expect("XTS_REPLY_RECV").flags == flags("EOS")
    assert close(host, proxy_id, len(b"answer")).error == 0


def test_what_tcp_refuses_waits_in_the_spill_buffer_and_costs_credits(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    _, proxy_id, held, peer = connected(host, server)
    sent = bytearray()
    with peer:
        for _ in range(10000):  # the peer does not read: sooner or later no more credits come
            data = os.urandom(min(held, 16000))
            if not data:
                try:
                    held += host.receive(200).fields["post_credits"]
                    continue
                except TimeoutError:
                    break
            host.send("XTS_CMD_SEND", data, id=proxy_id)
            held -= len(data)
            sent += data
        stats = worker.channel()
        assert 0 < stats.spill_bytes <= stats.window_bytes == WINDOW
        # The conservation law, read off both ends while nothing moves: spilled + unadvertised + held = window.
        assert stats.spill_bytes + held <= WINDOW
        assert WINDOW - stats.spill_bytes - held <= WINDOW // 4
        close_answer = threading.Thread(target=close, args=(host, proxy_id, 0))
        close_answer.start()
        got = bytearray()
        while data := peer.recv(65536):
            got += data
        close_answer.join()
        assert got == sent
    worker.wait(lambda s: s.connections == 0 and s.spill_bytes == 0, "the orphan did not end")


def test_closing_with_unread_data_resets(host: ScriptedHost, server: socket.socket) -> None:
    _, proxy_id, _, peer = connected(host, server)
    with peer:
        peer.sendall(b"never read")
        host.expect("XTS_REPLY_RECV")
        close(host, proxy_id, 0)
        with pytest.raises(ConnectionResetError):
            peer.recv(1)


def test_closing_after_reading_everything_is_orderly(host: ScriptedHost, server: socket.socket) -> None:
    _, proxy_id, _, peer = connected(host, server)
    with peer:
        peer.sendall(b"read")
        host.expect("XTS_REPLY_RECV")
        close(host, proxy_id, 4)
        assert peer.recv(1) == b""


def test_abort_resets(host: ScriptedHost, server: socket.socket) -> None:
    _, proxy_id, _, peer = connected(host, server)
    with peer:
        close(host, proxy_id, 0, "ABORT")
        with pytest.raises(ConnectionResetError):
            peer.recv(1)


def test_linger_confirms_only_what_the_peer_has_acknowledged(host: ScriptedHost, server: socket.socket) -> None:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    _, proxy_id, held, peer = connected(host, server)
    with peer:
        sent = os.urandom(held)
        for start in range(0, held, 32768):
            host.send("XTS_CMD_SEND", sent[start : start + 32768], id=proxy_id)
        host.send("XTS_CMD_SEND", id=proxy_id, flags=flags("CLOSE", "LINGER"))
        with pytest.raises(TimeoutError):
            while not host.receive(150).flags & flags("CLOSED"):
                pass
        got = bytearray()
        while data := peer.recv(65536):
            got += data
        while not (answer := host.receive()).flags & flags("CLOSED"):
            pass
        assert answer.error == 0 and got == sent


def test_lingering_closes_are_looked_at_ever_more_seldom(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    """Each was looked at every 5 ms, for as long as its peer did not read: 6,000 took a third of a core."""
    count, begun = 20, time.monotonic()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connections = [connected(host, server) for _ in range(count)]
    for _, proxy_id, held, _ in connections:
        for start in range(0, held, 32768):
            host.send("XTS_CMD_SEND", bytes(min(32768, held - start)), id=proxy_id)
        host.send("XTS_CMD_SEND", id=proxy_id, flags=flags("CLOSE", "LINGER"))
    worker.wait(lambda s: s.looks >= 8 * count, "nobody looks at them")
    assert time.monotonic() - begun > 1.27  # 5 + 10 + ... + 640 ms; eight looks every 5 ms take 0.04 s
    for *_, peer in connections:
        while peer.recv(65536):
            pass
        peer.close()
    closed = 0
    while closed < count:
        closed += bool(host.receive().flags & flags("CLOSED"))


def test_a_reset_comes_after_the_data_before_it(host: ScriptedHost, server: socket.socket) -> None:
    number, _proxy_id, _, peer = connected(host, server)
    peer.sendall(b"last words")
    assert host.expect("XTS_REPLY_RECV").payload == b"last words"
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    frame = host.expect("XTS_REPLY_RECV")
    assert frame.flags == flags("RESET") and frame.error == errno.ECONNRESET and frame.id == number


def test_a_reset_right_behind_the_end_of_the_stream_is_told_after_it(host: ScriptedHost, server: socket.socket) -> None:
    """The event of the RST has been seen when the read finds the FIN, which waits behind data without credits."""
    _, proxy_id, _, peer = connected(host, server, window=4)
    peer.sendall(b"lastwords")
    assert host.expect("XTS_REPLY_RECV").payload == b"last"
    peer.shutdown(socket.SHUT_WR)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    for _ in range(2):  # the worker has looked at its sockets meanwhile
        assert host.connect(LOOPBACK, free_port())[1].error == errno.ECONNREFUSED
    host.send("XTS_CMD_SEND", id=proxy_id, post_credits=100)
    assert host.expect("XTS_REPLY_RECV").payload == b"words"
    assert host.expect("XTS_REPLY_RECV").flags == flags("EOS")
    frame = host.expect("XTS_REPLY_RECV")
    assert frame.flags == flags("RESET") and frame.error == errno.EPIPE, "as tcp_reset() after a FIN"


def test_a_connection_that_was_reset_can_be_connected_again(host: ScriptedHost, server: socket.socket) -> None:
    number, proxy_id, _, peer = connected(host, server, window=10)
    port = server.getsockname()[1]
    assert host.connect(LOOPBACK, port, id=proxy_id, number=number)[1].error == errno.EISCONN
    value = (77).to_bytes(4, "little")
    option = {"level": socket.IPPROTO_TCP, "option": socket.TCP_KEEPIDLE, "length": 4}
    host.send("XTS_CMD_SETSOCKOPT", value, xts_socket=number, token=1, domain=4, id=proxy_id, **option)
    assert host.expect("XTS_REPLY_SOCKOPT_ACK").error == 0
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    assert host.expect("XTS_REPLY_RECV").flags == flags("RESET")
    host.send("XTS_CMD_SEND", b"to nobody", id=proxy_id, flags=flags("FIN"))
    _, ack = host.connect(LOOPBACK, port, window=20, id=proxy_id, number=number)
    assert (ack.error, ack.fields["proxy_id"], ack.fields["post_credits"]) == (0, proxy_id, WINDOW)
    again, address = server.accept()
    with again:
        again.settimeout(5)
        local = ack.fields["local"]
        assert (local.host, local.port) == address
        host.send("XTS_CMD_SEND", b"to somebody", id=proxy_id)
        assert again.recv(100) == b"to somebody"
        again.sendall(bytes(100))
        assert len(host.expect("XTS_REPLY_RECV").payload) == 20, "the credits of this CONNECT, not of the one before"
        host.send("XTS_CMD_GETSOCKOPT", bytes(4), xts_socket=number, token=2, domain=4, id=proxy_id, **option)
        assert host.expect("XTS_REPLY_SOCKOPT_ACK").payload == value
        host.send("XTS_CMD_SEND", id=proxy_id, post_credits=80)
        assert len(host.expect("XTS_REPLY_RECV").payload) == 80
        assert close(host, proxy_id, 100).error == 0
        assert again.recv(100) == b""


def test_no_more_is_sent_than_the_host_has_credits_for(host: ScriptedHost, server: socket.socket) -> None:
    _, proxy_id, _, peer = connected(host, server, window=100)
    with peer:
        peer.sendall(bytes(1000))
        got = len(host.expect("XTS_REPLY_RECV").payload)
        assert got == 100
        with pytest.raises(TimeoutError):
            host.receive(100)
        while got < 1000:
            host.send("XTS_CMD_SEND", id=proxy_id, post_credits=100)
            frame = host.expect("XTS_REPLY_RECV")
            assert 0 < len(frame.payload) <= 100
            got += len(frame.payload)


def listener(host: ScriptedHost, credits: int, backlog: int = 16) -> tuple[int, int, int]:
    number = host.new_socket()
    host.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=Endpoint.of(LOOPBACK, 0))
    bound = host.expect("XTS_REPLY_BIND_ACK")
    assert bound.error == 0 and bound.fields["local"].port
    host.send(
        "XTS_CMD_LISTEN",
        id=bound.fields["proxy_id"],
        xts_socket=number,
        token=2,
        post_credits=credits,
        domain=4,
        backlog=backlog,
    )
    assert host.expect("XTS_REPLY_LISTEN_ACK").error == 0
    return number, bound.fields["proxy_id"], bound.fields["local"].port


def test_a_listener_announces_as_many_connections_as_it_has_credits(host: ScriptedHost) -> None:
    number, proxy_id, port = listener(host, credits=2)
    clients = [socket.create_connection((LOOPBACK, port), 5) for _ in range(3)]
    announced = [host.expect("XTS_REPLY_NEWCONN") for _ in range(2)]
    assert all(frame.id == number for frame in announced)
    with pytest.raises(TimeoutError):
        host.receive(100)
    host.send("XTS_CMD_SEND", id=proxy_id, post_credits=1)
    announced.append(host.expect("XTS_REPLY_NEWCONN"))
    assert {frame.fields["peer"].port for frame in announced} == {c.getsockname()[1] for c in clients}
    for client in clients:
        client.close()


def test_data_waits_for_the_acknowledgement_of_a_new_connection(host: ScriptedHost) -> None:
    _, _, port = listener(host, credits=4)
    with socket.create_connection((LOOPBACK, port), 5) as client:
        client.sendall(b"early")
        new = host.expect("XTS_REPLY_NEWCONN")
        host.send("XTS_CMD_NEWCONN_ACK", id=new.fields["proxy_id"], xts_socket=77, post_credits=WINDOW)
        frame = host.expect("XTS_REPLY_RECV")
        assert frame.payload == b"early" and frame.id == 77
    with socket.create_connection((LOOPBACK, port), 5) as client:
        new = host.expect("XTS_REPLY_RECV")  # the first one's end of stream
        new = host.expect("XTS_REPLY_NEWCONN")
        host.send("XTS_CMD_NEWCONN_ACK", id=new.fields["proxy_id"], error=errno.ECONNABORTED)
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_options_pass_the_allow_list(host: ScriptedHost, server: socket.socket) -> None:
    number, proxy_id, _, peer = connected(host, server)
    with peer:
        for level, option, value, error in (
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1, 0),
            (socket.SOL_SOCKET, socket.SO_MARK, 1, errno.EPERM),
            (socket.SOL_SOCKET, 12345, 1, errno.ENOPROTOOPT),
        ):
            host.send(
                "XTS_CMD_SETSOCKOPT",
                struct.pack("i", value),
                id=proxy_id,
                xts_socket=number,
                token=9,
                domain=4,
                level=level,
                option=option,
            )
            answer = host.expect("XTS_REPLY_SOCKOPT_ACK")
            assert (answer.error, answer.fields["token"]) == (error, 9)
        host.send(
            "XTS_CMD_GETSOCKOPT",
            bytes(4),
            id=proxy_id,
            xts_socket=number,
            token=10,
            domain=4,
            level=socket.IPPROTO_TCP,
            option=socket.TCP_NODELAY,
        )
        assert struct.unpack("i", host.expect("XTS_REPLY_SOCKOPT_ACK").payload) == (1,)


def test_windows_come_out_of_the_tenants_budget(server: socket.socket) -> None:
    with Worker(connections=3, spill_bytes=WINDOW + 5000) as worker, worker.attach() as host:
        host.open()
        connections = [connected(host, server) for _ in range(2)]
        assert [credits for _, _, credits, _ in connections] == [WINDOW, 5000]
        assert host.connect(LOOPBACK, server.getsockname()[1])[1].error == errno.ENOBUFS
        for _, _, _, peer in connections:
            peer.close()


def test_windows_that_grow_leave_half_the_budget_to_newcomers(server: socket.socket) -> None:
    with Worker(connections=5, spill_bytes=8 * WINDOW, window_bytes_max=8 * WINDOW) as worker, worker.attach() as host:
        host.open()
        _, proxy_id, held, peer = connected(host, server)
        peers = [peer]
        for _ in range(64):  # one that takes everything at once: each window that is used up may grow
            left = min(held, 16000)
            host.send("XTS_CMD_SEND", bytes(left), id=proxy_id)
            held -= left
            while left:
                left -= len(peer.recv(left))
            while held < WINDOW // 2:
                held += host.expect("XTS_REPLY_RECV").fields["post_credits"]
        while held < 3 * WINDOW:  # a quarter of the window may stay untold
            held += host.expect("XTS_REPLY_RECV").fields["post_credits"]
        assert worker.channel().window_bytes == 4 * WINDOW
        for _ in range(4):
            *_, credits, peer = connected(host, server)
            assert credits == WINDOW
            peers.append(peer)
        for peer in peers:
            peer.close()


def test_policy_refuses_with_eacces(server: socket.socket) -> None:
    with Worker(policy_default_allow=False) as worker, worker.attach() as host:
        host.open()
        assert host.connect(LOOPBACK, server.getsockname()[1])[1].error == errno.EACCES
        assert worker.stats().refused_policy == 1


def test_draining_refuses_newcomers_and_lets_the_others_go_on(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    _, _, port = listener(host, credits=1)
    _, proxy_id, _, peer = connected(host, server)
    worker.drain()
    with peer:
        assert host.connect(LOOPBACK, server.getsockname()[1])[1].error == errno.ESHUTDOWN
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port), 5)
        host.send("XTS_CMD_SEND", b"still here", id=proxy_id)
        assert peer.recv(100) == b"still here"


def test_the_end_of_a_process_closes_as_the_kernel_does(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    _, proxy_id, _, peer = connected(host, server)
    host.send("XTS_CMD_SEND", b"accepted", id=proxy_id)
    host.raw(
        codec.encode(
            codec.Frame(
                "XTS_LINK_GOODBYE", {"epoch": host.epoch}, destination=host.queue.peer_mac, source=host.queue.local_mac
            )
        )
    )
    with peer:
        assert peer.recv(100) == b"accepted"
        assert peer.recv(100) == b""
    worker.wait(lambda s: s.connections == 0 and s.goodbyes == 1, "connections remain")


def test_a_violation_resets_the_connections_of_that_channel_only(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    _, proxy_id, held, peer = connected(host, server)
    with worker.attach(2) as other, peer:
        _, other_id, _, other_peer = connected(other.open(), server)
        host.send("XTS_CMD_SEND", bytes(held // 2), id=proxy_id)
        host.send("XTS_CMD_SEND", bytes(held // 2), id=proxy_id)
        host.link.sent += 1  # a gap in the sequence
        host.send("XTS_CMD_SEND", b"x", id=proxy_id)
        assert host.wait_down() == errno.EPROTO
        with pytest.raises(ConnectionResetError):
            while peer.recv(65536):
                pass
        with other_peer:
            other.send("XTS_CMD_SEND", b"unharmed", id=other_id)
            assert other_peer.recv(100) == b"unharmed"


def test_identifiers_are_not_reused_at_once(host: ScriptedHost, server: socket.socket) -> None:
    seen = set()
    for _ in range(50):
        _, proxy_id, _, peer = connected(host, server)
        assert proxy_id not in seen
        seen.add(proxy_id)
        close(host, proxy_id, 0)
        peer.close()


def test_many_calls_without_reading_the_replies_do_not_overflow(host: ScriptedHost, worker: Worker) -> None:
    for token in range(64):  # a whole window of frames, and no acknowledgement of the replies yet
        host.send("XTS_CMD_BIND", xts_socket=host.new_socket(), token=token, domain=4, local=Endpoint.of(LOOPBACK, 0))
    tokens = [host.expect("XTS_REPLY_BIND_ACK").fields["token"] for _ in range(64)]
    assert tokens == list(range(64))
    assert worker.stats().connections == 64


def test_a_call_finds_the_socket_of_a_connect_in_flight(worker: Worker, host: ScriptedHost) -> None:
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind((LOOPBACK, 0))
        full.listen(0)
        for _ in range(4):  # a full backlog: further connects stay unanswered
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        number = host.new_socket()
        peer = Endpoint.of(LOOPBACK, full.getsockname()[1])
        host.send("XTS_CMD_CONNECT", xts_socket=number, post_credits=WINDOW, domain=4, peer=peer)
        for option, value in ((socket.TCP_NODELAY, 1), (socket.TCP_SYNCNT, 1)):
            host.send(
                "XTS_CMD_SETSOCKOPT",
                struct.pack("i", value),
                xts_socket=number,
                token=5,
                domain=4,
                level=socket.IPPROTO_TCP,
                option=option,
            )
            answer = host.expect("XTS_REPLY_SOCKOPT_ACK")
            assert answer.error == 0 and answer.fields["proxy_id"]
        assert worker.stats().connections == 1
        assert close(host, answer.fields["proxy_id"], 0).error == 0
    assert worker.stats().connections == 0


def test_a_call_after_a_connect_that_was_refused_finds_its_socket(worker: Worker, host: ScriptedHost) -> None:
    number = host.new_socket()
    with socket.socket() as silent:  # bound, so that nobody else listens there
        silent.bind((LOOPBACK, 0))
        peer = Endpoint.of(LOOPBACK, silent.getsockname()[1])
        host.send("XTS_CMD_CONNECT", xts_socket=number, post_credits=WINDOW, domain=4, peer=Endpoint())
        host.send("XTS_CMD_BIND", xts_socket=number, token=1, domain=4, local=Endpoint.of(LOOPBACK, 0))
        assert host.expect("XTS_REPLY_CONNECT_ACK").error == errno.EAFNOSUPPORT
        bound = host.expect("XTS_REPLY_BIND_ACK")
        assert bound.error == 0 and worker.stats().connections == 1
        host.send(
            "XTS_CMD_CONNECT",
            id=bound.fields["proxy_id"],
            xts_socket=number,
            post_credits=WINDOW,
            domain=4,
            peer=peer,
        )
        assert host.expect("XTS_REPLY_CONNECT_ACK").error == errno.ECONNREFUSED
