"""Boot guests with two and with four NUMA nodes, and run the tests of ``inside`` in them.

``make test-numa`` calls this; an ordinary run of all tests does not collect it. Latencies from such
a guest mean nothing: what is looked at is where memory is, and the shape and labels of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from perflib import experiments
from perflib.experiments.core_pairs.claims import GROUPS
from perflib.experiments.core_pairs.numa import experiment
from perflib.experiments.kv_per_core.pair import pair
from perflib.model.run import Run
from perflib.store.run_files import load
from tests.numa.guest import Guest, prepare
from tests.numa.inside.whole import EVENTS
from tests.numa.kernel import MissingError
from tests.numa.layouts import LAYOUTS

LIMIT_S = 900.0  # an idle machine of two cores takes three minutes for both


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Guest]]:
    """All at once: most of what each does, it does on one CPU."""
    try:
        kernel, first_root = prepare(tmp_path_factory.mktemp("boot"))
    except MissingError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    with ExitStack() as stack:
        started = {}
        for name, layout in LAYOUTS.items():
            out = tmp_path_factory.mktemp(name)
            guest = Guest.with_tests(name, layout, kernel, first_root, out)
            started[name] = stack.enter_context(guest)
        yield started


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("name", LAYOUTS)
def test_in_a_guest(name: str, guests: dict[str, Guest]) -> None:
    answer = guests[name].answer(LIMIT_S)
    print(answer.said)
    assert answer.status == 0, f"in the guest with {name} nodes:\n{answer.said}"
    assert answer.counts["tests"] > answer.counts["skipped"]
    assert answer.counts["failures"] == answer.counts["errors"] == 0


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_guest_s_run_is_analysed_and_drawn_here(name: str, guests: dict[str, Guest]) -> None:
    """Its last run, which lost a core: all are named, and so are the nodes along the edges."""
    guests[name].answer(LIMIT_S)
    run = last_run(guests[name].out, "numa")
    layout = LAYOUTS[name]
    groups = next(found for found in experiment.analyse(run) if found.of is GROUPS)
    assert groups.evidence["cpus"] == list(range(len(layout.nodes)))
    assert np.shape(groups.evidence["membership"]) == (len(layout.nodes), len(layout.nodes))
    axes = experiment.figures(run)["heatmap"].axes[0]
    for axis in (axes.xaxis, axes.yaxis):
        shown = [label.get_text() for label in axis.get_ticklabels()]
        assert shown == [str(cpu) for cpu in range(len(layout.nodes))]
    written = [text.get_text() for text in axes.texts]
    nodes = [f"node {node}" for node in range(len(layout.distances))]
    assert [text for text in written if text.startswith("node")] == nodes


@pytest.mark.timeout(LIMIT_S + 60)
def test_a_guest_is_compared_with_this_machine(
    guests: dict[str, Guest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logic alone: an emulated processor is slower by far, and its parts say nothing."""
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path))
    guests["two"].answer(LIMIT_S)
    there = last_run(guests["two"].out, "kv_per_core")
    kv = experiments.get("kv_per_core")
    here = kv.measure(kv.Params.make({"events": EVENTS, "budget_s": 5.0}))
    found = {one.about.get("part"): one for one in pair([here], [there])}
    assert found["total"].effect > 100
    assert "is no pair of a host and its guest" in found["total"].reason
    parts = [one.effect for part, one in found.items() if part not in (None, "total")]
    product = np.prod([1 + effect / 100 for effect in parts])
    assert product == pytest.approx(1 + found["total"].effect / 100, rel=0.05)


def last_run(out: Path, experiment_name: str) -> Run:
    found = (out / "data").rglob(f"{experiment_name}-*.parquet")
    return load(max(found, key=lambda path: path.name))
