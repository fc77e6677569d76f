"""What a notebook and the command line are given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perflib.course.fix import fix, fixes
from perflib.course.fix.problems import NAMES, get
from perflib.kernels import source
from perflib.model.errors import UserError
from perflib.store import paths
from tests.cli.calling import call

# --- a notebook -----------------------------------------------------------------------------------


def test_every_problem_is_whole() -> None:
    table = fixes()
    assert list(table["name"]) == list(NAMES)
    files = {path.name for path in (paths.kernels_dir() / "fix").glob("*.inc")}
    expected = {
        f"{name}{suffix}.inc"
        for name in NAMES
        for suffix in ("", "_mended", *(f"_{way}" for way in get(name).others))
    }
    assert files == expected
    for name in NAMES:
        problem = fix(name)
        assert len(problem.code.splitlines()) < 80
        assert problem.code.startswith("/* ")
        assert problem.code != problem.solution()
        assert source(f"fix_{name}").flags == ("-O2", "-g")
        assert problem.name == name == problem.problem.name
        assert len(problem.problem.hints) >= 3
        assert repr(problem).startswith(f"<fix('{name}'): {problem.title}")
        assert "mended" not in problem.code


def test_hints_come_one_after_the_other_and_do_not_end() -> None:
    problem = fix("page_chase")
    given = [problem.hint() for _ in range(5)]
    assert given[:3] == list(problem.problem.hints)
    assert given[3:] == [problem.problem.hints[-1]] * 2
    assert fix("page_chase").hint() == given[0]


def test_the_explanation_says_what_was_measured_and_only_that() -> None:
    problem = fix("aliased_buffers")
    before = problem.explanation
    assert "possible() measures" in before
    assert "solution('order')" in before
    found = problem.possible(budget_s=0.1)
    assert str(found.compared) in problem.explanation
    assert before.startswith(problem.problem.mechanism)


def test_without_changed_code_nothing_is_right_and_the_original_is_timed_beside_itself() -> None:
    problem = fix("aliased_buffers")
    found = problem.validate(None)
    assert not found
    assert "no changed code yet" in found.says
    null = problem.bench(None, budget_s=0.1)
    assert null.provenance["original"] == null.provenance["yours"]


def test_a_copy_is_written_once(tmp_path: Path) -> None:
    problem = fix("false_sharing")
    path = problem.copy(tmp_path / "mine")
    assert path == tmp_path / "mine" / "false_sharing.c"
    assert path.read_text() == problem.code
    with pytest.raises(UserError, match="is there already"):
        problem.copy(tmp_path / "mine")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        problem.copy(tmp_path / "file")


def test_a_solution_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(UserError, match=r"all: huge, mended"):
        fix("page_chase").solution("hugh pages")


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    code = (
        "import sys; from perflib.course.fix import fix; fix('false_sharing').hint(); "
        "import perflib.cli.course_fix; "
        "print(sorted(set(sys.modules) & {'numpy', 'pandas', 'scipy', 'matplotlib'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- the command line -----------------------------------------------------------------------------


def test_code_is_copied_validated_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("course", "fix", "copy", "aliased_buffers") == 0
    assert capsys.readouterr().out == "aliased_buffers.c\n"
    assert call("course", "fix", "validate", "aliased_buffers", "--inputs", "5") == 0
    assert "unchanged on 13 inputs" in capsys.readouterr().out
    assert call("course", "fix", "bench", "aliased_buffers", "--budget-s", "0.1", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["problem"] == "aliased_buffers"
    assert len(record["saved_percent"]) == 3
    words = ("course", "fix", "bench", "aliased_buffers", "--solution", "order")
    assert call(*words, "--budget-s", "0.1") == 0
    assert capsys.readouterr().out.startswith("aliased_buffers: ")
    path = tmp_path / "aliased_buffers.c"
    path.write_text(path.read_text().replace("rank[at] = step", "rank[at] = 0"))
    assert call("course", "fix", "validate", "aliased_buffers", str(path)) == 1
    assert "rank[0] is 0, not 1" in capsys.readouterr().err
    assert call("course", "fix", "bench", "aliased_buffers") == 2
    assert "not timed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["validate", "nothing"], "unknown problem 'nothing'"),
        (["validate", "page_chase", "nowhere.c"], "nowhere.c: No such file"),
        (["validate", "page_chase"], "page_chase.c: No such file"),
        (["bench", "page_chase", "x.c", "--solution", "mended"], "not both"),
        (["bench", "page_chase", "--solution", "magic"], "unknown solution of page_chase"),
        (["bench", "aliased_buffers", "--solution", "mended", "--budget-s", "-1"], "more than 0"),
        (["copy", "page_chase", "/dev/null"], "cannot be written"),
    ],
)
def test_mistakes_are_sentences(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert call("course", "fix", *words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
