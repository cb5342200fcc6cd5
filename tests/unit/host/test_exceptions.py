"""Exceptions go through pickle and copy unchanged: else a worker of a process pool that ends with one breaks its pool.
All classes of exceptions of all packages are found by looking."""

from __future__ import annotations

import concurrent.futures
import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from xts_socket import CertificateError, TlsError, UlpError
from xts_socket._errors import explained

PACKAGES = ("xts_socket", "xts_messages", "xts_proxy", "xts_agent", "xts_kubernetes", "xts_pytest", "xts_bpf")
PACKAGES += ("xts_lab", "xts_bluefield")
#: A value for each annotation of an argument.
SAMPLES: dict[str, Any] = {
    "int": 71,
    "float": 1.5,
    "str": "a text",
    "list[str]": ["one", "two"],
    "object": "anything",
    "Any": "it",
    "bytes": b"data",
}
PATIENCE_S = 30


def modules() -> Iterator[Any]:
    for name in PACKAGES:
        try:
            package = importlib.import_module(name)
        except ImportError:  # of a package that this machine does not need
            continue
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{name}.", onerror=lambda _: None):
            last = found.name.rpartition(".")[2]
            if last == "__main__" or last.startswith("lib"):  # libxts-preload.so is taken for a module, and is none
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    yield importlib.import_module(found.name)
            except ImportError:
                continue


def classes() -> list[type[BaseException]]:
    found = {
        thing
        for module in modules()
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, BaseException) and thing.__module__.split(".")[0] in PACKAGES
    }
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


def sample(cls: type[BaseException]) -> BaseException:
    if not inspect.isfunction(cls.__init__):
        return cls(5, "a text") if issubclass(cls, OSError) else cls("a text")
    arguments = []
    for parameter in list(inspect.signature(cls).parameters.values()):
        wanted = str(parameter.annotation)
        if wanted == "list[Mistake]":
            arguments.append(mistakes(cls))
        else:
            assert wanted in SAMPLES, f"{cls}: a sample for {wanted} is missing"
            arguments.append(SAMPLES[wanted])
    return cls(*arguments)


def mistakes(cls: type[BaseException]) -> list[Any]:
    """Two of the class that the module of the exception has under this name."""
    mistake = vars(importlib.import_module(cls.__module__))["Mistake"]
    if hasattr(mistake, "_fields"):  # of rules: line, column, text
        return [mistake(number, 7, "a text") for number in (1, 2)]
    return [mistake("a file", None, f"key {number}", "a text") for number in (1, 2)]


def known(error: BaseException) -> dict[str, Any]:
    """All that a program can ask."""
    names = [name for name in dir(error) if not name.startswith("__") and hasattr(error, name)]
    told = {name: value for name in [*names, "__notes__"] if not callable(value := getattr(error, name, None))}
    return {**told, "type": type(error), "text": str(error), "repr": repr(error)}


CLASSES = classes()


def test_all_are_found() -> None:
    assert {UlpError, TlsError, CertificateError} < set(CLASSES) and len(CLASSES) > 15


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.__module__}.{cls.__qualname__}")
def test_each_is_the_same_afterwards(cls: type[BaseException]) -> None:
    error = sample(cls)
    error.add_note("a note")
    error.of_the_program = ["its own"]  # type: ignore[attr-defined]
    for level in range(pickle.HIGHEST_PROTOCOL + 1):
        assert known(pickle.loads(pickle.dumps(error, level))) == known(error)
    assert known(copy.copy(error)) == known(error)
    assert known(copy.deepcopy(error)) == known(error)


def test_the_reason_of_an_error_of_the_system() -> None:
    error = explained(ConnectionRefusedError(111, "Connection refused: nobody listens"), "nobody listens")
    assert known(pickle.loads(pickle.dumps(error))) == known(error)


def fail(number: int) -> int:
    if number == 1:
        raise CertificateError(71, "hostname mismatch", "certificate")
    return number


def test_a_pool_of_processes_goes_on() -> None:
    spawning = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawning) as pool:
        jobs = [pool.submit(fail, number) for number in (0, 1, 2)]
        with pytest.raises(CertificateError, match="hostname mismatch") as caught:
            jobs[1].result(PATIENCE_S)
        assert (caught.value.fault, caught.value.verify_message) == ("certificate", "hostname mismatch")
        assert [jobs[0].result(PATIENCE_S), jobs[2].result(PATIENCE_S)] == [0, 2]
