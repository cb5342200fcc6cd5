"""The pods of Kubernetes that processes belong to, and how many queues each pod was allocated.

Theory of operation. The cgroup of a process gives the identifier of its pod (pod_cgroup.py). Only the kubelet knows
everything else, and tells it only to root. So the agent asks the device plug-in (xts_kubernetes), which talks with the
kubelet anyhow, over a Unix socket: one message with the identifier, and one with the answer. The agent does not block
for it: the process that attaches waits, as it does for a queue (NotReady), and is considered again when the answer is
there.

An answer is kept only for a moment, because a pod that ends gives its queues back. If the plug-in does not answer in
time, processes in pods get no queue.
"""

from __future__ import annotations

import errno
import select
import socket
import time
from dataclasses import dataclass

import msgspec
from xts_messages.attaching.attachments import NotReady

from xts_agent import pod_cgroup

DEFAULT_PODS_SOCKET = "/run/xts-kubernetes/pods.sock"
#: The prefix of what tokens have in place of a cgroup. No path from the kernel that an agent puts into a token begins
#: with it.
PREFIX = "/kubernetes"
MESSAGE_BYTES_MAX = 4096
#: How long the plug-in may take; less than a process waits for its queue.
ANSWER_S = 0.8
KEPT_S = 5.0
_ASKED_MAX = 1024


class Question(msgspec.Struct, frozen=True):
    """Sent by the agent, as JSON."""

    pod: str  # its identifier


class Answer(msgspec.Struct, frozen=True):
    """Sent by the plug-in, as JSON."""

    pod: str
    namespace: str = ""
    name: str = ""
    queues: int = 0  # queues that the pod was allocated, over all its containers
    problem: str = ""  # why there is no answer; "": there is one


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as the kubelet knows it."""

    uid: str
    namespace: str
    name: str
    queues: int

    @property
    def cgroup(self) -> str:
        """What tokens have in place of its cgroup, which operators cannot know."""
        return f"{PREFIX}/{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


@dataclass(slots=True)
class _Known:
    until: float  # by time.monotonic()
    answer: Answer | None = None  # None: asked, and not answered yet


class Pods:
    """Asks the plug-in at a socket. `fileno()` is readable when `collect()` has something to do."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._known: dict[str, _Known] = {}
        self._socket: socket.socket | None = None
        self._epoll = select.epoll()  # so that fileno() stays the same when the plug-in's socket changes

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        """Harmless when repeated."""
        self._hang_up()
        self._epoll.close()

    def timeout_s(self) -> float | None:
        """When collect() is to be called again, in seconds; None: not before something happens."""
        waiting = [known.until for known in self._known.values() if known.answer is None]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def of_process(self, pid: int) -> Pod | None:
        """The pod of a process; None: it is in none. NotReady: the plug-in is being asked. OSError EUSERS, with the
        reason: it is in a pod about which nothing is known."""
        if pid == 0:
            problem = "its pod is not known: it is in a PID namespace that the agent, without the host's, cannot see"
            raise OSError(errno.EUSERS, problem)
        try:
            uid = pod_cgroup.pod_of_process(pid)
        except (OSError, ValueError) as error:
            raise OSError(errno.EUSERS, f"the pod of process {pid} is not known: {error}") from None
        if uid is None:
            return None
        known = self._known.get(uid)
        if known and known.until > time.monotonic():
            if known.answer is None:
                raise NotReady
            return _pod(known.answer)
        self._ask(uid)
        raise NotReady

    def collect(self) -> bool:
        """Reads answers. True: there are some, or some pods have timed out."""
        changed = self._receive()
        now = time.monotonic()
        for uid, known in list(self._known.items()):
            if known.until > now:
                continue
            del self._known[uid]
            if known.answer is None:
                self._learn(Answer(uid, problem=f"the device plug-in at {self.path} does not answer"), ANSWER_S)
                changed = True
        return changed

    def _ask(self, uid: str) -> None:
        if len(self._known) >= _ASKED_MAX:
            raise OSError(errno.EUSERS, f"{_ASKED_MAX} pods are being asked for already")
        try:
            connected = self._connected()
            connected.send(msgspec.json.encode(Question(uid)))
        except OSError as error:
            self._hang_up()
            reason = f"the device plug-in at {self.path} cannot be asked: {error.strerror}"
            raise OSError(errno.EUSERS, f"pod {uid} is not known: {reason}") from None
        self._known[uid] = _Known(time.monotonic() + ANSWER_S)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            try:
                made.connect(self.path)
            except OSError:
                made.close()
                raise
            self._socket = made
            self._epoll.register(made, select.EPOLLIN)
        return self._socket

    def _hang_up(self) -> None:
        if self._socket:
            self._socket.close()  # this removes it from the epoll set
            self._socket = None

    def _receive(self) -> bool:
        changed = False
        while self._socket:
            try:
                data = self._socket.recv(MESSAGE_BYTES_MAX)
                answer = msgspec.json.decode(data, type=Answer) if data else None
            except BlockingIOError:
                break
            except (OSError, msgspec.MsgspecError):
                answer = None
            if answer is None:  # it has ended, or is not a plug-in: the next question goes to a new connection
                self._hang_up()
                break
            asked = self._known.get(answer.pod)
            if asked and asked.answer is None:
                self._learn(answer, ANSWER_S if answer.problem else KEPT_S)
                changed = True
        return changed

    def _learn(self, answer: Answer, for_s: float) -> None:
        self._known[answer.pod] = _Known(time.monotonic() + for_s, answer)


def _pod(answer: Answer) -> Pod:
    if answer.problem:
        raise OSError(errno.EUSERS, f"pod {answer.pod} is not known: {answer.problem}")
    return Pod(answer.pod, answer.namespace, answer.name, answer.queues)
