"""``perflib annotate``: of whose samples it shows the instructions, and what it refuses."""

from __future__ import annotations

import pytest

from perflib.store.run_files import load
from tests.cli.calling import call, call_json, too_wide
from tests.stored import RUNS

PATH = str(RUNS / "event_profile.parquet")


@pytest.mark.parametrize("core", [0, 1])
def test_one_core_has_its_own_samples(capsys: pytest.CaptureFixture[str], core: int) -> None:
    shown = call_json(capsys, "annotate", PATH, "__cos_fma", "--core", str(core), "--json")
    samples = load(PATH).samples
    mine = samples[(samples["core"] == core) & (samples["symbol"] == "__cos_fma")]
    (function,) = shown["functions"]
    assert function["function"] == "__cos_fma"
    counted = {one["offset"]: one["samples"] for one in function["instructions"] if one["samples"]}
    assert counted == mine["offset"].value_counts().to_dict()


def test_what_is_said_of_an_object_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("annotate", PATH, "kv_runge_kutta", "--core", "0") == 0
    printed = capsys.readouterr().out
    assert "is not here (removed since" in " ".join(printed.split())
    assert not too_wide(printed)


def test_without_cores_two_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    shown = call_json(capsys, "annotate", PATH, "__cos_fma", "--json")
    assert [one["function"] for one in shown["functions"]] == ["__cos_fma"]
    assert call("annotate", PATH) == 0
    printed = capsys.readouterr().out
    assert "cpu1" in printed.splitlines()[0]
    assert "No instruction of" in printed
    assert not too_wide(printed)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--core", "7"), "unknown core 'cpu7': did you mean 'cpu1'"),
        (("nosuch",), "unknown function 'nosuch'"),
        (("--against", PATH), "cannot be compared with itself"),
    ],
)
def test_what_is_not_in_the_run_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert call("annotate", PATH, *words) == 2
    assert message in " ".join(capsys.readouterr().err.split())
