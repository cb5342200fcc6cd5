"""Pushes of TLS with parameters that nobody has asked for yet: what takes long is made by other threads, and the push,
with what its host sends behind it, waits (dpu_proxy/native/pushed/slow_push.c, ulp/tls/tls_contexts.c)."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from beds.authority import Authority
from beds.scripted_host import WINDOW, ScriptedHost, Worker, make_tenant
from beds.share import goodbye
from beds.ulp_tls import server_context
from beds.worker import FEATURES, LOOPBACK, host, worker
from xts_messages.wire import ulp_attributes
from xts_messages.wire.codec import Endpoint, flags
from xts_messages.wire.ulps import BY_NAME, REQUESTS

__all__ = ["host", "worker"]  # fixtures

CLIENT = {"role": 1, "verify": 0}
ISSUED = Authority().issue("localhost")


def ciphers(number: int) -> str:
    """A list that was not there before; OpenSSL passes over the name that it does not know."""
    return f"p{number}:{'ALL:+HIGH:-RSA:' * 20}ECDHE+AESGCM"


def threads_ns(name: str) -> int:
    """For how long those of this name have run."""
    found = (task for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text().strip() == name)
    return sum(int((task / "schedstat").read_text().split()[0]) for task in found)


class Took:
    """What threads of the pool, and workers, have run within a block."""

    def __enter__(self) -> Took:
        self.pool_ns, self.worker_ns = threads_ns("xts-handshake"), threads_ns("xts-worker")
        return self

    def __exit__(self, *_: object) -> None:
        self.pool_ns = threads_ns("xts-handshake") - self.pool_ns
        self.worker_ns = threads_ns("xts-worker") - self.worker_ns


def push(host: ScriptedHost, number: int, **parameters: Any) -> Any:
    """Onto a socket of its own."""
    return host.push("TLS", number=host.new_socket(), message=False, **CLIENT, ciphers=ciphers(number), **parameters)


def test_what_is_new_is_made_by_other_threads(host: ScriptedHost) -> None:
    push(host, 0)
    with Took() as new:
        assert not any(push(host, number).error for number in range(1, 21))
    with Took() as known:
        assert not any(push(host, number).error for number in range(1, 21))
    assert new.pool_ns > 4 * known.pool_ns
    assert new.pool_ns > 2 * new.worker_ns


def test_what_cannot_be_is_refused_at_the_push_and_not_tried_again(host: ScriptedHost) -> None:
    for number in range(3):
        host.push("TLS", number=host.new_socket(), message=False, **CLIENT, alpn=f"x{number}")
    with Took() as first:
        sockets = [host.new_socket() for _ in range(20)]
        acks = [host.push("TLS", number=number, message=False, **CLIENT, ciphers="NONE-SUCH") for number in sockets]
    assert {ack.error for ack in acks} == {errno.EINVAL}
    told = host.ulp_error(acks[-1].fields["proxy_id"], sockets[-1])
    assert "OpenSSL knows none of these" in told.text
    with Took() as new:
        push(host, 0)
    assert first.pool_ns < 4 * new.pool_ns  # one of twenty


def test_what_is_sent_behind_a_push_waits_for_it(host: ScriptedHost) -> None:
    numbers = [host.new_socket() for _ in range(30)]
    for number in numbers:
        attributes = ulp_attributes.encode_attributes("TLS", CLIENT | {"ciphers": ciphers(number)})
        payload = bytes(6) + BY_NAME["TLS"].number.to_bytes(2) + attributes
        fields = {"xts_socket": number, "token": number, "domain": 4, "request": REQUESTS["PUSH_ULP"][0]}
        host.send("XTS_CMD_IOCTL", payload, **fields)
        local = Endpoint.of(LOOPBACK, 0)
        host.send("XTS_CMD_BIND", xts_socket=host.new_socket(), token=1000 + number, domain=4, local=local)
        host.pump(0)
    answers = [host.receive().fields["token"] for _ in range(2 * len(numbers))]
    assert answers == [token for number in numbers for token in (number, 1000 + number)]


def shake_hands(listener: socket.socket, out: list[str]) -> None:
    accepted = listener.accept()[0]
    with suppress(OSError), server_context(ISSUED).wrap_socket(accepted, server_side=True) as peer:
        out.append(str(peer.version()))
        peer.sendall(b"hello")
        peer.recv(1)


@pytest.mark.parametrize("role", [{"role": 1}, {}], ids=["client", "by connecting"])
def test_a_push_that_comes_with_connect(host: ScriptedHost, role: dict[str, int]) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        versions: list[str] = []
        thread = threading.Thread(target=shake_hands, args=(listener, versions))
        thread.start()
        parameters = {"verify": 0, "ciphers": ciphers(0)} | role
        pushed = bytes(6) + BY_NAME["TLS"].number.to_bytes(2)
        pushed += ulp_attributes.encode_attributes("TLS", parameters)
        payload = REQUESTS["PUSH_ULP"][0].to_bytes(4) + len(pushed).to_bytes(4) + pushed
        number, peer = host.new_socket(), Endpoint.of(LOOPBACK, listener.getsockname()[1])
        with Took() as took:
            fields = {"xts_socket": number, "post_credits": WINDOW, "domain": 4, "peer": peer}
            host.send("XTS_CMD_CONNECT", payload, **fields)
            ack: Any = host.expect("XTS_REPLY_CONNECT_ACK")
        assert ack.error == 0
        assert host.expect("XTS_REPLY_RECV").payload == b"hello"
        assert took.pool_ns > took.worker_ns
        host.send("XTS_CMD_SEND", id=ack.fields["proxy_id"], flags=flags("CLOSE", "ABORT"))
        thread.join()
        assert versions == ["TLSv1.3"]


def test_a_connection_that_knows_its_role_late_and_cannot_be(host: ScriptedHost) -> None:
    number = host.new_socket()
    ack = host.push("TLS", number=number, message=False, verify=0, ciphers="NONE-SUCH")
    assert ack.error == 0
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        assert host.connect(LOOPBACK, port, id=ack.fields["proxy_id"], number=number)[1].error == errno.EINVAL
        assert "OpenSSL knows none of these" in host.ulp_error(ack.fields["proxy_id"], number).text


def test_a_host_ends_while_its_push_waits(worker: Worker) -> None:
    for number in range(40):
        with worker.attach(number + 1, features=FEATURES) as host:
            host.open()
            attributes = ulp_attributes.encode_attributes("TLS", CLIENT | {"ciphers": ciphers(number)})
            payload = bytes(6) + BY_NAME["TLS"].number.to_bytes(2) + attributes
            fields = {"xts_socket": 1, "token": 1, "domain": 4, "request": REQUESTS["PUSH_ULP"][0]}
            host.send("XTS_CMD_IOCTL", payload, **fields)
            if number % 2:
                goodbye(host)
    worker.wait(lambda stats: stats.connections == 0 and stats.channels_up == 0, "connections are left")
    with worker.attach(100, features=FEATURES) as host:
        assert push(host.open(), 1000).error == 0


def test_who_asks_for_ever_new_ones_takes_them_from_itself(worker: Worker) -> None:
    with (
        worker.attach(1, features=FEATURES) as quiet,
        worker.attach(2, tenant=make_tenant("other", 1), features=FEATURES) as loud,
    ):
        quiet.open()
        loud.open()
        push(quiet, 0)
        for number in range(1, 200):
            push(loud, number)
        with Took() as new:
            push(loud, 1)
        with Took() as known:
            push(quiet, 0)
    assert known.pool_ns < new.pool_ns / 4


def test_what_is_made_is_charged_while_somebody_has_it(worker: Worker, host: ScriptedHost) -> None:
    """Once, whichever of the connections end first."""

    def charged() -> int:
        return worker.used("ulp_bytes")

    def end(ack: Any, expected: int) -> None:
        host.send("XTS_CMD_SEND", id=ack.fields["proxy_id"], flags=flags("CLOSE", "ABORT"))
        worker.wait(lambda _: charged() == expected, f"{charged()} bytes are charged and not {expected}")

    first, one = push(host, 0), charged()
    same = push(host, 0)
    connection = charged() - one
    other = push(host, 1)
    context = charged() - one - 2 * connection
    assert context == one - connection >= 15 << 10
    end(first, 2 * context + 2 * connection)
    end(same, context + connection)
    again = push(host, 0)
    assert charged() == 2 * context + 2 * connection
    end(other, context + connection)
    end(again, 0)


def test_each_tenant_is_charged_for_what_several_have(worker: Worker) -> None:
    other = make_tenant("other", 1)
    with worker.attach(1, features=FEATURES) as one, worker.attach(2, tenant=other, features=FEATURES) as two:
        one.open()
        two.open()
        push(one, 0)
        push(two, 0)
        assert worker.used("ulp_bytes") == worker.used("ulp_bytes", other) >= 15 << 10
        goodbye(one)
        worker.wait(lambda _: worker.used("ulp_bytes") == 0, "a tenant without connections is charged")
        assert worker.used("ulp_bytes", other) >= 15 << 10
        goodbye(two)
        worker.wait(lambda _: worker.used("ulp_bytes", other) == 0, "a tenant without connections is charged")


def test_a_push_without_room_for_what_it_needs_is_refused(worker: Worker) -> None:
    """Another tenant has it already; who has no memory for it gets none."""
    poor = make_tenant("poor", 1, ulp_bytes=12 << 10)
    with worker.attach(1, features=FEATURES) as rich, worker.attach(2, tenant=poor, features=FEATURES) as host:
        rich.open()
        host.open()
        assert push(rich, 0).error == 0
        assert push(host, 0).error == errno.ENOBUFS
        assert push(host, 1).error == errno.ENOBUFS  # which nobody has
        goodbye(host)
        worker.wait(lambda _: worker.used("ulp_bytes", poor) == 0, "what was refused is charged")
