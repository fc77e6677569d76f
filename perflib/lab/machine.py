"""What a machine is and what spoils measurements on it, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from perflib.lab.tables import Table, styles, table
from perflib.machine.doctor.diagnose import Check
from perflib.machine.hardware.features import FeatureState
from perflib.model.errors import UserError, choose

Machine = dict[str, Any]  # what perflib.machine.describe.describe() returns
_MOST_CORES = 64


class MachineView(dict[str, Any]):
    """The description of this machine, as runs record it; shown as a table of facts."""

    def table(self, name: str) -> Table:
        """A part: ``facts``, ``cores``, ``caches``, ``tlbs``, ``tlb_reach``, ``features``.

        Raises
        ------
        UserError
            There is no such table; the nearest name is given.
        """
        made: dict[str, Callable[[], Table]] = {
            "facts": lambda: table({"what": name, "here": value} for name, value in facts(self)),
            "cores": lambda: cores(self),
            "caches": lambda: caches(self),
            "tlbs": lambda: tlbs(self),
            "tlb_reach": lambda: _tlb_reach(self),
            "features": lambda: _features_of(self),
        }
        if name not in made:
            raise UserError(choose("table", name, made))
        return made[name]()

    def _repr_html_(self) -> str:
        return self.table("facts")._repr_html_()

    def __repr__(self) -> str:
        return repr(self.table("facts"))


def describe(recorded: str = "") -> MachineView:
    """What this machine, or a recorded one, is: cores, caches, TLBs, kernel, hypervisor, counters.

    Raises
    ------
    UserError
        There is no such recorded machine.
    """
    if recorded:
        from perflib.framework import recordings

        return MachineView(recordings.described(recorded))
    from perflib.machine.describe import describe as described

    return MachineView(described())


def doctor() -> Table:
    """What spoils measurements here, what it costs, and the command that changes it."""
    from perflib.machine.doctor.diagnose import diagnose

    return checks(diagnose())


def _features_of(machine: Machine) -> Table:
    """A description does not hold the features: of a recorded machine they are not known."""
    from perflib.machine.hardware.features import of_this_machine

    if machine.get("recorded"):
        return table([{"feature": "not recorded", "what it is for": "see your own machine's"}])
    return features(of_this_machine())


def _tlb_reach(machine: Machine) -> Table:
    """How far each TLB reaches in pages of 4 KiB."""
    from perflib.machine.hardware.known_tlbs import tlbs_of
    from perflib.machine.hardware.tlbs import reach_bytes

    known = tlbs_of(machine)
    rows: list[dict[str, Any]] = [
        {
            "level": level,
            "use": use,
            "KiB reached in 4 KiB pages": reach // 1024,
            "says": known.origin,
        }
        for level in (1, 2)
        for use in ("instruction", "data")
        if (reach := reach_bytes(known.tlbs, use, level))
    ]
    unknown = machine["cpuid_missing"] or "the processor does not say"
    return table(rows or [{"level": "unknown", "reason": unknown}])


def facts(machine: Machine) -> list[tuple[str, str]]:
    """The machine in pairs of words, without what is unknown."""
    places = machine["topology"]
    name = " ".join(filter(None, (machine["microarchitecture"], _bracketed(machine["product"]))))
    counted = ", ".join(
        f"{places[key]} {word}{'' if places[key] == 1 else 's'}"
        for key, word in (
            ("packages", "package"),
            ("dies", "die"),
            ("cores", "core"),
            ("nodes", "NUMA node"),
        )
    )
    threads = places["threads_per_core"]
    known = {
        "not this machine": machine.get("recorded"),
        "processor": machine["processor"],
        "microarchitecture": name,
        "cores": f"{counted}; {threads} thread{'' if threads == 1 else 's'} a core",
        "CPUs allowed": places["allowed"],
        "memory": machine["memory_bytes"] and in_bytes(machine["memory_bytes"]),
        "kernel": machine["kernel"],
        "system": machine["system"],
        "hypervisor": machine["hypervisor"] or "none seen",
        "container": machine["container"],
        "hardware counters": "yes" if machine["pmu"]["available"] else machine["pmu"]["reason"],
        "clock source": machine["clocksource"],
        "fingerprint": machine["fingerprint"],
    }
    return [(key, str(value)) for key, value in known.items() if value]


def _bracketed(word: str | None) -> str | None:
    return f"({word})" if word else None


def in_bytes(size: float) -> str:
    """A size in the largest binary unit that leaves a number of one or more."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"


