from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from perflib import experiments
from perflib.machine.describe import describe
from perflib.measure.journal import Journal
from perflib.model.errors import UserError
from perflib.model.finding import Finding
from perflib.model.hypotheses import unseen
from perflib.model.run import Run, new_id
from perflib.store.run_files import load, runs_dir, save, saved_path
from tests.cli.calling import call, call_json, too_wide
from tests.experiments.simulated import samples
from tests.processes import soon

RUN = ("run", "kv_per_core", "-p", "budget_s=0.5", "-p", "events=5")
MEASURE = ("run", "machine", "-p", "spin_ms=5", "-p", "cores=first")


def test_a_run_is_one_json_object_and_is_listed_shown_and_compared(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert call(*RUN, "--json") == 0
    out, err = capfd.readouterr()
    record = json.loads(out)
    assert record["experiment"] == "kv_per_core"
    assert Path(record["samples"]).is_file()
    subjects = [finding["subject"] for finding in record["findings"]]
    slow = [name for name in subjects if " " not in name]
    assert slow
    assert {int(name.removeprefix("cpu")) for name in slow} <= os.sched_getaffinity(0)
    parts = ("clock", "shared", "taken", "stolen", "softirq", "total")
    assert {f"{name} {part}" for name in slow for part in parts} == set(subjects) - set(slow)
    wanted = {"claim", "subject", "verdict", "effect", "low", "high", "unit", "confidence"}
    wanted |= {"reason", "evidence", "kind", "about", "quantity", "threshold", "plain"}
    assert all(set(finding) == wanted for finding in record["findings"])
    assert "round" in err
    again = replace(load(record["run"]), id=new_id("kv_per_core"))
    save(again)
    ids = [record["run"], again.id]
    assert [entry["id"] for entry in call_json(capfd, "runs", "--json")["runs"]] == ids
    assert call("show", ids[0]) == 0
    brief = capfd.readouterr().out
    assert "machine.processor: " in brief
    assert "parameters: " in brief
    assert "cores=" not in brief  # as it is by default
    assert "kernel.compiler_version" not in brief
    assert call("show", ids[0], "-v") == 0
    shown = capfd.readouterr().out
    assert "kernel.compiler_version" in shown
    assert " total: " in shown
    assert "parameters: cores=physical" in shown
    assert call_json(capfd, "show", ids[0], "--json")["params"]["events"] == 5
    assert call("compare", *ids) == 0
    compared = capfd.readouterr().out
    assert all(run_id in compared for run_id in ids)
    assert "what differs:\n    nothing that was recorded, but the time" in compared
    assert call_json(capfd, "compare", *ids, "--json")["findings"][0]["subject"] == "time per event"


def test_analyse_reads_a_table_that_the_user_brings(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "mine.csv"
    samples(slow={1: 0.12}, cores=3).to_csv(file, index=False)
    record = call_json(capsys, "analyse", "kv_per_core", "--samples", str(file), "--json")
    named = [f["subject"] for f in record["findings"] if f["verdict"] == "supported"]
    assert named == ["cpu1"]
    assert call("analyse", "kv_per_core", "--samples", str(file)) == 0
    first = next(line for line in capsys.readouterr().out.splitlines() if line[:2] == "  ")
    assert first.startswith("  ANOMALY  cpu1 is slower than the others: ")
    assert "supported" not in first


def saved(number: int, host: str | None = None, tag: str = "") -> Run:
    """A saved run of which the ledger's tests say what its analysis finds."""
    machine = describe()
    machine["hostname"] = host or machine["hostname"]
    start = f"2026-11-0{number}T07:45:07.123+00:00"
    provenance = {"machine": machine, "start": start, "tag": tag}
    run = Run(f"machine-2026110{number}-074507-1a2b", "machine", {}, pd.DataFrame(), provenance)
    run.samples = pd.DataFrame({"cpu": [number]})
    save(run)
    return run


@pytest.fixture
def judging(monkeypatch: pytest.MonkeyPatch) -> None:
    """The experiment ``machine`` judges a hypothesis; the first day's run cannot be analysed."""

    def analyse(run: Run) -> list[Finding]:
        day = int(run.samples["cpu"][0])
        if day == 1:
            msg = "no sample is usable"
            raise UserError(msg)
        return [unseen("frequency", "the extra time of core 8", f"Day {day} has no counter.")]

    monkeypatch.setattr(experiments.get("machine"), "analyse", analyse)


@pytest.mark.usefixtures("judging")
def test_the_ledger_is_of_the_newest_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = saved(2), saved(3)
    saved(4, "elsewhere")
    saved(5, tag="exercise")  # of a notebook: short, and about something else
    assert call("ledger") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "inconclusive frequency as the cause of the extra time of core 8" in out
    assert "Day 3" in out
    assert second.id in out
    assert "Day 2" not in out
    assert "Day 4" not in out
    assert "Day 5" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert call("ledger", first.id) == 0
    assert "Day 2" in capsys.readouterr().out
    assert call("ledger", first.id, "machine-20261104") == 0
    assert "on elsewhere" in capsys.readouterr().out


@pytest.mark.usefixtures("judging")
def test_the_ledger_as_json_has_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    run = saved(3)
    (entry,) = call_json(capsys, "ledger", "--json")["hypotheses"]
    assert (entry["hypothesis"], entry["verdict"]) == ("frequency", "inconclusive")
    assert (entry["run"], entry["experiment"]) == (run.id, "machine")
    assert entry["evidence"] == {"explains": "the extra time of core 8"}
    assert entry["effect"] is None


@pytest.mark.usefixtures("judging")
def test_the_ledger_without_hypotheses_says_who_tests_some(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tested = ("frequency", "softirq activity")
    monkeypatch.setattr(experiments.get("machine"), "hypotheses", tested, raising=False)
    assert call("ledger") == 0
    out = capsys.readouterr().out
    assert "no hypothesis was tested on this machine yet" in out
    assert "perflib run machine  (frequency, softirq activity)" in out
    assert call_json(capsys, "ledger", "--json") == {"hypotheses": []}


@pytest.mark.usefixtures("judging")
def test_the_ledger_goes_past_runs_that_tell_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    useless, cut = saved(1), saved(2)
    saved_path(cut.id).write_bytes(saved_path(cut.id).read_bytes()[:100])
    assert call("ledger") == 0
    out, err = capsys.readouterr()
    assert "no hypothesis was tested" in out
    assert f"left out: run {useless.id}: no sample is usable" in err
    assert f"left out: run {cut.id} is damaged" in err
    assert call("ledger", useless.id) == 2
    assert "no sample is usable" in capsys.readouterr().err
    assert call("ledger", cut.id) == 1
    assert "cut off" in capsys.readouterr().err


def test_doctor_shows_machine_checks_and_noise(
    left_changed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("doctor", "-q") == 0
    assert "ok      " not in capsys.readouterr().out
    assert call("doctor") == 0
    assert left_changed.read_text() == "performance\n"  # only a measurement puts settings back
    out = capsys.readouterr().out
    assert "ok      " in out
    assert not too_wide(out)
    assert "kernel" in out
    assert "noise on cpu" in out
    assert "pmu" in out
    assert "features, timing: " in out
    record = call_json(capsys, "doctor", "--json")
    assert {"machine", "checks", "features", "noise"} == set(record)
    assert {"name", "group", "purpose", "state", "note"} <= set(record["features"][0])


def test_doctor_without_a_compiler_says_what_is_missing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(home))
    assert call("doctor") == 0
    assert "no C compiler" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run",), "which experiment"),
        (("rnu", "x"), "did you mean 'run'"),
        (("run", "kv_per_cor"), "did you mean 'kv_per_core'"),
        (("run", "kv_per_core", "-p", "evnets=3"), "did you mean 'events'"),
        (("run", "kv_per_core", "-p", "events"), "KEY=VALUE"),
        (("run", "kv_per_core", "-p", "events=many"), "'many'"),
        (("run", "kv_per_core", "-p", "events=0"), ">= 1"),
        (("run", "kv_per_core", "-p", "cores=4095"), "no CPU 4095"),
        (("run", "kv_per_core", "-p", "budget_s=nan"), "budget_s"),
        (("run", "kv_per_core", "-p", "preload=/nowhere.so"), "there is no file '/nowhere.so'"),
        (("run", "kv_per_core", "-p", "memory_policy=bind"), "needs a memory_node"),
        (("run", "machine", "-p", "environment_bytes=9"), "environment_bytes=9 cannot be had"),
        (("run", "kv_per_core", "--preset", "quik"), "did you mean 'quick'"),
        (("run", "kv_per_core", "--profile", "quik"), "did you mean 'quick'"),
        (("run", "kv_per_core", "--resume", "x-1-2-3"), "give the run alone"),
        (("run", "--resume", "nonsense"), "unknown run 'nonsense'"),
        (("list", "kv_per_cor"), "did you mean 'kv_per_core'"),
        (("show", "nothing"), "unknown run"),
        (("analyse", "kv_per_core", "--samples", "nowhere.csv"), "there is no file"),
        (("analyse", "kv_per_core", "--samples", __file__), "not '.py'"),
        (("run", "--bogus"), "No such option"),
        (("investigate", "--core", "4000"), "--core 4000"),
        (("investigate", "--core", "one"), "not a valid integer"),
        (("investigate", "--against", "0"), "--core says which is slow"),
        (("investigate", "--minutes", "0"), "--minutes"),
        (("investigate", "--begin", "x"), "there is none"),
        (("investigate", "--job", "sim {evnts}"), "placeholder"),
        (("investigate", "--replay", "nowhere"), "no investigation in nowhere"),
        (("investigate", "--resume", "nowhere"), "no investigation in nowhere"),
        (("investigate", "--replay", "nowhere", "--core", "1"), "--replay and --resume"),
        (("batch", "nowhere.ipynb"), "there is no notebook"),
        (("batch", "nowhere.ipynb", "-p", "events"), "KEY=VALUE"),
        (("report", "nothing"), "unknown run"),
        (("ledger", "nothing"), "unknown run"),
        (("record",), "what is recorded? one of --pid, --cpus and a command after --"),
        (("record", "--pid", "1", "--", "x"), "what is recorded? one of"),
        (("record", "--log", "x", "--", "x"), "--log is where the process of --pid logs"),
        (("record", "--core", "0", "--pid", "1"), "--core is where COMMAND is started"),
        (("record", "--pid", "1", "--for", "3x"), "--for '3x': it is a number and ms, s, min, h"),
        (("record", "--pid", "1"), "say how long with duration_s"),
        (("record", "--event", "(a", "--", "x"), "wanted events is no regular expression"),
        (("record", "--slowest", "1", "--", "x"), "slowest_percent is of events"),
        (("record", "-p", "event=3", "--", "x"), "event is given twice: by an option, and by -p"),
        (("threads", "record"), "one of --pid and a command"),
        (("threads", "record", "--pid", "3", "--", "ls"), "one of --pid and a command"),
        (("threads", "record", "--for", "soon", "--", "ls"), "--for 'soon'"),
        (("compare-builds", "a"), "two builds are compared, and 1 is given"),
        (("compare-builds",), "two builds are compared, and none is given"),
        (("compare-builds", "--fail-above", "0%", "a", "b"), "write a percentage above 0"),
        (("compare-builds", "--fail-above", "fast", "a", "b"), "write a percentage above 0"),
        (("compare-builds", "--build", "make", "a", "b"), "go with --git"),
        (("compare-builds", "--git", "main..HEAD"), "--git needs the line that builds"),
        (("compare-builds", "--markdown", "--json", "a", "b"), "two outputs"),
        (("compare-builds", "/no/such/program", "/bin/true"), "no program '/no/such/program'"),
        (("compare-builds", "/bin/true", "/etc/passwd"), "no program '/etc/passwd'"),
        (("run", "machine", "--recorded", "intel-gest"), "did you mean 'intel-guest'"),
        (("run", "machine", "--recorded", ""), "unknown recorded machine ''"),
        (
            ("run", "machine", "--recorded", "numa2-guest"),
            "no run of machine was recorded on numa2",
        ),
        (("run", "machine", "-p", "spin_ms=3", "--recorded", "intel-guest"), "in spin_ms = 3"),
        (("run", "--resume", "machine-2026", "--recorded", "x"), "--resume takes a run's own"),
        (("run", "--recorded", "intel-guest"), "which experiment?"),
    ],
)
def test_mistakes_are_a_sentence_and_exit_2(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*words) == 2
    out, err = capsys.readouterr()
    assert says in " ".join(err.split())
    assert out == ""
    assert "Traceback" not in err
    assert not list(runs_dir().glob("*"))


def test_a_failed_measurement_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-p", "job=command", "-p", "job_command=sh -c 'exit 7'")
    assert call("run", "kv_per_core", *words) == 1
    assert "status 7" in capsys.readouterr().err


def test_ctrl_c_keeps_what_there_is_and_exits_0(home: Path) -> None:
    argv = [sys.executable, "-m", "perflib", *MEASURE, "-p", "budget_s=60", "--json"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    journals = home / "home" / "runs"
    assert soon(
        lambda: any(one.read_bytes().count(b"\n") > 4 for one in journals.glob("*.journal"))
    )
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    record = json.loads(out)
    assert set(record) == {"run", "experiment", "findings", "recorded", "samples"}
    assert load(Path(record["samples"])).provenance["stopped"] == "interrupted"


# --- runs that were interrupted ------------------------------------------------------------------


def test_a_run_is_resumed_by_the_beginning_of_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """It was killed before its first trial."""
    name = "machine-20261101-074507-1a2b"
    params = experiments.get("machine").params({"budget_s": 0.2, "spin_ms": 5, "cores": "first"})
    header = {
        "id": name,
        "experiment": "machine",
        "params": params.model_dump(mode="json"),
        "plan": experiments.get("machine").plan(params),
        "start": "2026-11-01T07:45:07.123+00:00",
        "tag": "",
        "machine": describe(),
    }
    Journal.create(runs_dir() / f"{name}.journal", header).close()
    record = call_json(capsys, "run", "--resume", "mach", "--json")
    assert (record["run"], record["experiment"]) == (name, "machine")
    assert load("mach").id == name


# --- settings that a killed process left changed -------------------------------------------------


@pytest.fixture
def left_changed(home: Path) -> Path:
    """A setting, and the journal of a process that changed it and was killed with its guard."""
    setting = home / "setting"
    setting.write_text("performance\n")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    journal = home / "home" / "restore" / f"{boot}.journal"
    journal.parent.mkdir(mode=0o700, parents=True)
    change = {"path": str(setting), "old": "powersave", "new": "performance"}
    lines = [{"pid": 4711, "host": describe()["hostname"]}, change]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return setting


@pytest.mark.parametrize(
    "words",
    [("--help",), ("run", "--help"), ("list",), ("runs",), ("run", "nonsense")],
)
def test_nothing_but_a_measurement_puts_settings_back(
    words: tuple[str, ...], left_changed: Path
) -> None:
    call(*words)
    assert left_changed.read_text() == "performance\n"


def test_a_measurement_puts_settings_back_and_says_so(
    left_changed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*MEASURE, "-p", "budget_s=0.2") == 0
    assert left_changed.read_text() == "powersave\n"
    said = capsys.readouterr().err
    assert "problem: process 4711 was killed while it had system settings changed" in said


# --- quick starts ---------------------------------------------------------------------------------

HEAVY = {"cffi", "duckdb", "ipywidgets", "matplotlib", "numpy", "pandas", "scipy", "seaborn"}


def test_help_and_list_import_nothing_heavy() -> None:
    code = (
        "import sys, perflib.cli\n"
        "for words in (['--help'], ['run', '--help'], ['list']):\n"
        "    try: perflib.cli.main(words)\n"
        "    except SystemExit as end: assert end.code == 0\n"
        f"    print(sorted(set(sys.modules) & {HEAVY | {'pydantic'}!r}), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-3:] == ["[]", "[]", "['pydantic']"]
