"""Sets of tests for the virtual machine that have a name: `tests/vm/run --named NAME`. What runs them is named.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A process of its own, which is ended after so many seconds. `arguments`: of pytest, or of `program`, whose path
    begins at the top of the checkout. `may_be_skipped`: where what it needs is not there, as its reason says."""

    name: str
    arguments: tuple[str, ...]
    limit_s: float
    program: str = ""
    may_be_skipped: bool = False


@dataclass(frozen=True)
class NamedSet:
    """`machine`: options of tests/vm/run. `before`: arguments of Python, outside, for what the machine cannot write.
    `variables`: of all parts. After `minutes` no part begins or goes on."""

    about: str
    machine: tuple[str, ...]
    minutes: float
    variables: tuple[tuple[str, str], ...]
    parts: tuple[Part, ...]
    before: tuple[tuple[str, ...], ...] = ()


#: What judges by time, which means nothing on an emulated processor.
OF_TIME = (
    "--deselect",
    "tests/system/python/test_install_undecided.py::test_get_what_comes[afxdp-time_goes_on]",
)


def system(name: str, limit_s: float, *paths: str) -> Part:
    """Files of tests/system as they are, over the wire that TESTS_WIRE names, in one process."""
    return Part(name, ("-m", "afxdp and not long", *OF_TIME, *(f"tests/system/{path}" for path in paths)), limit_s)


#: Two virtio network cards on one hub: the host's in one network namespace, the device's in another.
MACHINE = ("--nics", "--suite", "trixie-backports")
#: One queue with zero copy at both ends (beds/card_lab.py).
WIRE = (("TESTS_WIRE", "cards"), ("TESTS_MTU", "1500"))
BUILD_STRESS = ("-c", "from stress import ends; ends.build('xts'); ends.build('kernel')")
STRESS = ("--queue", "cards", "--duration-s", "120", "--connections", "16", "--accepted", "8", "--stall-s", "100")
KEEPER = "tests/system/agent/test_agent_token.py::test_who_keeps_a_queue_opens_nothing_with_it"

#: Files that need one process at a time, as each of the cards has one queue. Those of one part share a lab: to raise
#: one takes half a minute there.
SYSTEM_FILES = (
    system(
        "system files on one lab",
        1200,
        "interposer/test_environment.py",
        "interposer/test_hold.py",
        "interposer/test_preload_push.py",
        "protocols/test_install_push.py",
        "python/test_install_lab.py",
        "python/test_install_undecided.py",
        "sockets/test_bundles.py",
        "sockets/test_slow_queue.py",
    ),
    system("system files on a lab of their own: a raw peer", 480, "hostile/test_raw_peer_afxdp.py"),
    system("system files on a lab of their own: calls", 480, "sockets/test_afxdp_calls.py"),
    system("system files on a lab of their own: clocks", 720, "agent/test_agent_clocks.py"),
    system("system files on a lab of their own: the agent", 480, "agent/test_agent_metrics.py"),
)

NAMED = {
    "cards": NamedSet(
        "network cards with zero copy: links, system files, stress, attacks",
        MACHINE,
        60,
        WIRE,
        (
            Part("two minutes of stress", STRESS, 720, program="tests/stress/run"),
            Part("attack: a raw sender, and a kept queue behind secrets", ("tests/vm/test_card_attacks.py",), 480),
            *SYSTEM_FILES,
            Part("attack: a process that keeps its queue", (KEEPER,), 300),
            Part("link properties", ("tests/vm/test_card_links.py",), 480),
            Part("frames and copies", ("tests/vm/test_virtio_cards.py", "tests/vm/test_card_copies.py"), 300),
            Part("igb", ("tests/vm/test_igb_cards.py",), 180, may_be_skipped=True),
            Part("what the doctor judges", ("tests/unit/cli/test_doctor_judges.py",), 180),
        ),
        (BUILD_STRESS,),
    ),
    "card-changes": NamedSet(
        "what people do to network cards while they carry queues",
        MACHINE,
        60,
        WIRE,
        (Part("changes of cards", ("tests/vm/test_card_changes.py",), 3600),),
    ),
}
