"""What every experiment gets: a journal, a saved run, resumption, and errors that lose nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perflib.experiments import NAMES, get
from perflib.framework.experiment import Experiment
from perflib.framework.steps import Steps
from perflib.machine.describe import describe
from perflib.measure.journal import Journal
from perflib.measure.process import WorkerError
from perflib.measure.schedule import Status, round_order
from perflib.model.errors import MeasurementError, UserError
from perflib.model.run import Run
from perflib.store import run_files
from tests.disk import files_no_larger_than
from tests.framework.tiny import ARMS, Tiny, TinyParams, tokens
from tests.processes import alive, is_gone, soon

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "runs"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def params(**given: Any) -> TinyParams:
    made = Tiny().params(given)
    assert isinstance(made, TinyParams)
    return made


def schedule(seed: int, trials: int) -> list[tuple[int, int]]:
    """The first trials of a run, as the seed has it."""
    order = [(n, which) for n in range(trials) for which in round_order(seed, n, ARMS)]
    return order[:trials]


def check_whole(run: Run, seed: int, offset: int) -> None:
    """Every trial of the schedule from the first on, each once, with the right answer."""
    samples = run.samples
    assert list(zip(samples["round"], samples["configuration"], strict=True)) == schedule(
        seed, len(samples)
    )
    assert (samples["sum"] == offset + samples["round"]).all()
    assert len(set(tokens(samples))) == len(samples)


# --- measuring ---------------------------------------------------------------------------------


def test_measured_saved_and_the_journal_removed(folder: Path) -> None:
    seen: list[Status] = []
    run = Tiny().measure(params(rounds=4, seed=5), progress=seen.append, tag="rack 3")
    assert files(folder) == [f"{run.id}.parquet"]
    check_whole(run, 5, run.provenance["plan"]["offset"])
    assert len(seen) == len(run.samples) == run.provenance["trials"]
    back = run_files.load(run.id)
    assert back.provenance == json.loads(json.dumps(run.provenance))
    assert tokens(back.samples) == tokens(run.samples)
    assert back.params == params(rounds=4, seed=5).model_dump(mode="json")
    assert str(back) == f"<Run {run.id}: {len(run.samples)} samples, stopped: precise enough>"


def test_provenance_says_where_how_and_with_what() -> None:
    provenance = Tiny().measure(params(rounds=1), tag="rack 3").provenance
    assert provenance["tag"] == "rack 3"
    assert provenance["stopped"] == "precise enough"
    assert (provenance["problems"], provenance["failed_trials"]) == ([], 0)
    assert provenance["machine"]["hostname"] == os.uname().nodename
    assert provenance["start"] < provenance["end"]
    assert provenance["versions"]["python"] == sys.version.split()[0]
    assert set(provenance["versions"]) >= {"perflib", "numpy", "scipy", "duckdb"}
    assert provenance["kernel"]["flags"][-1] == "-O1"
    assert provenance["settings_changed"] == {}
    for condition in provenance["conditions"]:
        assert condition["obtained"]["cpus"] == [condition["requested"]["cpu"]]
        assert condition["violated"] == []


def test_refused_plan_measures_and_writes_nothing(folder: Path) -> None:
    with pytest.raises(UserError, match="parameter 'refused'"):
        Tiny().measure(params(refused=True))
    assert files(folder) == []


def test_interrupt_saves_what_there_is_or_leaves_nothing(folder: Path) -> None:
    def interrupt(round_: int, _arm: int) -> None:
        if round_ == first:
            raise KeyboardInterrupt

    tiny = Tiny()
    tiny.before_trial = interrupt
    first = 0
    with pytest.raises(MeasurementError, match="nothing was measured: the run was interrupted"):
        tiny.measure(params())
    assert files(folder) == []
    first = 2
    run = tiny.measure(params(rounds=10**9))
    assert (run.provenance["stopped"], len(run.samples)) == ("interrupted", 6)
    assert files(folder) == [f"{run.id}.parquet"]


def test_crashing_kernel_ends_it_and_what_was_measured_is_saved(folder: Path) -> None:
    def crash(round_: int, which: int) -> None:
        if round_ >= 2 and which == 1:
            msg = "kernel 'faulty' crashed"
            raise WorkerError(msg)

    tiny = Tiny()
    tiny.before_trial = crash
    with pytest.raises(MeasurementError, match="kernel 'faulty' crashed\nWhat was") as caught:
        tiny.measure(params(rounds=10**9))
    (name,) = files(folder)
    run = run_files.load(folder / name)
    assert str(caught.value).endswith(f"is saved as run {run.id}")
    assert run.provenance["stopped"] == "failed"
    assert run.provenance["failed_trials"] == 3
    assert run.provenance["problems"] == ["kernel 'faulty' crashed"]
    assert run.samples[run.samples["configuration"] == 1]["round"].tolist() == [0, 1]
    assert run.samples["round"].max() in (3, 4)


def offset_of(run: Run) -> int:
    return int(run.provenance["plan"]["offset"])


# --- killed ------------------------------------------------------------------------------------


def kill_while_measuring(folder: Path, seed: int) -> tuple[str, list[str]]:
    """A process that measures is killed (SIGKILL): its run, and the tokens of its whole trials."""
    argv = [sys.executable, "-m", "tests.framework.tiny", str(seed)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert len(workers) == ARMS
        (journal,) = folder.glob("*.journal")
        assert soon(lambda: journal.read_bytes().count(b"\n") > 42)  # two come before the trials
        with pytest.raises(UserError, match="is being measured right now"):
            Tiny().resume(journal.stem)
        assert all(map(alive, workers))
        parent.kill()
    assert all(map(is_gone, workers))
    lines = journal.read_bytes().split(b"\n")[2:-1]
    return journal.stem, [token for line in lines for token in json.loads(line)["columns"]["token"]]


def test_killed_process_loses_nothing_and_its_run_goes_on(folder: Path) -> None:
    name, before = kill_while_measuring(folder, seed=9)
    assert len(before) >= 40
    assert [(entry.id, entry.status) for entry in run_files.runs()] == [(name, "interrupted")]
    journal = folder / f"{name}.journal"
    raw = journal.read_bytes()
    journal.write_bytes(raw + raw[-50:-1])  # killed in the middle of a line
    stop = threading.Event()

    def watch(status: Status) -> None:
        if len(status.samples()) >= len(before) + 20:
            stop.set()

    run = Tiny().resume(name, progress=watch, stop=stop)
    assert run.id == name
    assert files(folder) == [f"{name}.parquet"]
    assert len(run.samples) == len(before) + 20
    assert tokens(run.samples)[: len(before)] == before, "the samples before are the very same"
    check_whole(run, 9, offset_of(run))
    with pytest.raises(UserError, match=f"no unfinished run '{name}'"):
        Tiny().resume(name)


def test_run_goes_on_only_on_its_own_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine of the same make is another machine, and the sentence names both."""
    real = {**describe(), "machine_id": "beef" * 8}  # a bare system may have none
    monkeypatch.setattr("perflib.machine.describe.describe", lambda: real)
    name = interrupted_run(folder)
    twin = {**real, "hostname": "twin", "machine_id": "f00d" * 8}
    with monkeypatch.context() as patch:
        patch.setattr("perflib.machine.describe.describe", lambda: twin)
        with pytest.raises(UserError) as refusal:
            Tiny().resume(name)
    assert f"run {name} was begun on {real['hostname']} (" in str(refusal.value)
    assert "and this is twin (machine-id f00df00d)" in str(refusal.value)
    check_whole(Tiny().resume(name), 1, offset_of(run_files.load(name)))


