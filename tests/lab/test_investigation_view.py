"""An investigation as a notebook has it: step by step, with steps of the reader's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import perflib as pl
from perflib import experiments
from perflib.investigation import investigation as module
from perflib.investigation.evidence import Step
from perflib.investigation.folder import PLAN
from perflib.investigation.investigation import Investigation
from perflib.investigation.rules import RULES
from perflib.lab.interface import RunView
from perflib.lab.investigation import AT_END, ConclusionView, InvestigationView
from perflib.lab.screen import screen
from perflib.machine.describe import describe
from perflib.model.run import Run
from perflib.store import run_files
from tests.lab.test_notebook import namespace
from tests.pages import Page
from tests.stored import RUNS, analyse_once

WARN = {"name": "load", "state": "warn", "now": "busy", "cost": "much", "command": "ps"}
ALSO = {"name": "aslr", "state": "warn", "now": "2", "cost": "some", "command": "setarch"}
GOOD = {"name": "governor", "state": "good", "now": "performance", "cost": "", "command": ""}
CHECKS: list[dict[str, Any]] = [{**one, "values": []} for one in (ALSO, GOOD, WARN)]
Asked = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Recorded runs in place of measurements; steps and parameters as they were asked for."""
    made: Asked = []

    def measured(_self: Investigation, step: Step, _progress: object) -> tuple[Run | None, str]:
        made.append((step.name, dict(step.params)))
        path = RUNS / f"{step.experiment}.parquet"
        run = run_files.load(path)
        run_files.saved_path(run.id).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, run_files.saved_path(run.id))
        return run, ""

    analyse_once(monkeypatch)
    # Undone together with what a test itself changes: in another order `measured` would stay.
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PERFLIB_PROGRESS", "none")
    monkeypatch.setattr(module, "examine", lambda: {"machine": describe(), "checks": CHECKS})
    monkeypatch.setattr(Investigation, "_measured", measured)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def inv(asked: Asked, tmp_path: Path) -> InvestigationView:
    assert asked == []
    return pl.investigate(folder=tmp_path / "folder")


def saved(inv: InvestigationView) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads((inv.folder / PLAN).read_text())
    return plan


# --- what comes next -----------------------------------------------------------------------------


def test_what_spoils_measurements_stands_first(inv: InvestigationView) -> None:
    assert [row[0] for row in inv.fit.rows] == ["load", "aslr"]
    assert "spoils" in inv.fit.rows[0][1]
    assert inv.fit.rows[0][-1] == "ps"


def test_a_proposal_says_why_and_how(inv: InvestigationView) -> None:
    step = inv.next.step
    assert step is not None
    assert inv.next
    for shown in (repr(inv.next), inv.next._repr_html_()):
        assert "symptom" in shown
        assert "is any core slow in itself" in " ".join(shown.split())
        assert "perflib run kv_per_core --preset quick" in shown
        assert f"{step.budget_s:.0f} s" in shown


def test_the_plan_is_the_table_of_rules(inv: InvestigationView) -> None:
    assert [row[0] for row in inv.plan.rows] == [rule.name for rule in RULES]
    assert inv.plan.rows[0][-1] == "next"
    assert not any("{" in cell for row in inv.plan.rows for cell in row)
    assert inv.proposed[0] == "symptom"
    inv.take()
    assert inv.plan.rows[0][-1] == "taken"


# --- take, skip, one's own -----------------------------------------------------------------------


