"""An investigation on disk: begun, replayed, resumed; bad input; what is kept."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from perflib import experiments
from perflib.investigation import investigation as module
from perflib.investigation.conclusion import conclude
from perflib.investigation.evidence import Question, Step, Taken
from perflib.investigation.folder import PLAN
from perflib.investigation.investigation import Investigation
from perflib.machine.describe import describe
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.store import run_files
from tests.stored import RUNS


@functools.cache
def fit() -> dict[str, Any]:
    return {"machine": {**describe(), "nodes": [], "topology": {}}, "checks": []}


@pytest.fixture(autouse=True)
def a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(module, "examine", fit)


def recorded(made: Investigation, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs that were recorded in place of measurements; the names of the steps as they are made."""
    names = []

    def measured(step: Step, _progress: object) -> tuple[Run | None, str]:
        names.append(step.name)
        path = RUNS / f"{step.experiment}.parquet"
        run = run_files.load(path)
        run_files.saved_path(run.id).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, run_files.saved_path(run.id))
        return run, ""

    monkeypatch.setattr(made, "_measured", measured)
    return names


def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Investigation, list[str]]:
    made = Investigation.begin(Question(), tmp_path / "report")
    return made, recorded(made, monkeypatch)


def test_it_goes_to_the_end_of_its_plan_and_keeps_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, names = begun(tmp_path, monkeypatch)
    made.go()
    assert names[0] == "symptom"
    assert len(names) > 1
    plan = json.loads((made.folder / PLAN).read_text())
    assert plan["finished"]
    kept = {path.stem for path in (made.folder / "runs").iterdir()}
    assert kept == {step["run"] for step in plan["steps"] if step["run"]}


def test_a_replay_derives_the_same_again_also_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, names = begun(tmp_path, monkeypatch)
    made.go()
    before = conclude(made.evidence).to_dict()
    shutil.move(made.folder, tmp_path / "moved")
    shutil.rmtree(tmp_path / "home")
    plan = (tmp_path / "moved" / PLAN).read_bytes()
    again = Investigation.replay(tmp_path / "moved")
    again.go()
    assert [one.step.name for one in again.evidence.taken if one.run is not None] == names
    assert conclude(again.evidence).to_dict() == before
    assert (tmp_path / "moved" / PLAN).read_bytes() == plan  # nothing is written


