"""Nothing reveals the cause by accident: no object, process list, environment, or file."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import subprocess
import types
from pathlib import Path
from typing import Any

import pytest

import perflib as pl
from perflib.course.mystery import Mystery
from perflib.course.mystery.causes import CAUSES, FUNCTIONS, LOCKS, NOTHING
from perflib.course.mystery.draw import Trouble
from perflib.course.mystery.truth import Truth
from perflib.model.errors import UserError
from tests.course.mystery.cases import opened, trouble_of

# One at a time: an opened one clears up after those that were killed.
pytestmark = pytest.mark.xdist_group("mystery")

WORDS = (*CAUSES, *FUNCTIONS, *LOCKS, "stream", "spin", "limit", "alias", "costl", "larger")
_NO_STATE = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


def reachable(root: Any) -> list[Any]:
    """Everything that hangs on an object; code is not followed."""
    found: dict[int, Any] = {}
    left = [root]
    while left:
        one = left.pop()
        if id(one) in found or isinstance(one, (*_NO_STATE, types.FrameType)):
            continue
        found[id(one)] = one
        left += gc.get_referents(one)
    return list(found.values())


def revealing(text: str) -> list[str]:
    """The words of a text that reveal something; names of files of perflib are not counted."""
    text = text.replace("mystery", "")
    return [word for word in WORDS if re.search(rf"(?<![a-z]){word}", text.lower())]


def shape(machine: Mystery) -> set[str]:
    """What the object and its parts show, but for numbers and what is the seed's own."""
    shown = [repr(machine), *dir(machine), *map(str, vars(machine))]
    shown += [str(one) for one in reachable(machine) if isinstance(one, str | bytes)]
    return {re.sub(r"[0-9a-f]{16}|\d+", "#", text) for text in shown}


def test_what_is_reachable_is_the_same_whatever_is_wrong() -> None:
    shapes = {}
    for cause in CAUSES:
        with opened(cause) as machine:
            things = reachable(machine)
            assert not any(isinstance(one, Trouble | Truth) for one in things), cause
            shapes[cause] = shape(machine)
    for cause, found in shapes.items():
        assert found == shapes[NOTHING], cause
    # "quota" is whether this machine could make one, and so a field of what the machine can do.
    assert {word for text in shapes[NOTHING] for word in revealing(text)} <= {"quota"}


def test_no_size_and_no_place_is_reachable() -> None:
    for cause in ("thief", "quota", "lock"):
        share = trouble_of(cause).thousandths
        shown = {share, share / 1000, share / 10, 1000 - share}
        # A descriptor may have such a number by chance: of each opening it has another one.
        with contextlib.ExitStack() as held:
            for _ in range(3):
                with opened(cause) as machine:
                    shown &= {one for one in reachable(machine) if type(one) in (int, float)}
                held.enter_context(Path(os.devnull).open())
        assert not shown, cause


def test_the_process_list_and_the_environment_tell_nothing() -> None:
    seen = {}
    plain = subprocess.check_output(["cat", "/proc/self/environ"]).split(b"\0")
    usual = {name.partition(b"=")[0] for name in plain}
    for cause in CAUSES:
        before = dict(os.environ)
        with opened(cause) as machine:
            process = Path(f"/proc/{machine._opened.companion}")
            commands = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            names = (process / "environ").read_bytes().split(b"\0")
            seen[cause] = (
                commands,
                (process / "comm").read_text(),
                (process / "cwd").readlink().name,
                sorted(
                    re.sub(r"\d+", "#", str(one.readlink())) for one in (process / "fd").iterdir()
                ),
            )
            assert {name.partition(b"=")[0] for name in names} <= usual, cause
            assert {name: os.environ[name] for name in os.environ.keys() - before.keys()} == {
                "PERFLIB_TAG": "exercise"
            }
        assert dict(os.environ) == before
    assert len(set(map(str, seen.values()))) == 1, seen
    assert revealing(seen[NOTHING][0]) == []


def test_no_file_is_left_where_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for cause in ("quota", "hog", "function"):
        with opened(cause) as machine:
            assert list(tmp_path.iterdir()) == []
            assert revealing(" ".join(machine.job.values())) == []
        assert list(tmp_path.iterdir()) == []


def test_the_truth_is_shown_after_the_answer_alone() -> None:
    with opened("thief") as machine:
        with pytest.raises(UserError, match="shown after the answer"):
            _ = machine.truth
        machine.answer("nothing", low=0, high=1)
        truth = machine.truth
        assert not isinstance(truth, str)
        assert (truth.cause, truth.place) == ("thief", trouble_of("thief").place)
        with pytest.raises(UserError, match="the first answer counts"):
            machine.answer("thief")
        assert machine.truth == truth


def test_an_answer_that_cannot_be_read_shows_nothing_and_does_not_count() -> None:
    with opened("thief") as machine:
        for wrong in ({"cause": "theif"}, {"cause": "thief", "low": 5, "high": 1}):
            with pytest.raises(UserError):
                machine.answer(**wrong)
        with pytest.raises(UserError, match="shown after the answer"):
            _ = machine.truth
        size = trouble_of("thief").thousandths / 10
        verdict = machine.answer("thief", trouble_of("thief").place, size - 2, size + 2)
        assert verdict.right


@pytest.mark.parametrize("cause", ["thief", "function"])
def test_what_a_run_records_meanwhile_reveals_nothing(
    cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFLIB_PROGRESS", "none")
    with opened(cause) as machine:
        monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
        run = pl.experiment("kv_per_core").run(**machine.job, events=2, budget_s=1.0)
    assert run.provenance["tag"] == "exercise"
    kept = json.dumps([run.params, run.provenance]).lower()
    giveaways = ("thief", "hog", "costl", "alias", "mystery", *FUNCTIONS, *LOCKS)
    assert [word for word in giveaways if re.search(rf"\b{word}", kept)] == []
