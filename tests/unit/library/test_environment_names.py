"""Every environment variable that the code reads or sets is declared once (xts_messages/settings/environment.py), and
what is declared is right: the C table of it is current, and each variable is read by somebody."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from xts_messages._native import ffi, lib
from xts_messages.generate import __main__ as generate
from xts_messages.settings.environment import BY_NAME, OURS, VARIABLES, Kind, Variable
from xts_socket import cli
from xts_socket._environment import DEFAULT_ENDPOINT

TOP = Path(__file__).resolve().parents[3]
FOLDERS = ("messages", "host_lib", "dpu_proxy", "bpf", "deploy", "tests", ".ci")
#: Names of the checks and build options, which are no variables of the environment.
OF_THE_BUILD = {"XTS_WERROR", "XTS_SANITIZE", "XTS_DEBUG", "XTS_VISITED_STATES", "XTS_PROBES", "XTS_WAITS", "XTS_RDMA"}
#: Read by tests alone, of what the tests themselves set for their own programs, or of the system.
OF_TESTS = {
    "PORT",
    "VM_QEMU",
    "TEST_CLOCK",
    "BENCH_NAME",
    "CHAOS_PAUSE_S",
    "LOUD",
    "DOORS_ADDRESS",
    "DOORS_STORM",
    "FAIL_CONTROL",
    "FAIL_IN",
    "SEED",
    "BATCH",
    "TLS_FOLDER",
    "PROXY_PID",
    "USER",
    "CC",
    "PYTHONPATH",
    "BCC_KERNEL_SOURCE",
    "BENCH_TRUST",
    "BENCH_CA",
    "BENCH_CERTIFICATE",
    "BENCH_IDENTITY",
    "BENCH_RESUMES",
    "BENCH_WIRE",
    "BENCH_STEERING",
    "CORE_COVERAGE",
    "XTS_TEST_NETWORK",
    "XTS_TEST_PACKAGES",
    "XTS_TEST_OLDER_PACKAGES",
    "XTS_TEST_PREVIOUS",
    "XTS_TEST_SLOWER",
    "XTS_TEST_SSLYZE",
    "XTS_TEST_TLSFUZZER",
    "XTS_TEST_TLSFUZZER_ALL",
    "XTS_TEST_TLSLITE",
    "INHERIT_PEERS",
    "LISTEN_AT",
    "PEERS_AT",
}


def sources(*endings: str) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((TOP / folder).rglob("*")):
            if path.suffix in endings and path.is_file() and "build" not in path.relative_to(TOP).parts:
                yield path


def read_in_python(text: str) -> Iterator[str]:
    """Names in os.environ["X"], environ.get("X"), environ.pop("X"), os.getenv("X"), setting("X")."""
    for node in ast.walk(ast.parse(text)):
        name: ast.expr | None = None
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            name = node.slice
        elif isinstance(node, ast.Call) and node.args:
            function = ast.unparse(node.func)
            if re.search(r"\benviron\.(get|pop|setdefault)$|\bgetenv$|^setting$", function):
                name = node.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value


def test_what_python_reads_is_declared() -> None:
    found = {name: path for path in sources(".py") for name in read_in_python(path.read_text())}
    assert {"XTS_ENDPOINT", "NOTIFY_SOCKET", "XTS_SEARCH"} <= set(found)
    assert not {name: str(path) for name, path in found.items() if name not in BY_NAME and name not in OF_TESTS}


def test_what_c_reads_is_declared() -> None:
    """C reads through environment.h, whose numbers are the declaration's, or by getenv() with a declared name."""
    raw: dict[str, Path] = {}
    for path in sources(".c", ".h"):
        text = path.read_text()
        defined = dict(re.findall(r'#define (\w+) "(\w+)"', text))
        for name in re.findall(r"getenv\((.*?)\)", text):
            raw[name.strip('"') if name.startswith('"') else defined.get(name, name)] = path
    assert "XTS_INHERITED" in raw
    assert not {name: str(path) for name, path in raw.items() if name not in BY_NAME and name not in OF_TESTS}


def test_names_in_scripts_and_documents_are_declared() -> None:
    """$XTS_X and XTS_X=… in scripts, units and documents."""
    found: dict[str, Path] = {}
    paths = [*sources(".md", ".service", ".toml"), TOP / "README.md", TOP / ".ci" / "run"]
    paths += [path for path in sources("") if path.parts[-2] != "__pycache__"]
    for path in paths:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for name in re.findall(r"\$\{?(XTS_[A-Z_]+)|(?<![A-Za-z_-])(XTS_[A-Z_]+)=", text):
            found["".join(name)] = path
    assert not {
        name: str(path) for name, path in found.items() if name not in BY_NAME and name not in OF_THE_BUILD | OF_TESTS
    }


def test_each_of_ours_is_read() -> None:
    text = "".join(
        path.read_text() for path in sources(".c", ".py") if path.name not in ("environment.py", "environment_table.c")
    )
    scripts = (TOP / "tests" / "vm" / "run").read_text()
    for variable in VARIABLES:
        if variable in OURS:
            needle = f"XTS_ENV_{variable.name.removeprefix('XTS_')}"
            assert re.search(rf"\b{needle}\b", text) or f'setting("{variable.name}")' in text, variable.name
        else:
            assert f'"{variable.name}"' in text or variable.name in scripts, variable.name


