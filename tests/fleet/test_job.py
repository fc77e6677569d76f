"""The job on a node, without an engine: measured once, published whole, every end with a reason."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perflib.fleet import attempts, job, manifest, results
from perflib.fleet.incoming import take_in
from perflib.fleet.job import JobOutcome, perform
from perflib.fleet.manifest import Row
from perflib.fleet.outcomes import Outcome, outcomes
from perflib.fleet.plan import Plan, open_plan
from perflib.store.reading import read_run
from tests.disk import small_disk
from tests.fleet.made import made
from tests.fleet.slurm import wait_until


def only(plan: Plan) -> Row:
    (row,) = plan.rows.values()
    return row


def outcome(plan: Plan) -> Outcome:
    (found,) = outcomes(plan)
    return found


def end(plan: Plan) -> dict[str, Any]:
    """The last attempt's end, as its file has it."""
    return attempts.latest(plan)[only(plan).key][-1].end


@pytest.fixture
def quick(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan whose measurements take no time: a recorded run, as its row wants it."""

    def answer(row: Row, _environment: object, folder: Path, _attempt: object) -> dict[str, Any]:
        path = made(folder, row)
        return {"run": path.stem, "file": str(path), "stopped": "budget spent"}

    monkeypatch.setattr(job, "_answer", answer)
    return plan


# --- measured ------------------------------------------------------------------------------------


def test_a_row_is_measured_once_and_published_whole(plan: Plan, home: Path) -> None:
    row = only(plan)
    ended = perform(plan, row)
    facts = {name: end(plan)[name] for name in end(plan).keys() - {"state", "reason", "end"}}
    assert ended == JobOutcome("done", facts=facts)
    run = read_run(results.result(plan, row.key))
    assert (run.params, run.provenance["tag"]) == (row.params, row.key)
    assert run.provenance["kernel"]["bundle"]["sha256"] == plan.bundle
    assert results.is_done(plan, row.key)
    checked = subprocess.run(
        ["sha256sum", "-c", f"{row.key}.sha256"], cwd=plan.folder / "results", check=False,
        capture_output=True,
    )  # fmt: skip
    assert checked.returncode == 0
    found = outcome(plan)
    assert (found.state, found.run, found.attempts) == ("done", run.id, 1)
    assert found.engine_cpu_s is not None
    assert end(plan)["measured_cpu_s"] > 0.3
    assert list((home / "node").iterdir()) == []  # nothing stays on the node
    before = results.result(plan, row.key).stat()
    assert perform(plan, row).reason == "it was done before"
    assert results.result(plan, row.key).stat() == before
    assert outcome(plan).attempts == 1


def test_the_measured_process_has_the_same_environment_whatever_started_it(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, dict[str, str]] = {}

    def answer(_row: Row, environment: dict[str, str], *_: object) -> dict[str, Any]:
        seen[os.environ.get("OMP_NUM_THREADS", "")] = environment
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "_answer", answer)
    for number in ("1", "64"):  # Snakemake sets it, and Slurm two dozen of its own
        monkeypatch.setenv("OMP_NUM_THREADS", number)
        monkeypatch.setenv("SLURM_CPU_FREQ_REQ", number)
        assert perform(plan, only(plan)).state == "cancelled"
    scratch = [environment.pop("PERFLIB_HOME") for environment in seen.values()]
    assert seen["1"] == seen["64"]
    assert not any(name.startswith(("OMP", "SLURM")) for name in seen["1"])
    assert len(set(scratch)) == 2


# --- a result that is there, or half there -------------------------------------------------------


def test_a_second_result_is_kept_apart(quick: Plan) -> None:
    row = only(quick)
    assert perform(quick, row).state == "done"
    first = results.result(quick, row.key).read_bytes()
    with pytest.MonkeyPatch.context() as patch:  # it looks too early: the other publishes meanwhile
        looks = iter([False])
        patch.setattr(results, "is_done", lambda *_: next(looks, True))
        ended = perform(quick, row)
    assert ended.facts["second"] in {path.name for path in (quick.folder / "second").iterdir()}
    assert results.result(quick, row.key).read_bytes() == first
    found = outcome(quick)
    assert (found.state, found.reason) == ("done", "1 more in second/")
    assert found.second == (ended.facts["second"],)
    assert found.run == attempts.latest(quick)[row.key][0].end["run"]


def test_a_race_for_the_place_is_won_once(quick: Plan, tmp_path: Path) -> None:
    row = only(quick)
    one = made(tmp_path, row)
    results.result(quick, row.key).write_bytes(b"the other job's, which has no checksum yet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "exists", lambda _self: False)  # it is put there after the look
        place = results.publish(quick, row.key, one, "late")
    assert place.name == f"{row.key}.late.parquet"
    assert results.result(quick, row.key).read_bytes().startswith(b"the other job's")


@pytest.mark.parametrize("harm", ["cut", "no checksum", "other checksum", "gone"])
def test_a_result_that_is_not_whole_is_no_result(quick: Plan, harm: str) -> None:
    row = only(quick)
    perform(quick, row)
    place = results.result(quick, row.key)
    if harm == "cut":
        place.write_bytes(place.read_bytes()[:-5])
    elif harm == "gone":
        place.unlink()
    elif harm == "no checksum":
        place.with_suffix(".sha256").unlink()
    else:
        place.with_suffix(".sha256").write_text(f"{'0' * 64}  x\n")
    found = outcome(quick)
    assert found.state == "failed"
    assert found.reason.startswith("its result is damaged or gone (run kv_per_core-")
    assert perform(quick, row).state == "done"
    assert outcome(quick).state == "done"
    kept = [path.name for path in (quick.folder / "second").glob("*.damaged.parquet")]
    assert len(kept) == (harm != "gone")


def test_jobs_of_a_node_wait_for_their_turn(quick: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, inside, most = job._answer, [0], [0]

    def slow(*given: Any) -> dict[str, Any]:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.3)
        inside[0] -= 1
        return answer(*given)

    monkeypatch.setattr(job, "_answer", slow)
    threads = [threading.Thread(target=perform, args=(quick, only(quick))) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert most == [1]
    assert outcome(quick).attempts == 1  # the others found it done


# --- not here ------------------------------------------------------------------------------------


def refused(plan: Plan, state: str, says: str) -> None:
    ended = perform(plan, only(plan))
    assert ended.state == state
    assert says in ended.reason
    assert (outcome(plan).state, outcome(plan).reason) == (ended.state, ended.reason)
    assert not list((plan.folder / "results").iterdir())


def test_a_node_with_another_name(quick: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "_host", lambda: "n7")
    refused(quick, "wrong node", "should be the host")


def test_slurm_put_it_elsewhere(quick: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    refused(quick, "wrong node", "Slurm started it on n7")


def test_another_perflib(quick: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "perflib_version", lambda: "9.9.9")
    refused(quick, "refused", "and this node has 9.9.9")


def test_another_bundle(quick: Plan) -> None:
    refused(replace(quick, bundle="0" * 64), "refused", "is not the one that the plan was made")


def test_no_bundle(quick: Plan) -> None:
    refused(replace(quick, bundle_folder="nowhere"), "refused", "there is no such folder")


@pytest.mark.parametrize(("off", "word"), [(7200.0, "ahead"), (-7200.0, "behind")])
def test_a_clock_that_is_wrong(
    quick: Plan, off: float, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr("perflib.fleet.job.time.time", lambda: now() + off)
    refused(quick, "refused", f"its clock is 7200 s {word}")


def test_a_clock_behind_where_files_have_the_same_one(quick: Plan) -> None:
    (quick.folder / "driver.txt").write_text(f"{time.time() + 900:.0f}")
    refused(quick, "refused", "s behind")


# --- what goes wrong while it measures -----------------------------------------------------------


def in_its_place(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """Another program instead of the measurement."""
    monkeypatch.setattr(job, "command", lambda *_: (list(words), {}))


def test_a_crash(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    in_its_place(monkeypatch, "sh", "-c", "echo no memory >&2; kill -SEGV $$")
    refused(
        plan, "failed", "was ended by SIGSEGV (Segmentation fault); its last message: no memory"
    )


def test_the_time_limit(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    in_its_place(monkeypatch, "sh", "-c", "sleep 60 & wait")
    row = replace(only(plan), limit_s=1)
    ended = perform(plan, row)
    assert (ended.state, ended.reason) == (
        "too slow",
        "not done within its 1 s (limit_s in the manifest)",
    )


def test_a_node_whose_disk_is_full(plan: Plan, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk(home / "disk", 16) as disk:
        monkeypatch.setattr("tempfile.tempdir", str(disk))
        ended = perform(plan, only(plan))
        assert ended.state == "failed"
        assert "No space left" in ended.reason
        assert list(disk.iterdir()) == []
    assert outcome(plan).reason == ended.reason


def test_a_plan_whose_disk_is_full(quick: Plan, home: Path) -> None:
    with small_disk(home / "disk", 24) as disk:
        shutil.rmtree(quick.folder / "results")
        (quick.folder / "results").symlink_to(disk)
        ended = perform(quick, only(quick))
        assert ended.state == "failed"
        assert ended.reason == "its result cannot be written to the plan: No space left on device"
        assert list(disk.iterdir()) == []


JOB = [sys.executable, "-m", "perflib", "fleet", "job"]


def begun(plan: Plan) -> Callable[[], bool]:
    return lambda: any("perflib-scratch-" in path.name for path in scratch(plan).iterdir())


def scratch(plan: Plan) -> Path:
    return plan.folder.parent / "node"


def long(plan: Plan) -> Row:
    """Its row, with an hour to measure."""
    row = only(plan)
    params = {**row.params, "budget_s": 3600.0, "precision_percent": 1e-3}
    row = replace(row, params=params, key=manifest.key_of(row.node, row.experiment, params))
    manifest.write([row], plan.folder / "manifest.csv")
    vars(plan).pop("rows", None)
    return row


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_job_that_is_cancelled(plan: Plan, number: int) -> None:
    row = long(plan)
    with subprocess.Popen([*JOB, str(plan.folder), row.key], stderr=subprocess.PIPE) as process:
        wait_until("it measures", begun(plan))
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 1
    assert outcome(plan).state == "cancelled"
    assert list(scratch(plan).iterdir()) == []


def test_a_job_that_is_killed(plan: Plan) -> None:
    row = long(plan)
    with subprocess.Popen([*JOB, str(plan.folder), row.key], stderr=subprocess.PIPE) as process:
        wait_until("it measures", begun(plan))
        found = outcome(plan)
        assert (found.state, found.reason) == ("running", f"on {os.uname().nodename}")
        process.kill()
        process.communicate(timeout=60)
    found = outcome(plan)
    assert found.state == "lost"
    assert "never ended" in found.reason


def test_a_job_of_another_host_is_lost_when_its_time_is_over(plan: Plan) -> None:
    row = only(plan)
    attempt = attempts.begin(plan.folder / "attempts", row.key, host="elsewhere")
    assert outcome(plan).state == "running"
    os.utime(attempt.path, (0, time.time() - row.limit_s - 600))
    assert outcome(plan).state == "lost"


# --- what runs at the same time ------------------------------------------------------------------


def burn(seconds: float) -> None:
    end_s = time.process_time() + seconds
    while time.process_time() < end_s:
        pass


def test_a_neighbour_is_seen(quick: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = job._answer

    def beside(*given: Any) -> dict[str, Any]:
        neighbour = multiprocessing.get_context("fork").Process(target=burn, args=(1.0,))
        neighbour.start()
        os.waitid(os.P_PID, neighbour.pid or 0, os.WEXITED | os.WNOWAIT)  # no child's time of ours
        waiting.append(neighbour)
        return answer(*given)

    waiting: list[Any] = []
    monkeypatch.setattr(job, "_answer", beside)
    facts = perform(quick, only(quick)).facts
    waiting[0].join()
    assert facts["others_cpu_s"] >= 0.8
    assert facts["alone"] is False


# --- no shared file system -----------------------------------------------------------------------


def test_what_a_scheduler_carries(quick: Plan, home: Path) -> None:
    row, there = only(quick), home / "there"  # the node's folder, with what was carried to it
    (there / "incoming").mkdir(parents=True)
    for name in ("plan.json", "manifest.csv"):
        shutil.copy(quick.folder / name, there)
    shutil.copytree(quick.bundle_folder, there / Path(quick.bundle_folder).name)
    for number in range(2):  # both nodes believe that they are the first
        ended = perform(open_plan(there), row, transferred=True)
        assert ended.state == "done", ended.reason
        for path in (there / "incoming").iterdir():
            shutil.move(path, quick.folder / "incoming")
        take_in(quick)
        take_in(quick)
        assert outcome(quick).state == "done"
        assert len(outcome(quick).second) == number
    assert list((quick.folder / "incoming").iterdir()) == []


def test_what_did_not_arrive_whole(quick: Plan) -> None:
    row = only(quick)
    shutil.copytree(quick.bundle_folder, quick.folder / "bundle")
    assert perform(quick, row, transferred=True).state == "done"
    (path,) = (quick.folder / "incoming").glob("*.parquet")
    path.write_bytes(path.read_bytes()[:-9])
    take_in(quick)
    found = outcome(quick)
    assert (found.state, found.second) == ("failed", (path.stem + ".damaged.parquet",))
