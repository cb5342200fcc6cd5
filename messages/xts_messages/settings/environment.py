"""Every setting of the host side, and every environment variable that a program of this project reads or sets, each
declared once. Variables with a key can also be set in xts.toml (native/settings/settings_file.h).

C reads the same table: `python -m xts_messages.generate` makes native/settings/environment_names.h (numbers, ranges,
defaults) and native/settings/environment_table.c from it. `xts env` prints it. A test finds names in the code
that are not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .profiles import NAMES


class Kind(Enum):
    """The kind of a value. The numbers are those of `enum xts_variable_kind`."""

    SWITCH = 0  # 0 or 1
    NUMBER = 1
    PATH = 2
    CHOICE = 3
    TEXT = 4


#: Prefix of variables that tests set for their own programs: nobody reports them as mistakes (`xts run`, `xts env`,
#: native/settings/environment.c).
OF_TESTS = "XTS_TEST_"


class Reader(Enum):
    """The program that reads a variable."""

    LIBRARY = "library"  # libxts, also under the interposer and under Python
    INTERPOSER = "interposer"  # libxts-preload, which `xts run` loads into a program
    PYTHON = "Python"  # the package xts_socket
    AGENT = "agent"
    PROXY = "proxy"
    TOOLS = "tools"  # xts and its verbs
    LAB = "lab"
    TESTS = "tests"


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. An empty value counts as not set."""

    name: str
    kind: Kind
    meaning: str  # one or two plain sentences
    readers: tuple[Reader, ...]
    default: str | int | None = None  # None: as described in the meaning
    unit: str = ""  # for a number
    minimum: int = 0
    maximum: int = 0  # for a number; for a path or text: its greatest length in bytes
    choices: tuple[str, ...] = ()
    prefix: str = ""  # how a text begins
    form: str = ""  # for a text: its form
    aliases: tuple[str, ...] = ()  # read if it is not set, in this order
    option: str = ""  # the option of a command that sets it
    owner: str = ""  # the project that owns it, if it is not ours
    internal: bool = False  # one of our programs sets it for another; nothing else should set it
    key: str = ""  # its name in xts.toml; "": it cannot be set there, since it is for a single run

    @property
    def allowed(self) -> str:
        """A description of the legal values."""
        match self.kind:
            case Kind.SWITCH:
                return "0 or 1"
            case Kind.NUMBER:
                return f"a number from {self.minimum} to {self.maximum}" + (f" ({self.unit})" if self.unit else "")
            case Kind.CHOICE:
                return " or ".join(self.choices)
            case Kind.PATH:
                return "a path" + (f" of at most {self.maximum} bytes" if self.maximum else "")
            case Kind.TEXT:
                limit = f"at most {self.maximum} bytes" if self.maximum else ""
                return ", ".join(filter(None, (self.form, limit))) or "a text"


_UINT32_MAX = 0xFFFFFFFF
_LIBRARY, _INTERPOSER, _PYTHON = Reader.LIBRARY, Reader.INTERPOSER, Reader.PYTHON

