"""Samples of a sweep over the size of the code as a machine with known faults would give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perflib.experiments import get
from perflib.framework.page_control import PageControl
from perflib.machine.hardware.tlbs import Tlb
from perflib.model.claims import EXPLAINS
from perflib.model.finding import Finding
from perflib.model.run import Run
from tests.experiments import judged
from tests.experiments.made_once import made_once
from tests.experiments.simulated import bursts_of

KIB = 1024
ITLB_ENTRIES, PAGE_BYTES = 128, 4096  # a Haswell core's
L1_KIB, L2_KIB, REACH_KIB = 32, 256, ITLB_ENTRIES * PAGE_BYTES // KIB
SIZES_KIB = (8, 32, 128, 256, 384, 448, 512, 640, 768, 1024, 1536, 2048, 3072)
# The control of page sizes: none, and pairs of times on a host that does not back huge pages.
NO_CONTROL = PageControl({})
NOT_BACKED = {"4k": [[1.0, 6.0], [1.1, 6.2]] * 5, "thp": [[1.0, 6.1], [1.1, 6.1]] * 5}
TRIAL_NS = 5e6
SOFTIRQ_NS = 5000.0
_PIECE_BYTES = {"random": 128, "compiled": 141}
_COMPILED_KIB = 2048
_BURST_S = 3.0

Floats = NDArray[np.float64]


def machine(cores: Sequence[int] = range(20), tlbs: bool = True) -> dict[str, Any]:
    """A Haswell server as ``describe`` describes it: what analysis and figures ask for."""
    caches = [(1, "data", 32), (1, "instruction", L1_KIB), (2, "unified", L2_KIB)]
    known = [
        Tlb(1, "data", (PAGE_BYTES,), 64, 4),
        Tlb(1, "instruction", (PAGE_BYTES,), ITLB_ENTRIES, 4),
        Tlb(2, "unified", (PAGE_BYTES, 2 << 20), 1024, 8),
    ]
    return {
        "hostname": "haswell",
        "fingerprint": "haswell",
        "caches": [
            {"level": level, "kind": kind, "size_bytes": size * KIB, "count": len(cores)}
            for level, kind, size in [*caches, (3, "unified", 25600)]
        ],
        "tlbs": [asdict(tlb) for tlb in known] if tlbs else [],
        "cpus": [{"cpu": cpu, "where": f"package {cpu // 10}, core {cpu % 10}"} for cpu in cores],
    }


def misses(pattern: str, size_kib: Floats, reach_kib: float = REACH_KIB) -> Floats:
    """Of the iTLB on 4 KiB pages, a step: a ring misses always, or never; its control never."""
    if pattern in ("chase", "line"):
        return (size_kib > reach_kib).astype(float) * (pattern == "chase")
    return np.maximum(0.0, 1 - reach_kib / size_kib)


def _cost_ns(
    pattern: str,
    size_kib: Floats,
    huge: NDArray[np.bool_],
    walk_ns: float,
    reach_kib: float = REACH_KIB,
) -> Floats:
    """Time a step: the work, mispredicted branches, caches, and the iTLB."""
    ns: Floats = 2.0 + 1.5 * np.maximum(0, 1 - 16 / size_kib) + 5.0 * (pattern == "compiled")
    walks_ns = np.where(huge, 0.0, walk_ns * misses(pattern, size_kib, reach_kib))
    return ns + _caches_ns(size_kib) + walks_ns


def _caches_ns(size_kib: Floats) -> Floats:
    first, second = (np.maximum(0, 1 - holds / size_kib) for holds in (L1_KIB, L2_KIB))
    ns: Floats = 1.0 * first + 2.5 * second
    return ns


@made_once
def samples(
    seed: int = 1,
    *,
    cores: Sequence[int] = range(4),
    rounds: int = 60,
    sizes_kib: Sequence[int] = SIZES_KIB,
    patterns: Sequence[str] = ("random",),
    backings: Sequence[str] = ("4k", "thp"),
    walk_ns: float = 0.4,
    lags: Mapping[int, float] | None = None,
    slow: Mapping[int, float] | None = None,
    slow_caches: Mapping[int, float] | None = None,
    slow_clock: Mapping[int, float] | None = None,
    softirq_share: Mapping[int, float] | None = None,
    noise: float = 0.01,
    tails: float = 0.01,
    drift: float = 0.1,
    burst_share: Mapping[int, float] | None = None,
    compiled_kib: float = REACH_KIB,
) -> pd.DataFrame:
    """Rows as ``code_segment`` and ``random_calls`` make them, in the order of time.

    The pattern ``line``, the control of the chase, has as many jumps on 4 KiB pages alone;
    ``compiled`` ends at 2 MiB.

    Parameters
    ----------
    walk_ns
        What an iTLB miss costs.
    lags
        How much slower a core is at 3 MiB, by iTLB misses that cost it more: not at all within
        their reach, nor on huge pages.
    slow
        How much slower a core is at everything.
    slow_caches
        By what share the caches' part is longer on a core.
    slow_clock, softirq_share
        How much lower a core's clock is, and the share of time that soft interrupts take there,
        with code of 1 MiB and more.
    compiled_kib
        Where the compiled switch's pages begin to miss, if elsewhere than the others'.
    noise, tails, drift, burst_share
        Of the log-normal noise; the share of samples that something lengthens, by a quarter in the
        mean; how much slower the machine is at the end; the share of time in which a core takes
        twice as long, in bursts of seconds.
    """
    generator = np.random.default_rng(seed)
    design = pd.MultiIndex.from_product(
        [cores, patterns, sizes_kib, backings], names=["cpu", "pattern", "kib", "backing"]
    ).to_frame(index=False)
    design = design[(design["pattern"] != "line") | (design["backing"] == "4k")]
    design = design[(design["pattern"] != "compiled") | (design["kib"] <= _COMPILED_KIB)]
    design = design.reset_index(drop=True)
    kib, huge = (
        design["kib"].to_numpy(np.float64),
        ~design["backing"].isin(["4k", "loaded"]).to_numpy(),
    )
    step_ns = np.zeros(len(design))
    for pattern in patterns:
        mine = (design["pattern"] == pattern).to_numpy()
        reach_kib = compiled_kib if pattern == "compiled" else REACH_KIB
        step_ns[mine] = _cost_ns(pattern, kib[mine], huge[mine], walk_ns, reach_kib)
        at_most = _cost_ns(pattern, np.array([3072.0]), np.array([False]), walk_ns)[0]
        for cpu, share in (lags or {}).items():
            here = mine & ~huge & (design["cpu"] == cpu).to_numpy()
            of_3_mib = misses(pattern, np.array([3072.0]))[0]
            step_ns[here] += share * at_most * misses(pattern, kib[here]) / of_3_mib

    def of_core(shares: Mapping[int, float] | None) -> Floats:
        return np.array([(shares or {}).get(int(cpu), 0.0) for cpu in design["cpu"]])

    large = kib >= 1024
    step_ns += of_core(slow_caches) * _caches_ns(kib)
    step_ns *= 1 + of_core(slow)
    steps = np.maximum(2000, TRIAL_NS / step_ns).astype(np.int64)
    slower_clock = 1 + np.where(large, of_core(slow_clock), 0.0)
    storm = np.where(large, of_core(softirq_share), 0.0)
    total_s = rounds * len(design) * 1e-9 * TRIAL_NS
    bursts = {
        cpu: bursts_of(generator, share, _BURST_S, 3 * total_s)
        for cpu, share in (burst_share or {}).items()
    }
    cpus, count = design["cpu"].to_numpy(), len(design)
    now_s = 0.0
    parts: list[dict[str, NDArray[Any]]] = []
    for round_ in range(rounds):
        order = generator.permutation(count)
        time_ns = steps * step_ns * slower_clock * (1 + drift * round_ / rounds)
        time_ns *= np.exp(generator.normal(0, noise, count))
        lengthened = generator.random(count) < tails
        time_ns *= np.where(lengthened, 1 + generator.exponential(0.25, count), 1.0)
        softirqs = generator.poisson(time_ns * (0.25e-6 + storm / (1 - storm) / SOFTIRQ_NS))
        time_ns += SOFTIRQ_NS * softirqs
        start_s = np.zeros(count)
        for place in order:
            if bursts and _within(bursts.get(int(cpus[place]), []), now_s):
                time_ns[place] *= 2
            start_s[place] = now_s
            now_s += 2e-9 * time_ns[place]  # placing the code takes as long
        columns = {
            "row": np.arange(count),
            "round": np.full(count, round_),
            "position": np.argsort(order),
            "steps": steps,
            "time_ns": np.floor(time_ns),
            "start_ns": (start_s * 1e9).astype(np.int64),
            "core_mhz": 2600 / slower_clock * np.exp(generator.normal(0, 0.001, count)),
            "softirqs": softirqs,
            "interrupts": softirqs + generator.poisson(time_ns * 1e-6),
            "switches": lengthened.astype(int),
            "involuntary_switches": lengthened.astype(int),
        }
        parts.append({name: values[order] for name, values in columns.items()})
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    made: pd.DataFrame = design.iloc[columns.pop("row")].reset_index(drop=True).assign(**columns)
    pieces = made["pattern"].map(_PIECE_BYTES).fillna(PAGE_BYTES).astype(int)
    made["n"] = made["kib"] * KIB // pieces
    made["code_bytes"] = made["kib"] * KIB // np.where(made["pattern"] == "line", 64, 1)
    made["huge_bytes"] = np.where(made["backing"].isin(["4k", "loaded"]), 0, 4 << 20)
    made["ok"] = True
    return made.drop(columns="kib")


def _within(bursts: Sequence[tuple[float, float]], now_s: float) -> bool:
    return any(begin <= now_s < end for begin, end in bursts)


# --- what the experiments make of them -----------------------------------------------------------


def run_of(
    table: pd.DataFrame,
    experiment: str = "code_segment",
    provenance: Mapping[str, Any] | None = None,
    **params: Any,
) -> Run:
    """A run with these samples, on the Haswell server unless its provenance says otherwise."""
    known = {"machine": machine()} if provenance is None else provenance
    return judged.made_run(get(experiment), table, known, **params)


def findings(table: pd.DataFrame, experiment: str = "code_segment", **more: Any) -> list[Finding]:
    """What the experiment's analysis finds."""
    return get(experiment).analyse(run_of(table, experiment, **more))


def by_subject(found: Sequence[Finding]) -> dict[str, Finding]:
    """Findings by subject, without the hypotheses, of which several may have one."""
    return judged.by_subject(finding for finding in found if finding.of is not EXPLAINS)


def suspects(found: Sequence[Finding], what: str) -> dict[str, Finding]:
    """The hypotheses about what they may explain (a word of it), by cause."""
    mine = [one for one in found if one.of is EXPLAINS and what in one.about["explains"]]
    named = {str(finding.about["cause"]): finding for finding in mine}
    assert len(named) == len(mine)
    return named