@pytest.mark.parametrize("whole", [True, False])
def test_a_run_that_is_gone_is_left_out_of_a_replay(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, names = begun(tmp_path, monkeypatch)
    made.go()
    plan = json.loads((made.folder / PLAN).read_text())
    if whole:
        plan["steps"] = [step for step in plan["steps"] if step["name"] != names[-1]]
    (made.folder / PLAN).write_text(json.dumps(plan))
    for path in made.folder.glob(f"runs/{plan['steps'][-1]['run']}*" if not whole else "none"):
        path.unlink()
        run_files.saved_path(path.stem).unlink()
    again = Investigation.replay(made.folder)
    again.go()
    left_out = again.evidence.step(names[-1])
    assert left_out is not None
    assert left_out.run is None
    assert ("stored" if whole else "unknown run") in left_out.skipped


def test_what_was_interrupted_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = begun(tmp_path, monkeypatch)
    step = made.next()
    assert step is not None
    made.take(step)
    spent_s = made.spent_s
    again = Investigation.resume(made.folder)
    names = recorded(again, monkeypatch)
    assert again.spent_s == pytest.approx(spent_s, abs=0.1)
    again.go()
    assert "symptom" not in names
    assert again.evidence.step("symptom") is not None


def test_it_goes_on_only_on_its_own_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = begun(tmp_path, monkeypatch)
    twin = {**made.evidence.fit["machine"], "hostname": "twin"}
    monkeypatch.setattr("perflib.machine.describe.describe", lambda: twin)
    with pytest.raises(UserError, match=f"investigation in {made.folder} was begun on .* is twin"):
        Investigation.resume(made.folder)
    assert Investigation.replay(made.folder).evidence.cores == made.evidence.cores


def test_it_is_named_by_the_beginning_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = [Investigation.begin(Question()) for _ in range(2)]  # of one second, perhaps
    first, second = (one.folder for one in made)
    assert first != second
    assert made[0].tag != made[1].tag
    assert Investigation.resume(Path(second.name[:-2])).folder == second
    assert Investigation.replay(Path(first.name)).folder == first
    with pytest.raises(UserError, match=f"'{first.name[:4]}' may be any of: reports/.*, reports/"):
        Investigation.resume(Path(first.name[:4]))
    with pytest.raises(UserError, match="no investigation in 19"):
        Investigation.resume(Path("19"))


def test_more_minutes_take_up_what_there_was_no_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Investigation.begin(Question(minutes=0.6), tmp_path / "report")
    recorded(made, monkeypatch)
    made.spent_s = 10
    made.go()
    left_out = [one.step.name for one in made.evidence.taken if one.skipped]
    assert left_out
    again = Investigation.resume(made.folder, minutes=10)
    names = recorded(again, monkeypatch)
    again.go()
    assert names == left_out


def test_a_step_that_fails_is_left_out_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = begun(tmp_path, monkeypatch)
    monkeypatch.setattr(made, "_measured", lambda *_: (None, "the disk is full"))
    made.go()
    assert all(one.skipped == "the disk is full" for one in made.evidence.taken)
    assert conclude(made.evidence).headline.verdict == "undecided"


def test_a_run_that_cannot_be_analysed_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def analyse(_self: object, _run: Run) -> list[Finding]:
        msg = "it has one round"
        raise UserError(msg)

    made, _ = begun(tmp_path, monkeypatch)
    monkeypatch.setattr(type(experiments.get("kv_per_core")), "analyse", analyse)
    made.go()
    symptom = made.evidence.step("symptom")
    assert symptom is not None
    assert "it has one round" in symptom.skipped
    assert "it has one round" in conclude(made.evidence).headline.plain


def test_a_report_comes_before_and_after_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, names = begun(tmp_path, monkeypatch)
    reported: list[str] = []

    def tell(one: Step | Taken) -> None:
        reported.append(f"after {one.step.name}" if isinstance(one, Taken) else one.name)

    made.go(tell)
    assert reported == [word for name in names for word in (name, f"after {name}")]


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (Question(core=4000), "--core 4000"),
        (Question(against=0), "--core says which is slow"),
        (Question(core=0, against=0), "one core"),
        (Question(begin="x"), "--job"),
        (Question(job="sim {evnts}"), "placeholder"),
        (Question(job="sim 'unclosed"), "split"),
        (Question(job="sim", begin="no group"), "event"),
    ],
)
def test_a_wrong_question_is_answered_before_anything_is_made(
    question: Question, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        Investigation.begin(question, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_folder_that_has_one_is_not_overwritten(tmp_path: Path) -> None:
    Investigation.begin(Question(), tmp_path / "report")
    plan = (tmp_path / "report" / PLAN).read_bytes()
    with pytest.raises(UserError, match="--resume"):
        Investigation.begin(Question(), tmp_path / "report")
    assert (tmp_path / "report" / PLAN).read_bytes() == plan


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 1, "steps": 3}'])
def test_a_damaged_plan_is_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / PLAN).write_text(text)
    with pytest.raises(UserError, match="damaged"):
        Investigation.replay(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"), [("question", {"cor": 1}), ("question", 3), ("cores", ["one"])]
)
def test_a_plan_whose_question_is_damaged_is_a_sentence(
    name: str, value: object, tmp_path: Path
) -> None:
    made = Investigation.begin(Question(), tmp_path / "report")
    plan = json.loads((made.folder / PLAN).read_text())
    (made.folder / PLAN).write_text(json.dumps(plan | {name: value}))
    for again in (Investigation.replay, Investigation.resume):
        with pytest.raises(UserError, match="damaged"):
            again(made.folder)


def test_a_plan_of_a_newer_perflib_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / PLAN).write_text('{"schema": 999, "steps": [], "question": {}}')
    with pytest.raises(UserError, match="newer"):
        Investigation.replay(tmp_path)


def test_nothing_unfinished_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="--resume FOLDER"):
        Investigation.resume()


def test_the_newest_unfinished_one_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for stamp, finished in (("1", False), ("2", False), ("3", True)):
        made = Investigation.begin(Question(), Path("reports") / stamp)
        made.finished = finished
        made._save()
    assert Investigation.resume().folder == Path("reports/2")
