"""Sets of tests for the virtual machine that have a name: `tests/vm/run --named NAME`. What runs them is named.py."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Part:
    """A process of its own, which is ended after so many seconds. `arguments`: of pytest, or of `program`, whose path
    begins at the top of the checkout. `may_be_skipped`: where what it needs is not there, as its reason says. `skips`:
    beginnings of reasons for which single tests of it are skipped. `variables`: besides those of the set."""

    name: str
    arguments: tuple[str, ...]
    limit_s: float
    program: str = ""
    may_be_skipped: bool = False
    skips: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NamedSet:
    """`machine`: options of tests/vm/run. `before`: arguments of Python, outside, for what the machine cannot write.
    `variables`: of all parts. After `minutes` no part begins or goes on. `bed`: the module whose take_back() makes the
    machine again what it was, after a part that was ended."""

    about: str
    machine: tuple[str, ...]
    minutes: float
    variables: tuple[tuple[str, str], ...]
    parts: tuple[Part, ...]
    before: tuple[tuple[str, ...], ...] = ()
    bed: str = "beds.card_lab"


#: What judges by time, which means nothing on an emulated processor.
OF_TIME = (
    "--deselect",
    "tests/system/python/test_install_undecided.py::test_get_what_comes[afxdp-time_goes_on]",
)


def system(name: str, limit_s: float, *paths: str) -> Part:
    """Files of tests/system as they are, over the wire that TESTS_WIRE names, in one process."""
    return Part(name, ("-m", "afxdp and not long", *OF_TIME, *_system(paths)), limit_s)


def _system(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"tests/system/{path}" for path in paths)


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

#: The kernel's software devices, and reasons that hold on one of them.
RDMA_DEVICES = ("rxe", "siw")
OF_ONE_DEVICE = ("the attacker does the steps of RoCE",)
#: AF_XDP, which the counts compare with, and calls. `--suite trixie-backports` has them.
OF_LATER_KERNELS = ("kernel 6.1.",)
OF_A_ROUTE = ("no route for broadcasts here",)
#: On software RoCE alone the refusal of a datagram comes after the next connect(). Perhaps softirqs have to wait there:
#: on loopback it comes before sendto() returns.
LATE_REFUSALS = {"rxe": ("-k", "not datagram_is_sent_before_a_connect")}
BUILD_OLDER = ("-c", "from beds.versions import OVER_RDMA, version_of; version_of(OVER_RDMA)")


def over_rdma(device: str) -> tuple[Part, ...]:
    """Files of tests/system as they are, with queues over RDMA on this device."""
    variables = (("TESTS_WIRE", "rdma"), ("TESTS_RDMA", device))
    own = (
        "interposer/test_interposed_datagrams.py",
        "interposer/test_rights.py",
        "python/test_install_tls.py",
        "python/test_python_datagrams.py",
        "python/test_python_socket.py",
        "sockets/test_libxts.py",
        "tls/test_python_tls.py",
    )
    in_lab = (
        "interposer/test_environment.py",
        "interposer/test_hold.py",
        "interposer/test_preload_push.py",
        "python/test_install_lab.py",
        "python/test_install_passing.py",
    )
    on = f"system files on {device}: "
    parts = (
        Part(f"{on}proxies of their own", ("-m", "not long", *LATE_REFUSALS.get(device, ()), *_system(own)), 2400),
        system(f"{on}one lab", 1800, *in_lab),
        system(f"{on}the agent", 900, "agent/test_agent_metrics.py"),
    )
    return tuple(replace(part, variables=variables, skips=OF_LATER_KERNELS + OF_A_ROUTE) for part in parts)


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
            Part("attack: a process that keeps its queue", (KEEPER,), 480),
            Part("link properties", ("tests/vm/test_card_links.py",), 480),
            Part("frames and copies", ("tests/vm/test_virtio_cards.py", "tests/vm/test_card_copies.py"), 420),
            Part("igb", ("tests/vm/test_igb_cards.py",), 300, may_be_skipped=True),
            Part("what the doctor judges", ("tests/unit/cli/test_doctor_judges.py",), 300),
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
    "rdma": NamedSet(
        "queues over RDMA, on software RoCE and iWARP: system files, attacks, deaths, other versions",
        ("--rdma",),
        180,
        (),
        (
            Part("queues", ("tests/vm/test_rdma_queue.py", "tests/vm/test_rdma_links.py"), 900),
            Part(
                "attacks, and what is carried for workers",
                ("tests/vm/test_rdma_attacks.py", "tests/vm/test_rdma_carried.py"),
                1200,
                skips=OF_ONE_DEVICE,
            ),
            Part("a relay's trunk", ("tests/vm/test_rdma_trunk.py",), 600),
            Part("agent and proxy", ("tests/vm/test_rdma_products.py",), 1800),
            Part("wires and devices that go", ("tests/vm/test_rdma_wire.py",), 2400),
            Part("upgrades and crashes", ("tests/vm/test_rdma_handover.py",), 1800),
            Part("who dies under way", ("tests/vm/test_rdma_deaths.py",), 1800),
            Part("tenants, captures", ("tests/vm/test_rdma_tenants.py",), 900),
            Part("another version", ("tests/vm/test_rdma_versions.py",), 1800),
            Part("counts", ("tests/vm/test_rdma_counts.py",), 600, skips=OF_LATER_KERNELS),
            *(part for device in RDMA_DEVICES for part in over_rdma(device)),
        ),
        (BUILD_OLDER,),
        bed="beds.rdma_lab",
    ),
}
