"""How the scripts (scripts.py) ended that the tests of a file ask for: those of a setting in one run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest


class Outcomes:
    """Each is asked for by a test that has its name as the parameter `name`.

    The first that is asked for has all run that were selected with it and have the same setting; what takes too long
    for one run is left to the next that is asked for. `run` is given their names and the setting, starts the program,
    waits for RUN_S and returns its standard output.
    """

    def __init__(
        self,
        request: pytest.FixtureRequest,
        run: Callable[[str, str], str | bytes],
        setting_of: Callable[[str], str] = lambda name: "",
    ) -> None:
        self._run, self._setting_of = run, setting_of
        self._selected: dict[str, list[str]] = {}
        for item in request.session.items:
            if item.path == request.path and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
                self._selected.setdefault(item.originalname, []).append(str(item.callspec.params.get("name")))
        self._outcomes: dict[str, str] = {}

    def check(self, test: str, name: str) -> None:
        """AssertionError with what was wrong."""
        if name not in self._outcomes:
            setting = self._setting_of(name)
            left = [
                other
                for other in self._selected.get(test, [])
                if other not in (name, *self._outcomes) and self._setting_of(other) == setting
            ]
            self._outcomes |= self._run_all([name, *left], setting)
        assert not self._outcomes[name], self._outcomes[name]

    def _run_all(self, names: Sequence[str], setting: str) -> dict[str, str]:
        if len(names) == 1:
            self._run(names[0], setting)
            return {names[0]: ""}
        outcomes: dict[str, str] = json.loads(self._run(",".join(names), setting))
        return outcomes
