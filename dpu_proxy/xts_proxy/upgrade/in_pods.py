"""`xts-proxy upgrade --pod`: a proxy in a pod takes the place of the one in another pod of the node, or starts.

Theory of operation. A rolling update with a surge starts the new pod while the old one runs. Both mount the folder of
the control socket, which is all that they share: mount, process and cgroup namespaces are their own. Descriptors go
over that socket, of processes too (pidfd), and the number of a process means nothing to the other pod. Who may take
over, the key says (shown_key.py).

A container whose program ends is started again. So the proxy that has handed over does not end: it waits until its pod
is stopped. And as `xts-proxy status` of both pods asks whoever listens, only a file of its own says that *this* pod
serves (--ready-file): Kubernetes stops the old pod when the new one is ready, and not before.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from pathlib import Path

from xts_proxy.supervisor.log import LOG
from xts_proxy.upgrade.taking import ask_to_take

_STOPS = (signal.SIGTERM, signal.SIGINT)


def ready_file(path: Path) -> int:
    """A descriptor of the file, which is empty until this process serves. OSError."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


def ask_if_one_runs(control: str, key: bytes) -> socket.socket | None:
    """As ask_to_take(); None: no proxy listens there."""
    try:
        return ask_to_take(control, key)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ECONNREFUSED):
            raise
        LOG.info("upgrade: no proxy listens at %s: this one starts", control)
        return None


def stay() -> None:
    """Until the pod is stopped."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    LOG.info("upgrade: another pod's proxy has everything; this one waits until its pod is stopped")
    signal.sigwait(_STOPS)
