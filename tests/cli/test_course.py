"""course list and build, run --recorded, list --recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflib.batch import batch
from perflib.course.build import handouts
from perflib.framework import recordings
from perflib.store.paths import notebooks_dir
from tests.cli.calling import call, call_json, too_wide

# --- course --------------------------------------------------------------------------------------


def test_the_lessons_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("course", "list") == 0
    out = capsys.readouterr().out
    assert not too_wide(out)
    rows = call_json(capsys, "course", "list", "--json")["lessons"]
    assert [row["lesson"] for row in rows] == [one.lesson.name for one in handouts()]
    for row in rows:
        assert row["lesson"] in out
        assert (notebooks_dir() / row["notebook"]).is_file()
        assert row["points"] > 0
        assert row["minutes"] > 0
        assert row["items"] > 0
    assert call("course", "-q", "list") == 0
    assert capsys.readouterr().out.splitlines() == [row["lesson"] for row in rows]


def test_build_says_what_it_wrote(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("course", "build", str(home / "out"), "code_segment")
    record = call_json(capsys, *words, "--student", "--json")
    assert record["version"] == "student"
    assert [Path(file).is_file() for file in record["files"]] == [True]
    assert call(*words, "--solution", "--force") == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == record["files"]
    assert f"next: cd {home / 'out'} && jupyter lab" in " ".join(said.err.split())
    assert call("course", "build", str(home / "class"), "code_segment", "--nbgrader") == 0
    config = home / "class" / "nbgrader_config.py"
    assert str(config) in capsys.readouterr().out
    assert call("course", "build", str(home / "class"), "machine", "--nbgrader") == 0
    assert "was there and stays as it is" in " ".join(capsys.readouterr().err.split())


def test_of_all_lessons_those_without_recorded_runs_are_left_out(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(home / "out")
    assert call("course", "build", out, "--student", "--recorded", "amd-guest") == 0
    captured = capsys.readouterr()
    assert f"{out}/17_layout.ipynb" in captured.out.splitlines()
    said = " ".join(captured.err.split())
    assert "05_code_segment.ipynb is left out: amd-guest has no run of code_segment" in said
    assert f"{out}/05_code_segment.ipynb" not in captured.out
    words = ("course", "build", out, "layout", "--student", "--recorded", "intel-guest")
    assert call(*words) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("build", "{}/out"), "which version? Give one of --student, --solution, --nbgrader"),
        (("build", "{}/out", "--student", "--solution"), "which version?"),
        (("build", "{}/out", "code_sgment", "--student"), "did you mean 'code_segment'"),
        (("build", "{}/file", "--student"), "is no folder"),
        (("build", "{}/out", "--student", "--recorded", "intel-gest"), "mean 'intel-guest'"),
        (("build", "/proc/nowhere", "--student"), "cannot be written"),
        (("biuld",), "unknown command 'biuld': did you mean 'build'?"),
    ],
)
def test_wrong_words_are_one_sentence(
    words: tuple[str, ...], sentence: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "file").touch()
    assert call("course", *(word.format(home) for word in words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert not (home / "out").exists()


# --- recorded runs -------------------------------------------------------------------------------


def test_a_recorded_run_is_given_and_marked(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "machine", "--recorded", "intel-guest")
    assert call(*words) == 0
    out = capsys.readouterr().out
    flat = " ".join(out.split())
    assert "nothing was measured: a virtual machine" in flat
    assert flat.partition("otherwise idle")[2].startswith(" Recorded on intel-guest, 20")
    assert flat.count("Recorded on") == 1
    record = call_json(capsys, *words, "--json")
    assert record["recorded"]["machine"] == "intel-guest"
    assert record["recorded"]["title"] == recordings.machines()["intel-guest"]
    assert Path(record["samples"]).is_file()
    for finding in record["findings"]:
        assert finding["plain"].startswith("Recorded on intel-guest, ")
    assert call_json(capsys, "runs", "--json")["runs"] == []


def test_recorded_runs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "--recorded") == 0
    out = capsys.readouterr().out
    assert not too_wide(out)
    for machine in recordings.machines():
        assert f"{machine}: " in out
    rows = call_json(capsys, "list", "--recorded", "--json")["recorded"]
    assert len(rows) == sum(len(recordings.recordings(one)) for one in recordings.machines())
    assert call("-q", "list", "numa", "--recorded") == 0
    measured = [
        machine
        for machine in recordings.machines()
        if any(run.experiment == "numa" for run in recordings.recordings(machine))
    ]
    assert capsys.readouterr().out.splitlines() == measured
    assert call("list", "kv_per_core", "--recorded") == 0
    assert "numa2-guest" not in capsys.readouterr().out


def test_a_batch_of_recorded_notebooks(home: Path) -> None:
    """What -p says of 'recorded' goes to the parameters' cell; a wrong machine is its sentence."""
    notebook = notebooks_dir() / "00_machine.ipynb"
    machines = [{"recorded": "intel-guest"}, {"recorded": "intel-gest"}]
    good, bad = batch([notebook], machines, home / "out")
    assert good.state == "succeeded", good.message
    assert good.runs == ()
    assert (bad.state, bad.message.partition(":")[0]) == (
        "failed",
        "unknown recorded machine 'intel-gest'",
    )
