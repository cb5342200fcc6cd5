"""xts-bluefield on a simulated machine: plans, what undoes what, and interruptions anywhere."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from beds.simulated_card import PCI, PowerLostError, SimulatedCard
from hypothesis import given
from hypothesis import strategies as st
from xts_bluefield import applying
from xts_bluefield.__main__ import main
from xts_bluefield.applying import Outcome, RefusedError, StoppedError, apply, differences, undo
from xts_bluefield.card import parameter
from xts_bluefield.cpus import cpu_list, cpu_text
from xts_bluefield.journal import Journal, JournalError
from xts_bluefield.look import View
from xts_bluefield.planning import fingerprint, make
from xts_bluefield.wanted import Card, Cpus, Firewall, Link, Memory, Units, Wanted, WantedError, parse

EXAMPLE = Path(__file__).parents[3] / "deploy" / "xts-bluefield.toml"
FULL = f"""
role = "device"
[card]
pci = "{PCI}"
mode = "dpu"
functions = 16
[[link]]
pci = "{PCI}"
sfnum = 88
hw_addr = "02:00:00:00:88:88"
host = "pf0hpf"
steering = "ovs"
bridge = "ovsbr1"
queues = 4
irq_cpus = "4-7"
[[link]]
pci = "{PCI}"
sfnum = 89
hw_addr = "02:00:00:00:88:90"
host = "pf0vf0"
steering = "tc"
[memory]
pages = 512
[cpus]
isolated = "4-7"
[firewall]
uplink = "ovsbr1"
tcp_ports = [443, 80]
[units]
cpus = "4-7"
"""
#: As FULL, without what takes a power cycle.
RUNNING = 'role = "device"\n[[link]]' + FULL.split("[[link]]", 1)[1].replace('[cpus]\nisolated = "4-7"\n', "")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated machines settle at once, and no disk loses its power."""
    monkeypatch.setattr(applying, "SETTLE_S", 0.0)
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.json"


def nothing(_: str) -> None:
    pass


def card(functions: int = 16) -> SimulatedCard:
    """One that needs no power cycle for RUNNING."""
    made = SimulatedCard()
    for when in ("current", "next"):
        made.firmware[when]["PF_TOTAL_SF"] = str(functions)
    return made


def applied(wanted: Wanted, machine: SimulatedCard, path: Path) -> Outcome:
    with Journal.opened(path) as journal:
        return apply(wanted, machine, journal, nothing)


def undone(machine: SimulatedCard, path: Path, force: bool = False) -> Outcome:
    with Journal.opened(path) as journal:
        return undo(machine, journal, nothing, force)


# --- plans ---------------------------------------------------------------------------------------------


def test_the_plan_of_everything_has_sources_checks_and_undoing() -> None:
    steps = make(parse(FULL, "f"), View(card())).steps
    kinds = [step.setting.kind for step in steps]
    assert kinds == sorted(kinds, key=[kind.name for kind in applying.KIND.values()].index)
    assert {"firmware in use", "function", "xdp", "queues", "flows", "filters", "firewall", "unit file"} <= set(kinds)
    for step in steps:
        assert step.what and step.why and step.check and step.source.title and step.source.section
        assert step.source.url.startswith(("https://", "man:"))
    pages = {step.setting.place.split()[-1]: step.source.title for step in steps if step.setting.kind == "firmware"}
    assert "Scalable Functions" in pages["PF_BAR2_ENABLE"] and "INTERNAL_CPU_MODEL" not in pages
    texts = [str(action) for step in steps for action in step.actions]
    assert f"mlxconfig -d {PCI} -y set PF_TOTAL_SF=16" not in texts  # the card has it
    assert f"devlink port add pci/{PCI} flavour pcisf pfnum 0 sfnum 88" in texts
    port = f"<port:{PCI}:0:88>"
    assert f"devlink port function set {port} hw_addr 02:00:00:00:88:88 state active" in texts


def test_nothing_is_changed_by_a_plan() -> None:
    machine = SimulatedCard()
    before = machine.state()
    make(parse(FULL, "f"), View(machine))
    assert machine.state() == before and machine.changes == 0