def test_a_step_is_taken_and_says_what_was_found(
    inv: InvestigationView, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    run = inv.take()
    assert isinstance(run, RunView)
    assert run.experiment == "kv_per_core"
    assert run.findings
    assert asked[0][0] == "symptom"
    output = " ".join(capsys.readouterr().out.split())
    assert output.startswith("symptom: The same simulated events")
    assert inv.findings("symptom").summary()[0] in output
    assert "so far: " in output
    assert inv.next.step is not None
    assert inv.next.step.name != "symptom"


def test_another_step_may_come_first_and_with_other_parameters(
    inv: InvestigationView, asked: Asked
) -> None:
    inv.take()
    inv.take("store and load", budget_s=2)
    assert asked[1][0] == "store and load"
    assert asked[1][1]["budget_s"] == 2
    again = pl.investigate(replay=inv.folder)
    again.take()
    again.take("store and load")
    assert "budget_s=2" in again.evidence.taken[1].step.command
    proposed = inv.next
    inv.take(proposed)
    assert asked[2][0] == "levels"


def test_a_step_is_left_out_for_a_reason(inv: InvestigationView, asked: Asked) -> None:
    assert repr(inv.skip("I know it")) == "left out: I know it"
    assert asked == []
    assert saved(inv)["steps"][0]["skipped"] == "I know it"
    assert inv.steps.rows[0][1] == "symptom"
    assert inv.steps.rows[0][-1] == "I know it"
    assert "I know it" in inv.conclusion.headline.plain


def test_an_interruption_says_how_to_go_on(
    inv: InvestigationView, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_self: Investigation, _step: Step, _progress: object) -> tuple[None, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Investigation, "_measured", interrupted)
    with pytest.raises(KeyboardInterrupt):
        inv.take()
    assert f"pl.investigate(resume={str(inv.folder)!r})" in capsys.readouterr().out


def test_steps_of_ones_own_are_kept_resumed_and_replayed(
    inv: InvestigationView, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    inv.take()
    mine = inv.run("random_calls", why="Just so.", name="mine", part="map", cores="0", budget_s=2)
    assert isinstance(mine, RunView)
    assert asked[-1] == ("mine", {"cores": [0], "budget_s": 2.0})
    inv.run("random_calls", budget_s=2)
    inv.run("random_calls", budget_s=2)
    inv.skip("mine answers it", "store and load")
    names = ["symptom", "mine", "random_calls", "random_calls 2", "store and load"]
    assert [one.step.name for one in inv.evidence.taken] == names
    resumed = pl.investigate(resume=inv.folder)
    assert [one.step.name for one in resumed.evidence.taken] == names
    assert resumed.evidence.taken[1].step.why == "Just so."
    resumed.skip("enough")
    again = pl.investigate(replay=inv.folder)
    capsys.readouterr()
    concluded = again.go()
    assert "Just so." in capsys.readouterr().out
    assert [one.step.name for one in again.evidence.taken][: len(names)] == names
    assert concluded.headline == resumed.conclusion.headline


def test_a_step_of_ones_own_that_is_impossible_here_is_left_out(
    inv: InvestigationView, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(experiments.get("numa")), "unavailable", lambda _self: "one node")
    assert repr(inv.run("numa")) == "left out: one node"
    assert asked == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"experiment": "alias_mop"}, "did you mean 'alias_map'"),
        ({"experiment": "alias_map", "budget": 3}, "did you mean 'budget_s'"),
        ({"experiment": "alias_map", "budget_s": -3}, "parameter 'budget_s'"),
        ({"experiment": "alias_map", "part": "maps"}, "did you mean 'map'"),
        ({"experiment": "alias_map", "name": "levels"}, "name 'levels': a step of that name"),
    ],
)
def test_what_is_wrong_with_a_step_of_ones_own_measures_nothing(
    given: dict[str, Any], sentence: str, inv: InvestigationView, asked: Asked
) -> None:
    with pytest.raises(pl.UserError, match=sentence):
        inv.run(**given)
    assert asked == []
    assert inv.evidence.taken == []


def test_wrong_steps_name_the_right_ones(inv: InvestigationView, asked: Asked) -> None:
    with pytest.raises(pl.UserError, match="did you mean 'symptom'"):
        inv.take("sympton")
    with pytest.raises(pl.UserError, match="did you mean 'budget_s'"):
        inv.take("symptom", budgets=3)
    with pytest.raises(pl.UserError, match="why is the step left out"):
        inv.skip(" ")
    with pytest.raises(pl.UserError, match="unknown step with a run"):
        inv.findings("symptom")
    step = inv.next
    inv.skip("so")
    for taken in ("symptom", step):
        with pytest.raises(pl.UserError, match=r"left out already; .*\.run\('kv_per_core', "):
            inv.take(taken)
    assert asked == []


