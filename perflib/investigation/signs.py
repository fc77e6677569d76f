"""What the evidence shows, as named signs: the words in which the rules are written.

A sign holds for nothing, once, or for several cores; for each it gives what templates of rules and
sentences may name: ``cpu``, ``against`` (the fastest other core), ``estimate``, ``event`` ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perflib.investigation.evidence import Evidence
from perflib.model import sentences
from perflib.model.finding import Finding

Seen = Mapping[str, Any]
_SYMPTOMS = ("symptom", "symptom again", "job")  # the steps that compare cores
_FEW_EVENTS = 0.2  # of the events: a slowdown of no more is one of few events
_MOST_KIB = 4096  # of code that random calls are built of
_COPIES = ("mem", "copy", "conv", "buffer", "stencil", "axpy", "gemv", "add_")


def evaluate(name: str, evidence: Evidence) -> list[Seen]:
    """For what a sign holds; empty where it does not."""
    return list(SIGNS[name](evidence))


def fastest(evidence: Evidence, cpu: int) -> int:
    """The core with which a slow one is compared: the fastest of the others, as far as known."""
    others = evidence.others(cpu)
    slowdown = {
        finding.about["cpu"]: finding.effect
        for step in _SYMPTOMS
        for finding in evidence.find(step, "slower")
        if math.isfinite(finding.effect)
    }
    return min(others, key=lambda other: (slowdown.get(other, 0.0), other))


def _always(_evidence: Evidence) -> list[Seen]:
    return [{}]


def _job(evidence: Evidence) -> list[Seen]:
    return [{"job": evidence.question.job}] if evidence.question.job else []


def _own(evidence: Evidence) -> Iterable[Seen]:
    """Cores that are slow in themselves, the slowest first; with ``--core``, that one."""
    seen: dict[int, Seen] = {}
    for step in _SYMPTOMS:
        for finding in evidence.find(step, "slower", "supported"):
            seen[finding.about["cpu"]] = _of(evidence, finding, step)
    asked = evidence.question.core
    if asked is not None and asked not in seen and any(map(evidence.findings, _SYMPTOMS)):
        estimate = "as you say"
        for finding in evidence.find("symptom", "slower", cpu=asked):
            estimate = f"you say so, KV: {sentences.estimate(finding)}"
        seen[asked] = _beside(evidence, asked, estimate, 0.0)
    return sorted(seen.values(), key=lambda one: -one["effect"])[:1]


def _of(evidence: Evidence, finding: Finding, step: str) -> Seen:
    cpu = finding.about["cpu"]
    few = finding.evidence.get("events_slower_share", 1.0) <= _FEW_EVENTS
    slowest = finding.evidence.get("slowest_events", [])
    return {
        **_beside(evidence, cpu, sentences.estimate(finding), finding.effect),
        "event": slowest[0] if few and slowest else None,
        "step": step,
    }


def _beside(evidence: Evidence, cpu: int, estimate: str, effect: float) -> dict[str, Any]:
    against = fastest(evidence, cpu)
    return {
        "cpu": cpu,
        "against": against,
        "pair": f"{against},{cpu}",
        "estimate": estimate,
        "effect": effect,
        "event": None,
        "step": "",
    }


def _own_in_kv(evidence: Evidence) -> list[Seen]:
    """A core that is slow with our own code: or one that the user calls slow, without a job."""
    return [one for one in _own(evidence) if one["step"] != "job" and not evidence.question.job]


def _own_in_job(evidence: Evidence) -> list[Seen]:
    """A core on which the user's job is slow, or is reported slow."""
    return [one for one in _own(evidence) if evidence.question.job]


def _unexplained(evidence: Evidence) -> list[Seen]:
    """A slow core, and what the job runs there does not say why."""
    from perflib.investigation.causes import candidates

    explained = {one.cpu for one in candidates(evidence) if one.word in ("function", "code_size")}
    return [one for one in _own(evidence) if one["cpu"] not in explained]


