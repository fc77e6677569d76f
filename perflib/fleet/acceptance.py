"""Is this node like the nodes of its model? A minute's measurement, compared with a farm's runs.

A node is refused for what it shows twice: a second measurement of the same is made, at once, only
where the first is beyond what one more healthy node would show
(`perflib.fleet.analysis.acceptance`), and slower by more than the threshold. A wrong result
refuses it whatever the times are. Where a neighbour is busy nothing is decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from perflib.fleet.acceptance_words import Words
from perflib.fleet.analysis.acceptance import ALPHA, compare_node
from perflib.fleet.analysis.comparisons import THRESHOLD_PERCENT
from perflib.fleet.analysis.strata import LEAST_NODES
from perflib.fleet.reference import CLOCK, Reference, open_reference
from perflib.framework.results import is_wrong
from perflib.framework.wrong import wrong_twice
from perflib.model.claim import read_claims
from perflib.model.errors import UserError, choose
from perflib.model.finding import Finding
from perflib.stats.decide import Decision, Reason
from perflib.stats.interval import Interval, percent, percent_of

if TYPE_CHECKING:
    from perflib.framework.experiment import Experiment
    from perflib.measure.schedule import Progress
    from perflib.model.run import Run

Verdict = Literal["accepted", "refused", "cannot tell"]
Watch = Callable[[str], AbstractContextManager["Progress | None"]]

BATTERY: Mapping[str, Mapping[str, Any]] = {
    "kv_per_core": {"budget_s": 20.0, "cores": "all"},
    "correctness": {"budget_s": 5.0, "cores": "all"},
    "memory_levels": {
        "budget_s": 6.0,
        "orders": ["random"],
        "backings": ["4k"],
        "sizes_per_doubling": 1,
        "largest_mib": 64,
    },
    "memory_load": {"budget_s": 8.0, "rates": [80.0], "kinds": ["read"], "array_mib": 256},
    "coherence": {"budget_s": 8.0, "detail": "planned"},
    "sharing": {"budget_s": 6.0, "resources": ["ports", "l1", "l2"]},
}
"""What is measured, about a minute together; `perflib fleet plan --acceptance` plans the same."""
_ABSOLUTE = "correctness"  # needs no farm: a result is right or wrong
_MAX_BUSY_PERCENT = 10.0  # of a core's time that others take
_MOST_SETTINGS = 3  # named in a sentence
_SAME_TIME = 1.5  # times as long are as good
_STATUS: Mapping[str, int] = {"accepted": 0, "refused": 3, "cannot tell": 4}
CLAIMS = read_claims(__file__)
_TAKEN = ("taken", "stolen", "quota")  # of kv_per_core


@dataclass(frozen=True)
class _Measured:
    """One run: its levels (``experiment, cpu, setting, value, start``), and what was in its way."""

    run: str
    levels: pd.DataFrame
    wrong: Sequence[Finding] = ()
    busy: Mapping[int, float] = field(default_factory=dict)  # percent of each core's time
    remarks: Sequence[Reason] = ()


@dataclass(frozen=True)
class Acceptance:
    """Whether a node is like the ``nodes`` others of its model.

    ``findings`` has wrong results, then one for the node and each of its cores, by experiment: an
    anomaly that is supported refuses it. ``sentences``: the verdict first, at most seven.
    ``drain_reason``: a line of at most 80 ASCII characters for a scheduler; empty: not refused.
    ``runs``: what was measured, the second measurements last. ``unlike``: of a node that is refused
    the settings that most others have otherwise (`perflib.fleet.reference.Reference.unlike`).
    """

    verdict: Verdict
    node: str
    model: str
    nodes: int
    findings: Sequence[Finding]
    sentences: Sequence[str]
    drain_reason: str
    runs: Sequence[str]
    unlike: Sequence[Mapping[str, Any]] = ()

    @property
    def exit_status(self) -> int:
        """0: accepted; 3: refused; 4: cannot tell."""
        return _STATUS[self.verdict]

    @property
    def table(self) -> pd.DataFrame:
        """``experiment, kind, cpu, percent, usual_percent, verdict`` of each comparison."""
        rows = [
            (
                one.about["experiment"], "core" if "cpu" in one.about else "node",
                one.about.get("cpu", -1), one.effect, one.evidence["usual_percent"], one.verdict,
            )
            for one in self.findings
            if one.of.name in CLAIMS
        ]  # fmt: skip
        columns = ["experiment", "kind", "cpu", "percent", "usual_percent", "verdict"]
        return pd.DataFrame(rows, columns=columns)

    def __repr__(self) -> str:
        return "\n".join(self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        names = ("verdict", "node", "model", "nodes", "drain_reason")
        found = {name: getattr(self, name) for name in names}
        for name in ("sentences", "runs", "unlike"):
            found[name] = list(getattr(self, name))
        return {**found, "findings": [one.to_dict() for one in self.findings]}


def accept(
    against: Any,
    *,
    model: str | None = None,
    node: str | None = None,
    threshold_percent: float = THRESHOLD_PERCENT,
    alpha: float = ALPHA,
    watch: Watch | None = None,
) -> Acceptance:
    """Measure this node for about a minute, and compare it with the nodes of its model.

    Parameters
    ----------
    against
        As of `perflib.fleet.reference.open_reference`.
    model
        The farm's name of the model; without it that of this node, or of its processor.
    node
        A node of the farm that is judged by its last two runs; nothing is measured.
    threshold_percent, alpha
        The least slowdown that matters; how often a comparison finds a healthy node outside.
    watch
        Gives, by the name of what is measured, what shows its progress.

    Raises
    ------
    UserError
        The farm, the model or the node does not exist, or has nothing to compare with.
    MeasurementError
        A measurement failed.
    """
    if not (threshold_percent > 0 and 0 < alpha < 1):
        msg = f"threshold {threshold_percent:g} % and alpha {alpha:g}: usual are 1 % and 0.01"
        raise UserError(msg)
    farm = open_reference(against)
    if node is not None:
        if node not in set(farm.nodes["node"]):
            raise UserError(choose("node", node, map(str, farm.nodes["node"])))
        chosen = farm.model_of(node, {}, model)
        return _Judge(farm, node, chosen, threshold_percent, alpha).by(_Saved(farm, node))
    from perflib.machine.describe import describe

    machine = describe()
    here = farm.this_node(machine["hostname"])
    chosen = farm.model_of(here, machine, model)
    judge = _Judge(farm, here, chosen, threshold_percent, alpha, machine)
    return judge.by(_Here(farm, chosen, watch or (lambda _: nullcontext())))


class _Saved:
    """Takes a node's last runs out of a farm, the newest first."""

    def __init__(self, farm: Reference, node: str) -> None:
        self.levels = farm.levels[farm.levels["node"] == node]

    def __call__(self, name: str, time: int) -> _Measured | str:
        mine = self.levels[self.levels["experiment"] == name]
        newest = mine.drop_duplicates("run").sort_values("start", ascending=False, kind="stable")
        runs = newest["run"]
        if len(runs) <= time:
            return f"the node has {len(runs) or 'no'} runs"
        run = str(runs.iloc[time])
        levels = self.levels[self.levels["run"].astype(str) == run]
        return _Measured(run, levels.drop(columns=["node", "model"]))


