from __future__ import annotations

from typing import Any

import pytest

from perflib import experiments
from perflib.framework.params import Params
from perflib.lab import notebook
from perflib.model.errors import UserError


def namespace(*cells: str) -> dict[str, Any]:
    """What a notebook's globals are after these cells, within the cell that asks."""
    found: dict[str, Any] = {"In": ["", *cells, "parameters(...)"]}
    for cell in cells:
        exec(cell, found)
    return found


def parameters(name: str, cells: dict[str, Any]) -> Params:
    return notebook.parameters(experiments.get(name), cells)


def defaults(name: str) -> str:
    """The parameters cell of an experiment's notebook: what is its own, and the conditions."""
    fields = experiments.get(name).Params.model_fields
    own = {key: info for key, info in fields.items() if key not in Params.model_fields}
    assigned = [
        f"{key} = {info.get_default(call_default_factory=True)!r}" for key, info in own.items()
    ]
    return "\n".join(['preset = "quick"', "conditions = {}", *assigned])


def test_conditions_are_reached_by_their_names() -> None:
    cell = defaults("machine").replace("conditions = {}", 'conditions = {"budget_s": 7, "seed": 3}')
    by_papermill = '# Parameters\nconditions = \'{"budget_s": 7, "seed": 3}\'\n'
    for cells in ([cell], [defaults("machine"), by_papermill]):
        found = parameters("machine", namespace(*cells))
        assert (found.budget_s, found.seed) == (7.0, 3)


def test_what_papermill_injects_counts_over_the_preset_even_if_it_is_the_default() -> None:
    default = experiments.get("machine").Params.model_fields["budget_s"].default
    cells = namespace(defaults("machine"), f"# Parameters\nbudget_s = {default}\n")
    assert parameters("machine", cells).budget_s == default
    assert parameters("machine", namespace(defaults("machine"))).budget_s != default


@pytest.mark.parametrize(
    "cells",
    [
        ["evnets = 5"],
        ['evnets = ["a", {"b": None}]'],
        ["# Parameters\nevnets = float('nan')\n"],
        ["# Parameters\nevnets = 5\n", "import math"],
    ],
)
def test_a_misspelt_name_is_an_error_with_the_nearest(cells: list[str]) -> None:
    with pytest.raises(UserError, match=r"unknown parameter 'evnets': did you mean 'events'\?"):
        parameters("kv_per_core", namespace(defaults("kv_per_core"), *cells))


def test_other_cells_may_have_any_names() -> None:
    cells = namespace("import math\nthis = {'a': 1}", defaults("machine"))
    parameters("machine", cells)
    cells = namespace(defaults("machine"), "import math", "findings = []; x = math.pi")
    parameters("machine", cells)


def test_a_corrected_cell_can_be_run_again() -> None:
    wrong = defaults("machine").replace("spin_ms", "spin_sm")
    cells = namespace(wrong, "len(globals())", defaults("machine"))
    assert parameters("machine", cells).budget_s == 10.0


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("budget_s = -1", "parameter 'budget_s': -1"),
        ("budget_s = 'soon'", "parameter 'budget_s': 'soon'"),
        ("preset = 'quik'", "unknown preset 'quik': did you mean 'quick'"),
        ("seed = None", "parameter 'seed': None"),
        ("conditions = 'budget_s=7'", "conditions: .* has no names"),
        ("conditions = 7", "conditions: .* has no names"),
        ("conditions = [1]", "conditions: .* has no names"),
        ("conditions = '{'", "conditions: .* has no names"),
        ('conditions = {"bugdet_s": 7}', "unknown condition"),
        ('conditions = {"spin_ms": 5}', "unknown condition"),
    ],
)
def test_wrong_values_are_errors(cell: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parameters("machine", namespace(defaults("machine"), cell))


def test_no_cell_before_is_no_error() -> None:
    assert parameters("machine", {}) == experiments.get("machine").params({})