def _larger(evidence: Evidence) -> list[Seen]:
    """A slow core on which the job runs through more code."""
    seen: list[Seen] = []
    for one in _own(evidence):
        for found in evidence.find("profile", "footprint", "supported", second=f"cpu{one['cpu']}"):
            least, most = sorted(size // 1024 for size in found.evidence["code_bytes"])
            kib = {8, 16, min(_MOST_KIB, max(32, least)), min(_MOST_KIB, max(64, 2 * most))}
            seen.append({**one, "sizes": ",".join(map(str, sorted(kib)))})
    return seen


def _open(evidence: Evidence) -> list[Seen]:
    """It is not known well enough whether a core is slow in itself, and none is known to be."""
    if evidence.find("symptom", "slower", "supported"):
        return []
    wide = evidence.find("symptom", "slower", "inconclusive")
    widest = max(wide, key=lambda one: one.high - one.low, default=None)
    if widest is None:
        return []
    return [{"cpu": widest.about["cpu"], "estimate": sentences.estimate(widest)}]


def _wrong(evidence: Evidence) -> list[Seen]:
    """Something computed another result than expected."""
    from perflib.investigation.causes import wrong_cores

    found = wrong_cores(evidence)
    return [{"subject": one.findings[0].subject, "certain": one.certain} for one in found]


def _wrong_once(evidence: Evidence) -> list[Seen]:
    """The same, and no core is known to compute wrong."""
    seen = _wrong(evidence)
    return [] if any(one["certain"] for one in seen) else seen


def _healthy(evidence: Evidence) -> list[Seen]:
    """There is nothing to explain, or nothing that another run on a pair of cores would."""
    looked = any(map(evidence.findings, _SYMPTOMS))
    return [{"first": evidence.compared[0]}] if looked and not _own(evidence) else []


def _nodes(evidence: Evidence) -> list[Seen]:
    nodes = evidence.fit.get("machine", {}).get("nodes", [])
    return [{"nodes": len(nodes)}] if len(nodes) > 1 else []


def _distant(evidence: Evidence) -> list[Seen]:
    """A slow core, on a machine with several nodes."""
    return list(_own(evidence)) if _nodes(evidence) else []


def _buffers(evidence: Evidence) -> list[Seen]:
    """What stands out in the profile copies or combines buffers."""
    seen: list[Seen] = []
    for finding in evidence.find("profile", "function", "supported"):
        name = str(finding.about["function"])
        if any(word in name.lower() for word in _COPIES):
            seen.append({"function": name, **next(iter(_own(evidence)), {})})
    return seen[:1]


def _varies(evidence: Evidence) -> list[Seen]:
    """The job's starts differ from each other far more than its events within one start."""
    run = evidence.run("job")
    if run is None or run.params.get("aslr") is False:
        return []
    from perflib.investigation.start_variation import variation

    found = variation(run)
    if not found.varies or len(_unexplained(evidence)) < len(list(_own(evidence))):
        return []
    return [{"spread": found.spread_percent, "pair": ",".join(map(str, evidence.compared))}]


SIGNS: Mapping[str, Callable[[Evidence], Iterable[Seen]]] = {
    "always": _always,
    "a job is given": _job,
    "a core is slow": _own,
    "a core is slow in KV": _own_in_kv,
    "a core is slow in the job": _own_in_job,
    "a core is slow by itself": _unexplained,
    "larger code runs on a slow core": _larger,
    "open whether a core is slow": _open,
    "a result was wrong": _wrong,
    "a result was wrong once": _wrong_once,
    "nothing is slow": _healthy,
    "a core is slow and there are several nodes": _distant,
    "buffers stand out in the profile": _buffers,
    "starts of the job differ": _varies,
    "nothing is slow and there are several nodes": lambda evidence: (
        _nodes(evidence) if _healthy(evidence) else []
    ),
}