def test_journal_of_an_earlier_perflib_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds neither machine-id nor boot: machines of one make cannot be distinguished."""
    name = interrupted_run(folder)
    journal = folder / f"{name}.journal"
    header, *rest = journal.read_text().splitlines()
    record = json.loads(header)
    del record["machine"]["machine_id"], record["machine"]["boot_id"]
    old = "tiny-20261121-033019-a9f1"
    record |= {"id": old}
    old_journal = journal.rename(folder / f"{old}.journal")
    old_journal.write_text("\n".join([json.dumps(record), *rest, ""]))
    real = describe()
    with monkeypatch.context() as patch:
        patch.setattr(
            "perflib.machine.describe.describe", lambda: {**real, "fingerprint": "another"}
        )
        with pytest.raises(UserError, match=rf"run {old} was begun on .* \(make another\)"):
            Tiny().resume(old)
    monkeypatch.setattr("perflib.machine.describe.describe", lambda: {**real, "hostname": "new"})
    assert Tiny().resume(old).id == old


def interrupted_run(folder: Path) -> str:
    """A run whose process ended in the middle of round 1."""

    def end(round_: int, _arm: int) -> None:
        if round_ == 1:
            raise SystemExit

    tiny = Tiny()
    tiny.before_trial = end
    with pytest.raises(SystemExit):
        tiny.measure(params())
    (journal,) = folder.glob("*.journal")
    return journal.stem


def test_nothing_to_resume(folder: Path) -> None:
    with pytest.raises(UserError, match="no unfinished run 'tiny-1'; unfinished: none"):
        Tiny().resume("tiny-1")
    name = interrupted_run(folder)
    with pytest.raises(UserError, match=f"unfinished: {name}"):
        Tiny().resume("tiny-1")


# --- a full disk -------------------------------------------------------------------------------


def check_full_disk(error: MeasurementError, folder: Path) -> tuple[str, list[str]]:
    (journal,) = folder.glob("*.journal")
    assert f"perflib run --resume {journal.stem}" in str(error)
    assert "make room" in str(error)
    opened = Journal.reopen(journal)
    before = [token for trial in opened.trials for token in trial["columns"]["token"]]
    opened.close()
    assert f"{len(before)} trials" in str(error)
    assert [(entry.id, entry.status) for entry in run_files.runs()] == [
        (journal.stem, "interrupted")
    ]
    return journal.stem, before


def resumed(name: str, before: list[str]) -> None:
    run = Tiny().resume(name)
    assert tokens(run.samples)[: len(before)] == before
    check_whole(run, 1, offset_of(run))
    assert [(entry.id, entry.status) for entry in run_files.runs()] == [(name, "saved")]


def test_disk_full_while_measuring_loses_nothing(folder: Path) -> None:
    interrupted_run(folder)
    (journal,) = folder.glob("*.journal")
    limit = journal.stat().st_size + 5000
    journal.unlink()
    with files_no_larger_than(limit), pytest.raises(MeasurementError, match="too large") as caught:
        Tiny().measure(params(rounds=10**9))
    name, before = check_full_disk(caught.value, folder)
    assert len(before) > 20
    content = (folder / f"{name}.journal").read_text()
    (folder / f"{name}.journal").write_text(content.replace(str(10**9), "4", 1))
    resumed(name, before)


def test_disk_full_while_saving_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = run_files.save

    def save_on_a_full_disk(run: Run) -> Path:
        with files_no_larger_than(1000):
            return save(run)

    with monkeypatch.context() as patch:
        patch.setattr("perflib.store.run_files.save", save_on_a_full_disk)
        with pytest.raises(MeasurementError, match="cannot be saved") as caught:
            Tiny().measure(params(rounds=4))
    assert [Path(name).suffix for name in files(folder)] == [".journal"]
    name, before = check_full_disk(caught.value, folder)
    assert len(before) >= 12
    resumed(name, before)


# --- presets, documentation ---------------------------------------------------------------------


@pytest.mark.parametrize("experiment", [Tiny(), *map(get, NAMES)], ids=lambda made: made.name)
def test_every_experiment_is_documented_as_data(experiment: Experiment) -> None:
    documented = experiment.documentation()
    assert json.loads(json.dumps(documented, allow_nan=False)) == documented
    assert documented["title"]
    assert documented["question"].endswith("?")
    required = [column["name"] for column in documented["columns"] if column["required"]]
    assert required
    for column in documented["columns"]:
        assert column["help"]
        assert column["type"] in ("integer", "number", "text", "boolean", "json")
        units = {"_gb_s": "GB/s", "_ns": "ns", "_bytes": "B", "_s": "s"}
        ends = next((suffix for suffix in units if column["name"].endswith(suffix)), None)
        if ends is not None and column["unit"]:
            assert column["unit"] == units[ends]
    for name in experiment.presets:
        experiment.params({}, preset=name)


class Lacking(Experiment):
    """An experiment that this machine can measure only while a setting is in force."""

    name = "lacking"
    Params = TinyParams

    def unavailable(self) -> str:
        return "perf is not allowed here"

    def _steps(self) -> Steps[TinyParams]:
        measure = SimpleNamespace(plan=lambda _: {"planned": True}, take=None)
        return Steps(measure, SimpleNamespace(findings=None, tables=None))


def test_what_a_machine_lacks_is_said_before_anything_is_made() -> None:
    with pytest.raises(UserError, match="perf is not allowed here"):
        Lacking().plan(TinyParams.make({}))


def test_what_a_setting_may_bring_is_asked_for_while_it_is_in_force() -> None:
    with_setting = TinyParams.make({"settings": "perf_event_paranoid=-1"})
    assert Lacking().plan(with_setting) == {"planned": True}
