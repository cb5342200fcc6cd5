"""Over RDMA: a wire that is cut or loses frames, devices that go and come back, and a host that is booted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from beds.rdma_clients import Client, Echo, echoes, processes
from beds.rdma_products import Products, products, until
from beds.rdma_wire import Wire

#: 4.096 us * 2^12 is 17 ms: what is not acknowledged is given up after seven times as long.
SOON = 12
RETRIES_S = 7 * 4.096e-6 * 2**SOON


@pytest.fixture
def both(wire: Wire) -> Iterator[Products]:
    with products(wire) as made:
        yield made


@pytest.fixture
def hasty(wire: Wire) -> Iterator[Products]:
    """Both, whose devices soon give up."""
    with products(wire, rdma={"ack_timeout": SOON}, agent_options=("--rdma-ack-timeout", str(SOON))) as made:
        yield made


@contextmanager
def lasting(seconds: float) -> Iterator[None]:
    """What is within lasts so long at least."""
    began = time.monotonic()
    yield
    until(lambda: time.monotonic() >= began + seconds, "the time that it lasts")


def served_again(both: Products, client: Client, echo: Echo) -> None:
    """The client has lost its connection, and has another; so have new programs."""
    client.go_on()
    client.line()
    client.hashed()
    client.ends()
    echoes(both, echo)


# --- frames that do not arrive -----------------------------------------------------------------------------


def test_a_wire_that_is_cut_for_a_second(wire: Wire, both: Products, echo: Echo) -> None:
    """The devices repeat: programs notice nothing."""
    client = Client(both, echo, 1_000_000, then="keep")
    client.hashed()
    with wire.losing(100), lasting(1):
        client.go_on()
        until(lambda: wire.lost() > 2, "that something is sent")
    client.hashed()
    client.ends()
    assert both.queue()["connections"] == 1


def test_a_wire_that_loses_frames(wire: Wire, both: Products, echo: Echo) -> None:
    """The same, for megabytes."""
    client = Client(both, echo, 1_000_000, then="keep")
    client.hashed()
    with wire.losing(2):
        client.go_on()
        client.hashed()
        assert wire.lost() > 20
    client.ends()
    assert both.queue()["connections"] == 1


def test_a_wire_that_is_cut_for_long(wire: Wire, hasty: Products, echo: Echo) -> None:
    """Nobody says anything. Both ends give up, say why, and find each other again."""
    client = Client(hasty, echo, then="lose")
    client.hashed()
    after = len(hasty.agent.said())
    with wire.losing(100):
        hasty.agent.until_said("no relay on", after)
    served_again(hasty, client, echo)
    assert hasty.queue()["connections"] == 2
    assert "the agent at" in hasty.proxy.said() and "has gone: " in hasty.proxy.said(), hasty.proxy.said()


def test_a_plug_that_is_pulled_out(wire: Wire, hasty: Products, echo: Echo) -> None:
    client = Client(hasty, echo, then="lose")
    client.hashed()
    after = len(hasty.agent.said())
    with wire.pulled_out(wire.host):
        hasty.agent.until_said("no relay on", after)
    served_again(hasty, client, echo)


# --- interfaces and devices --------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["host", "dpu"])
def test_an_interface_that_is_switched_off(wire: Wire, hasty: Products, echo: Echo, end: str) -> None:
    """On rxe its device has to be made again, too: what the connection manager sends meanwhile is an error at once,
    which ends the device's own queue pair for such messages, and it hears none any more."""
    client = Client(hasty, echo, then="lose")
    client.hashed()
    after = len(hasty.agent.said())
    with wire.switched_off(getattr(wire, end)):
        hasty.agent.until_said("no relay on", after)
        if wire.kind == "rxe":
            getattr(wire, end).delete()
            getattr(wire, end).add()
    served_again(hasty, client, echo)


def test_a_device_of_the_host_that_is_removed_and_added(wire: Wire, both: Products, echo: Echo) -> None:
    """Removing it waits until the relay has let it go, which it does by itself."""
    client = Client(both, echo, then="lose")
    client.hashed()
    after = len(both.agent.said())
    wire.host.delete()
    try:
        both.agent.until_said("no RDMA device at this interface", after)
    finally:
        wire.host.add()
    served_again(both, client, echo)


def test_a_device_of_the_dpu_that_is_removed_and_added(wire: Wire, both: Products, echo: Echo) -> None:
    """The proxy's processes let it go, and others find it again. Meanwhile status says why no agent can connect."""
    client = Client(both, echo, then="lose")
    client.hashed()
    wire.dpu.delete()
    try:
        until(lambda: "no RDMA device at this interface" in both.queue()["problem"], "that status says so")
    finally:
        wire.dpu.add()
    assert "the RDMA device was removed" in both.proxy.said()
    served_again(both, client, echo)


def test_a_host_that_is_booted(wire: Wire, both: Products, echo: Echo) -> None:
    """It loses power: nothing of it says a word, and its kernel knows of no connection afterwards. The proxy has
    nothing to send, so it learns only from the host's next request that this one is another. The agent is only stopped
    meanwhile: where it starts slowly, the proxy would have ended a connection that was silent for so long."""
    client = Client(both, echo)
    client.hashed()
    client.ends()
    after, agent = len(both.agent.said()), both.agent.process
    assert agent
    agent.send_signal(signal.SIGSTOP)
    try:
        with wire.host_without_power():
            for name in ("xts-relay", "xts-relay-cm"):
                for pid in processes(name):
                    os.kill(pid, signal.SIGKILL)
            until(lambda: not processes("xts-relay-cm"), "that all have ended")
            wire.host.delete()
            wire.host.add()
    finally:
        agent.send_signal(signal.SIGCONT)
    both.until_up(after)
    echoes(both, echo)
    # Over iWARP the kernel has more to say: something of the proxy's may have been on its way, which the booted one
    # answers with a RST, and one that gives up what a relay has left only after a while is silent for too long.
    learned = ["which asks for another connection"]
    if wire.kind == "siw":
        learned += ["says DISCONNECTED", "nothing has come for 30 s"]
    assert any(words in both.proxy.said() for words in learned), both.proxy.said()
