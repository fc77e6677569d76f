"""A command called within the test's own process, and how wide it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perflib import experiments
from perflib.cli import main, measure
from perflib.cli.output import Wanted


def call(*words: str) -> int:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as end:
        main(words)
    code = end.value.code
    assert isinstance(code, int)
    return code


def call_json(captured: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a command prints as JSON; it succeeds."""
    assert call(*words) == 0
    return json.loads(captured.readouterr().out)


def too_wide(text: str) -> list[str]:
    """The lines of more than 80 columns that could have been shorter: of more than one word."""
    return [line for line in text.splitlines() if len(line) > 80 and len(line.split()) > 1]


def would_measure(experiment: str, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a command gives an experiment that measures nothing; ``words`` are those of -p."""
    seen: dict[str, Any] = {}

    def measured(name: str, given: dict[str, Any], wanted: Wanted, *_: object) -> None:
        assert name == experiment
        seen.update(given, words=wanted.assignments)
        experiments.get(name).params(given)

    patch.setattr(measure, "measured", measured)
    return seen
