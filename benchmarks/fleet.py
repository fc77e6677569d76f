"""How long a farm takes: to plan, to collect, and from run to collected on a virtual Slurm.

    python benchmarks/fleet.py [plan] [collect] [slurm] [--nodes 1000]

``plan``     a thousand nodes, three experiments each, with a bundle that is there.
``collect``  their three thousand results, stored runs of 75 to 165 kB, into an empty store; again.
``slurm``    four nodes, three seconds of work each, from 'fleet run' until all is in the store.

Printed is the wall time of each command, its start included, and the figure to reach.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from perflib.fleet.plan import Plan, open_plan
from perflib.store.reading import quoted, read_run
from tests.fleet.slurm import slurm

_STORED = Path(__file__).parents[1] / "tests" / "data" / "runs"
_EXPERIMENTS = ("kv_per_core", "code_segment", "random_calls")
_PARTS = ("plan", "collect", "slurm")


def _timed(what: str, figure_s: float, environment: dict[str, str], *words: str) -> float:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "perflib", *words],
        check=True,
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what:50s} {wall:6.1f} s  {cpu:6.1f} s CPU  (at most {figure_s:g} s)", flush=True)
    return wall


def _results(plan: Plan) -> None:
    """A result for each row: a stored run, with the row's own id, parameters and host."""
    kinds = {name: read_run(_STORED / f"{name}.parquet") for name in _EXPERIMENTS}
    with duckdb.connect() as connection:
        for name, run in kinds.items():
            connection.register(name, run.samples)
        for number, row in enumerate(plan.rows.values()):
            run = kinds[row.experiment]
            machine = {**run.provenance["machine"], "hostname": row.hostname}
            record = {
                "id": f"{row.experiment}-20260101-000000-{row.node}-{number:010}",
                "experiment": row.experiment,
                "params": row.params,
                "provenance": {**run.provenance, "machine": machine},
                "schema": run.schema,
            }
            text = json.dumps(record).replace("'", "''")
            path = plan.folder / "results" / f"{row.key}.parquet"
            connection.execute(
                f"COPY {row.experiment} TO {quoted(path)} (FORMAT parquet, COMPRESSION zstd, "
                f"KV_METADATA {{perflib: '{text}'}})"
            )
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            path.with_suffix(".sha256").write_text(f"{digest}  {path.name}\n")


def main() -> None:
    """Print one line a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="all of them by default")
    parser.add_argument("--nodes", type=int, default=1000)
    given = parser.parse_args()
    parts = given.parts or _PARTS
    with tempfile.TemporaryDirectory(prefix="perflib-fleet-") as top:
        home = Path(top)
        environment = {
            **os.environ,
            "PERFLIB_HOME": str(home / "data"),
            "PERFLIB_CONFIG": "none",
            "PERFLIB_PROGRESS": "none",
        }
        kernels = home / "kernels"
        _timed("bundle, for the plans", 600, environment, "build", str(kernels), "--kernel", "kv")
        if {"plan", "collect"} & set(parts):
            _large(home, kernels, environment, given.nodes, collect="collect" in parts)
        if "slurm" in parts:
            _virtual(home, kernels, environment)


def _large(
    home: Path, kernels: Path, environment: dict[str, str], number: int, *, collect: bool
) -> None:
    names = "\n".join(f"n{one:04},{one % 7},{one // 40}" for one in range(number))
    (home / "nodes.csv").write_text(f"node,model,rack\n{names}\n")
    words = [word for name in _EXPERIMENTS for word in ("-e", name)]
    words += ["--bundle", str(kernels), "--out", str(home / "plan")]
    what = f"plan of {number} nodes x {len(_EXPERIMENTS)}"
    _timed(what, 5, environment, "fleet", "plan", str(home / "nodes.csv"), *words)
    if not collect:
        return
    plan = open_plan(home / "plan")
    _results(plan)
    count, size = 0, 0
    for path in (plan.folder / "results").glob("*.parquet"):
        count, size = count + 1, size + path.stat().st_size
    print(f"{count} files of {size / count / 1e3:.0f} kB")
    words = ["fleet", "collect", str(plan.folder), "--json"]
    _timed(f"collect of {count} files", 30, environment, *words)
    _timed("collect, again", 30, environment, *words)
    _timed("status", 30, environment, "fleet", "status", str(plan.folder), "--json")
    saved = len(list((home / "data" / "runs").glob("*.parquet")))
    assert saved == count, f"{saved} runs in the store"


def _virtual(home: Path, kernels: Path, environment: dict[str, str]) -> None:
    """From 'fleet run' until all is in the store; one run of kv_per_core a node."""
    with slurm() as virtual:
        there = environment | {name: virtual.environment[name] for name in ("SLURM_CONF", "PATH")}
        words = ["-e", "kv_per_core", "-p", "budget_s=3", "-p", "precision_percent=0.001"]
        words += ["--bundle", str(kernels), "--out", str(home / "four")]
        _timed("plan from sinfo", 5, there, "fleet", "plan", "--from-sinfo", *words)
        spent = _timed(
            "run on four nodes", 60, there, "fleet", "run", str(home / "four"), "--on", "slurm"
        )
        spent += _timed("collect", 60, there, "fleet", "collect", str(home / "four"))
    print(f"from run to collected: {spent:.1f} s (at most 60 s)")


if __name__ == "__main__":
    main()
