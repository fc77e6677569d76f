"""The machine's portrait: what it shows, and that every word is within it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from perflib.investigation.evidence import Evidence
from perflib.lab import portrait_facts
from perflib.lab.portrait import _PARTS, portrait
from perflib.lab.portrait_facts import facts_of
from perflib.lab.theme import png
from perflib.machine.describe import describe
from perflib.model.run import Run
from perflib.store.run_files import load
from tests.investigation.cases import EXPERIMENT, evidence, healthy, share, slow_core, slower
from tests.investigation.cases import taken as step_of
from tests.machine import trees
from tests.stored import RUNS


def server(root: Path, cores: int = 64, sharing: int = 8, nodes: int = 2, threads: int = 2) -> Path:
    """A machine with many cores; ``sharing`` of them have a last-level cache together."""
    every = f"0-{cores * threads - 1}"
    files = {
        f"{trees.CPU}/online": every,
        f"{trees.CPU}/present": every,
        "proc/self/status": f"Cpus_allowed_list:\t{every}",
        "proc/cpuinfo": trees.cpuinfo("AuthenticAMD", 25, 1, 1, "$\\frac$ <b>EPYC</b> \x1b", "fpu"),
        "proc/sys/kernel/hostname": "node$1_$<script>",
        "proc/meminfo": "MemTotal: 527000000 kB",
    }
    per_node = cores // nodes

    def ranges(first: int, count: int) -> str:
        starts = [first + cores * thread for thread in range(threads)]
        return ",".join(f"{start}-{start + count - 1}" for start in starts)

    for cpu in range(cores * threads):
        core = cpu % cores
        pair = ranges(core, 1)
        files |= trees.cpu_files(cpu, core // per_node, core, pair)
        files |= trees.cache_files(cpu, 0, 1, "Data", "32K", 8, pair)
        files |= trees.cache_files(cpu, 1, 1, "Instruction", "32K", 8, pair)
        files |= trees.cache_files(cpu, 2, 2, "Unified", "2048K", 16, ranges(core // 4 * 4, 4))
        shared = ranges(core // sharing * sharing, sharing)
        files |= trees.cache_files(cpu, 3, 3, "Unified", "32768K", 16, shared)
    for node in range(nodes):
        distances = " ".join("10" if other == node else "32" for other in range(nodes))
        files |= trees.node_files(node, ranges(node * per_node, per_node), 1 << 26, distances)
    return trees.write(root, files)


def shown(figure: Figure) -> list[Text]:
    return [one for one in figure.findobj(Text) if one.get_visible() and one.get_text()]


def words(figure: Figure) -> list[str]:
    return [one.get_text() for one in shown(figure)]


def assert_all_words_within(figure: Figure) -> None:
    png(figure)
    whole = figure.bbox
    for one in shown(figure):
        box = one.get_window_extent()
        assert whole.x0 - 1 <= box.x0, one.get_text()
        assert box.x1 <= whole.x1 + 1, one.get_text()
        assert whole.y0 - 1 <= box.y0, one.get_text()
        assert box.y1 <= whole.y1 + 1, one.get_text()


# --- whatever the machine is ---------------------------------------------------------------------


MACHINES: dict[str, Callable[[Path], Path]] = {
    "two nodes": trees.haswell_ep,
    "eight caches": trees.epyc,
    "a guest": trees.kvm_guest,
    "a container": trees.container,
    "offline cores": trees.offline,
    "64 cores, SMT": server,
    "64 cores, one cache": lambda root: server(root, 64, 64, 1, 1),
    "one core": lambda root: server(root, 1, 1, 1, 1),
}


@pytest.mark.parametrize(
    ("name", "measured"), [*((name, True) for name in MACHINES), ("64 cores, SMT", False)]
)
def test_every_machine_fits(name: str, measured: bool, tmp_path: Path) -> None:
    machine = describe(MACHINES[name](tmp_path))
    running = [cpu for cpu in machine["cpus"] if cpu["online"]]
    cores = sorted({min(cpu["siblings"] or [cpu["cpu"]]) for cpu in running})
    known = evidence(fit={"machine": machine}, cores=cores)
    if measured:
        found = [*healthy(cores[:-1]), slower(cores[-1], 12.0), share("shared", cores[-1], 40.0)]
        known = evidence(fit={"machine": machine}, cores=cores, symptom=found)
    figure = portrait(known)
    assert_all_words_within(figure)
    facts = facts_of(known)
    shown = {cpu for core in facts.cores for cpu in core.cpus}
    assert shown == {cpu["cpu"] for cpu in running}
    assert facts.measured is measured
    assert any(core.slow for core in facts.cores) is measured
    assert any("slower" in word for word in words(figure)) is measured


def test_nothing_known_is_a_figure_too() -> None:
    known = evidence()
    assert_all_words_within(portrait(known))
    assert "not described" in facts_of(known).in_words()


def test_signs_of_formulas_are_signs(tmp_path: Path) -> None:
    known = evidence(fit={"machine": describe(server(tmp_path))})
    (title,) = [text for text in words(portrait(known)) if "node$1_$" in text]
    assert title == "node$1_$<script> · $\\frac$ <b>EPYC</b> ?"


def test_without_colour_parts_differ_by_their_pattern() -> None:
    assert len({part.hatch for part in _PARTS.values()}) == len(_PARTS)


# --- cores and groups ----------------------------------------------------------------------------


def test_cores_lie_with_those_whose_caches_they_share(tmp_path: Path) -> None:
    facts = facts_of(evidence(fit={"machine": describe(server(tmp_path))}))
    assert [len(node.groups) for node in facts.nodes] == [4, 4]
    group = facts.nodes[1].groups[0]
    assert group.cache == "L3 32 MiB"
    assert [core.cpus for core in group.cores] == [(cpu, cpu + 64) for cpu in range(32, 40)]
    assert list(group.inner_rows(16)) == [("L2 2 MiB", 0, 3), ("L2 2 MiB", 4, 7)]
    assert list(group.inner_rows(6)) == [("L2 2 MiB", 0, 3), ("L2 2 MiB", 4, 5), ("L2 2 MiB", 6, 7)]
    assert (
        facts.nodes[1].title(several=True) == "Node 1 · memory 64 GiB · distances 32, 10 (firmware)"
    )
    assert facts.counted == "64 cores, 2 packages, 2 nodes, 2 threads a core"


def test_the_slow_core_is_marked_and_described() -> None:
    machine = load(RUNS / "kv_per_core.parquet").provenance["machine"]
    known = evidence(fit={"machine": machine}, symptom=slow_core(1, 12.0))
    first, second = facts_of(known).cores[:2]
    assert (first.slow, second.slow) == (False, True)
    assert second.text.startswith("▲ slower: 12")
    assert f"{second.name}: ▲ slower" in facts_of(known).in_words()
    assert any("thick frame" in text for text in words(portrait(known)))


def test_a_core_that_is_open_or_may_not_be_used_is_so_marked() -> None:
    machine = load(RUNS / "kv_per_core.parquet").provenance["machine"]
    cpus = [dict(cpu) for cpu in machine["cpus"]]
    cpus[1]["allowed"] = False
    known = evidence(fit={"machine": machine | {"cpus": cpus}}, symptom=[slower(0, 1.0, 3.0)])
    facts = facts_of(known)
    assert facts.cores[0].text == "? open whether slower"
    assert facts.cores[1].text == "may not be used"
    assert "dashed" in facts.signs


# --- levels of memory ----------------------------------------------------------------------------


def with_run(step: str) -> Evidence:
    known = evidence()
    run = load(RUNS / f"{EXPERIMENT[step]}.parquet")
    known.add(dataclasses.replace(step_of(step), run=run))
    return known


def test_measured_distances_replace_the_firmwares(monkeypatch: pytest.MonkeyPatch) -> None:
    known = with_run("distances")
    (run, _), *_ = known.entries
    nodes = [
        {"node": node, "cpus": [node], "memory_bytes": 1 << 30, "distances": [10, 21]}
        for node in range(2)
    ]
    cpus = [cpu | {"node": cpu["cpu"]} for cpu in run.provenance["machine"]["cpus"]]
    known.fit = {"machine": run.provenance["machine"] | {"nodes": nodes, "cpus": cpus}}
    assert "(firmware)" in facts_of(known).nodes[0].reach  # measured on one node: nothing of two
    monkeypatch.setattr(
        portrait_facts,
        "_distances",
        lambda _: {(0, 0): 80.0, (0, 1): 140.0, (1, 0): 140.0, (1, 1): 80.0},
    )
    assert facts_of(known).nodes[0].reach == "a load from node 0 80, node 1 140 cycles (measured)"


def test_the_machine_of_the_runs_is_shown_where_it_was_not_examined() -> None:
    run: Run = load(RUNS / "memory_levels.parquet")
    assert run.provenance["machine"]["processor"] in facts_of(with_run("levels")).name
