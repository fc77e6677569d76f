"""What the machine's portrait shows: cores in groups, how each was disturbed, levels of memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perflib import experiments
from perflib.investigation.causes import slowness
from perflib.investigation.evidence import Evidence
from perflib.machine.cpulist import parse_cpus
from perflib.model.finding import Finding
from perflib.model.sentences import estimate, render

_DISTURBED = ("shared", "taken", "stolen")
_LONGEST_NAME = 90
_SIGNED = 2  # cores in a line of signs
_NAMED = 8  # cores that described one by one


@dataclass(frozen=True)
class Core:
    """One physical core.

    ``shares``: percent of its time by part, ``None`` where that was not measured; ``slower`` and
    ``in_job``: what was found of its own speed, by our code and by the user's.
    """

    cpus: tuple[int, ...]
    allowed: bool
    private: tuple[str, ...]
    shares: Mapping[str, float] | None
    slower: Finding | None
    in_job: Finding | None
    measured: bool = False  # its threads, which the kernel names otherwise

    @property
    def name(self) -> str:
        """``cpu0``; siblings are added."""
        return "cpu" + "+".join(map(str, self.cpus))

    @property
    def worst(self) -> Finding | None:
        """What says that it is slow, or leaves it open."""
        found = [one for one in (self.slower, self.in_job) if one is not None]
        order = {"supported": 0, "inconclusive": 1, "refuted": 2}
        return min(found, key=lambda one: (order[one.verdict], -one.effect), default=None)

    @property
    def slow(self) -> bool:
        """It is known to be slower than others."""
        return self.worst is not None and self.worst.verdict == "supported"

    @property
    def text(self) -> str:
        """Its own speed, in words."""
        found = self.worst
        if found is None:
            return "" if self.allowed else "may not be used"
        if found.verdict == "supported":
            return f"▲ slower: {estimate(found)}"
        return "as fast as others" if found.verdict == "refuted" else "? open whether slower"

    @property
    def shares_text(self) -> str:
        """Its parts, in percent."""
        if self.shares is None:
            return ""
        names = {"own": "own", "sibling": "sibling", "tasks": "tasks", "hypervisor": "hyp."}
        parts = [f"{names[name]} {share:.0f}" for name, share in self.shares.items()]
        return " · ".join(parts) + " %"

    @property
    def short(self) -> str:
        """How slow it is, or the share of its time that its own work had."""
        found = self.worst
        if found is not None and self.slow:
            return f"+{found.effect:.{1 if found.effect < 3 else 0}f} %"
        own = "" if self.shares is None else f"{self.shares['own']:.0f} %"
        return f"{own} ?" if found is not None and found.verdict == "inconclusive" else own

    @property
    def second(self) -> str:
        """A line below, where there is room: the own share next to the slowness."""
        return f"own {self.shares['own']:.0f} %" if self.slow and self.shares is not None else ""


@dataclass(frozen=True)
class Group:
    """Cores that share a last-level cache; ``inner``: caches that only some of them share."""

    cores: tuple[Core, ...]
    cache: str
    inner: Mapping[int, tuple[str, int]] = field(default_factory=dict)

    def inner_rows(self, columns: int) -> Iterator[tuple[str, int, int]]:
        """Such a cache's name, and its first and last core within a row."""
        begin = 0
        for i in range(1, len(self.cores) + 1):
            here = self.inner.get(begin)
            if i == len(self.cores) or self.inner.get(i) != here or i % columns == 0:
                if here is not None:
                    yield here[0], begin, i - 1
                begin = i


@dataclass(frozen=True)
class NodeFacts:
    """A memory node: ``None`` where the system names none."""

    node: int | None
    memory: str
    reach: str
    groups: tuple[Group, ...]

    def title(self, *, several: bool) -> str:
        """What stands above it."""
        named = f"Node {self.node}" if several and self.node is not None else ""
        return " · ".join(filter(None, (named, self.memory, self.reach)))


@dataclass(frozen=True)
class Level:
    """A cache or memory: claimed size, sizes from and to which it answered, a load's latency."""

    name: str
    claimed_bytes: int | None
    found: tuple[float, float] | None = None
    shared: tuple[float, float] | None = None
    text: str = ""