def test_the_declaration_is_whole() -> None:
    assert BY_NAME["XTS_ENDPOINT"].default == DEFAULT_ENDPOINT
    assert len(BY_NAME) == sum(1 + len(variable.aliases) for variable in VARIABLES), "a name is declared twice"
    for variable in VARIABLES:
        assert variable.meaning.endswith(".") and variable.readers, variable.name
        assert (variable.kind is Kind.NUMBER) == (variable.maximum > variable.minimum and variable.kind is Kind.NUMBER)
        assert (variable.kind is Kind.CHOICE) == bool(variable.choices), variable.name
        if isinstance(variable.default, int) and variable.kind is Kind.NUMBER:
            assert variable.minimum <= variable.default <= variable.maximum, variable.name


def test_a_change_of_the_declaration_is_noticed(tmp_path: Path) -> None:
    generate.main(["--top", str(tmp_path)])
    assert generate.main(["--check", "--top", str(tmp_path)]) == 0
    table = tmp_path / "messages" / "native" / "settings/environment_table.c"
    table.write_text(table.read_text().replace("3000u", "2000u").replace("minimum = 500u", "minimum = 5u"))
    assert generate.main(["--check", "--top", str(tmp_path)]) == 1


def fault(variable: Variable, value: str) -> str:
    out = ffi.new("char[]", 512)
    number = lib.xts_environment_find(variable.name.encode())
    if not lib.xts_environment_fault(number, value.encode(), out, len(out)):
        return ""
    text: bytes = ffi.string(out)
    return text.decode()


def right(variable: Variable) -> list[str]:
    match variable.kind:
        case Kind.SWITCH:
            return ["0", "1"]
        case Kind.NUMBER:
            return [str(variable.minimum), str(variable.maximum)]
        case Kind.CHOICE:
            return list(variable.choices)
        case Kind.PATH | Kind.TEXT:
            longest = variable.prefix + (variable.maximum - len(variable.prefix)) * "x"
            return [variable.prefix + "/a", *([longest] if variable.maximum else [])]


def wrong(variable: Variable) -> list[str]:
    match variable.kind:
        case Kind.SWITCH:
            return ["yes", "2", "01", " 1"]
        case Kind.NUMBER:
            below = [str(variable.minimum - 1)] if variable.minimum else ["-1"]
            return [*below, str(variable.maximum + 1), "ten", "10x", " 10", "+10", "1e3", "99999999999999999999999"]
        case Kind.CHOICE:
            return ["perhaps", variable.choices[0] + "x"]
        case Kind.PATH | Kind.TEXT:
            long = [variable.prefix + variable.maximum * "x"] if variable.prefix else [(variable.maximum + 1) * "x"]
            return [*(long if variable.maximum else []), *(["other:x"] if variable.prefix else [])]


@pytest.mark.parametrize("variable", OURS, ids=lambda variable: variable.name)
def test_c_takes_what_is_declared_and_nothing_else(variable: Variable) -> None:
    assert [fault(variable, value) for value in right(variable)] == len(right(variable)) * [""]
    for value in wrong(variable):
        text = fault(variable, value)
        assert text.startswith(f"{variable.name}={value[:100]}") and text.endswith(f": must be {variable.allowed}")
    assert fault(variable, "") == "", "an empty value is none"
    for alias in variable.aliases:
        assert lib.xts_environment_find(alias.encode()) == lib.xts_environment_find(variable.name.encode())


def test_a_wrong_value_is_shown_printable() -> None:
    (variable,) = (variable for variable in OURS if variable.name == "XTS_SPIN_US")
    assert fault(variable, "1\n2\x1b[31m").startswith("XTS_SPIN_US=1?2?[31m: must be a number from 0 to 4294967295")


def test_a_name_that_is_not_declared_cannot_be_read() -> None:
    program = "from xts_socket._environment import setting; setting('XTS_SPIN')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "LookupError: XTS_SPIN is not declared" in done.stderr


# --- xts env ---------------------------------------------------------------------------------------------------------


def env(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = cli.main(["env", *arguments])
    return status, capsys.readouterr().out


def test_xts_env_lists_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTS_SPIN_US", "7")
    monkeypatch.setenv("XTS_SPINUS", "7")
    monkeypatch.setenv("VMA_APPLICATION_ID", "shop")
    status, out = env(capsys)
    assert status == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert re.search(r"XTS_SPIN_US +7 +50 +a number", rows["XTS_SPIN_US"])
    assert "shop" in rows["XTS_APPLICATION_ID"] and "systemd" not in rows and "XTS_TEST_LIBRARY" not in rows
    assert "XTS_SPINUS is not a variable of xts-offload: did you mean XTS_SPIN_US?" in out
    assert "XTS_TEST_LIBRARY" in env(capsys, "--all")[1]


def test_xts_env_tells_what_one_means(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTS_DEAD_MS", "100")
    status, out = env(capsys, "XTS_DEAD_MS")
    assert status == 1
    assert BY_NAME["XTS_DEAD_MS"].meaning in out
    assert "XTS_DEAD_MS=100: must be a number from 500 to 4294967295 (milliseconds)" in out
    status, out = env(capsys, "XTS_DEAD_MS", "--json")
    (found,) = json.loads(out)["variables"]
    assert (status, found["value"], found["default"], found["unit"]) == (1, "100", 3000, "milliseconds")
    assert found["fault"].startswith("XTS_DEAD_MS=100: must be")


def test_xts_env_of_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["env", "XTS_SPINUS"]) == 1
    assert "XTS_SPINUS is not a variable of xts-offload: did you mean XTS_SPIN_US?" in capsys.readouterr().err
