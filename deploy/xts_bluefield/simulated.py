"""A machine with a BlueField, simulated: it understands the commands that xts-bluefield runs, and answers as they do.

`plan --simulated` looks at one, and the tests change one. No hardware was at hand. The answers have the form of public
documents: devlink's from the patch "devlink: Support setting port function state" of iproute2 (`devlink port show
-jp`), mlxconfig's from NVIDIA's "mlxconfig - Changing Device Configuration Tool" (query with -e), ovs-ofctl's and nft's
as those programs print them, which the system tests hold against the programs themselves.
"""

from __future__ import annotations

import errno
import json
import re
from typing import Any

from .machine import CommandError, missing_tool
from .wanted import Wanted, WantedError

#: The card's device, unless a file names another.
PCI = "0000:03:00.0"
#: Numbers of queues of each interface.
QUEUES, QUEUES_MAX = 8, 16
FIRMWARE = {
    "INTERNAL_CPU_MODEL": ("SEPARATED_HOST", "EMBEDDED_CPU"),
    "INTERNAL_CPU_OFFLOAD_ENGINE": ("ENABLED", "DISABLED"),
    "PF_BAR2_ENABLE": ("False", "True"),
    "PER_PF_NUM_SF": ("False", "True"),
    "PF_TOTAL_SF": (),
    "PF_SF_BAR_SIZE": (),
}
TOOLS = ("ip", "devlink", "mlxconfig", "ovs-vsctl", "ovs-ofctl", "tc", "nft", "systemctl", "update-grub")


def card_for(wanted: Wanted) -> SimulatedCard:
    """A card that has what the file takes for granted: its PCI device, interfaces, representors and bridges.

    WantedError: the file is about more devices than one, which the simulated card does not have.
    """
    links = list(wanted.links())
    devices = {link.pci for link in links if link.pci} | ({wanted.card.pci} if wanted.card else set())
    if len(devices) > 1:
        names = ", ".join(sorted(devices))
        raise WantedError(
            f"{wanted.file}: names {len(devices)} PCI devices ({names}), and the simulated card is one: give "
            "--simulated a file for each"
        )
    made = SimulatedCard(pci=devices.pop() if devices else PCI)
    made.hosts += [link.host for link in links if link.host and link.host not in made.hosts]
    for n, link in enumerate(link for link in links if link.sfnum is None):
        made.interfaces[link.interface] = {"queues": QUEUES, "irq": 100 + QUEUES_MAX * n}
        made.files |= made.interrupts(100 + QUEUES_MAX * n)
        made.hosts += [link.representor] if link.representor else []
    if wanted.memory:
        made.files[f"/sys/kernel/mm/hugepages/hugepages-{wanted.memory.page_kb}kB/nr_hugepages"] = "0\n"
    for link in links:
        if link.steering == "ovs":
            made.bridges.setdefault(link.bridge, {"ports": [], "no_flood": [], "flows": []})
    return made


def unknown_command(tool: str, words: list[str]) -> CommandError:
    return CommandError(errno.EOPNOTSUPP, f"{tool} {' '.join(words)}: the simulated card does not know this")