#: The variables that C reads, in the order of `enum xts_variable`.
OURS = (
    Variable(
        "XTS_ENDPOINT",
        Kind.PATH,
        "The Unix socket of the agent or proxy that gives this process its queue.",
        (_LIBRARY, Reader.TOOLS),
        default="/run/xts/endpoint.sock",
        maximum=107,
        option="--endpoint",
        key="endpoint",
    ),
    Variable(
        "XTS_CONFIG",
        Kind.PATH,
        "The file of settings. The environment takes precedence over it. A file that is named here must "
        "exist; /dev/null: no file.",
        (_LIBRARY, Reader.TOOLS),
        default="/etc/xts/xts.toml",
        maximum=4095,
    ),
    Variable(
        "XTS_PROFILE",
        Kind.CHOICE,
        "A profile: a set of settings for one kind of program (`xts run --list-profiles`). Named in the "
        "environment, it takes precedence over the file of settings; other variables of the environment take "
        "precedence over it.",
        (_LIBRARY, Reader.TOOLS),
        choices=NAMES,
        option="--profile",
        key="profile",
    ),
    Variable(
        "XTS_QUEUE",
        Kind.TEXT,
        "Names a queue directly and overrides XTS_ENDPOINT. shm:PATH is the endpoint of a proxy that serves "
        "shared memory.",
        (_LIBRARY,),
        maximum=111,
        prefix="shm:",
        form="shm:PATH (an AF_XDP queue is opened by xts-agent: set XTS_ENDPOINT)",
    ),
    Variable(
        "XTS_RULES",
        Kind.PATH,
        "A file of transport rules, which say what is offloaded (RULES.md). Without it TCP is offloaded, except on "
        "loopback (XTS_LOOPBACK).",
        (_INTERPOSER, _PYTHON, Reader.TOOLS),
        option="--rules",
        key="rules",
    ),
    Variable(
        "XTS_LOOPBACK",
        Kind.SWITCH,
        "1: the device is this machine, so loopback is offloaded as other addresses are, unless the rules say "
        "otherwise. `xts dev` and dev() set it.",
        (_INTERPOSER, _PYTHON, Reader.TOOLS),
        default=0,
    ),
    Variable(
        "XTS_STRICT",
        Kind.SWITCH,
        "1: a socket that should be offloaded but cannot be fails, instead of being left to the kernel.",
        (_INTERPOSER, _PYTHON, Reader.TOOLS),
        default=0,
        option="--strict",
        key="strict",
    ),
    Variable(
        "XTS_APPLICATION_ID",
        Kind.TEXT,
        "The id of this program, which an `application-id` line of the rules can name.",
        (_INTERPOSER, _PYTHON),
        aliases=("XLIO_APPLICATION_ID", "VMA_APPLICATION_ID"),
        key="application_id",
    ),
    Variable(
        "XTS_LOG",
        Kind.CHOICE,
        "What the library writes to standard error. warning: why sockets cannot be offloaded, and wrong "
        "settings. info: also each socket of a program under the interposer, and why it is not offloaded. "
        "debug: also when the process gets and loses its queue. 0 means warning, 1 means info. `xts log` "
        "changes the level of a running process.",
        (_LIBRARY, _INTERPOSER),
        default="warning",
        choices=("none", "warning", "info", "debug", "0", "1"),
        key="log",
    ),
    Variable(
        "XTS_QUIET",
        Kind.SWITCH,
        "1: the library writes nothing to standard error, not even that sockets were left to the kernel. The "
        "same as XTS_LOG=none.",
        (_LIBRARY, _INTERPOSER, _PYTHON),
        default=0,
        option="-q",
        key="quiet",
    ),
    Variable(
        "XTS_VERBOSE",
        Kind.SWITCH,
        "1: when a program under the interposer ends, it writes to standard error how many sockets were "
        "offloaded and how many were not, with the reasons, the bytes and its CPU time.",
        (_INTERPOSER,),
        default=0,
        option="-v",
        key="verbose",
    ),
    Variable(
        "XTS_ROOT_PID",
        Kind.NUMBER,
        "The process of `xts run` or `xts dev`: a notice appears on standard error once for it and all "
        "processes that it starts.",
        (_INTERPOSER,),
        unit="process id",
        maximum=1 << 22,
        internal=True,
    ),
    Variable(
        "XTS_IO_URING",
        Kind.CHOICE,
        "Whether a program under the interposer may use io_uring. It is refused by default, because it does "
        "not see offloaded sockets.",
        (_INTERPOSER,),
        default="refuse",
        choices=("refuse", "allow"),
        key="io_uring",
    ),
    Variable(
        "XTS_SPIN_US",
        Kind.NUMBER,
        "How long a waiting call polls, at most, before it sleeps. 0: it sleeps at once.",
        (_LIBRARY,),
        default=50,
        unit="microseconds",
        maximum=_UINT32_MAX,
        key="spin_us",
    ),
    Variable(
        "XTS_POLLING",
        Kind.CHOICE,
        "adaptive: a waiting call polls for XTS_SPIN_US where that is likely to help, then sleeps. always: while there "
        "are sockets, a waiting call never sleeps: one thread of each stack takes a whole core.",
        (_LIBRARY,),
        default="adaptive",
        choices=("adaptive", "always"),
        key="polling",
    ),
    Variable(
        "XTS_WAKEUP_GAP_US",
        Kind.NUMBER,
        "The least time from one wake-up of a waiting call by its queue to the next. What arrives earlier waits, and "
        "is handled together. 100: at most 10,000 wake-ups a second. 0: each arrival may wake it.",
        (_LIBRARY,),
        default=0,
        unit="microseconds",
        maximum=10_000,
        key="wakeup_gap_us",
    ),
    Variable(
        "XTS_STACKS",
        Kind.TEXT,
        "How many queues, each with its own lock, the threads of a process use. process: one for all "
        "threads. thread: one for each thread. A number: the threads are spread over this many.",
        (_LIBRARY,),
        default="process",
        maximum=8,
        form="process, thread or a number from 1 to 1024",
        key="stacks",
    ),
    Variable(
        "XTS_WINDOW_BYTES",
        Kind.NUMBER,
        "The receive window that a new socket starts with.",
        (_LIBRARY,),
        default=65536,
        unit="bytes",
        minimum=2,
        maximum=1 << 30,
        key="window_bytes",
    ),
    Variable(
        "XTS_WINDOW_BYTES_MAX",
        Kind.NUMBER,
        "The size to which the receive window of a busy socket may grow.",
        (_LIBRARY,),
        default=2 << 20,  # more bytes in flight only spoil the cache: bulk was slower with 4 MiB
        unit="bytes",
        minimum=2,
        maximum=1 << 30,
        key="window_bytes_max",
    ),
    Variable(
        "XTS_FRAME_WINDOW",
        Kind.NUMBER,
        "The most unacknowledged frames in each direction. If not set, what the endpoint offers.",
        (_LIBRARY,),
        unit="frames",
        minimum=4,
        maximum=128,
        key="frame_window",
    ),
    Variable(
        "XTS_DEAD_MS",
        Kind.NUMBER,
        "How long the device may be silent before the library gives it up, and its sockets fail.",
        (_LIBRARY,),
        default=3000,
        unit="milliseconds",
        minimum=500,
        maximum=_UINT32_MAX,
        key="dead_ms",
    ),
    Variable(
        "XTS_PCAP",
        Kind.PATH,
        "Writes all frames of this process to a new file of this name, for Wireshark. In the name, %p stands "
        "for the process id, %e for the program's name, and %% for a %.",
        (_LIBRARY,),
        maximum=255,
    ),
    Variable(
        "XTS_FAULTS",
        Kind.TEXT,
        "For tests: loses, repeats, reorders, delays or damages frames at random. `tx.` or `rx.` before a name: only "
        "when sending or receiving.",
        (_LIBRARY,),
        maximum=255,
        form="seed=N and drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, truncate_ppm, delay_ppm, repeat_ppm, "
        "delay_us or skip_frames=N, separated by commas",
    ),
)