@dataclass(frozen=True)
class Facts:
    """All that the portrait shows."""

    name: str
    counted: str
    nodes: tuple[NodeFacts, ...]
    levels: tuple[Level, ...]

    @property
    def cores(self) -> list[Core]:
        """All of them."""
        return [core for node in self.nodes for group in node.groups for core in group.cores]

    @property
    def measured(self) -> bool:
        """Whether it is known how cores were disturbed."""
        return any(core.shares is not None for core in self.cores)

    @property
    def signs(self) -> str:
        """What further marks mean, those that are there."""
        found = []
        if any(core.slow for core in self.cores):
            found.append("▲ and a thick frame: slower than the others in itself")
        if any(core.worst and core.worst.verdict == "inconclusive" for core in self.cores):
            found.append("?: open whether it is slower")
        if measured := [core.name for core in self.cores if core.measured]:
            more = ", ..." if len(measured) > _SIGNED else ""
            found.append(
                f"measured, the kernel says otherwise: {', '.join(measured[:_SIGNED])}{more}"
            )
        if not all(core.allowed for core in self.cores):
            found.append("dashed: may not be used here")
        if self.measured and len(self.cores) > 4:
            found.append("the number below a bar: own work")
        return "; ".join(found)

    @property
    def ladder_signs(self) -> str:
        """What the marks of levels mean."""
        found = ["◇ claimed"]
        if any(level.found for level in self.levels):
            found.append("├─┤ answered from there")
        if any(level.shared for level in self.levels):
            found.append("··· sibling busy")
        return "   ".join(found)

    @property
    def latency_head(self) -> str:
        """What stands above the latencies."""
        measured = any(level.text for level in self.levels)  # or it was tried
        return "a load takes" if measured else "latency: not measured"

    @property
    def size_limits(self) -> tuple[float, float]:
        """Of the axis of sizes, in bytes."""
        sizes = [level.claimed_bytes for level in self.levels if level.claimed_bytes]
        ends = [end for one in self.levels for end in (*(one.found or ()), *(one.shared or ()))]
        known = [*map(float, sizes), *ends]
        return min(known, default=4096.0) / 2, max(known, default=2.0**30) * 2

    def in_words(self) -> str:
        """The portrait for those who do not see it."""
        parts = [f"The machine {self.name}: {self.counted}."]
        parts += [f"{core.name}: {core.text}." for core in self.cores if core.slow]
        parts += [f"{core.name}: one core, as measured." for core in self.cores if core.measured]
        known = [core for core in self.cores if core.shares is not None]
        if known:
            known.sort(key=lambda core: core.shares["own"] if core.shares else 0.0)
            least = "" if len(known) <= _NAMED else f", the {_NAMED} that were disturbed most"
            text = "; ".join(f"{core.name}: {core.shares_text}" for core in known[:_NAMED])
            parts.append(f"Where the cores' time went{least}: {text}.")
        else:
            parts.append("How much each core was disturbed was not measured.")
        for level in self.levels:
            measured = f", latency {level.text}" if level.text else ""
            parts.append(f"{level.name}{measured}.")
        return " ".join(parts)


def facts_of(evidence: Evidence) -> Facts:
    """What is known of the machine of an investigation."""
    machine = machine_of(evidence)
    cores = _cores(machine, evidence)
    return Facts(
        name=_clean(" · ".join(filter(None, (machine.get("hostname"), machine.get("processor")))))
        or "This machine",
        counted=_counted(machine),
        nodes=tuple(_nodes(machine, evidence, cores)),
        levels=tuple(_levels(machine, evidence, cores)),
    )


def machine_of(evidence: Evidence) -> dict[str, Any]:
    """The machine as described, by the examination or by a run; empty where neither was made."""
    described = [evidence.fit.get("machine", {})]
    described += [run.provenance.get("machine", {}) for run, _ in evidence.entries]
    return next((one for one in described if one), {})


def _clean(text: str) -> str:
    """Signs that the font of figures may lack become question marks."""
    known = (sign if sign.isprintable() and sign < "\u02b0" else "?" for sign in text)
    return "".join(known)[:_LONGEST_NAME]


def _size(size_bytes: int) -> str:
    return render("{size:size}", {"size": size_bytes})


def _counted(machine: Mapping[str, Any]) -> str:
    places = machine.get("topology", {})
    if not places:
        return "not described"
    words = []
    for key, word in (("cores", "core"), ("packages", "package"), ("nodes", "node")):
        count = places.get(key, 0)
        if not count:
            continue
        words.append(f"{count} {word}{'' if count == 1 else 's'}")
    threads = places.get("threads_per_core", 1)
    words.append(f"{threads} threads a core" if threads > 1 else "1 thread a core")
    if places.get("offline"):
        words.append(f"offline: {places['offline']}")
    return ", ".join(words)


# --- cores, groups and nodes ---------------------------------------------------------------------