class _Here:
    """Measures with the parameters of the farm's runs, but no longer than the battery does."""

    def __init__(self, farm: Reference, model: str, watch: Watch) -> None:
        self.farm, self.model, self.watch = farm, model, watch

    def __call__(self, name: str, time: int) -> _Measured | str:
        from perflib.experiments import get

        experiment = get(name)
        if why := experiment.unavailable():
            return why
        given: dict[str, Any] = dict(BATTERY[name])
        remarks = []
        if (theirs := self.farm.params_of(name, self.model)) is not None:
            farm_s, here_s = theirs["budget_s"], min(theirs["budget_s"], given["budget_s"])
            given = {**theirs, "budget_s": here_s}
            if farm_s > _SAME_TIME * here_s:
                numbers = {"experiment": name, "farm_s": farm_s, "here_s": here_s}
                remarks.append(Reason("shorter", numbers))
        given.pop("seed", None)
        given.pop("opinion_s", None)  # it is not of a minute
        params = experiment.current_params(given)
        with self.watch(f"{name}, again" if time else name) as progress:
            run = experiment.measure(params, progress, tag="accept")
        return measured(experiment, run, remarks)


def measured(experiment: Experiment, run: Run, remarks: Sequence[Reason] = ()) -> _Measured:
    """What counts of a run."""
    findings = experiment.analyse(run)
    wrong = list(filter(is_wrong, findings))
    about = {"experiment": experiment.name, "start": run.provenance.get("start")}
    levels, busy = experiment.levels(run).assign(**about), dict[int, float]()
    if experiment.name == "kv_per_core":
        clocks = [
            {"cpu": one.about["cpu"], "value": 1 + one.effect / 100}
            for one in findings
            if one.of.name == "clock" and math.isfinite(one.effect)
        ]
        named = {**about, "experiment": CLOCK, "setting": CLOCK}
        if clocks:
            levels = pd.concat([levels, pd.DataFrame(clocks).assign(**named)], ignore_index=True)
        for one in findings:
            if one.of.name in _TAKEN and one.effect > 0:
                busy[one.about["cpu"]] = busy.get(one.about["cpu"], 0.0) + one.effect
            if one.of.name == "shared" and (share := one.evidence.get("share_percent", 0.0)) > 0:
                busy[one.about["cpu"]] = busy.get(one.about["cpu"], 0.0) + share
    return _Measured(run.id, levels, wrong, busy, remarks)