def test_a_plan_of_256_functions(path: Path) -> None:
    text = f"""
    role = "device"
    [[link]]
    pci = "{PCI}"
    sfnum = 100
    functions = 256
    hw_addr = "02:00:00:00:00:ff"
    host = "pf0vf{{n}}"
    steering = "ovs"
    bridge = "ovsbr1"
    queues = 2
    """
    machine = SimulatedCard(hosts=256)
    for when in ("current", "next"):
        machine.firmware[when]["PF_TOTAL_SF"] = "300"
    wanted = parse(text, "f")
    steps = make(wanted, View(machine)).steps
    assert [step.setting.kind for step in steps].count("function") == 256
    last = next(step for step in steps if step.setting.place == f"{PCI} 0 355")
    assert last.wanted["hw_addr"] == "02:00:00:00:01:fe"
    [flows] = [step for step in steps if step.setting.kind == "flows"]
    assert len(flows.wanted) == 3 * 256 + 1
    assert sum(command.startswith("devlink") for command in machine.commands) < 5  # asked once for all of them


def test_firmware_values_are_read_from_the_columns_in_use_and_of_the_next_boot() -> None:
    machine = SimulatedCard()
    machine.firmware["next"]["INTERNAL_CPU_OFFLOAD_ENGINE"] = "1"
    assert parameter(View(machine), PCI, "INTERNAL_CPU_OFFLOAD_ENGINE") == ("0", "1")
    assert parameter(View(machine), PCI, "INTERNAL_CPU_MODEL") == ("1", "1")
    with pytest.raises(OSError, match="doesn't support OTHER"):
        parameter(View(machine), PCI, "OTHER")


#: `devlink port show -jp` of a function, from iproute2's patch "devlink: Support setting port function state", and
#: with nested_devlink as in the kernel's patch that added it.
DOCUMENTED = {
    "port": {
        "pci/0000:06:00.0/32768": {
            "type": "eth",
            "netdev": "ens2f0npf0sf88",
            "flavour": "pcisf",
            "controller": 0,
            "pfnum": 0,
            "sfnum": 88,
            "splittable": False,
            "function": {
                "hw_addr": "00:00:00:00:88:88",
                "state": "active",
                "opstate": "attached",
                "roce": "enable",
                "nested_devlink": {"auxiliary/mlx5_core.sf.2": {}},
            },
        }
    }
}