def _nodes(
    machine: Mapping[str, Any], evidence: Evidence, cores: list[Core]
) -> Iterator[NodeFacts]:
    where = {cpu["cpu"]: cpu["node"] for cpu in machine.get("cpus", [])}
    named = machine.get("nodes", [])
    several = len(named) > 1
    numbers = [node["node"] for node in named]
    left = [core for core in cores if where.get(core.cpus[0]) not in numbers]
    measured = _distances(evidence)
    for node in named:
        mine = [core for core in cores if where.get(core.cpus[0]) == node["node"]]
        size = node["memory_bytes"] if several else machine.get("memory_bytes")
        memory = f"memory {_size(size)}" if size else ""
        reach = _reach(node, numbers, measured) if several else ""
        yield NodeFacts(node["node"], memory, reach, tuple(_groups(machine, mine)))
    if left or not named:
        size = None if named else machine.get("memory_bytes")
        memory = f"memory {_size(size)}" if size else ""
        yield NodeFacts(None, memory, "", tuple(_groups(machine, left)))


def _reach(
    node: Mapping[str, Any], numbers: list[int], measured: Mapping[tuple[int, int], float]
) -> str:
    """How far the memory of each node is."""
    here = node["node"]
    if all((here, other) in measured for other in numbers):
        listed = ", ".join(f"node {other} {measured[here, other]:.0f}" for other in numbers)
        return f"a load from {listed} cycles (measured)"
    listed = ", ".join(map(str, node["distances"]))
    return f"distances {listed} (firmware)" if listed else ""


def _distances(evidence: Evidence) -> dict[tuple[int, int], float]:
    """Median cycles of a load, by the node that loads and the node of the memory."""
    for step in ("distances", "nodes"):
        run = evidence.run(step)
        if run is not None:
            table = experiments.get(run.experiment).derived(run)["heatmap"]()
            cycles: dict[tuple[int, int], list[float]] = {}
            for row in table.to_dict("records"):
                key = int(row["load_node"]), int(row["alloc_node"])
                cycles.setdefault(key, []).append(float(row["latency_cycles"]))
            return {key: statistics.median(values) for key, values in cycles.items()}
    return {}


def _cores(machine: Mapping[str, Any], evidence: Evidence) -> list[Core]:
    """Physical cores that run, with what was found of each."""
    cpus = {cpu["cpu"]: cpu for cpu in machine.get("cpus", []) if cpu["online"]}
    slower, in_job = slowness(evidence), slowness(evidence, "job")
    seen: set[int] = set()
    found = []
    for first, cpu in cpus.items():
        if first in seen:
            continue
        siblings = tuple(sorted({one for one in cpu["siblings"] if one in cpus} | {first}))
        seen.update(siblings)
        shares = [made for one in siblings if (made := _shares(evidence, one)) is not None]
        found.append(
            Core(
                siblings,
                any(cpus[one]["allowed"] for one in siblings),
                tuple(_private(machine, first, siblings)),
                shares[0] if shares else None,
                next((slower[one] for one in siblings if one in slower), None),
                next((in_job[one] for one in siblings if one in in_job), None),
                cpu.get("kernel_siblings") is not None,
            )
        )
    return found


def _shares(evidence: Evidence, cpu: int) -> dict[str, float] | None:
    """Percent of a core's time, by who had it.

    A busy sibling takes no time: it lengthens the work. Of the time that the job ran, the part is
    counted that the work would not have taken alone.
    """
    found = {
        claim: one.effect
        for claim in _DISTURBED
        for one in evidence.find("symptom", claim, cpu=cpu)
        if math.isfinite(one.effect)
    }
    if not found:
        return None
    tasks = min(100.0, max(0.0, found.get("taken", 0.0)))
    stolen = min(100.0 - tasks, max(0.0, found.get("stolen", 0.0)))
    ran = 100.0 - tasks - stolen
    longer = max(0.0, found.get("shared", 0.0))
    sibling = ran * longer / (100.0 + longer)
    return {"own": ran - sibling, "sibling": sibling, "tasks": tasks, "hypervisor": stolen}


def _caches(machine: Mapping[str, Any]) -> list[tuple[dict[str, Any], list[set[int]]]]:
    return [
        (cache, [set(parse_cpus(group)) for group in cache["shared_by"]])
        for cache in sorted(machine.get("caches", []), key=lambda one: one["level"])
    ]