#: Variables that C reads or sets without that table, and those that only Python reads.
OTHERS = (
    Variable(
        "XTS_INHERITED",
        Kind.NUMBER,
        "The descriptor with which a program under the interposer passes its sockets to the program that "
        "exec() starts.",
        (_INTERPOSER,),
        maximum=0x7FFFFFFF,
        internal=True,
    ),
    Variable(
        "XTS_CONTROL",
        Kind.PATH,
        "The control socket of the proxy that `xts-proxy status` and `xts top` ask. `xts dev` and `xts-lab exec` set "
        "it to that of their proxy.",
        (Reader.PROXY, Reader.TOOLS),
        default="/run/xts/proxy.sock",
        maximum=107,
        option="--control",
    ),
    Variable(
        "LD_PRELOAD",
        Kind.TEXT,
        "`xts run` puts the interposer before the existing value.",
        (Reader.TOOLS,),
        owner="ld.so(8)",
    ),
    Variable(
        "MAINPID",
        Kind.NUMBER,
        "The main process of the unit whose reload runs this command: the proxy that a new one takes over from.",
        (Reader.PROXY,),
        maximum=(1 << 31) - 1,
        owner="systemd",
    ),
    Variable(
        "NOTIFY_SOCKET",
        Kind.PATH,
        "Where the service notifies systemd that it is ready (Type=notify).",
        (Reader.AGENT, Reader.PROXY),
        owner="systemd",
    ),
    Variable(
        "WATCHDOG_USEC",
        Kind.NUMBER,
        "Within this time the service has to notify systemd again that it is alive (WatchdogSec=).",
        (Reader.AGENT, Reader.PROXY),
        unit="microseconds",
        maximum=(1 << 63) - 1,
        owner="systemd",
    ),
    Variable(
        "LISTEN_PID",
        Kind.NUMBER,
        "The process that LISTEN_FDS is for.",
        (Reader.AGENT, Reader.PROXY),
        maximum=(1 << 31) - 1,
        owner="systemd",
    ),
    Variable(
        "LISTEN_FDS",
        Kind.NUMBER,
        "How many descriptors systemd passes: sockets of .socket units, and what the service has stored.",
        (Reader.AGENT, Reader.PROXY),
        maximum=1024,
        owner="systemd",
    ),
    Variable(
        "LISTEN_FDNAMES",
        Kind.TEXT,
        "The names of these descriptors, separated by colons.",
        (Reader.AGENT, Reader.PROXY),
        owner="systemd",
    ),
    Variable(
        "JOURNAL_STREAM",
        Kind.TEXT,
        "Set by systemd: device and inode of the stream to the journal. If standard error is that stream, "
        "log lines have fields.",
        (Reader.PROXY, Reader.AGENT),
        owner="systemd",
    ),
    Variable(
        "REQUESTS_CA_BUNDLE",
        Kind.PATH,
        "A session of requests over the adapter accepts `verify` of this value, which requests puts there itself.",
        (_PYTHON,),
        owner="requests",
    ),
    Variable(
        "CURL_CA_BUNDLE",
        Kind.PATH,
        "The same as REQUESTS_CA_BUNDLE.",
        (_PYTHON,),
        owner="requests",
    ),
    Variable(
        "XTS_LAB",
        Kind.TEXT,
        "The name of the lab that xts-lab works on.",
        (Reader.LAB,),
        default="xts",
        option="--name",
    ),
    Variable(
        "XDG_RUNTIME_DIR",
        Kind.PATH,
        "Where the proxy of `xts dev` has its sockets. If not set, the folder for temporary files.",
        (Reader.TOOLS, _PYTHON),
        owner="XDG Base Directory Specification",
    ),
    Variable(
        "XDG_CACHE_HOME",
        Kind.PATH,
        "Where the demonstration keeps its files. If not set, ~/.cache.",
        (Reader.LAB,),
        owner="XDG Base Directory Specification",
    ),
    Variable(
        "PATH",
        Kind.TEXT,
        "Where programs are looked for.",
        (Reader.TOOLS, Reader.LAB),
        owner="POSIX",
    ),
    Variable(
        "COLUMNS",
        Kind.TEXT,
        "How wide tables are. If not set: the terminal's width, and elsewhere as wide as necessary.",
        (Reader.TOOLS, Reader.LAB, Reader.AGENT, Reader.PROXY),
        form="a number",
        owner="POSIX",
    ),
    Variable(
        "NO_COLOR",
        Kind.TEXT,
        "Whatever it is set to: no colours.",
        (Reader.TOOLS, Reader.LAB, Reader.PROXY),
        owner="no-color.org",
    ),
    Variable(
        "FORCE_COLOR",
        Kind.TEXT,
        "Whatever it is set to: colours also where standard output is no terminal, unless NO_COLOR is set.",
        (Reader.TOOLS, Reader.LAB, Reader.PROXY),
        owner="force-color.org",
    ),
    Variable(
        "TERM",
        Kind.TEXT,
        "The kind of terminal. One that is called dumb has no colours.",
        (Reader.TOOLS, Reader.LAB, Reader.PROXY),
        owner="POSIX",
    ),
    Variable(
        "XTS_TEST_PRELOAD",
        Kind.PATH,
        "The interposer that the tests use, instead of the installed one.",
        (Reader.TESTS,),
        internal=True,
    ),
    Variable(
        "XTS_TEST_LIBRARY",
        Kind.PATH,
        "The libxts.so that the tests use, instead of the installed one.",
        (Reader.TESTS,),
        internal=True,
    ),
    Variable(
        "XTS_TEST_CHECKED",
        Kind.PATH,
        "A build with XTS_DEBUG under ASan and UBSan, for the stress runs that check every step.",
        (Reader.TESTS,),
        internal=True,
    ),
    Variable(
        "XTS_SEARCH",
        Kind.NUMBER,
        "How many hundred random examples each property test tries. 0: one hundred, the same in every run.",
        (Reader.TESTS,),
        default=0,
        maximum=_UINT32_MAX,
        internal=True,
    ),
    Variable(
        "XTS_CASES_SHOW",
        Kind.SWITCH,
        "1: CPython's own tests show the traceback of each failure, also of those that are expected.",
        (Reader.TESTS,),
        default=0,
        internal=True,
    ),
    Variable(
        "XTS_PROGRAMS_KERNEL",
        Kind.SWITCH,
        "1: the tests of unmodified programs run them over the kernel's TCP, to see whether a test passes "
        "without offload.",
        (Reader.TESTS,),
        default=0,
        internal=True,
    ),
    Variable(
        "XTS_VM",
        Kind.SWITCH,
        "1: the tests run inside their virtual machine.",
        (Reader.TESTS,),
        default=0,
        internal=True,
    ),
    Variable(
        "XTS_VM_KERNEL",
        Kind.PATH,
        "The kernel of the tests' virtual machine. If not set, Debian's newest.",
        (Reader.TESTS,),
        internal=True,
    ),
)

VARIABLES = OURS + OTHERS
BY_NAME = {name: variable for variable in VARIABLES for name in (variable.name, *variable.aliases)}
