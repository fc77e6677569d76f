"""Plans run on a virtual Slurm of four nodes, which are all this machine."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perflib.fleet
from perflib.fleet import attempts
from perflib.fleet.outcomes import Outcome, outcomes
from perflib.fleet.plan import Plan, open_plan
from perflib.store import run_files
from tests.fleet.accepting import save_farm
from tests.fleet.slurm import NODES, PROGRAMS, NoSlurmError, Slurm, slurm, wait_until

pytest.importorskip(
    "snakemake_executor_plugin_slurm", reason="pip install 'perflib-jupyter[fleet]'"
)
_MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
pytestmark = [
    pytest.mark.xdist_group("fleet"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        bool(_MISSING),
        reason=f"no {' '.join(_MISSING)}: apt-get install slurmctld slurmd slurm-client",
    ),
]
QUICK = ("-p", "budget_s=1", "-p", "cores=first")
LONG = ("-p", "budget_s=25", "-p", "cores=first", "-p", "precision_percent=0.001")


class Farm:
    """A Slurm, and perflib's commands there."""

    def __init__(self, virtual: Slurm, home: Path, kernels: Path) -> None:
        self.slurm = virtual
        self.home = home
        self.kernels = kernels
        names = ("PERFLIB_HOME", "PERFLIB_CACHE", "PERFLIB_CONFIG", "TMPDIR")
        self.environment = virtual.environment | {name: os.environ[name] for name in names}

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "perflib", "fleet", *words]

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words), env=self.environment, cwd=self.home, capture_output=True,
            text=True, check=False, timeout=600,
        )  # fmt: skip

    def plan(self, *words: str) -> Plan:
        """A plan of kv_per_core."""
        made = ["-e", "kv_per_core", "--out", "plan", "--bundle", str(self.kernels)]
        answer = self.call("plan", *words, *made)
        assert answer.returncode == 0, answer.stderr
        return open_plan(self.home / "plan")

    def driver(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words("run", "plan", "--on", "slurm", *words), env=self.environment,
            cwd=self.home, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.fixture
def farm(home: Path, kernels: Path) -> Iterator[Farm]:
    with contextlib.ExitStack() as stack:
        try:
            virtual = stack.enter_context(slurm())
        except NoSlurmError as error:  # it is no fault of perflib
            pytest.skip(str(error))
        yield Farm(virtual, home, kernels)


def by_node(plan: Plan) -> dict[str, Outcome]:
    return {one.node: one for one in outcomes(plan)}


def ends(plan: Plan, node: str) -> list[Any]:
    """How the attempts of a node ended, oldest first."""
    key = by_node(plan)[node].key
    return [one.end.get("state") for one in attempts.latest(plan).get(key, [])]


def all_done_once(plan: Plan, nodes: tuple[str, ...] = NODES) -> None:
    """Each of these nodes has measured, there, and once."""
    found = by_node(plan)
    assert {node: found[node].state for node in nodes} == dict.fromkeys(nodes, "done")
    assert not any(found[node].second for node in nodes)
    assert {node: Counter(ends(plan, node))["done"] for node in nodes} == dict.fromkeys(nodes, 1)
    tried = attempts.latest(plan)
    for node in nodes:
        assert {one.start["slurm_node"] for one in tried[found[node].key]} == {node}


def test_four_nodes_each_once_and_collected(farm: Farm) -> None:
    plan = farm.plan("--from-sinfo", *QUICK)
    assert {(node.name, node.hostname) for node in plan.nodes()} == {
        (name, farm.slurm.host) for name in NODES
    }
    with farm.driver() as driver:
        _, said = driver.communicate()
    assert driver.returncode == 0, said
    all_done_once(plan)
    for one in outcomes(plan):
        assert one.engine_cpu_s is not None
        assert one.seconds is not None
        assert one.engine_cpu_s < 0.05 * one.seconds, (
            one
        )  # srun, and a Snakemake on each side of it
    (end,) = {
        one.end["slurm_jobs_beside"] for each in attempts.latest(plan).values() for one in each
    }
    assert end == 0  # the allocation is exclusive
    answer = farm.call("collect", "plan", "--json")
    assert json.loads(answer.stdout)["states"] == {"imported": 4}
    assert {one.run for one in outcomes(plan)} == {one.id for one in run_files.runs()}


@pytest.mark.slow
def test_a_job_that_is_cancelled_is_tried_again_on_its_node(farm: Farm) -> None:
    plan = farm.plan("--from-sinfo", *LONG)
    with farm.driver() as driver:
        wait_until("node2 measures", lambda: by_node(plan)["node2"].state == "running")
        farm.slurm.ask("scancel", farm.slurm.jobs("RUNNING")["node2"])
        wait_until("it is cancelled", lambda: ends(plan, "node2") == ["cancelled"])
        _, said = driver.communicate()
    assert driver.returncode == 0, said
    all_done_once(plan)
    assert ends(plan, "node2") == ["cancelled", "done"]


@pytest.mark.slow
def test_a_node_that_is_lost_measures_when_it_is_back(farm: Farm) -> None:
    plan = farm.plan("--from-sinfo", *LONG)
    with farm.driver() as driver:
        wait_until("node3 measures", lambda: by_node(plan)["node3"].state == "running")
        farm.slurm.kill("node3")
        wait_until("it is lost", lambda: by_node(plan)["node3"].state == "lost")
        farm.slurm.start("node3")
        _, said = driver.communicate()
    assert driver.returncode == 0, said
    all_done_once(plan)
    assert ends(plan, "node3") == [None, "done"]


@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on_and_nothing_is_measured_twice(farm: Farm) -> None:
    plan = farm.plan("--from-sinfo", *LONG)
    with farm.driver() as driver:
        wait_until("all measure", lambda: all(one.attempts for one in outcomes(plan)))
        driver.kill()
        driver.communicate()
    with farm.driver() as again:
        _, said = again.communicate()
    assert again.returncode == 0, said
    all_done_once(plan)
    assert len(list((plan.folder / "attempts").iterdir())) == len(NODES)


@pytest.mark.slow
def test_a_node_that_is_down_and_one_that_there_is_not(farm: Farm) -> None:
    names = "\n".join(f"{name},{farm.slurm.host}" for name in (*NODES[1:], "nodde1", "node1"))
    (farm.home / "nodes.csv").write_text(f"node,hostname\n{names}\n")
    plan = farm.plan("nodes.csv", *QUICK, "--limit", "30")
    farm.slurm.kill("node1")
    wait_until("it is down", lambda: "down" in " ".join(farm.slurm.states()))
    with farm.driver("--deadline", "0.02") as driver:
        _, said = driver.communicate()
    assert driver.returncode == 1
    assert "2 of 5 rows are not done" in said
    all_done_once(plan, NODES[1:])
    found = by_node(plan)
    assert (found["node1"].state, found["nodde1"].state) == ("unreachable", "unreachable")
    assert "is it down?" in found["node1"].reason
    assert found["nodde1"].reason.endswith("Invalid node name specified")
    assert "nodde1 kv_per_core: unreachable" in farm.call("status", "plan").stdout
    assert json.loads(farm.call("collect", "plan", "--json").stdout)["states"] == {"imported": 3}


@pytest.mark.slow
def test_interrupted_it_cancels_what_it_submitted(farm: Farm) -> None:
    plan = farm.plan("--from-sinfo", *LONG)
    with farm.driver() as driver:
        wait_until("all measure", lambda: all(one.attempts for one in outcomes(plan)))
        driver.send_signal(signal.SIGINT)
        _, said = driver.communicate(timeout=120)
    assert "'perflib fleet run plan' continues" in said.replace(f"{farm.home}/", "")
    wait_until("no job is left", lambda: not farm.slurm.ask("squeue", "--noheader"))
    assert {one.state for one in outcomes(plan)} <= {"cancelled", "done"}


CHECK = Path(perflib.fleet.__file__).with_name("checks") / "slurm_health_check.sh"


@pytest.mark.slow
def test_a_health_check_drains_a_slow_node_and_asks_a_busy_one_again(home: Path) -> None:
    """Nodes measure what nodes.json says; all else is Slurm's, and the check that is shipped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFLIB_HOME", str(home / "data"))
        save_farm(names=("kv_per_core",))
    finds = {"node2": {"slower": 0.1}, "node3": {"slower": 0.1, "taken": 0.4}}
    (home / "nodes.json").write_text(json.dumps(finds))
    names = ("PERFLIB_HOME", "PERFLIB_CACHE", "TMPDIR")
    given = {
        **{name: os.environ[name] for name in names if name in os.environ},
        "PERFLIB_TEST_NODES": home / "nodes.json",
        "PYTHONPATH": Path(__file__).parents[2],
        "FARM": "store",
        "STATE": home / "state",
    }
    for name, words in {
        "perflib": f"{sys.executable} -m tests.fleet.accepting",
        "check": CHECK,
    }.items():
        (home / "bin").mkdir(exist_ok=True)
        exports = "".join(f'export {key}="{value}"\n' for key, value in given.items())
        path = f'export PATH="{home / "bin"}:$PATH"\n'
        log = f"echo $(date) $SLURMD_NODENAME >>{home}/{name}.log\n"
        (home / "bin" / name).write_text(f'#!/bin/sh\n{exports}{path}{log}exec {words} "$@"\n')
        (home / "bin" / name).chmod(0o755)
    more = f"HealthCheckProgram={home}/bin/check\nHealthCheckInterval=5\n"
    with contextlib.ExitStack() as stack:
        try:
            virtual = stack.enter_context(slurm(more))
        except NoSlurmError as error:  # it is no fault of perflib
            pytest.skip(str(error))
        (home / "bin" / "scontrol").symlink_to(virtual.path / "scontrol")

        def reason(node: str) -> str:
            return virtual.ask("sinfo", "--noheader", f"--nodes={node}", "--format=%E")

        def asked(node: str) -> int:
            return (home / "perflib.log").read_text().count(f"{node}\n")

        wait_until("node2 is drained", lambda: "drain" in virtual.states()[1])
        assert reason("node2").startswith("perflib: node2 is 10.")
        for node in ("node1", "node4"):
            wait_until(f"{node} is accepted", (home / "state" / f"{node}.accepted").exists)
        wait_until("node3 is asked again", lambda: asked("node3") > 1)
        assert [one for one in virtual.states() if one.startswith("drain")] == ["drained"]
        assert reason("node3") == "none"
        again = asked("node1")
        (home / "nodes.json").write_text("{}")  # the neighbour went
        wait_until("node3 is accepted", (home / "state" / "node3.accepted").exists)
        assert asked("node1") == again  # once a boot