def test_documented_answers_of_devlink(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SimulatedCard()
    monkeypatch.setattr(machine, "_devlink", lambda *_: json.dumps(DOCUMENTED))
    monkeypatch.setattr(machine, "entries", lambda path: ["p0sf88"] if path.endswith("mlx5_core.sf.2/net") else [])
    view = View(machine)
    assert view.name("<rep:0000:06:00.0:0:88>") == "ens2f0npf0sf88"
    assert view.name("<port:0000:06:00.0:0:88>") == "pci/0000:06:00.0/32768"
    assert view.name("<sf:0000:06:00.0:0:88>") == "p0sf88"
    assert view.name("<sf:0000:06:00.0:0:89>") is None
    kind = applying.KIND["function"]
    assert kind.read(applying.Setting("function", "0000:06:00.0 0 88"), view) == {
        "hw_addr": "00:00:00:00:88:88",
        "state": "active",
    }


@pytest.mark.parametrize("answer", ["", "no JSON", "[]", '{"port": []}', '{"port": {"x": {}}}', '{"port": {"x": []}}'])
def test_odd_answers_of_devlink_are_errors_or_nothing(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SimulatedCard()
    monkeypatch.setattr(machine, "_devlink", lambda *_: answer)
    try:
        assert View(machine).name("<rep:0000:06:00.0:0:88>") is None
    except OSError as error:
        assert "devlink" in str(error)


# --- apply, check, undo --------------------------------------------------------------------------------


def test_two_phases_then_nothing_to_do_then_back(path: Path) -> None:
    machine, wanted = SimulatedCard(), parse(FULL, "f")
    before = copy.deepcopy(machine)
    first = applied(wanted, machine, path)
    assert len(first.by_hand) == 2 and "power cycle" in first.by_hand[0] and machine.eswitch == "legacy"
    assert applied(wanted, machine, path) == Outcome(0, first.by_hand)  # it waits
    machine.power_cycle()
    second = applied(wanted, machine, path)
    assert second.by_hand == () and second.done > 10
    assert differences(wanted, machine) == ()
    changes = machine.changes
    assert applied(wanted, machine, path) == Outcome(0) and machine.changes == changes
    irqs = [machine.files[f"/proc/irq/{1000 + 8800 + i}/smp_affinity_list"].strip() for i in range(4)]
    assert irqs == ["4", "5", "6", "7"] and machine.interfaces["enp3s0f0s88"]["queues"] == 4
    last = undone(machine, path)
    assert any("power cycle" in text for text in last.by_hand) and not path.exists()
    machine.power_cycle()
    before.power_cycle()
    assert machine.state() == before.state()


def test_undo_without_a_boot_gives_exactly_what_was_there(path: Path) -> None:
    machine, wanted = card(), parse(RUNNING, "f")
    before = machine.state()
    assert applied(wanted, machine, path).by_hand == ()
    assert machine.state() != before
    undone(machine, path)
    assert machine.state() == before


def test_a_boot_in_between_leaves_the_first_originals(path: Path) -> None:
    machine, wanted = card(), parse(RUNNING, "f")
    machine.files["/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] = "7\n"
    applied(wanted, machine, path)
    machine.power_cycle()
    assert differences(wanted, machine)
    applied(wanted, machine, path)  # as the unit does at each boot
    assert differences(wanted, machine) == ()
    undone(machine, path)
    assert machine.files["/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] == "7\n"
    assert machine.functions == {} and machine.bridges["ovsbr1"]["ports"] == ["p0"]


def changes_of(text: str, path: Path) -> int:
    machine = card()
    applied(parse(text, "f"), machine, path)
    return machine.changes


@pytest.mark.parametrize("how", ["power", "command"])
@pytest.mark.parametrize("boots", [False, True])
def test_interrupted_anywhere_it_goes_on_and_it_goes_back(how: str, boots: bool, tmp_path: Path) -> None:
    wanted = parse(RUNNING, "f")
    total = changes_of(RUNNING, tmp_path / "count" / "j.json")
    assert total > 20
    for at in range(total):
        path = tmp_path / str(at) / "journal.json"
        machine = card()
        before = copy.deepcopy(machine)
        machine.fails_after = (at, how)
        with pytest.raises(PowerLostError if how == "power" else StoppedError):
            applied(wanted, machine, path)
        if boots:
            machine.power_cycle()
            before.power_cycle()
        back, copied = copy.deepcopy(machine), path.read_bytes()
        assert applied(wanted, machine, path).by_hand == () and differences(wanted, machine) == ()
        path.write_bytes(copied)
        undone(back, path)
        assert back.state() == before.state(), at


def test_undo_interrupted_anywhere_goes_on(tmp_path: Path) -> None:
    wanted = parse(RUNNING, "f")
    done, path = card(), tmp_path / "journal.json"
    before = done.state()
    applied(wanted, done, path)
    entries, changes = path.read_bytes(), done.changes
    counted = copy.deepcopy(done)
    undone(counted, path)
    for at in range(changes, counted.changes):
        machine = copy.deepcopy(done)
        path.write_bytes(entries)
        machine.fails_after = (at, "power")
        with pytest.raises(PowerLostError):
            undone(machine, path)
        undone(machine, path)
        assert machine.state() == before, at


@st.composite
def files(draw: st.DrawFn) -> str:
    """Files of all kinds of contents, for a card with three functions of the host."""
    text = 'role = "device"\n'
    if draw(st.booleans()):
        mode, functions = draw(st.sampled_from(["", "dpu"])), draw(st.sampled_from([8, 16]))
        text += f'[card]\npci = "{PCI}"\nmode = "{mode}"\nfunctions = {functions}\n'
    for i in range(draw(st.integers(0, 3))):
        steering = draw(st.sampled_from(["ovs", "tc", "none"]))
        text += f'[[link]]\npci = "{PCI}"\nsfnum = {i * 7}\nhw_addr = "02:00:00:00:00:{i * 16:02x}"\n'
        text += f'host = "pf0vf{i}"\nsteering = "{steering}"\nqueues = {draw(st.integers(0, 16))}\n'
        text += f'irq_cpus = "{draw(st.sampled_from(["", "0-3", "2,5"]))}"\n'
        text += 'bridge = "ovsbr1"\n' if steering == "ovs" else ""
    if draw(st.booleans()):
        text += f"[memory]\npages = {draw(st.integers(0, 64))}\n"
    if draw(st.booleans()):
        text += f'[cpus]\nisolated = "{draw(st.sampled_from(["", "4-7", "1,3"]))}"\n'
    if draw(st.booleans()):
        text += f'[firewall]\nuplink = "ovsbr1"\ntcp_ports = {draw(st.lists(st.integers(1, 65535), max_size=3))}\n'
    if draw(st.booleans()):
        text += f"[units]\nboot = {str(draw(st.booleans())).lower()}\n"
    return text


@given(files(), st.integers(0, 64), st.booleans())
def test_apply_leaves_nothing_to_plan_and_undo_leaves_nothing_of_apply(
    tmp_path_factory: pytest.TempPathFactory, text: str, pages: int, switchdev: bool
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.json"
    wanted, machine = parse(text, "f"), card()
    machine.hosts += ["pf0vf1", "pf0vf2"]
    machine.eswitch = "switchdev" if switchdev else "legacy"
    machine.files["/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] = f"{pages}\n"
    before = copy.deepcopy(machine)
    cycled = bool(applied(wanted, machine, path).by_hand)
    if cycled:
        machine.power_cycle()
        assert applied(wanted, machine, path).by_hand == ()
    assert differences(wanted, machine) == ()
    undone(machine, path)
    if cycled:
        machine.power_cycle()
        before.power_cycle()
    assert machine.state() == before.state()


@given(st.sets(st.integers(0, 200)))
def test_lists_of_cpus(cpus: set[int]) -> None:
    assert cpu_list(cpu_text(cpus)) == sorted(cpus)


# --- what goes wrong -----------------------------------------------------------------------------------


def test_a_plan_that_is_stale_is_refused(path: Path) -> None:
    machine, wanted = card(), parse(RUNNING, "f")
    seen = fingerprint(make(wanted, View(machine)).steps)
    machine.files["/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] = "3\n"
    changes = machine.changes
    with Journal.opened(path) as journal, pytest.raises(RefusedError, match="not as it was for plan"):
        apply(wanted, machine, journal, nothing, expected=seen)
    assert machine.changes == changes and not path.exists()


def test_a_setting_that_changes_while_apply_runs_ends_it(path: Path) -> None:
    machine, wanted = card(), parse(RUNNING, "f")

    def meddle(line: str) -> None:
        if "queues" in line:
            machine.files["/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] = "3\n"

    with Journal.opened(path) as journal, pytest.raises(StoppedError, match="somebody else has changed it"):
        apply(wanted, machine, journal, meddle)
    assert machine.files["/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] == "3\n"


def test_undo_refuses_what_somebody_else_has_changed(path: Path) -> None:
    machine, wanted = card(), parse(RUNNING, "f")
    before = machine.state()
    applied(wanted, machine, path)
    machine.files["/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"] = "99\n"
    changed = machine.state()
    with pytest.raises(RefusedError, match=r"is 99; apply made it 512, and it was 0 before"):
        undone(machine, path)
    assert machine.state() == changed
    undone(machine, path, force=True)
    assert machine.state() == before


@pytest.mark.parametrize("tool", ["devlink", "ovs-ofctl", "nft", "systemctl"])
def test_a_missing_tool_is_said_before_anything_is_done(tool: str, path: Path) -> None:
    machine = card()
    machine.tools.remove(tool)
    with Journal.opened(path) as journal, pytest.raises(OSError, match=f"the command {tool} is not installed .package"):
        apply(parse(RUNNING, "f"), machine, journal, nothing)
    assert machine.changes == 0 and not path.exists()


def test_one_port_is_shown_by_nft_without_its_set(path: Path) -> None:
    """And is found again, and taken back."""
    wanted, machine = parse('role = "device"\n[firewall]\nuplink = "ovsbr1"\ntcp_ports = [443]\n', "f"), card()
    applied(wanted, machine, path)
    assert '"right": 443' in machine.run(("nft", "-j", "list", "table", "inet", "xts_bluefield"))
    assert not make(wanted, View(machine)).steps
    undone(machine, path)
    assert machine.tables == []


def test_a_file_that_nft_needs_is_asked_for_before_anything_is_done(path: Path) -> None:
    machine = card()
    del machine.files["/etc/protocols"]
    with Journal.opened(path) as journal, pytest.raises(OSError, match=r"there is no /etc/protocols.*package netbase"):
        apply(parse(RUNNING, "f"), machine, journal, nothing)
    assert machine.changes == 0 and not path.exists()


def test_functions_whose_interfaces_cannot_do_xdp_are_refused_before_they_are_made(path: Path) -> None:
    """BlueField makes a function when it starts, which answers for the others."""
    machine = card()
    machine.eswitch = "switchdev"
    machine.run(("devlink", "port", "add", f"pci/{PCI}", "flavour", "pcisf", "pfnum", "0", "sfnum", "0"))
    machine.run(("devlink", "port", "function", "set", f"pci/{PCI}/229376", "state", "active"))
    machine.function_features = 0
    changes = machine.changes
    with Journal.opened(path) as journal, pytest.raises(RefusedError, match="XDP_REDIRECT in the driver"):
        apply(parse(RUNNING, "f"), machine, journal, nothing)
    assert machine.changes == changes
    assert make(parse(RUNNING, "f"), View(machine)).problems


def test_without_another_function_xdp_is_looked_at_as_soon_as_there_is_one(path: Path) -> None:
    machine = card()
    machine.function_features = 0
    with pytest.raises(StoppedError, match="XDP_REDIRECT in the driver"):
        applied(parse(RUNNING, "f"), machine, path)
    assert not any("add-port" in command for command in machine.commands)
    undone(machine, path)
    assert machine.functions == {} and machine.eswitch == "legacy"


def test_a_port_of_a_bridge_is_not_steered_by_tc() -> None:
    machine = card()
    machine.eswitch = "switchdev"
    machine.bridges["ovsbr1"]["ports"].append("pf0vf0")
    with pytest.raises(OSError, match='pf0vf0 is a port of ovsbr1 in Open vSwitch: steer with steering = "ovs"'):
        make(parse(RUNNING, "f"), View(machine))


def test_a_firewall_on_a_port_of_a_bridge_is_refused(path: Path) -> None:
    """Its rules would see nothing: packets for the machine come in on the bridge's own interface."""
    machine, wanted = card(), parse('role = "device"\n[firewall]\nuplink = "p0"\n', "f")
    with pytest.raises(RefusedError, match=r"uplink p0 is 'a port of ovsbr1'.* name that one as firewall\.uplink"):
        applied(wanted, machine, path)
    assert machine.changes == 0


def test_filters_of_others_keep_their_place(path: Path) -> None:
    machine, wanted = card(), parse(RUNNING, "f")
    applied(wanted, machine, path)
    foreign = {"protocol": "ip", "pref": 1, "kind": "flower", "options": {"actions": [{"kind": "gact"}]}}
    machine.filters["pf0vf0"].append(foreign)
    assert differences(wanted, machine) == ()
    with pytest.raises(StoppedError, match="has not become None again"):
        undone(machine, path)
    assert machine.filters["pf0vf0"] == [foreign]


@pytest.mark.parametrize("damage", ["half", "empty", "other", "directory"])
def test_a_journal_that_is_no_journal(damage: str, path: Path) -> None:
    machine = card()
    applied(parse(RUNNING, "f"), machine, path)
    whole, changes = path.read_text(), machine.changes
    if damage == "directory":
        path.unlink()
        path.mkdir()
    else:
        path.write_text(
            {"half": whole[: len(whole) // 2], "empty": "", "other": '{"version": 2, "entries": []}'}[damage]
        )
    with pytest.raises(JournalError, match=str(path)):
        undone(machine, path)
    with pytest.raises(JournalError):
        applied(parse(RUNNING, "f"), machine, path)
    assert machine.changes == changes


def test_one_at_a_time(path: Path) -> None:
    with Journal.opened(path), pytest.raises(JournalError, match="another xts-bluefield is at work"):
        undone(card(), path)


MISTAKES: list[tuple[str, str]] = [
    ('role = "devise"', "f:1:8: role: invalid enum value 'devise', found \"devise\""),
    ('role = "host"\nlinks = []', "f:2:9: links: unknown key; did you mean link?"),
    ('role = "host"\n[[link]]\ninterface = "a"\nqueus = 4', "f:4:9: link[0].queus: unknown key; did you mean queues?"),
    ('role = "host"\n[[link]]\nqueues = "4"', 'f:3:10: link[0].queues: expected int, got str, found "4"'),
    ('role = "host"\n[link]\nqueues = 4', "f:2:1: link: must be tables: [[link]]"),
    ("", "f: role: must be given"),
    ("role = ", "f: Invalid value"),
    ('role = "device"\n[[link]]\nsfnum = 88', "link[0].pci: must be given with sfnum"),
    ('role = "device"\n[[link]]\ninterface = "a"\nsteering = "tc"', "link[0].host: must be given for steering"),
    ('role = "host"\n[[link]]\ninterface = "a"\nsfnum = 1', 'link[0].sfnum: is for role = "device"'),
    ('role = "host"\n[[link]]\ninterface = "a"\n[[link]]\ninterface = "a"', "link[1]: interface a is that of another"),
    (f'role = "device"\n[[link]]\npci="{PCI}"\nsfnum=990\nfunctions=20\nhw_addr="02:00:00:00:00:00"', "at most 999"),
    ('role = "host"\n[firewall]', "f:2:1: firewall.uplink: must be given"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_mistakes_of_a_file(text: str, said: str) -> None:
    with pytest.raises(WantedError) as caught:
        parse(text, "f")
    assert said in str(caught.value)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(WantedError) as caught:
        parse('rolle = "host"\n[memory]\npages = -1\npage_kb = 3\n', "f")
    assert len(str(caught.value).splitlines()) == 4


# --- the command ---------------------------------------------------------------------------------------


def test_the_example_has_every_key_and_is_valid() -> None:
    text = EXAMPLE.read_text()
    wanted = parse(text, "f")
    assert wanted.firewall and wanted.units and wanted.card and wanted.link[0].queues == 8
    for table in (Wanted, Card, Link, Memory, Cpus, Firewall, Units):
        for name in set(table.__struct_fields__) - {"file", "link"}:
            assert re.search(rf"^(# )?{name} = |^\[{name}\]", text, re.MULTILINE), name


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "xts-bluefield.toml"
    made.write_text(RUNNING)
    return made


def test_the_command(file: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = card()
    assert main(["check", str(file)], machine) == 1
    assert main(["plan", "--json", str(file)], machine) == 0
    shown = json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))
    assert shown["steps"][0]["kind"] == "eswitch" and shown["steps"][0]["do"] and shown["steps"][0]["undo"]
    assert main(["apply", "--yes", "--expect", "0" * 16, "--journal", str(path), str(file)], machine) == 1
    assert shown["plan"] in capsys.readouterr().err
    assert main(["apply", "--yes", "--expect", shown["plan"], "--journal", str(path), str(file)], machine) == 0
    assert main(["check", str(file)], machine) == 0
    assert machine.files["/etc/systemd/system/xts-bluefield.service"].count(str(file)) == 1
    assert main(["undo", "--yes", "--journal", str(path)], machine) == 0
    assert main(["undo", "--yes", "--journal", str(path)], machine) == 0
    assert "Nothing to undo" in capsys.readouterr().out


def test_the_command_says_what_a_person_has_to_do(file: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FULL)
    assert main(["apply", "--yes", "--journal", str(path), str(file)], SimulatedCard()) == 3
    assert "Now power cycle the server" in capsys.readouterr().out


@pytest.mark.parametrize("change", [lambda file: file.unlink(), lambda file: file.write_bytes(b"\xff\n")])
def test_a_file_that_cannot_be_read(
    change: Callable[[Path], None], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(file)
    assert main(["plan", str(file)], card()) == 2
    assert str(file) in capsys.readouterr().err


def test_nobody_is_asked_without_a_terminal(file: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = card()
    assert main(["apply", "--journal", str(path), str(file)], machine) == 1
    assert "--yes" in capsys.readouterr().err and machine.changes == 0


def test_the_units_of_a_host(tmp_path: Path) -> None:
    wanted = parse(
        'role = "host"\n[[link]]\ninterface = "ens1f0np0"\npeer_mac = "02:00:00:00:88:88"\n'
        '[[link]]\ninterface = "ens1f1np1"\npeer_mac = "02:00:00:00:88:89"\n[units]\nboot = false\n',
        "f",
    )
    machine = SimulatedCard()
    machine.interfaces = {"ens1f0np0": {"queues": 4, "irq": 1}, "ens1f1np1": {"queues": 4, "irq": 1}}
    [step] = make(wanted, View(machine)).steps
    assert step.setting.place == "/etc/systemd/system/xts-agent.service.d/50-xts-bluefield.conf"
    [command] = [line for line in step.wanted.splitlines() if line.startswith("ExecStart=/")]
    assert command.endswith(
        "--interface ens1f0np0 --peer-mac 02:00:00:00:88:88 --interface ens1f1np1 --peer-mac 02:00:00:00:88:89"
    )


# --- without a card ------------------------------------------------------------------------------------


def test_a_plan_can_be_looked_at_without_a_card(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FULL.replace(PCI, "0000:07:00.1").replace("[memory]", "[memory]\npage_kb = 32768"))
    assert main(["plan", "--simulated", "--json", str(file)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "simulated" in shown["notes"][0]
    assert {step["kind"] for step in shown["steps"]} >= {"firmware", "function", "flows", "filters", "huge pages"}
    assert main(["plan", "--simulated", str(EXAMPLE)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("note: this is the plan for a simulated card")
    assert "queues beyond the first need 7 more addresses" in printed  # the example has 8


def test_a_plan_is_as_wide_as_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for commands, which are copied; and no word is broken."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["plan", "--simulated", str(EXAMPLE)]) == 0
    printed = capsys.readouterr().out
    sentences = re.findall(
        r"^(?:note:|\d+\.|   (?:what|why|source) ) .*(?:\n {4,}(?! *\w+  ).*)*", printed, re.MULTILINE
    )
    lines = [line for sentence in sentences for line in sentence.splitlines() if "://" not in line]
    assert len(lines) > len(sentences) and max(map(len, lines)) <= 80
    monkeypatch.delenv("COLUMNS")
    assert main(["plan", "--simulated", str(EXAMPLE)]) == 0
    assert capsys.readouterr().out.split() == printed.split()


def test_the_simulated_card_has_what_the_file_takes_for_granted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        'role = "device"\n[[link]]\ninterface = "xts0"\nrepresentor = "xtsrep"\nhost = "hostrep"\nqueues = 4\n'
        'irq_cpus = "1-2"\nsteering = "ovs"\nbridge = "br7"\n'
    )
    assert main(["plan", "--simulated", str(file)]) == 0
    out = capsys.readouterr().out
    assert "queues xts0: 8 -> 4" in out and "> /proc/irq/101/smp_affinity_list" in out and "flows br7" in out


def test_the_simulated_card_is_one_device(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FULL.replace(f'pci = "{PCI}"', 'pci = "0000:03:00.1"', 1))
    assert main(["plan", "--simulated", str(file)]) == 2
    assert f"2 PCI devices ({PCI}, 0000:03:00.1)" in capsys.readouterr().err


def test_a_missing_tool_names_the_simulated_card(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = card()
    machine.tools.remove("mlxconfig")
    file.write_text(FULL)
    assert main(["plan", str(file)], machine) == 1
    error = capsys.readouterr().err
    assert "mlxconfig is not installed" in error and f"xts-bluefield plan --simulated {file}" in error


def test_what_the_simulated_card_does_not_know_is_an_error() -> None:
    for argv in (("devlink", "x"), ("ip", "x"), ("tc", "x"), ("mlxconfig", "x"), ("systemctl", "x")):
        with pytest.raises(OSError, match="the simulated card does not know this"):
            card().run(argv)