class SimulatedCard:
    """The Arm side of a card in DPU mode; `hosts` functions of the host have representors."""

    def __init__(self, hosts: int = 1, pci: str = PCI) -> None:
        self.pci = pci
        current = dict.fromkeys(FIRMWARE, "0") | {"INTERNAL_CPU_MODEL": "1", "PF_BAR2_ENABLE": "1"}
        self.firmware = {"current": dict(current), "next": dict(current)}
        self.eswitch = "legacy"
        self.functions: dict[str, dict[str, Any]] = {}  # by the handle of the port
        self.hosts = ["p0", "pf0hpf", *(f"pf0vf{i}" for i in range(hosts))]
        self.interfaces: dict[str, dict[str, Any]] = {}
        self.bridges: dict[str, dict[str, Any]] = {"ovsbr1": {"ports": ["p0"], "no_flood": [], "flows": []}}
        self.filters: dict[str, list[dict[str, Any]]] = {}
        self.tables: list[Any] = []
        self.files: dict[str, str] = {
            "/sys/devices/system/cpu/isolated": "\n",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0\n",
            "/etc/protocols": "tcp\t6\tTCP\n",
        }
        self.grub = ""
        self.enabled: set[str] = set()
        self.tools = set(TOOLS)
        self.function_features = 35
        self.changes = 0
        self.commands: list[str] = []

    # --- what xts_bluefield.machine.Machine has --------------------------------------------------------

    def run(self, argv: tuple[str, ...], text: str = "") -> str:
        if argv[0] not in self.tools:
            raise missing_tool(argv[0])
        self.commands.append(" ".join(argv))
        return str(getattr(self, f"_{argv[0].replace('-', '_')}")(list(argv[1:]), text))

    def has_tool(self, name: str) -> bool:
        return name in self.tools

    def read(self, path: str) -> str | None:
        auxiliary = re.fullmatch(r"/sys/bus/auxiliary/devices/(\S+)/sfnum", path)
        if auxiliary:
            found = self._attached().get(auxiliary[1])
            return f"{found['sfnum']}\n" if found else None
        return self.files.get(path)

    def write(self, path: str, text: str | None) -> None:
        self._change()
        if text is None:
            self.files.pop(path, None)
        else:
            self.files[path] = text

    def entries(self, path: str) -> list[str]:
        if path == "/sys/bus/auxiliary/devices":
            return sorted(self._attached())
        interface = re.fullmatch(r"/sys/bus/auxiliary/devices/(\S+)/net", path)
        if interface:
            found = self._attached().get(interface[1])
            return [found["interface"]] if found else []
        irqs = re.fullmatch(r"/sys/class/net/(\S+)/device/msi_irqs", path)
        if irqs and irqs[1] in self.interfaces:
            first = self.interfaces[irqs[1]]["irq"]
            return [str(first + i) for i in range(self.interfaces[irqs[1]]["queues"])]
        return []

    def target(self, path: str) -> str:
        return f"/sys/devices/pci0000:00/{self.pci}/{path.rpartition('/')[2]}"

    def has_interface(self, name: str) -> bool:
        return name in self._names()

    def queues(self, interface: str) -> tuple[int, int] | None:
        return (self.interfaces[interface]["queues"], QUEUES_MAX) if interface in self.interfaces else None

    def set_queues(self, interface: str, count: int) -> None:
        if count > QUEUES_MAX:
            raise CommandError(errno.EINVAL, f"{interface}: {count} queues: at most {QUEUES_MAX}")
        self._change()
        self.interfaces[interface]["queues"] = count

    def xdp_features(self, interface: str) -> int | None:
        return self.function_features if interface in self.interfaces else 0

    # --- inside ----------------------------------------------------------------------------------------

    def _change(self) -> None:
        """Every change begins here."""
        self.changes += 1

    def interrupts(self, first: int) -> dict[str, str]:
        """The files of an interface's interrupts, from this number on."""
        return {f"/proc/irq/{first + i}/smp_affinity_list": "0-7\n" for i in range(QUEUES_MAX)}

    def _names(self) -> set[str]:
        switch = set(self.hosts) if self.eswitch == "switchdev" else set()
        return switch | set(self.interfaces) | {function["netdev"] for function in self.functions.values()}

    def _attached(self) -> dict[str, dict[str, Any]]:
        return {f"mlx5_core.sf.{f['number']}": f for f in self.functions.values() if f["state"] == "active"}

    def _devlink(self, words: list[str], _: str) -> str:
        words = [word for word in words if word != "-j"]
        handle = f"pci/{self.pci}"
        is_dpu = self.firmware["current"]["INTERNAL_CPU_OFFLOAD_ENGINE"] == "0"
        match words:
            case ["dev", "show"]:
                return json.dumps({"dev": {handle: {}} if is_dpu else {}})
            case ["dev", "eswitch", "show", _]:
                return json.dumps({"dev": {handle: {"mode": self.eswitch, "inline-mode": "none"}}})
            case ["dev", "eswitch", "set", _, "mode", mode]:
                if self.functions:
                    raise CommandError(errno.EBUSY, "devlink answers: Device or resource busy")
                self._change()
                self.eswitch = mode
            case ["port", "show"]:
                return json.dumps({"port": {port: self._shown(one) for port, one in self.functions.items()}})
            case ["port", "add", _, "flavour", "pcisf", "pfnum", pfnum, "sfnum", sfnum]:
                self._add(int(pfnum), int(sfnum))
            case ["port", "function", "set", port, *pairs]:
                self._set(port, dict(zip(pairs[::2], pairs[1::2], strict=True)))
            case ["port", "del", port]:
                if self.functions[port]["state"] != "inactive":
                    raise CommandError(errno.EBUSY, "devlink answers: the function is active")
                self._change()
                del self.functions[port]
            case _:
                raise unknown_command("devlink", words)
        return ""

    def _shown(self, one: dict[str, Any]) -> dict[str, Any]:
        attached = "attached" if one["state"] == "active" else "detached"
        function = {"hw_addr": one["hw_addr"], "state": one["state"], "opstate": attached}
        numbers = {"controller": 0, "pfnum": one["pfnum"], "sfnum": one["sfnum"]}
        return {"type": "eth", "netdev": one["netdev"], "flavour": "pcisf", **numbers, "function": function}

    def _add(self, pfnum: int, sfnum: int) -> None:
        if self.eswitch != "switchdev":
            raise CommandError(errno.EOPNOTSUPP, "devlink answers: Operation not supported")
        if any((one["pfnum"], one["sfnum"]) == (pfnum, sfnum) for one in self.functions.values()):
            raise CommandError(errno.EEXIST, "devlink answers: File exists")
        if len(self.functions) >= int(self.firmware["current"]["PF_TOTAL_SF"]):
            raise CommandError(errno.ENOSPC, "devlink answers: No space left on device")
        self._change()
        self.functions[f"pci/{self.pci}/{229376 + sfnum}"] = {
            "pfnum": pfnum,
            "sfnum": sfnum,
            "number": sfnum + 2,
            "hw_addr": "00:00:00:00:00:00",
            "state": "inactive",
            "netdev": f"en3f0pf{pfnum}sf{sfnum}",
            "interface": f"enp3s0f{pfnum}s{sfnum}",
        }

    def _set(self, port: str, values: dict[str, str]) -> None:
        self._change()
        one = self.functions[port]
        one.update({key: value for key, value in values.items() if key in ("hw_addr", "state")})
        if one["state"] == "active":
            irq = 1000 + 100 * one["sfnum"]
            self.interfaces.setdefault(one["interface"], {"queues": QUEUES, "irq": irq})
            self.files |= self.interrupts(irq)
        else:
            self.interfaces.pop(one["interface"], None)

    def _mlxconfig(self, words: list[str], _: str) -> str:
        if words[:2] != ["-d", self.pci] or len(words) != 5:
            raise unknown_command("mlxconfig", words)
        if words[2:4] == ["-y", "set"]:
            self._change()
            name, _, value = words[4].partition("=")
            self.firmware["next"][name] = value
            return "Applying... Done!\n-I- Please reboot machine to load new configurations.\n"
        name = words[4]
        if words[2:4] != ["-e", "q"] or name not in FIRMWARE:
            raise CommandError(errno.EIO, f"-E- The Device doesn't support {name} parameter")
        current, following = (self._named(name, self.firmware[when][name]) for when in ("current", "next"))
        mark = "*" if current != following else " "
        return (
            f"\nDevice #1:\n----------\n\nDevice type:    BlueField3\nDevice:         {self.pci}\n\n"
            f"Configurations:{'':38}Default{'':14}Current{'':14}Next Boot\n"
            f"{mark}        {name:36}{self._named(name, '0'):21}{current:21}{following:21}\n"
        )

    def _named(self, name: str, value: str) -> str:
        names = FIRMWARE[name]
        return f"{names[int(value)]}({value})" if names else value

    def _ovs_vsctl(self, words: list[str], _: str) -> str:
        words = [word for word in words if not word.startswith("--")]
        match words:
            case ["list-br"]:
                return "".join(f"{name}\n" for name in self.bridges)
            case ["list-ports", bridge]:
                return "".join(f"{name}\n" for name in self.bridges[bridge]["ports"])
            case ["add-port", bridge, port]:
                self._change()
                self.bridges[bridge]["ports"].append(port)
            case ["del-port", bridge, port]:
                self._change()
                for key in ("ports", "no_flood"):
                    self.bridges[bridge][key] = [one for one in self.bridges[bridge][key] if one != port]
            case _:
                raise unknown_command("ovs-vsctl", words)
        return ""

    def _ovs_ofctl(self, words: list[str], text: str) -> str:
        words = [word for word in words if not word.startswith("--")]
        match words:
            case ["show", name]:
                bridge = self.bridges[name]
                config = {port: "NO_FLOOD" if port in bridge["no_flood"] else "0" for port in bridge["ports"]}
                ports = [f" {i}({port}): addr:02:00:00:00:00:01\n     config:     {config[port]}\n     state:      0\n"
                         for i, port in enumerate(bridge["ports"], 1) if port in self._names()]  # fmt: skip
                return "OFPT_FEATURES_REPLY (xid=0x2): dpid:0000020000000001\n" + "".join(ports)
            case ["mod-port", name, port, how]:
                self._change()
                others = [one for one in self.bridges[name]["no_flood"] if one != port]
                self.bridges[name]["no_flood"] = others + ([port] if how == "no-flood" else [])
            case ["dump-flows", name, _]:
                flows = [flow for flow in self.bridges[name]["flows"] if flow.startswith("cookie=0x585453,")]
                return "".join(f" {flow.replace(',', ', ', 1)}\n" for flow in flows)
            case ["add-flows", name, "-"]:
                self._add_flows(self.bridges[name], text.splitlines())
            case _:
                raise unknown_command("ovs-ofctl", words)
        return ""

    def _add_flows(self, bridge: dict[str, Any], lines: list[str]) -> None:
        """A bundle: all or nothing."""
        if lines[0] != "delete cookie=0x585453/-1":
            raise unknown_command("ovs-ofctl add-flows", lines[:1])
        flows = [flow for flow in bridge["flows"] if not flow.startswith("cookie=0x585453,")]
        for line in lines[1:]:
            for port in re.findall(r"(?:in_port=|output:)([^, ]+)", line):
                if port not in bridge["ports"]:
                    raise CommandError(errno.EIO, f"ovs-ofctl: -:1: {port}: unknown port")
            flows.append(line.removeprefix("add "))
        self._change()
        bridge["flows"] = flows

    def _ip(self, words: list[str], _: str) -> str:
        if words[:-1] != ["-j", "link", "show", "dev"]:
            raise unknown_command("ip", words)
        return json.dumps([{"ifname": words[-1]}])

    def _tc(self, words: list[str], _: str) -> str:
        words = [word for word in words if word != "-j"]
        match words:
            case ["qdisc", "show", "dev", name]:
                return json.dumps([{"kind": "clsact"}] if name in self.filters else [{"kind": "noqueue"}])
            case ["qdisc", "add", "dev", name, "clsact"]:
                if name in self.filters:
                    raise CommandError(errno.EEXIST, "RTNETLINK answers: File exists")
                self._change()
                self.filters[name] = []
            case ["qdisc", "del", "dev", name, "clsact"]:
                self._change()
                del self.filters[name]
            case ["filter", "show", "dev", name, side]:
                return json.dumps(self.filters.get(name, []) if side == "ingress" else [])
            case ["filter", "del", "dev", name, "ingress", "pref", pref]:
                self._change()
                self.filters[name] = [one for one in self.filters[name] if one["pref"] != int(pref)]
            case [
                "filter",
                "replace",
                "dev",
                name,
                "ingress",
                "pref",
                pref,
                "protocol",
                protocol,
                *_,
                "action",
                "drop",
            ]:
                self._filter(name, pref, protocol, {"kind": "gact", "control_action": {"type": "drop"}})
            case ["filter", "replace", "dev", name, "ingress", "pref", pref, "protocol", protocol, *_, "dev", to]:
                self._filter(name, pref, protocol, {"kind": "mirred", "direction": "egress", "to_dev": to})
            case _:
                raise unknown_command("tc", words)
        return ""

    def _filter(self, name: str, pref: str, protocol: str, action: dict[str, Any]) -> None:
        self._change()
        shown = protocol if protocol == "all" else f"[{int(protocol, 0)}]"
        kept = [one for one in self.filters[name] if one["pref"] != int(pref)]
        new = {"protocol": shown, "pref": int(pref), "kind": "flower", "options": {"handle": 1, "actions": [action]}}
        self.filters[name] = [*kept, new]

    def _nft(self, words: list[str], text: str) -> str:
        match [word for word in words if word != "-j"]:
            case ["list", "tables"]:
                return json.dumps({"nftables": [{"metainfo": {}}, *(one for one in self.tables if "table" in one)]})
            case ["list", "table", _, _]:
                shown = [{kind: {**inner, "handle": 7} for kind, inner in one.items()} for one in self.tables]
                text = json.dumps({"nftables": [{"metainfo": {}}, *shown]})
                return re.sub(r'\{"set": \[([^,]+?)\]\}', r"\1", text)  # a set of one element is shown as that
            case ["-f", "-"]:
                commands = json.loads(text)["nftables"]
                if [next(iter(command)) for command in commands[:2]] != ["add", "delete"]:
                    raise CommandError(errno.EEXIST, "nft: the table was not removed first")
                self._change()
                self.tables = [command["add"] for command in commands[2:]]
        return ""

    def _systemctl(self, words: list[str], _: str) -> str:
        match words:
            case ["daemon-reload"]:
                self._change()
            case ["list-unit-files", "--no-legend", "--full", "--type=service"]:
                folder = "/etc/systemd/system/"
                units = (path.removeprefix(folder) for path in self.files if path.startswith(folder))
                made = [unit for unit in units if unit.endswith(".service")]
                rows = [f"{unit} {'enabled' if unit in self.enabled else 'disabled'} enabled\n" for unit in made]
                return "".join([*rows, "systemd-journald.service static -\n"])
            case ["enable" | "disable" as verb, unit]:
                self._change()
                (self.enabled.add if verb == "enable" else self.enabled.discard)(unit)
            case _:
                raise unknown_command("systemctl", words)
        return ""

    def _update_grub(self, _: list[str], __: str) -> str:
        self._change()
        self.grub = self.files.get("/etc/default/grub.d/xts-bluefield.cfg", "")
        return ""