def cores(machine: Machine) -> Table:
    """Every CPU: its place, its siblings, and whether it may be used."""
    rows = []
    for cpu in machine["cpus"][:_MOST_CORES]:
        siblings = [str(other) for other in cpu["siblings"] if other != cpu["cpu"]]
        state = "allowed" if cpu["allowed"] else "not allowed" if cpu["online"] else "offline"
        rows.append(
            [
                f"cpu{cpu['cpu']}",
                cpu["where"],
                ", ".join(siblings) or "–",
                state + (", isolated" if cpu["isolated"] else ""),
            ]
        )
    if len(machine["cpus"]) > _MOST_CORES:
        rows.append([f"and {len(machine['cpus']) - _MOST_CORES} more", "", "", ""])
    return Table(("CPU", "where", "SMT siblings", "state"), rows, {})


def caches(machine: Machine) -> Table:
    """Every kind of cache, its geometry, and the CPUs that share one."""
    rows = [
        [
            cache["name"],
            str(cache["ways"] or "–"),
            f"{cache['line_bytes']} B" if cache["line_bytes"] else "–",
            "; ".join(cache["shared_by"]),
        ]
        for cache in machine["caches"]
    ]
    return Table(("cache", "ways", "line", "shared by CPUs (one group a cache)"), rows, {})


def tlbs(machine: Machine) -> Table:
    """Every TLB and the memory it reaches in pages of each size that it holds."""
    from perflib.machine.hardware.known_tlbs import tlbs_of

    known = tlbs_of(machine)
    rows = [
        [
            f"L{tlb.level} {tlb.kind}",
            str(tlb.entries),
            "any" if tlb.ways == tlb.entries else str(tlb.ways or "–"),
            "; ".join(
                f"{in_bytes(tlb.entries * page)} in pages of {in_bytes(page)}"
                for page in tlb.page_bytes
            ),
            known.origin,
        ]
        for tlb in known.tlbs
    ]
    return Table(("TLB", "entries", "ways", "reach", "says"), rows, {})


def features(states: Iterable[FeatureState]) -> Table:
    """Every feature of the processor, what it is for, and whether the system has enabled it."""
    marks = {"enabled": "✓", "not enabled": "▲", "absent": "–", "unknown": "?"}
    kinds = {"enabled": "refuted", "not enabled": "supported", "unknown": "inconclusive"}
    rows, styled = [], []
    for each in states:
        what = each.feature
        state = f"{marks[each.state]} {each.state}"
        rows.append([what.group, what.name, state, what.purpose, each.note])
        styled.append(("", "name", kinds.get(each.state, "name"), "prose"))
    return Table(("group", "feature", "state", "what it is for", "note"), rows, styles(styled))


def checks(found: Sequence[Check]) -> Table:
    """The doctor's list, what is wrong first."""
    order = {"warn": 0, "unknown": 1, "good": 2}
    marks = {"warn": "▲ warn", "unknown": "? unknown", "good": "✓ good"}
    kinds = {"warn": "supported", "unknown": "inconclusive", "good": "refuted"}
    listed = sorted(found, key=lambda check: order[check.state])
    rows = [[one.name, marks[one.state], one.now, one.cost, one.command] for one in listed]
    styled = (("name", kinds[one.state], "", "prose", "command") for one in listed)
    return Table(("what", "state", "now", "what it costs", "command"), rows, styles(styled))


def warnings_of(found: Sequence[Check]) -> dict[str, str]:
    """The doctor's findings for the report: what warns as a table, the others by name."""
    return {
        "table": checks([check for check in found if check.state == "warn"]).html(),
        "unknown": ", ".join(check.name for check in found if check.state == "unknown"),
        "good": ", ".join(check.name for check in found if check.state == "good"),
    }
