"""The fixture perflib_bench in sessions of pytest of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from perflib.lab.pytest_bench import Benchmarks, _compared
from perflib.stats.interval import Interval
from tests.experiments.bracketed.bracketed_samples import samples

TESTS = """
import pytest
setups = []

def work(n):
    return sum(i * i for i in range(n))

@pytest.fixture(scope="module")
def shared():
    setups.append(1)
    return 200

@pytest.fixture
def own(tmp_path):
    (tmp_path / "number").write_text("3")
    return tmp_path / "number"

def test_twice(perflib_bench, shared, own):
    assert own.read_text() == "3"
    assert perflib_bench(lambda n: work(2 * n), shared, against=work) == work(400)
    assert len(setups) <= 2

def test_by_itself(perflib_bench):
    assert perflib_bench(work, n=200) == work(200)

def test_that_fails(perflib_bench):
    perflib_bench(work, 10)
    assert not setups
"""


def session(
    folder: Path, *words: str, plugins: tuple[str, ...] = (), tests: str = TESTS
) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(tests)
    return subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "perflib.lab.pytest_plugin", *plugins, *words,
        ],
        cwd=folder, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "",
             "PERFLIB_HOME": str(folder / "home")},
    )  # fmt: skip


def test_rounds_across_tests_a_verdict_and_a_baseline(tmp_path: Path) -> None:
    words = ("--perflib-budget=1.5s", "--perflib-fail-above=3%", "--perflib-save")
    chosen = ("-k", "not fails", "--perflib-json=out.json")
    done = session(tmp_path, *words, *chosen)
    assert "Sessions in the baseline: 0" in done.stdout, done.stdout + done.stderr
    twice, alone = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    assert twice["longer_percent"] > 50
    assert twice["sentence"] in done.stdout
    # On a busy machine its interval is wide after that time.
    assert (done.returncode == 1) == (twice["verdict"] == "supported")
    assert alone["against"] == "the baseline"
    assert alone["samples"] > 8
    (kept,) = (tmp_path / "home" / "pytest").iterdir()
    assert list(json.loads(kept.read_text())) == ["test_it.py::test_by_itself"]
    done = session(tmp_path, "--perflib-budget=0.5s", "-k", "itself")
    assert done.returncode == 0
    assert "Sessions in the baseline: 1" in done.stdout
    assert "runs again" not in done.stdout  # a test alone is measured, too


@pytest.mark.parametrize(("limit", "fails"), [(3.0, True), (10.0, False), (None, False)])
def test_a_session_fails_above_the_limit(
    tmp_path: Path, limit: float | None, *, fails: bool
) -> None:
    options = {"--perflib-fail-above": limit, "--perflib-json": str(tmp_path / "out.json")}
    config = SimpleNamespace(getoption=options.get, rootpath=tmp_path)
    benchmarks = Benchmarks(cast("pytest.Config", config))
    benchmarks._against["piece1"] = "piece0"
    columns = samples(3, (5.0,)).drop(columns="round").to_dict("list")
    benchmarks._samples.append({"round": 0, "position": 0, "columns": columns})
    assert benchmarks.finish() == fails
    (result,) = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    assert result["longer_percent_low"] < 5 < result["longer_percent_high"]
    assert result["verdict"] == ("refuted" if limit == 10 else "supported")


def test_a_test_that_fails_is_one_that_fails(tmp_path: Path) -> None:
    done = session(tmp_path, "--perflib-budget=0s")
    assert done.returncode == 1
    assert "1 failed, 2 passed" in done.stdout
    assert "nothing was measured" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--perflib-fail-above=three",), "'three' is no such number: write it as 3%"),
        (("--perflib-budget=-1s",), "'-1s' is no such number: write it as 3s"),
        (("--perflib-json=no/out.json",), "--perflib-json=no/out.json: there is no folder"),
    ],
)
def test_wrong_options_are_sentences(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = session(tmp_path, *words)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert says in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_workers_are_refused(tmp_path: Path) -> None:
    if importlib.util.find_spec("xdist") is None:
        pytest.skip("no pytest-xdist")
    done = session(tmp_path, "-n", "1", "-k", "itself", plugins=("-p", "xdist"))
    assert done.returncode == 1
    assert "run these tests with -n 0" in done.stdout


def test_without_the_fixture_nothing_heavy_is_imported(tmp_path: Path) -> None:
    heavy = {"numpy", "pandas", "cffi", "perflib.lab.bench"}
    tests = f"import sys\ndef test_it():\n    assert not {heavy} & set(sys.modules)\n"
    done = session(tmp_path, tests=tests)
    assert done.returncode == 0, done.stdout
    assert "perflib" not in done.stdout


def sessions(*percents: float) -> list[dict[str, object]]:
    return [{"start": "", "percent": [one, one - 0.2, one + 0.2]} for one in percents]


def test_a_session_is_compared_with_the_scatter_of_sessions() -> None:
    now = Interval(105.0, 104.8, 105.2)
    even = _compared("f", now, sessions(100, 100.2, 99.9, 100.1), 1.0)
    assert (even.verdict, round(even.effect, 1)) == ("supported", 2.5)
    uneven = _compared("f", now, sessions(100, 110, 95, 104), 1.0)
    assert uneven.verdict == "inconclusive"
    assert _compared("f", now, sessions(100, 100), 1.0).verdict == "inconclusive"
    less = _compared("f", Interval(90.0, 89.8, 90.2), sessions(100, 100.2, 99.9, 100.1), 1.0)
    assert less.verdict == "refuted"
