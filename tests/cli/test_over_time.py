"""The commands check, trend and compare --pair: what they print, and with which status they end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.fleet.analysis.baseline import baseline_tag
from perflib.machine.describe import describe
from perflib.model.run import Run
from perflib.store import run_files
from tests.cli.calling import call, call_json, too_wide
from tests.experiments.simulated import bracketed
from tests.fleet.simulated_runs import CODE, a_run


def keep(number: int, *, node: str = "node7", slower: float = 0.0, tag: str = "") -> str:
    """Save a simulated run of a machine on a day."""
    run = a_run(np.random.default_rng(number), number, slower=slower)
    run.provenance |= {
        "machine": {"hostname": node, "kernel": "6.1" if slower else "6.0"},
        "tag": tag,
        "stopped": "precise enough",
        "problems": [],
    }
    run_files.save(run, reported=CODE.reported(run))
    return run.id


@pytest.fixture
def good() -> None:
    for number in range(6):
        keep(number, tag=baseline_tag("it's good"))


@pytest.mark.usefixtures("good")
def test_a_check_says_by_its_status_whether_something_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("check", "--baseline", "it's good", "--run")
    assert call(*asked, keep(10)) == 0
    out, err = capsys.readouterr()
    assert not too_wide(out + err)
    assert "ANOMALY" not in out
    assert call(*asked, keep(11, slower=0.2)) == 3
    assert "All cores changed since the baseline it's good" in capsys.readouterr().out
    assert call(*asked, "code_segment-11", "--json") == 3
    result = json.loads(capsys.readouterr().out)
    assert result["changed"] is True
    assert result["checks"][0]["findings"][0]["effect"] == pytest.approx(22, abs=4)
    assert call(*asked, "code_segment-11", "--threshold", "900") == 0


@pytest.mark.usefixtures("good")
def test_a_run_of_another_machine_is_judged_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("check", "--baseline", "it's good", "--run", keep(12, node="node8")) == 0
    assert "was measured on node7, the run on node8" in capsys.readouterr().err


@pytest.mark.usefixtures("good")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--baseline", "bad"), "there is no baseline 'bad': make one with"),
        (("machine", "--baseline", "it's good"), "has no runs of machine, but of code_segment"),
        (("--baseline", "it's good", "-p", "budget_s=1"), "leave -p and --preset out"),
        (("--baseline", "it's good", "--save", "2"), "say which experiment"),
        (("--baseline", "it's good", "--save", "0"), "0"),
        (("--baseline", "it's good", "--threshold", "-1"), "-1"),
        (("--baseline", "it's good", "--run", "nothing"), "unknown run 'nothing'"),
        (("machine", "--baseline", "it's good", "--run", "code_segment-3"), "not of machine"),
        ((), "--baseline"),
    ],
    ids=str,
)
def test_mistakes_of_a_check_are_a_sentence(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("check", *words) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""


def test_a_baseline_is_measured_and_compared(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("check", "machine", "--baseline", "now")
    assert call(*asked, "--save", "2", "-p", "budget_s=0.1", "-p", "spin_ms=5") == 0
    first = capsys.readouterr().out.split()
    assert call(*asked, "--save", "1", "--json") == 0  # with the parameters of the first
    ids = json.loads(capsys.readouterr().out)["runs"]
    assert ids[:2] == first
    runs = [run_files.load(one) for one in ids]
    assert [run.params["spin_ms"] for run in runs] == [5.0] * 3
    assert {run.provenance["tag"] for run in runs} == {baseline_tag("now")}
    assert call(*asked, "--threshold", "1000") == 0
    assert run_files.runs()[-1].id in capsys.readouterr().out


def test_a_trend_shows_the_day_and_what_else_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = str(describe()["hostname"])
    for number in range(24):
        keep(number, node=here, slower=0.15 if number >= 12 else 0.0)
    keep(40, node=here, slower=9.0, tag="exercise")  # disturbed on purpose: it does not count
    assert call("trend", "code_segment", "--out", str(tmp_path / "t.svg")) == 0
    out, err = capsys.readouterr()
    assert out.startswith("24 runs of code_segment")
    assert not too_wide(out.replace(str(tmp_path), "") + err)
    assert "changed on 2026-03-14" in " ".join(out.split())
    assert "machine.kernel: 6.0 -> 6.1" in out
    assert (tmp_path / "t.svg").stat().st_size > 10_000
    result = call_json(capsys, "trend", "code_segment", "--json")
    assert result["changed"]["all cores"] == {"machine.kernel": ["6.0", "6.1"]}
    assert call("trend", "code_segment", "-q") == 0
    assert capsys.readouterr().out.startswith("supported ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("code_segmen",), "did you mean 'code_segment'?"),
        (("machine", "--node", "node7"), "no saved run of machine on node7"),
        (("code_segment", "--node", "node77"), "did you mean 'node7'?"),
        (("code_segment", "--node", "node7", "--out", "t.xyz"), "unknown kind of figure 'xyz'"),
        (("code_segment", "--node", "node7", "--out", "a/b/c.png"), "cannot be written"),
    ],
    ids=str,
)
def test_mistakes_of_a_trend_are_a_sentence(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(1)
    assert call("trend", *words) in (1, 2)
    assert says in capsys.readouterr().err


def keep_kv(name: str, node: str, pages: str, stolen: float = 0.0, minute: int = 0) -> None:
    kv = get("kv_per_core")
    params = kv.Params.make({"huge_pages": pages}).model_dump(mode="json")
    table: pd.DataFrame = bracketed(5, seconds=20.0, stolen={0: stolen, 1: stolen})
    provenance = {
        "machine": {"hostname": node},
        "start": f"2026-03-02T10:{minute:02}:00.000+00:00",
    }
    run_files.save(Run(name, kv.name, params, table, provenance))


def test_a_guest_is_compared_with_its_host(capsys: pytest.CaptureFixture[str]) -> None:
    keep_kv("kv_per_core-a", "host9", "never")
    keep_kv("kv_per_core-b", "vm1", "never", stolen=0.5, minute=1)
    keep_kv("kv_per_core-c", "vm1", "never", stolen=0.1, minute=2)
    for names in (("host9", "vm1"), ("kv_per_core-a", "kv_per_core-c")):
        assert call("compare", "--pair", *names) == 0
        out = capsys.readouterr().out
        assert "guest kv_per_core-c against host kv_per_core-a" in out
        assert "Guest compared with host, hypervisor: 11" in out
        assert not too_wide(out)
    result = call_json(capsys, "compare", "--pair", "host9", "vm1", "--json")
    assert (result["host"], result["guest"]) == (["kv_per_core-a"], ["kv_per_core-c"])
    assert call("compare", "--pair", "host9", "vm2") == 2
    assert "nor is there a run of kv_per_core on a machine of that name" in capsys.readouterr().err