def _private(machine: Mapping[str, Any], cpu: int, siblings: tuple[int, ...]) -> Iterator[str]:
    """The caches that a core has to itself, in a line or two."""
    own = [
        cache["name"]
        for cache, groups in _caches(machine)
        if any(cpu in group and group <= set(siblings) for group in groups)
    ]
    if own:
        yield " · ".join(own)


def _groups(machine: Mapping[str, Any], cores: list[Core]) -> Iterator[Group]:
    """Cores by the last cache that they share."""
    held = [one for one in _caches(machine) if one[0]["kind"] != "instruction"]
    shared = [
        (cache, groups)
        for cache, groups in held
        if any(len({_core_of(cores, cpu) for cpu in group} - {None}) > 1 for group in groups)
    ]
    last = max((cache["level"] for cache, _ in held), default=0)

    def place(core: Core, level_from: int, level_to: int) -> tuple[str, int] | None:
        for cache, groups in reversed(shared):
            if level_from <= cache["level"] <= level_to:
                for group in groups:
                    if core.cpus[0] in group:
                        return str(cache["name"]), min(group)
        return None

    members: dict[tuple[str, int] | None, list[Core]] = {}
    for core in cores:
        members.setdefault(place(core, last, last), []).append(core)
    for key, mine in members.items():
        inner = {core.cpus: place(core, 0, last - 1) for core in mine}
        mine.sort(key=lambda core: (inner[core.cpus] or ("", -1))[1:] + core.cpus)
        kept = {i: made for i, core in enumerate(mine) if (made := inner[core.cpus]) is not None}
        yield Group(tuple(mine), key[0] if key else "", kept)


def _core_of(cores: list[Core], cpu: int) -> int | None:
    return next((core.cpus[0] for core in cores if cpu in core.cpus), None)


# --- levels of memory ----------------------------------------------------------------------------


def _levels(machine: Mapping[str, Any], evidence: Evidence, cores: list[Core]) -> Iterator[Level]:
    """Claimed caches and memory, with what ``memory_levels`` measured of them."""
    rows = _measured_levels(evidence)
    used: set[int] = set()
    for cache, groups in _caches(machine):
        name = f"{cache['name']}, {_sharing(groups, cores)}"
        mine = [
            i
            for i, row in enumerate(rows)
            if cache["kind"] != "instruction"
            and cache["name"].startswith(row["level"])
            and math.isclose(1024 * row["size_kib"], cache["size_bytes"] or 0, rel_tol=0.01)
        ]
        used.update(mine)
        looked = bool(rows) and cache["kind"] != "instruction"
        yield _level(name, cache["size_bytes"], [rows[i] for i in mine], looked=looked)
    for i, row in enumerate(rows):
        if i not in used and row["level"] == "unclaimed":
            yield _level("a level no cache claims", None, [row], looked=True)
    size = machine.get("memory_bytes")
    if size:
        memory = [row for row in rows if row["level"] == "memory"]
        yield _level(f"memory {_size(size)}", size, memory, looked=bool(rows))


def _measured_levels(evidence: Evidence) -> list[dict[str, Any]]:
    for step in ("levels", "memory"):
        run = evidence.run(step)
        if run is not None:
            table = experiments.get(run.experiment).derived(run)["levels"]()
            return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]
    return []


def _level(name: str, size: int | None, rows: list[dict[str, Any]], *, looked: bool) -> Level:
    first = next((row for row in rows if row["samples"] != "shared"), None)
    beside = next((row for row in rows if row["samples"] == "shared"), None)
    text = "not known" if looked else ""
    if first is not None and math.isfinite(first["latency_ns"]):
        text = f"{first['latency_ns']:.3g} ns"
        low, high = first["latency_ns_low"], first["latency_ns_high"]
        if math.isfinite(low) and math.isfinite(high):
            text += f" [{low:.3g}, {high:.3g}]"
        if math.isfinite(first["latency_cycles"]):
            text += f", {first['latency_cycles']:.0f} cycles"
    return Level(name, size, _range(first), _range(beside), text)


def _range(row: Mapping[str, Any] | None) -> tuple[float, float] | None:
    if row is None or not (math.isfinite(row["first_kib"]) and math.isfinite(row["last_kib"])):
        return None
    return 1024 * row["first_kib"], 1024 * row["last_kib"]


def _sharing(groups: list[set[int]], cores: list[Core]) -> str:
    """How many cores have such a cache together."""
    most = max(
        (len({_core_of(cores, cpu) for cpu in group} - {None}) for group in groups), default=1
    )
    if most <= 1:
        return "each core" if len(groups) > 1 else "one core"
    return f"{len(groups)} × for {most} cores" if len(groups) > 1 else f"one for {most} cores"
