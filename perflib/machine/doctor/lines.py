"""A machine and its checkup as lines of text: what ``perflib doctor`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perflib.machine.doctor.checkup import Check
from perflib.machine.hardware.features import FeatureState
from perflib.machine.hardware.known_tlbs import tlbs_of
from perflib.model.sentences import size

_MARKS = {"good": "ok     ", "warn": "WARNING", "unknown": "unknown"}


def machine_lines(machine: Mapping[str, Any]) -> Iterator[str]:
    """What ``describe`` says, for a reader; what is not known is left out."""
    places = machine["topology"]
    limits = machine["limits"]
    yield (
        f"{machine['hostname']}: {machine['processor'] or 'a processor'}, "
        f"{machine['microarchitecture']} ({machine['product'] or 'product unknown'}; "
        f"{_numbers(machine)})"
    )
    yield (
        f"{places['packages']} package(s), {places['dies']} die(s), {places['cores']} cores of "
        f"{places['threads_per_core']} thread(s), {places['nodes']} NUMA node(s); CPUs online "
        f"{places['online']}, allowed here {places['allowed']}"
        + (f", isolated {places['isolated']}" if places["isolated"] else "")
        + (f", offline {places['offline']}" if places["offline"] else "")
    )
    memory = machine["memory_bytes"]
    yield (
        f"{machine['system']}, kernel {machine['kernel']}, "
        f"{size(memory) if memory else 'unknown'} of memory; "
        f"hypervisor: {machine['hypervisor'] or 'none seen'}; "
        f"container: {machine['container'] or 'none seen'}; CPU quota: "
        f"{limits['quota_cpus'] or 'none'}; clock source: {machine['clocksource']}"
    )
    for cpu in machine["cpus"]:
        yield f"cpu{cpu['cpu']}: {cpu['where']}"
    for node in machine["nodes"]:
        yield f"node {node['node']}: CPUs {node['cpus']}, distances {node['distances']}"
    for cache in machine["caches"]:
        yield (
            f"{cache['name']}, {cache['ways']} ways, lines of {cache['line_bytes']} B; shared by "
            f"CPUs {' | '.join(cache['shared_by'])}"
        )
    known = tlbs_of(machine)
    for tlb in known.tlbs:
        pages = " or ".join(size(page) for page in tlb.page_bytes)
        reach = size(tlb.entries * min(tlb.page_bytes))
        yield (
            f"L{tlb.level} {tlb.kind} TLB for pages of {pages}: {tlb.entries} entries, "
            f"reach {reach} ({known.origin})"
        )
    if known.source:
        begin = "" if machine["cpuid_missing"] else "CPUID reports no TLBs; "
        yield f"{begin}{known.origin}: {known.source}"
    elif machine["cpuid_missing"]:
        yield f"TLBs unknown: {machine['cpuid_missing']}"
    open_ = [name for name, text in machine["mitigations"].items() if "Vulnerable" in text]
    active = [name for name, text in machine["mitigations"].items() if "Mitigation" in text]
    yield f"mitigations active: {', '.join(active) or 'none'}; open: {', '.join(open_) or 'none'}"


def _numbers(machine: Mapping[str, Any]) -> str:
    family, model, stepping = (machine[key] for key in ("family", "model", "stepping"))
    if str(machine["vendor"]).startswith("ARM") and None not in (model, stepping):
        revision = f"r{stepping >> 4}p{stepping & 0xF}"
        return f"{machine['vendor']}, part {model:#05x}, {revision}"
    return f"family {family}, model {model}, stepping {stepping}, microcode {machine['microcode']}"


def feature_lines(states: Iterable[FeatureState]) -> Iterator[str]:
    """The processor's features, a line for each group: what is enabled, what is not, and why."""
    groups: dict[str, dict[str, list[str]]] = {}
    for state in states:
        name, why = state.feature.name, f" ({state.note})" if state.note else ""
        enabled = state.state == "enabled"
        kinds = groups.setdefault(state.feature.group, {"enabled": []})
        kinds.setdefault("enabled" if enabled else state.state + why, []).append(
            name + why if enabled else name
        )
    for group, kinds in groups.items():
        listed = (f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
        yield f"features, {group}: {'; '.join(listed)}"


def check_lines(checks: Iterable[Check]) -> Iterator[str]:
    """Each check: its state, what is, and, where it may spoil something, its cost and command."""
    order = list(_MARKS)
    for check in sorted(checks, key=lambda check: order.index(check.state)):
        yield f"{_MARKS[check.state]} {check.name}: {check.now}"
        if check.state != "good":
            yield f"        {check.cost}"
            if check.command:
                yield f"        change it: {check.command}"
