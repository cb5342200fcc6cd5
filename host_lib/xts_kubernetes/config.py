"""The command line of xts-device-plugin."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from xts_agent.pods import DEFAULT_PODS_SOCKET
from xts_messages.attaching.attach import DEFAULT_ENDPOINT
from xts_messages.services.log_format import FORMATS
from xts_messages.terminal.command_line import CommandLine, add_common

from xts_kubernetes.offered import DEVICES_MAX

_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


DEFAULT_DRIVER = "queue.xts.io"
#: Of Kubernetes' objects: labels with dots between them.
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")


class ConfigError(Exception):
    """The options cannot be used; the text says what, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The options; see parser()."""

    resource: str
    endpoint: str
    container_dir: str
    kubelet_dir: str
    pod_resources: str
    pods_socket: str
    pod_logs: str
    relayed: bool
    queues: int
    interposer_dir: str
    container_interposer_dir: str
    period_s: float
    dra: str
    driver: str
    kubelet_plugins: str
    kubelet_registry: str
    cdi_dir: str
    kubeconfig: str


def parser() -> argparse.ArgumentParser:
    """The command line of xts-device-plugin."""
    result = CommandLine(
        prog="xts-device-plugin",
        description="Offers the queues of this node to Kubernetes. A container that asks for the resource gets the "
        "folder with the endpoint's socket and XTS_ENDPOINT, without any privilege. Also tells the agent which pod a "
        "process belongs to, and how many queues that pod was allocated. Runs until SIGTERM.",
        epilog="examples:\n"
        "  xts-device-plugin --endpoint /run/xts/endpoint.sock\n"
        "  xts-device-plugin --install-interposer /var/lib/xts/interposer\n"
        "  xts-device-plugin --interposer-dir /var/lib/xts/interposer\n"
        "  xts-device-plugin --dra worker-1\n\n"
        "exit status: 0, ended by SIGTERM or SIGINT; 1, it cannot serve; 2, a bad option",
    )
    add_common(result)
    add = result.add_argument
    add(
        "--resource",
        metavar="NAME",
        default="xts.io/queue",
        help="name of the resource that pods request (default %(default)s)",
    )
    add(
        "--endpoint",
        metavar="PATH",
        default=DEFAULT_ENDPOINT,
        help="socket of the agent on the node (default %(default)s)",
    )
    add(
        "--container-dir",
        metavar="PATH",
        default="/run/xts",
        help="where the folder of the endpoint is mounted in containers (default %(default)s)",
    )
    add(
        "--kubelet-dir",
        metavar="PATH",
        default="/var/lib/kubelet/device-plugins",
        help="folder with the kubelet's socket, kubelet.sock, and the sockets of device plug-ins (default %(default)s)",
    )
    add(
        "--pod-resources",
        metavar="PATH",
        default="/var/lib/kubelet/pod-resources/kubelet.sock",
        help="socket of the kubelet that lists the resources of its pods (default %(default)s)",
    )
    add(
        "--pods-socket",
        metavar="PATH",
        default=DEFAULT_PODS_SOCKET,
        help='socket to serve, where the agent asks about pods (its setting "pods"); "": none (default %(default)s)',
    )
    add(
        "--pod-logs",
        metavar="PATH",
        default="/var/log/pods",
        help="where the kubelet has a folder for each pod, whose name contains the pod's name (default %(default)s)",
    )
    add("--relayed", action="store_true", help="also offer the agent's places behind relays (relayed_max)")
    add(
        "--queues",
        metavar="N",
        type=int,
        default=0,
        help="how many queues to offer when the endpoint does not say, because it is a proxy's (shared memory) "
        "(default %(default)s)",
    )
    add(
        "--interposer-dir",
        metavar="PATH",
        default="",
        help="folder of the node with libxts-preload.so in lib/, lib64/ and so on; it is mounted in containers, "
        "and LD_PRELOAD set there (default: neither)",
    )
    add(
        "--container-interposer-dir",
        metavar="PATH",
        default="/run/xts-interposer",
        help="where that folder is mounted in containers (default %(default)s)",
    )
    add(
        "--period-s",
        metavar="S",
        type=float,
        default=2.0,
        help="seconds between two questions to the endpoint about its queues (default %(default)s)",
    )
    _add_dra(result)
    add(
        "--install-interposer",
        metavar="PATH",
        help="copy the interposer into this folder, for --interposer-dir, and exit",
    )
    add(
        "--log-format",
        choices=FORMATS,
        default="auto",
        help="write log lines as text, as JSON, or to the journal with fields (default auto: the journal under "
        "systemd, else text)",
    )
    add("--ready-fd", metavar="FD", type=int, help="write a line to this file descriptor when serving, and close it")
    add("--verbose", action="store_true", help="log each allocation")
    return result


def _add_dra(result: argparse.ArgumentParser) -> None:
    group = result.add_argument_group("dynamic resource allocation (DRA), in place of a device plug-in")
    add = group.add_argument
    add("--dra", metavar="NODE", default="", help="offer the queues by DRA, for the node of this name in the cluster")
    add("--driver", metavar="NAME", default=DEFAULT_DRIVER, help="name of the driver (default %(default)s)")
    add(
        "--kubelet-plugins",
        metavar="PATH",
        default="/var/lib/kubelet/plugins",
        help="folder in which to make a folder with the driver's name, for its socket (default %(default)s)",
    )
    add(
        "--kubelet-registry",
        metavar="PATH",
        default="/var/lib/kubelet/plugins_registry",
        help="where the kubelet looks for sockets of plug-ins (default %(default)s)",
    )
    add(
        "--cdi-dir",
        metavar="PATH",
        default="/var/run/cdi",
        help="where container runtimes look for CDI files (default %(default)s)",
    )
    add(
        "--kubeconfig",
        metavar="FILE",
        default="",
        help="kubeconfig file for the API server (default: use the service account of this pod)",
    )


_PATHS = ("endpoint", "container_dir", "kubelet_dir", "pod_resources", "pod_logs", "container_interposer_dir")
_PATHS_OF_DRA = ("kubelet_plugins", "kubelet_registry", "cdi_dir")
_PATHS_OR_NONE = ("pods_socket", "interposer_dir", "kubeconfig")
#: Of a Unix socket, without its last zero.
_SOCKET_BYTES_MAX = 107


def load(options: argparse.Namespace) -> Config:
    """The configuration of these options. ConfigError says all that is wrong."""
    config = Config(**{name: getattr(options, name) for name in Config.__dataclass_fields__})
    mistakes = []
    if not _RESOURCE.fullmatch(config.resource):
        mistakes.append(f"--resource: expected a name such as xts.io/queue, found {config.resource!r}")
    for name in (*_PATHS, *_PATHS_OF_DRA, *_PATHS_OR_NONE):
        value = getattr(config, name)
        allowed = not value and name in _PATHS_OR_NONE
        if not allowed and (not PurePosixPath(value).is_absolute() or ".." in PurePosixPath(value).parts):
            mistakes.append(f"--{name.replace('_', '-')}: expected an absolute path without .., found {value!r}")
    for name in ("endpoint", "pods_socket", "pod_resources"):
        if len(getattr(config, name).encode(errors="surrogateescape")) > _SOCKET_BYTES_MAX:
            mistakes.append(f"--{name.replace('_', '-')}: a socket's path has at most {_SOCKET_BYTES_MAX} bytes")
    if len(f"{config.kubelet_dir}/kubelet.sock".encode(errors="surrogateescape")) > _SOCKET_BYTES_MAX:
        mistakes.append(f"--kubelet-dir: the path of a socket in it has more than {_SOCKET_BYTES_MAX} bytes")
    mistakes += _mistakes_of_dra(config)
    if PurePosixPath(config.pods_socket).parent == PurePosixPath(config.endpoint).parent:
        mistakes.append("--pods-socket: containers get the folder of --endpoint; choose another one")
    if not 0 <= config.queues <= DEVICES_MAX:
        mistakes.append(f"--queues: expected 0 to {DEVICES_MAX}, found {config.queues}")
    if not 0.05 <= config.period_s <= 3600:
        mistakes.append(f"--period-s: expected 0.05 to 3600, found {config.period_s:g}")
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return config


def _mistakes_of_dra(config: Config) -> list[str]:
    mistakes = []
    if config.dra and not (len(config.dra) <= 253 and DNS_NAME.fullmatch(config.dra)):
        mistakes.append(f"--dra: expected the name of a node, found {config.dra!r}")
    # CDI's names of vendors begin with a letter.
    if not (len(config.driver) <= 63 and DNS_NAME.fullmatch(config.driver) and config.driver[0].isalpha()):
        mistakes.append(f"--driver: expected a name such as {DEFAULT_DRIVER}, found {config.driver!r}")
    for path, option in (
        (dra_socket(config), "--kubelet-plugins"),
        (registration_socket(config), "--kubelet-registry"),
    ):
        if len(path.encode(errors="surrogateescape")) > _SOCKET_BYTES_MAX:
            mistakes.append(f"{option}: the path of a socket in it has more than {_SOCKET_BYTES_MAX} bytes")
    return mistakes


def dra_socket(config: Config) -> str:
    """Where the driver serves the kubelet."""
    return f"{config.kubelet_plugins}/{config.driver}/dra.sock"


def registration_socket(config: Config) -> str:
    """Where the kubelet finds the driver."""
    return f"{config.kubelet_registry}/{config.driver}-reg.sock"
