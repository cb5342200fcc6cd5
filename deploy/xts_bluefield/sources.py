"""The documents that say how each step is done. Titles and addresses are those of the pages themselves."""

from __future__ import annotations

from .model import Source

MODE = Source(
    "BlueField Modes of Operation (DOCA documentation)",
    "Changing Mode, Using Arm OS command line and Using External Host Command Line",
    "https://docs.nvidia.com/doca/sdk/BlueField+Modes+of+Operation",
)
MLXCONFIG = Source(
    "mlxconfig - Changing Device Configuration Tool (NVIDIA Firmware Tools documentation)",
    "query with -e: default, current and next-boot values; a reboot makes them current",
    "https://docs.nvidia.com/networking/display/mftv43106021/mlxconfig+%E2%80%93+Changing+Device+Configuration+Tool",
)
FUNCTION_FIRMWARE = Source(
    "Scalable Functions (BlueField DPU BSP v4.5.4)",
    "Device Configuration: PF_BAR2_ENABLE, PER_PF_NUM_SF, PF_TOTAL_SF, PF_SF_BAR_SIZE; cold reboot",
    "https://docs.nvidia.com/networking/display/bluefieldbsp454/Scalable+Functions",
)
FUNCTION = Source(
    "Devlink Port (Linux kernel documentation)",
    "Function attributes: MAC address setup; Subfunction: create, configure, deploy",
    "https://docs.kernel.org/6.17/networking/devlink/devlink-port.html",
)
ESWITCH = Source(
    "Switchdev, mlx5 (Linux kernel documentation)",
    "Bridge offload: devlink dev eswitch set mode switchdev; Subfunction",
    "https://docs.kernel.org/6.5/_sources/networking/device_drivers/ethernet/mellanox/mlx5/switchdev.rst.txt",
)
XDP = Source(
    "Family netdev netlink specification (Linux kernel sources)",
    "dev-get: xdp-features",
    "https://tangled.org/tjh.dev/kernel/blob/v6.3-rc7/Documentation/netlink/specs/netdev.yaml",
)
OVS_PORT = Source(
    "Virtual Switch on BlueField (DOCA documentation)",
    "ovs-vsctl add-port for representors",
    "https://docs.nvidia.com/doca/sdk/Virtual+Switch+on+BlueField",
)
OVS_FLOWS = Source(
    "ovs-ofctl(8) (Open vSwitch manual)",
    "add-flows with --bundle; mod-port with no-flood; dump-flows",
    "man:ovs-ofctl(8)",
)
TC = Source(
    "tc-flower(8) and tc-mirred(8) (iproute2 manual)",
    "Options: action; mirred: egress redirect dev",
    "man:tc-flower(8)",
)
QUEUES = Source(
    "Netlink interface for ethtool (Linux kernel, Documentation/networking/ethtool-netlink.rst)",
    "CHANNELS_SET, as the ioctl ETHTOOL_SCHANNELS",
    "https://git.zx2c4.com/linux-dev/commit/?id=e19c591eafad4d723a2eed385e253eca0506cc25",
)
IRQ = Source(
    "SMP IRQ affinity (Linux kernel documentation)",
    "/proc/irq/IRQ#/smp_affinity_list",
    "https://kernel.org/doc/Documentation/IRQ-affinity.txt",
)
HUGE_PAGES = Source(
    "HugeTLB Pages (Linux kernel documentation)",
    "Overview: /sys/kernel/mm/hugepages, nr_hugepages",
    "https://docs.kernel.org/6.8/admin-guide/mm/hugetlbpage.html",
)
ISOLATED = Source(
    "The kernel's command-line parameters (Linux kernel, Documentation/admin-guide/kernel-parameters.txt)",
    "isolcpus=[flag-list,]cpu-list; nohz_full=; irqaffinity=",
    "https://git.zx2c4.com/linux-dev/diff/?id=b0d40d2b22fe48cfcbbfb137fd198be0a1cd8a85",
)
FIREWALL = Source(
    "libnftables-json(5) (nftables manual)",
    "Command objects: add, delete; ruleset elements: table, chain, rule",
    "https://manpages.ubuntu.com/manpages/jammy/man5/libnftables-json.5.html",
)
UNITS = Source(
    "systemd.unit(5) (systemd manual)",
    "Description: drop-in directories; Unit File Load Path",
    "https://www.freedesktop.org/software/systemd/man/248/systemd.unit.html",
)