# --- the verdict ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judge:
    farm: Reference
    node: str
    model: str
    threshold_percent: float
    alpha: float
    machine: Mapping[str, Any] | None = None  # on which this runs, if it is the node

    @property
    def _others(self) -> pd.DataFrame:
        levels = self.farm.levels
        return levels[(levels["model"] == self.model) & (levels["node"] != self.node)]

    def by(self, take: Callable[[str, int], _Measured | str]) -> Acceptance:
        """The verdict, by what is measured."""
        others = self._others
        counts = others.groupby("experiment")["node"].nunique()
        nodes = dict(zip(map(str, counts.index), map(int, counts), strict=True))
        if len(others) and not set(nodes) & set(BATTERY):
            msg = (
                f"{self.farm.name} has runs of {', '.join(sorted(nodes))} alone, and a node is "
                f"compared by {', '.join(BATTERY)}: 'perflib fleet plan --acceptance' plans these"
            )
            raise UserError(msg)
        worth = [one for one in BATTERY if one == _ABSOLUTE or nodes.get(one, 0) >= LEAST_NODES]
        taken = dict[str, _Measured | str]()
        first = dict[str, _Measured]()
        for name in worth:  # a node that is busy is not kept busy for long
            busy = _neighbour(first.values()) and name != _ABSOLUTE
            taken[name] = one = "a neighbour is busy" if busy else take(name, 0)
            if isinstance(one, _Measured):
                first[name] = one
        table = self._compare(first)
        again = set(table.loc[table["beyond"], "experiment"].map(_measured_by))
        if _neighbour(first.values()):
            again = set()
        again |= {name for name, one in first.items() if one.wrong}
        more = {name: take(name, 1) for name in first if name in again}
        second = {name: one for name, one in more.items() if isinstance(one, _Measured)}
        keys = ["experiment", "kind", "cpu"]
        both = table.merge(self._compare(second), "left", keys, suffixes=("", "_again"))
        why = {name: one for name, one in {**taken, **more}.items() if isinstance(one, str)}
        for name in BATTERY:
            if name not in worth:
                found = nodes.get(name, 0)
                why[name] = f"the farm has {found or 'no'} nodes of this model with it"
        compared = {*both["experiment"], _ABSOLUTE}
        why |= dict.fromkeys(sorted(set(first) - compared), "no level of it here")
        lacking = both.loc[both["why"] != "", "experiment"]
        why |= dict.fromkeys(lacking, "the farm's have other cores or settings")
        both = both[both["why"] == ""].reset_index(drop=True)
        both["once"] = both["beyond"] & ~both["experiment"].map(_measured_by).isin(second)
        count = int(others["node"].nunique())
        return self._result(both, [*first.values(), *second.values()], why, count)

    def _compare(self, runs: Mapping[str, _Measured]) -> pd.DataFrame:
        """The comparisons; ``beyond``: slower than healthy nodes are, and than the threshold."""
        levels = [one.levels for name, one in runs.items() if name != _ABSOLUTE]
        empty = pd.DataFrame(columns=["experiment", "cpu", "setting", "value", "start"])
        new = pd.concat(levels, ignore_index=True) if levels else empty
        found = compare_node(self._others, new, self.alpha)
        found = found[(found["experiment"] != CLOCK) | (found["kind"] == "core")]
        least = found["half"].clip(lower=math.log1p(self.threshold_percent / 100))
        return found.assign(beyond=found["effect"] > least)

    def _result(
        self, table: pd.DataFrame, runs: Sequence[_Measured], why: Mapping[str, str], nodes: int
    ) -> Acceptance:
        neighbour = _neighbour(runs)
        compared = [self._finding(row, neighbour) for row in table.to_dict("records")]
        wrong = _wrong(run.wrong for run in runs)
        slower = [one for one in compared if one.verdict == "supported"]
        verdict: Verdict = "accepted"
        if any(one.verdict == "supported" for one in wrong) or slower:
            verdict = "refused"
        elif wrong or neighbour or {one.verdict for one in compared} != {"refuted"}:
            verdict = "cannot tell"
        said = Words(self.node, self.model, nodes, CLAIMS["node_unlike"].reasons)
        unlike = []
        if verdict == "refused":
            unlike = self.farm.unlike(self.node, self.model, self.machine)
        remarks = [*_settings(unlike), *self.farm.weaker]
        if len(table) and (table["days"] <= 1).all():
            remarks.append(Reason("one_day"))
        remarks += [one for run in runs for one in run.remarks]
        return Acceptance(
            verdict,
            self.node,
            self.model,
            nodes,
            [*wrong, *compared],
            said.sentences(verdict, wrong, compared, neighbour, why, remarks),
            said.drain_reason(wrong, slower) if verdict == "refused" else "",
            [one.run for one in runs],
            unlike,
        )

    def _finding(self, row: Mapping[Any, Any], busy: tuple[float, int] | None) -> Finding:
        about = {"node": self.node, "experiment": row["experiment"], "model": self.model}
        numbers = {"nodes": row["nodes"], "experiment": row["experiment"]}
        claim = CLAIMS["node_unlike"]
        if row["kind"] == "core":
            claim, about = CLAIMS["core_unlike"], {**about, "cpu": int(row["cpu"])}
        twice = bool(row["beyond"]) and row["beyond_again"] is True
        effect, half = float(row["effect"]), float(row["half"])
        usual = percent_of(half)
        decision = Decision("refuted", (Reason("like", {"half": usual}),))
        if twice and busy is not None:
            numbers |= {"busy": busy[0], "busy_cpu": busy[1]}
            decision = Decision("inconclusive", (Reason("busy", numbers),))
        elif twice:
            effect, half = (effect + row["effect_again"]) / 2, float(row["half_again"])
            decision = Decision("supported", (Reason("twice"),))
        elif row["once"]:
            decision = Decision("inconclusive", (Reason("once", {"first": percent_of(effect)}),))
        elif row["beyond"]:
            decision = Decision("refuted", (Reason("not_again", {"first": percent_of(effect)}),))
        return claim.found(
            decision,
            percent(Interval(effect, effect - half, effect + half)),
            about=about,
            threshold=self.threshold_percent,
            facts=numbers,
            evidence={"usual_percent": usual, "freedom": row["freedom"], "days": int(row["days"])},
            confidence=1 - self.alpha,
        )


