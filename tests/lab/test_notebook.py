from __future__ import annotations

from typing import Any

import pytest

from perflib import experiments
from perflib.lab.notebook import parameters, run
from perflib.model import store
from perflib.model.errors import UserError

NAMES = experiments.NAMES


def namespace(*cells: str) -> dict[str, Any]:
    """What a notebook's globals are after these cells, within the cell that asks."""
    found: dict[str, Any] = {"In": ["", *cells, "parameters(...)"]}
    for cell in cells:
        exec(cell, found)
    return found


def defaults(name: str) -> str:
    fields = experiments.get(name).Params.model_fields
    return "\n".join(
        ['profile = "quick"', *(f"{key} = {info.default!r}" for key, info in fields.items())]
    )


@pytest.mark.parametrize("name", NAMES)
def test_defaults_give_the_profile(name: str) -> None:
    experiment = experiments.get(name)
    assert parameters(name, namespace(defaults(name))) == experiment.params({}, "quick")


def test_a_changed_value_counts_over_the_profile() -> None:
    found = parameters("machine", namespace(defaults("machine") + "\nbudget_s = 7.0"))
    assert found.budget_s == 7.0


def test_what_papermill_injects_counts_over_the_profile_even_if_it_is_the_default() -> None:
    default = experiments.get("machine").Params.model_fields["budget_s"].default
    cells = namespace(defaults("machine"), f"# Parameters\nbudget_s = {default}\n")
    assert parameters("machine", cells).budget_s == default
    assert parameters("machine", namespace(defaults("machine"))).budget_s != default


@pytest.mark.parametrize(
    "cell", ["evnets = 5", "# Parameters\nevnets = float('nan')\n", 'evnets = ["a", {"b": None}]']
)
def test_a_misspelt_name_is_an_error_with_the_nearest(cell: str) -> None:
    with pytest.raises(UserError, match=r"unknown parameter 'evnets': did you mean 'events'\?"):
        parameters("kv_per_core", namespace(defaults("kv_per_core"), cell))


def test_a_misspelt_injected_name_is_found_behind_other_cells() -> None:
    cells = namespace(defaults("machine"), "# Parameters\nbugdet_s = 1\n", "import math")
    with pytest.raises(UserError, match="did you mean 'budget_s'"):
        parameters("machine", cells)


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
        ("profile = 'quik'", "unknown profile 'quik': did you mean 'quick'"),
        ("seed = None", "parameter 'seed': None"),
    ],
)
def test_wrong_values_are_errors(cell: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parameters("machine", namespace(defaults("machine"), cell))


def test_no_cell_before_is_no_error() -> None:
    assert parameters("machine", {}) == experiments.get("machine").params({})


def test_run_measures_saves_and_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFLIB_TAG", "from a test")
    params = experiments.get("machine").params({"budget_s": 0.3, "spin_ms": 20})
    measured = run("machine", params)
    assert f"saved as run {measured.id}" in capsys.readouterr().out
    assert store.load(measured.id).provenance["tag"] == "from a test"
