"""States from what the engine complained of, and collecting."""

from __future__ import annotations

import csv
import dataclasses
import os
import shutil
from pathlib import Path

import duckdb
import pytest

from perflib.fleet import attempts, results
from perflib.fleet.collect import collect
from perflib.fleet.complaints import Complaint, read_log
from perflib.fleet.driver import driving, is_driven
from perflib.fleet.nodes import Node
from perflib.fleet.outcomes import STATES, outcomes, table
from perflib.fleet.plan import Plan, create, planned
from perflib.model.errors import UserError
from perflib.store import run_files
from tests.fleet.made import done, made


@pytest.fixture
def farm(home: Path) -> Plan:
    """Five rows, each a node of its own."""
    nodes = [Node(f"n{number}", f"n{number}.farm.org") for number in range(5)]
    rows = planned(nodes, ["kv_per_core"], {}, None, None)
    return create(home / "farm", nodes, rows, None)


# Snakemake 9.27 with its executor for Slurm 2.8, shortened.
LOG = (Path(__file__).parents[1] / "data" / "snakemake_slurm.txt").read_text()


def test_what_the_engine_says_is_a_state_and_a_reason(farm: Plan) -> None:
    keys = list(farm.rows)
    found = read_log(LOG.format(*keys))
    assert found[keys[0]].state == "unreachable"
    assert found[keys[0]].reason == "Slurm says: Invalid node name specified"
    assert found[keys[1]] == Complaint("cancelled", "its Slurm job was cancelled")
    assert found[keys[2]].state == "unreachable"
    assert "deadline" in found[keys[2]].reason
    assert keys[3] not in found  # it is tried again
    assert found[keys[4]] == Complaint("failed", "its job ended before perflib began (see logs/)")
    (farm.folder / "logs" / "driver-1.log").write_text(LOG.format(*keys))
    states = [one.state for one in outcomes(farm)]
    assert states == ["unreachable", "cancelled", "unreachable", "waiting", "failed"]
    (farm.folder / "logs" / "driver-2.log").write_text("")  # another driver tries all again
    assert {one.state for one in outcomes(farm)} == {"waiting"}


def test_the_scheduler_knows_why_a_job_never_ended(farm: Plan) -> None:
    key = list(farm.rows)[1]
    attempts.begin(farm.folder / "attempts", key, host="n1")
    assert outcomes(farm)[1].state == "running"
    (farm.folder / "logs" / "driver-1.log").write_text(LOG.format(*farm.rows))
    assert (outcomes(farm)[1].state, outcomes(farm)[1].attempts) == ("cancelled", 1)


def test_one_driver_at_a_time(farm: Plan) -> None:
    assert not is_driven(farm)
    with driving(farm):
        assert is_driven(farm)
        assert outcomes(farm)[0].reason == ""
        with (
            pytest.raises(UserError, match="another 'perflib fleet run' is at work"),
            driving(farm),
        ):
            pass
    assert not is_driven(farm)
    assert "continues" in outcomes(farm)[0].reason


def test_outcomes_as_a_table(farm: Plan, home: Path) -> None:
    done(farm, next(iter(farm.rows.values())), home)
    found = table(farm)
    assert list(found["state"]) == ["done", *["waiting"] * 4]
    assert set(found["state"]) <= set(STATES)
    wanted = {"key", "node", "experiment", "state", "reason", "run", "started", "seconds"}
    assert wanted <= set(found.columns)


def test_an_attempt_that_was_cut_off_on_a_full_disk(farm: Plan) -> None:
    key = next(iter(farm.rows))
    attempt = attempts.begin(farm.folder / "attempts", key, host=os.uname().nodename)
    whole = attempt.path.read_text()
    attempt.path.write_text(whole + '{"state": "fai')
    assert outcomes(farm)[0].state == "running"
    attempt.path.write_text("")
    assert outcomes(farm)[0].state == "waiting"


# --- collected -----------------------------------------------------------------------------------


def test_collect_takes_what_is_whole_and_what_its_row_says(farm: Plan, home: Path) -> None:
    rows = list(farm.rows.values())
    for row in rows[:2]:
        done(farm, row, home)
    done(farm, rows[2], home, params={**rows[2].params, "events": 3})
    damaged = done(farm, rows[3], home)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    found = {one.node: one for one in collect(farm)}
    assert [found[f"n{number}"].state for number in range(3)] == [
        "imported",
        "imported",
        "refused",
    ]
    assert found["n2"].reason == "its parameters are not those of the manifest"
    assert "n3" not in found
    saved = {one.id for one in run_files.runs()}
    assert saved == {found["n0"].run, found["n1"].run}
    again = collect(farm)
    assert [one.state for one in again] == ["there already", "there already", "refused"]
    assert {one.id for one in run_files.runs()} == saved
    with (farm.folder / "collected.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert [line["run"] for line in listed[:2]] == [found["n0"].run, found["n1"].run]
    assert [line["key"] for line in listed] == [row.key for row in rows[:3]]


def test_a_file_of_another_node_or_of_none_is_refused(farm: Plan, home: Path) -> None:
    rows = list(farm.rows.values())
    other = dataclasses.replace(rows[0], hostname="n9.farm.org")
    results.publish(farm, rows[0].key, made(home, other), "a")
    first = done(farm, rows[1], home)
    results.publish(farm, rows[2].key, first, "a")  # somebody copied it
    shutil.copy(__file__, home / "no.parquet")
    results.publish(farm, rows[3].key, home / "no.parquet", "a")
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT 1 AS x) TO '{home}/bare.parquet' (FORMAT parquet, "
            'KV_METADATA {perflib: \'{"id": "../../x", "experiment": "kv_per_core"}\'})'
        )
    results.publish(farm, rows[4].key, home / "bare.parquet", "a")
    found = [(one.state, one.reason) for one in collect(farm)]
    assert {state for state, _ in found} == {"refused"}
    assert found[0][1] == "it was measured on n9.farm.org, not on n0.farm.org"
    assert "several keys have run" in found[1][1]
    assert "several keys have run" in found[2][1]
    assert found[3][1] == found[4][1] == "it is no run's file"
    assert run_files.runs() == []


def test_a_run_of_which_the_store_has_another_file_is_refused(farm: Plan, home: Path) -> None:
    row = next(iter(farm.rows.values()))
    place = done(farm, row, home)
    (one,) = collect(farm)
    place.unlink()
    place.with_suffix(".sha256").unlink()
    kept = run_files.saved_path(one.run).read_bytes()
    samples = run_files.load(one.run).samples.iloc[:-1]
    done(farm, row, home, id=one.run, samples=samples)
    (again,) = collect(farm)
    assert again.state == "refused"
    assert "replaces none" in again.reason
    assert run_files.saved_path(one.run).read_bytes() == kept