def _settings(unlike: Sequence[Mapping[str, Any]]) -> list[Reason]:
    """In what a refused node differs: an association, which an operator can try."""
    listed = [
        f"its {one['name']} is {one['mine']}, {one['many']} of {one['of']} others have "
        f"{one['theirs']}"
        for one in unlike[:_MOST_SETTINGS]
    ]
    if len(unlike) > _MOST_SETTINGS:
        listed.append(f"and {len(unlike) - _MOST_SETTINGS} more")
    return [Reason("settings", {"listed": "; ".join(listed)})] if listed else []


def _neighbour(runs: Iterable[_Measured]) -> tuple[float, int] | None:
    """How much of which core others took, in percent, where that is too much to say anything."""
    every = ((part, cpu) for one in runs for cpu, part in one.busy.items())
    most = max(every, default=(0.0, -1))
    return most if most[0] > _MAX_BUSY_PERCENT else None


def _measured_by(name: str) -> str:
    """The experiment that a comparison is of."""
    return "kv_per_core" if name == CLOCK else name


def _wrong(found: Iterable[Sequence[Finding]]) -> list[Finding]:
    """Wrong results of several runs: of each core the surest."""
    every = [one for findings in wrong_twice([*found]) for one in findings]
    every.sort(key=lambda one: one.verdict == "supported")
    return list({one.subject: one for one in every}.values())