# --- what it says --------------------------------------------------------------------------------


def test_it_goes_to_its_end_and_concludes(inv: InvestigationView, asked: Asked) -> None:
    found = inv.go()
    assert isinstance(found, ConclusionView)
    assert len(asked) > 2
    assert not inv.next
    assert repr(inv.next) == AT_END
    assert AT_END in inv.next._repr_html_()
    assert repr(inv.take()) == AT_END
    assert inv.skip("what?") == AT_END
    assert saved(inv)["finished"]
    assert repr(found) == "\n".join(screen(found))
    said = Page(found._repr_html_()).words
    for one in found.findings:
        assert one.plain in said
        assert one.do in said
    for open_ in found.undecided:
        assert open_.command in said
    assert {row[1].split(" ", 1)[1] for row in inv.ledger.rows} <= {
        "measured", "excluded", "open", "not tested",
    }  # fmt: skip
    assert [row[1] for row in inv.steps.rows] == [one.step.name for one in inv.evidence.taken]
    assert found.headline.plain in repr(inv)
    with pytest.raises(pl.UserError, match="a replay measures nothing"):
        pl.investigate(replay=inv.folder).run("alias_map")
    with pytest.raises(pl.UserError, match="a replay measures nothing"):
        pl.investigate(replay=inv.folder).take(budget_s=2)


def test_every_mark_of_a_conclusion_has_a_word(inv: InvestigationView) -> None:
    inv.take()
    page = inv.conclusion._repr_html_()
    said = Page(page).words
    assert 'aria-label="Conclusion"' in page
    assert any(word in said for word in ("HEALTHY: ", "CAUSE FOUND: ", "UNDECIDED: "))
    marks = {"bad": "cause", "note": "note", "good": "fine"}
    for one in inv.conclusion.findings:
        assert f"{marks[one.mark]} {one.plain}" in said


def test_the_report_is_next_to_the_runs(inv: InvestigationView) -> None:
    inv.skip("nothing is needed")
    path = inv.report()
    assert path == (inv.folder / "report.html").absolute()
    assert "nothing is needed" in path.read_text()


# --- how it begins -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"minutes": 0}, "minutes: 0: a number between 0.1 and 1440"),
        ({"minutes": "2"}, "minutes: '2': a number"),
        ({"events": 0}, "events: 0: a number at least 1"),
        ({"core": 4095}, "--core 4095: the cores that may be used here"),
        ({"begin": "x"}, "--begin and --end"),
        ({"replay": "nowhere"}, "there is no investigation in nowhere"),
        ({"replay": "a", "minutes": 3}, "take what was asked from the folder"),
        ({"replay": "a", "resume": "b"}, "take what was asked from the folder"),
        ({"resume": True, "folder": "c"}, "take what was asked from the folder"),
        ({"resume": True}, "no unfinished investigation"),
    ],
)
@pytest.mark.usefixtures("asked")
def test_a_wrong_question_is_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(pl.UserError, match=sentence):
        pl.investigate(**given)
    assert not Path("reports").exists()


@pytest.mark.usefixtures("asked")
def test_the_newest_is_gone_on_with() -> None:
    first = pl.investigate(minutes=3)
    assert first.folder.parent == Path("reports")
    first.skip("so")
    again = pl.investigate(resume=True, minutes=9)
    assert again.folder == first.folder
    assert again.evidence.question.minutes == 9


def test_a_notebooks_parameters_are_the_question() -> None:
    cell = 'preset = "quick"\ncore = None\nminutes = None\n'
    assert pl.question(namespace(cell)) == {"core": None, "minutes": 2.0}
    assert pl.question(namespace(cell, "# Parameters\nminutes = 4\n"))["minutes"] == 4
    assert pl.question(namespace(cell, '# Parameters\npreset = "full"\n'))["minutes"] is None
    stored = pl.question(namespace(cell, '# Parameters\nreplay = "here"\n'))
    assert stored == {"core": None, "minutes": None, "replay": "here"}
    with pytest.raises(pl.UserError, match="did you mean 'quick'"):
        pl.question(namespace(cell, '# Parameters\npreset = "quik"\n'))
