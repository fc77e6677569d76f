"""Rates, completeness and what is said of them; and the command as its users type it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from perflib import experiments
from perflib.cli.count_table import lines_of
from perflib.experiments.counting import measure
from perflib.experiments.counting.analyse import totals
from perflib.experiments.counting.events import chosen
from perflib.instruments.counters.counting import Counting
from perflib.instruments.counters.groups import countable
from perflib.instruments.counters.sets import events_of
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.run import Run
from perflib.store.run_files import load
from tests.cli.calling import call, call_json
from tests.experiments.judged import made_run

COUNT = experiments.get("count")
SECOND = 1_000_000_000


def samples(
    per_s: dict[str, float], bins: int = 60, share: float = 1.0, seed: int = 1, phases: float = 0.0
) -> pd.DataFrame:
    """Poisson counts with a slow wave on them, seen for a random part of each second."""
    generator = np.random.default_rng(seed)
    rows = []
    for at in range(bins):
        wave = 1 + phases * np.sin(at / 7)
        for event, rate in per_s.items():
            on = share if share == 1 else float(generator.beta(8 * share, 8 * (1 - share)))
            value = float(generator.poisson(rate * wave * on))
            rows.append((at, "made", event, "", at * SECOND, SECOND, SECOND, value, on * 1e9, 1e9))
    names = ["bin", "set", "event", "unit", "start_ns", "span_ns", "elapsed_ns", "value", "on_ns"]
    return pd.DataFrame(rows, columns=[*names, "all_ns"])


def analysed(table: pd.DataFrame, **params: Any) -> list[Finding]:
    return COUNT.analyse(made_run(COUNT, table, **params))


# --- what is concluded ---------------------------------------------------------------------------


def test_a_rate_is_covered_by_its_interval() -> None:
    covered = []
    for seed in range(200):
        (row,) = totals(samples({"a": 400.0}, share=0.3, seed=seed)).to_dict("records")
        covered.append(row["per_s_low"] <= 400.0 <= row["per_s_high"])
    assert np.mean(covered) >= 0.9


def test_what_was_on_for_a_part_is_scaled_and_says_so() -> None:
    found = {one.subject: one for one in analysed(samples({"a": 1e5}, share=0.25))}
    assert found["a"].effect == pytest.approx(1e5, rel=0.05)
    assert "Scaled: it was on for 2" in found["a"].reason
    assert found["a completeness"].verdict == "refuted"
    assert found["a completeness"].effect == pytest.approx(25, abs=6)


def test_what_was_always_on_is_counted_to_the_last() -> None:
    table = samples({"a": 50.0, "none": 0.0})
    found = {one.subject: one for one in analysed(table)}
    assert set(found) == {"a", "none"}
    total = totals(table).set_index("event")
    assert total.loc["a", "scaled"] == table.loc[table["event"] == "a", "value"].sum()
    assert found["none"].verdict == "refuted"
    assert found["a"].verdict == "supported"


def test_a_set_that_was_never_on_is_not_zero() -> None:
    table = samples({"a": 50.0}).assign(on_ns=0.0, value=0.0)
    (row,) = totals(table).to_dict("records")
    assert np.isnan(row["per_s"])
    assert {one.subject: one.verdict for one in analysed(table)} == {"a completeness": "refuted"}


def test_what_slept_all_the_time_has_counts_of_zero() -> None:
    table = samples({"a": 50.0}).assign(on_ns=0.0, all_ns=0.0, value=0.0)
    (row,) = totals(table).to_dict("records")
    assert (row["scaled"], row["complete_percent"]) == (0.0, 100.0)


def test_each_cpu_by_itself() -> None:
    both = pd.concat([samples({"a": 50.0}).assign(cpu=0), samples({"a": 70.0}).assign(cpu=1)])
    found = {one.subject: one.effect for one in analysed(both)}
    assert found == {
        "a of cpu0": pytest.approx(50, rel=0.2),
        "a of cpu1": pytest.approx(70, rel=0.2),
    }


def test_three_parts_are_too_few() -> None:
    (found,) = analysed(samples({"a": 50.0}, bins=3))
    assert found.verdict == "inconclusive"


def test_two_runs_that_are_alike_do_not_differ_and_others_do() -> None:
    def run(rate: float, seed: int) -> Run:
        return made_run(COUNT, samples({"a": rate}, seed=seed, phases=0.3))

    alike = [COUNT.compare(run(100.0, seed), run(100.0, 100 + seed)) for seed in range(20)]
    assert sum(one.verdict == "supported" for pair in alike for one in pair) <= 2
    (other,) = COUNT.compare(run(100.0, 1), run(300.0, 2))
    assert other.verdict == "supported"


def test_the_figures_of_gaps_and_of_nothing() -> None:
    gap = samples({"a": 50.0, "b": 5.0})
    gap.loc[gap["bin"] > 30, "start_ns"] += 3600 * SECOND
    for table in (gap, samples({"a": 0.0}, bins=1)):
        for figure in COUNT.figures(made_run(COUNT, table)).values():
            assert figure.axes


def test_the_table_of_a_terminal() -> None:
    lines = lines_of(samples({"plain": 100.0, "\x1b[31mred": 3.0}, bins=5))
    assert len(lines) == 3
    assert "plain" in lines[1]
    assert "100%" in lines[1]
    assert not any("\x1b" in line for line in lines)
    assert lines_of(samples({})) == lines[:1]
    assert "not seen" in lines_of(samples({"a": 1.0}).assign(on_ns=0.0))[1]


# --- what is asked -------------------------------------------------------------------------------


def test_words_of_events() -> None:
    found = chosen(["software", "task", "cpu-user", "page-faults", "cpu-user"], "machine")
    assert set(found.sets) == {"software", "events"}
    assert found.system.count("cpu-user") == 1
    assert "task-run-queue-delay" in found.system
    default = chosen(["default"], "cgroup")
    assert not default.sets
    assert all(name.startswith("cgroup") for name in default.system)
    generic = not countable({"generic": events_of("generic")})[1]
    assert ("generic" in chosen(["default"], "command").sets) == generic
    with pytest.raises(UserError, match="nor is it a set or a count of the kernel"):
        chosen(["no-such-thing"], "machine")


# --- as it is run --------------------------------------------------------------------------------

JOB = "import os; [os.write(1, b'.') for _ in range(50)]; x = bytearray(8 << 20)"


def test_a_job_is_counted_to_its_end(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--every", "20ms", "--json", "--", sys.executable, "-c", JOB]
    said = call_json(capfd, "count", *words)
    run = load(said["run"])
    assert run.provenance["stopped"] == "recorded once"
    faults = run.samples[run.samples["event"] == "page-faults"]
    if len(faults):
        assert faults["value"].sum() >= 8 * 256 / 512  # of huge pages at least, whatever the kernel
    assert (home / "runs" / f"{run.id}.recordings" / "counts" / "tail").is_file()


def test_a_job_begins_when_its_counters_are_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Counting):
        def __init__(self, *words: Any, **named: Any) -> None:
            time.sleep(0.3)
            assert not mark.exists()
            super().__init__(*words, **named)

    monkeypatch.setattr(measure, "Counting", Late)
    mark = tmp_path / "begun"
    assert call("count", "-e", "task", "--", "touch", str(mark)) == 0
    assert mark.exists()


def test_a_job_that_fails_is_said_and_one_that_does_not_start_is_an_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert call("count", "-e", "task", "--", "no-such-program") == 1
    assert "'no-such-program' cannot be started: No such file" in capfd.readouterr().err
    assert call("count", "-e", "task", "--", "sh", "-c", "echo words; exit 3") == 0
    assert "the job ended with status 3; its last line: words" in capfd.readouterr().err


@pytest.mark.slow
def test_a_killed_recording_goes_on(tmp_path: Path) -> None:
    environment = os.environ | {"PERFLIB_HOME": str(tmp_path), "PERFLIB_PROGRESS": "none"}
    argv = [sys.executable, "-m", "perflib", "count", "-e", "vm", "--every", "20ms"]
    with subprocess.Popen(
        [*argv, "--for", "1h"], env=environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as job:  # fmt: skip
        while not any(path.stat().st_size > 20_000 for path in tmp_path.rglob("tail")):
            assert job.poll() is None
            time.sleep(0.05)
        job.send_signal(signal.SIGKILL)
    (tail,) = tmp_path.rglob("tail")
    before = tail.stat().st_size
    (journal,) = tmp_path.rglob("*.journal")
    again = [sys.executable, "-m", "perflib", "run", "--resume", journal.stem]
    with subprocess.Popen(
        again, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as job:
        while tail.stat().st_size < before + 20_000:
            assert job.poll() is None
            time.sleep(0.05)
        job.send_signal(signal.SIGINT)
        assert job.wait(60) == 0
    (saved,) = tmp_path.rglob("*.parquet")
    run = load(saved)
    assert run.provenance["stopped"] == "interrupted"
    assert run.provenance["intervals"] * len(run.samples["event"].unique()) * 48 >= before + 20_000
    bins = run.samples.drop_duplicates("bin")
    until_ns = (bins["start_ns"] + bins["span_ns"]).max()
    assert bins["elapsed_ns"].sum() < until_ns  # between the two nothing was counted


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--every 3x", "it is a number and ms, s, min, h, d or w"),
        ("--pid 5 -- ls", "one of --pid, --cgroup and a command"),
        ("--pid 4194303", "there is no process 4194303"),
        ("--cgroup no/such/group", "control group"),
        ("-e no-such-thing --for 1s", "nor is it a set"),
        ("--cpus 0 --pid 1", "--cpus is for"),
        ("-p job=machine --for 1s", "given twice"),
    ],
)
def test_bad_input_is_a_sentence_and_leaves_nothing(
    words: str, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("count", *words.split()) == 2
    said = " ".join(capfd.readouterr().err.split())
    assert why in said
    if "--pid" in words:
        assert "is not counted" not in said  # that is said of what exists
    assert not list(tmp_path.rglob("*.journal"))
