"""The operating system around the proxy or the agent: memory, CPUs, and files for systemd."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Iterator

from . import sources
from .cpus import cpu_list, cpu_text
from .look import View
from .model import Action, ByHand, Run, Setting, Source, Value, Write
from .wanted import Wanted

GRUB_FILE = "/etc/default/grub.d/xts-bluefield.cfg"
SYSTEMD = "/etc/systemd/system"
BOOT_UNIT = "xts-bluefield.service"


class BootParameters:
    """Setting("kernel parameters", FILE): the text of a file that GRUB's configuration is made of."""

    name = "kernel parameters"
    source: Source = sources.ISOLATED

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        if wanted.cpus and wanted.cpus.isolated:
            cpus = wanted.cpus.isolated
            line = f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX isolcpus=managed_irq,domain,{cpus} nohz_full={cpus}"'
            yield Setting(self.name, GRUB_FILE), f"# Written by xts-bluefield.\n{line}\n"

    def read(self, setting: Setting, view: View) -> Value:
        return view.machine.read(setting.place)

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        return (Write(setting.place, new), Run(("update-grub",)))

    def what(self, setting: Setting, new: Value) -> str:
        return "the next boot isolates the CPUs (isolcpus, nohz_full)"

    def why(self, setting: Setting) -> str:
        return "CPUs that poll queues share their time with nothing else"

    def check(self, setting: Setting) -> str:
        return f"cat {setting.place}"


class IsolatedCpus:
    """Setting("isolated CPUs", "now"): the CPUs that the running kernel isolates."""

    name = "isolated CPUs"
    source: Source = sources.ISOLATED

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        if wanted.cpus and wanted.cpus.isolated:
            yield Setting(self.name, "now"), cpu_text(cpu_list(wanted.cpus.isolated))

    def read(self, setting: Setting, view: View) -> Value:
        return cpu_text(cpu_list(view.machine.read("/sys/devices/system/cpu/isolated") or ""))

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        return (ByHand("reboot this machine, then run the same command again"),)

    def what(self, setting: Setting, new: Value) -> str:
        return f"the running kernel isolates CPUs {new}"

    def why(self, setting: Setting) -> str:
        return "the kernel reads isolcpus only when it starts"

    def check(self, setting: Setting) -> str:
        return "cat /sys/devices/system/cpu/isolated"


class HugePages:
    """Setting("huge pages", "2048kB"): how many there are."""

    name = "huge pages"
    source: Source = sources.HUGE_PAGES

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        if wanted.memory:
            yield Setting(self.name, f"{wanted.memory.page_kb}kB"), wanted.memory.pages

    def read(self, setting: Setting, view: View) -> Value:
        text = view.machine.read(_pages_file(setting.place))
        if text is None:
            raise OSError(
                errno.ENOENT, f"this kernel has no huge pages of {setting.place}: see /sys/kernel/mm/hugepages"
            )
        return int(text)

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        return (Write(_pages_file(setting.place), f"{new}\n"),)

    def what(self, setting: Setting, new: Value) -> str:
        return f"{new} huge pages of {setting.place}"

    def why(self, setting: Setting) -> str:
        return "Open vSwitch and programs of DOCA take them; the proxy itself needs none"

    def check(self, setting: Setting) -> str:
        return f"cat {_pages_file(setting.place)}"


def _pages_file(size: str) -> str:
    return f"/sys/kernel/mm/hugepages/hugepages-{size}/nr_hugepages"


class UnitFiles:
    """Setting("unit file", FILE): its text; None: no file."""

    name = "unit file"
    source: Source = sources.UNITS

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        if wanted.units is None:
            return
        service = "xts-proxy" if wanted.role == "device" else "xts-agent"
        if wanted.units.boot:
            yield Setting(self.name, f"{SYSTEMD}/{BOOT_UNIT}"), _boot_unit(wanted.file, service)
        drop_in = _drop_in(wanted, service)
        if drop_in:
            yield Setting(self.name, f"{SYSTEMD}/{service}.service.d/50-xts-bluefield.conf"), drop_in

    def read(self, setting: Setting, view: View) -> Value:
        return view.machine.read(setting.place)

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        return (Write(setting.place, new), Run(("systemctl", "daemon-reload")))

    def what(self, setting: Setting, new: Value) -> str:
        return f"{setting.place}, {len((new or '').splitlines())} lines"

    def why(self, setting: Setting) -> str:
        if setting.place.endswith(BOOT_UNIT):
            return "functions, flows, queues and filters do not outlive a boot: the unit applies them again"
        return "the service starts when its interface is there, on the CPUs that are for it"

    def check(self, setting: Setting) -> str:
        return f"systemctl cat {setting.place.removesuffix('.d/50-xts-bluefield.conf').rpartition('/')[2]}"


def _boot_unit(file: str, service: str) -> str:
    return (
        "# Written by xts-bluefield.\n"
        "[Unit]\n"
        "Description=Set up the BlueField for XTS\n"
        "Documentation=man:xts-bluefield(1)\n"
        "After=network-pre.target openvswitch-switch.service systemd-udev-settle.service\n"
        "Wants=systemd-udev-settle.service\n"
        f"Before={service}.service\n"
        "\n[Service]\n"
        "Type=oneshot\n"
        "RemainAfterExit=yes\n"
        f"ExecStart=/usr/bin/xts-bluefield apply --yes {shlex.quote(file).replace('%', '%%')}\n"
        "\n[Install]\n"
        "WantedBy=multi-user.target\n"
    )


def _drop_in(wanted: Wanted, service: str) -> str:
    assert wanted.units is not None
    lines = ["# Written by xts-bluefield."]
    if wanted.units.boot:
        lines += ["[Unit]", f"Requires={BOOT_UNIT}", f"After={BOOT_UNIT}"]
    body = [f"CPUAffinity={wanted.units.cpus.replace(',', ' ')}"] if wanted.units.cpus else []
    if service == "xts-agent" and wanted.link:
        options = " ".join(f"--interface {link.interface} --peer-mac {link.peer_mac}" for link in wanted.links())
        body += ["ExecStart=", f"ExecStart=/usr/bin/xts-agent --config /etc/xts/xts-agent.toml {options}"]
    lines += ["[Service]", *body] if body else []
    return "\n".join(lines) + "\n" if len(lines) > 1 else ""


class UnitEnabled:
    """Setting("unit enabled", UNIT): "enabled" or "disabled"; None: no such unit."""

    name = "unit enabled"
    source: Source = sources.UNITS

    def wanted(self, wanted: Wanted) -> Iterator[tuple[Setting, Value]]:
        if wanted.units is not None and wanted.units.boot:
            yield Setting(self.name, BOOT_UNIT), "enabled"

    def read(self, setting: Setting, view: View) -> Value:
        # All services: asked for one that is not there, systemctl fails without a word.
        shown = view.output("systemctl", "list-unit-files", "--no-legend", "--full", "--type=service")
        rows = (line.split() for line in shown.splitlines())
        return next((row[1] for row in rows if len(row) > 1 and row[0] == setting.place), None)

    def actions(self, setting: Setting, old: Value, new: Value) -> tuple[Action, ...]:
        return (Run(("systemctl", "enable" if new == "enabled" else "disable", setting.place)),)

    def what(self, setting: Setting, new: Value) -> str:
        return f"{setting.place} is {new or 'disabled'}"

    def why(self, setting: Setting) -> str:
        return "it runs at each boot"

    def check(self, setting: Setting) -> str:
        return f"systemctl is-enabled {setting.place}"
