"""``perflib profile``: what it prints and writes, and what it says of mistakes."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from perflib.experiments import get
from perflib.instruments.perf.script import read
from perflib.instruments.profile.export.flame import folded
from perflib.model.run import Run
from perflib.store.run_files import save
from tests.cli.calling import call
from tests.experiments.event_profile.profiles import samples
from tests.instruments.perf.perf_texts import RECORDED

TWO = RECORDED / "two_events.txt"
CUT = RECORDED / "cut.txt"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest's own handlers stay


def profile(*words: str | Path) -> int:
    return call("profile", *map(str, words))


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(TWO) == 0
    out, err = capsys.readouterr()
    assert err == ""
    first, found, rest = out.partition("  cpu-clock:u: 4 samples, by function\n")
    assert found
    head, found, modules = first.partition("  share %")
    assert found
    assert " ".join(head.split()) == (
        f"{TWO}: 8 samples of 2 events (cpu-clock:u 4, task-clock 4) in 1 thread; 69 lines, "
        "0 not read the tables are of cpu-clock:u: --event task-clock shows the other"
    )
    assert modules.splitlines()[1].split()[-2:] == ["4", "/tmp/ps/prog"]
    title, *functions = rest.splitlines()
    assert title.split() == ["self", "%", "self", "total", "%", "function", "object"]
    assert functions[0].split()[-1] == "/tmp/ps/prog"
    assert [line.split()[3] for line in functions][-2:] == ["__libc_start_call_main", "main"]


def test_lines_that_were_not_read_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert profile(CUT) == 0
    out = capsys.readouterr().out
    assert "17 lines, 6 not read" in out
    assert "  line 5 is cut: a part of it is missing: '\\t          401137 mid+0x1 (/bi'" in out
    assert "  ... and 1 more line was not read" in out
    binary = tmp_path / "x.txt"
    binary.write_bytes(b"kv 1 1.5: c: \n\n\x1b[31m\0\xff\n")
    assert profile(binary) == 0
    out = capsys.readouterr().out
    assert r"'\x1b[31m\x00" in out  # nothing that would drive the terminal
    assert "(no frames)" in out


def events_of(path: Path) -> list[str]:
    with duckdb.connect() as connection:
        query = f"SELECT event FROM read_parquet('{path}') ORDER BY event"
        return [event for (event,) in connection.execute(query).fetchall()]


def test_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outs = {name: tmp_path / name for name in ("folded", "speedscope", "parquet")}
    words = [word for name, path in outs.items() for word in (f"--{name}", path)]
    assert profile(TWO, *words) == 0
    out = capsys.readouterr().out
    assert all(f"{name}: {path}" in out for name, path in outs.items())
    assert outs["folded"].read_text() == (RECORDED / "two_events.folded").read_text()
    made = json.loads(outs["speedscope"].read_text())
    assert made["profiles"][0]["unit"] == "nanoseconds"
    assert events_of(outs["parquet"]) == ["cpu-clock:u"] * 4 + ["task-clock"] * 4
    assert profile(TWO, *words, "--event", "task-clock") == 0  # they are replaced
    samples = read(TWO).samples
    lines = folded(samples, "task-clock")
    assert outs["folded"].read_text().splitlines() == lines
    assert events_of(outs["parquet"]) == ["task-clock"] * 4


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert profile(CUT, "--json", "--folded", tmp_path / "f") == 0
    out, err = capsys.readouterr()
    assert err == ""
    record = json.loads(out)
    assert (record["samples"], record["events"], record["threads"]) == (2, {"cycles:u": 2}, 1)
    assert (record["lines"], record["records"], record["unread_count"]) == (17, 2, 6)
    assert record["unread"][0]["line"] == 1
    assert record["event"] == "cycles:u"
    assert record["functions"][0]["function"] == "leaf"
    assert record["functions"][0]["self_samples"] == 2
    assert record["folded"] == str(tmp_path / "f")


def test_what_is_hardly_so_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text"
    lines = [f"w{i} 7 1.{i:06}: cycles: 401000 f (/x) g+0x2 (/bin/x)\n" for i in range(30)]
    text.write_text("".join(lines))
    assert profile(text) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "30 samples have 30 names of threads, as 'w0': a field may be out of its" in shown
    assert "1 function with an address or a file: 'f (/x) g'" in shown
    assert profile(TWO) == 0
    assert "may be out" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["none.txt"], "none.txt cannot be read: No such file or directory"),
        (["."], ". cannot be read: Is a directory"),
        ([TWO, "--event", "task-clok"], "unknown event 'task-clok': did you mean 'task-clock'?"),
        ([TWO, "--folded", "."], "--folded . cannot be written: it is no ordinary file"),
        ([TWO, "--folded", "/dev/null"], "cannot be written: it is no ordinary file"),
        ([TWO, "--parquet", "no/x"], "--parquet no/x cannot be written: there is no folder no"),
        ([TWO, "--folded", "a", "--parquet", "./a"], "it is where --folded goes"),
        ([TWO, "--speedscope", TWO], "cannot be written: it is the text that is read"),
        (["perf.data"], "perf.data is perf's own data, not its text: perf script -i perf.data"),
        (["empty"], "empty is empty. Such a text is made with: perf script -i perf.data"),
        ([], "Missing argument 'FILE|RUN'"),
        (["nosuchrun"], "nosuchrun cannot be read: No such file or directory; nor is it a saved"),
    ],
)
def test_mistakes(
    words: list[str | Path],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("perf.data").write_bytes(b"PERFILE2")
    Path("empty").touch()
    before = {path.name for path in tmp_path.iterdir()} | {"home"}
    assert profile(*words) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""
    assert {path.name for path in tmp_path.iterdir()} <= before


# --- against another ---------------------------------------------------------------------------


def _text(path: Path, samples: dict[str, int]) -> Path:
    lines = [
        f"kv 7/7 [000] 1.{number:06d}: 1000000 cpu-clock: 401000 {function}+0x4 (/opt/kv)\n"
        for number, function in enumerate(f for f, count in samples.items() for _ in range(count))
    ]
    path.write_text("".join(lines))
    return path


@pytest.fixture
def costlier(tmp_path: Path) -> Path:
    return _text(tmp_path / "costlier.txt", {"track": 900, "scatter": 300, "locate": 300, "f": 300})


def test_against_another_profile_names_the_function_that_grew(
    tmp_path: Path, costlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples_ = {"track": 400, "scatter": 300, "locate": 300, "f": 300}
    other = _text(tmp_path / "other.txt", samples_)
    assert profile(costlier, "--against", other) == 0
    out = capsys.readouterr().out
    *_, lead, _, _, _ = out.splitlines()
    whether = f"Whether the event takes longer on {costlier} than on {other} stays open"
    assert whether in " ".join(out.split())
    assert lead.split()[0] == "+5e+08"  # 500 samples of a millisecond
    assert lead.endswith("track *")
    assert "Counting only" in out
    assert profile(costlier, "--against", other, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["against"] == str(other)
    subjects = [finding["subject"] for finding in record["findings"]]
    assert subjects == ["event time", "standing out", "track"]
    assert record["findings"][2]["about"] == {
        "claim": "function",
        "core": "",
        "first": str(other),
        "second": str(costlier),
        "function": "track",
    }


def test_against_what_cannot_be_compared(
    tmp_path: Path, costlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert profile(costlier, "--against", costlier) == 2
    assert "cannot be compared with itself" in capsys.readouterr().err
    assert profile(costlier, "--against", TWO) == 2
    says = f"{TWO}: unknown event 'cpu-clock': did you mean 'cpu-clock:u'"
    assert says in capsys.readouterr().err
    assert profile(costlier, "--against", tmp_path / "absent.txt") == 2
    assert "absent.txt cannot be read" in capsys.readouterr().err


# --- a saved run -------------------------------------------------------------------------------


def _saved(name: str, seed: int, **of: Any) -> str:
    made = samples(seed, rounds=4, count=400, **of).assign(object="/opt/kv", offset=4)
    params = get("event_profile").Params.make({}).model_dump(mode="json")
    plan = {"plan": {"cores": [0, 1], "reference": 0}}
    save(Run(f"event_profile-{name}", "event_profile", params, made, plan))
    return f"event_profile-{name}"


def test_a_run_is_read_as_a_text_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _saved("1", 1, costlier={(1, "kv_locate"): 0.8})
    assert profile("event_profile-1", "--json", "--folded", tmp_path / "f") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["run"] == "event_profile-1"
    (whole,) = record["modules"]
    assert (whole["object"], whole["percent"]) == ("/opt/kv", 100.0)
    assert whole["samples"] == record["samples"]
    assert whole["functions"][0]["function"] == record["functions"][0]["function"]
    table = record["additional_time"]["cpu1"]
    assert table[0]["function"] == "kv_locate"
    assert table[0]["stands_out"]
    assert sum(row["share_percent"] for row in table) == pytest.approx(100)
    assert sum(map(int, re.findall(r" (\d+)$", (tmp_path / "f").read_text(), re.MULTILINE))) > 0
    assert profile("event_profile-1") == 0
    assert "samples on cpu0, cpu1 in 4 rounds" in " ".join(capsys.readouterr().out.split())


def test_runs_are_compared_by_their_repetitions(capsys: pytest.CaptureFixture[str]) -> None:
    slow = {(core, "kv_locate"): 0.8 for core in (0, 1)}
    _saved("1", 1)
    _saved("2", 2, costlier=slow)
    assert profile("event_profile-2", "--against", "event_profile-1", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    (standing,) = [f for f in record["findings"] if f["about"]["claim"] == "stands_out"]
    assert standing["evidence"]["rounds"] == 8  # a trial of each core is one
    assert standing["evidence"]["named"] == ["kv_locate"]
    assert record["additional_time"][0]["function"] == "kv_locate"
    assert record["additional_time"][0]["share_percent"] > 50


def test_a_text_against_a_run_is_counted(
    costlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _saved("1", 1)
    assert profile(costlier, "--against", "event_profile-1", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["findings"][0]["verdict"] == "inconclusive"
    assert {row["function"] for row in record["additional_time"]} >= {"track", "kv_step"}


def test_a_run_of_another_experiment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    save(Run("machine-1", "machine", {}, pd.DataFrame({"cpu": [0]}), {}))
    assert profile("machine-1") == 2
    assert "machine-1 is a run of machine: it has no profile of functions" in " ".join(
        capsys.readouterr().err.split()
    )
