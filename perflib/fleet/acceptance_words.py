"""What an acceptance says: to people, to a scheduler, and to Prometheus."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perflib.fleet.analysis.strata import LEAST_NODES
from perflib.machine.cpulist import format_cpus
from perflib.model import sentences
from perflib.model.errors import MeasurementError
from perflib.model.finding import Finding
from perflib.store.files import replacing
from perflib.store.formats import exposition, labels

if TYPE_CHECKING:
    from perflib.fleet.acceptance import Acceptance
    from perflib.stats.decide import Reason

MOST_SENTENCES, MOST_CHARS = 7, 80
_FAMILIES = {
    "perflib_accept_verdict": "1 for the verdict that the label names.",
    "perflib_accept_slower_percent": "How much slower than the nodes of the model.",
    "perflib_accept_usual_percent": "By how much healthy nodes of the model differ.",
}


@dataclass(frozen=True)
class Words:
    """The words of one acceptance: of which node, of which model, and of how many others."""

    node: str
    model: str
    nodes: int
    reasons: Mapping[str, str]  # templates of remarks

    def sentences(
        self,
        verdict: str,
        wrong: Sequence[Finding],
        compared: Sequence[Finding],
        busy: tuple[float, int] | None,
        why: Mapping[str, str],
        remarks: Sequence[Reason],
    ) -> list[str]:
        """The verdict, what it is from, what was not compared, and what makes it weaker."""
        slower = [one for one in compared if one.verdict == "supported"]
        others = f"{self.nodes} nodes of {self.model}"
        if verdict == "accepted":
            head = f"Accepted: {self.node} is like {others}."
        elif verdict == "refused":
            worst = [one for one in wrong if one.verdict == "supported"]
            reasons = [one.plain for one in worst[:1]] or self._slower(slower)[:1]
            head = f"Refused: {reasons[0]}."
        elif busy is not None:
            head = (
                f"Cannot tell: neighbour busy, it took {busy[0]:.0f} % of cpu{busy[1]}. "
                "Measure again when it is idle."
            )
        elif wrong:
            head = f"Cannot tell: {wrong[0].plain}."
        else:
            few = f"it takes {LEAST_NODES} nodes; this model has {self.nodes}"
            none = f"nothing could be compared with {others}"
            once = [one for one in compared if one.reasons[0].code == "once"]
            if once:
                none = f"{once[0].subject} is slower, by one measurement"
            head = f"Cannot tell: {few if self.nodes < LEAST_NODES else none}."
        more = [f"{sentences.capital(text)}." for text in self._slower(slower)]
        if verdict == "refused" and not any(one.verdict == "supported" for one in wrong):
            more = more[1:]
        found = [head, *more[:2]]
        found += [self._remark(one) for one in remarks if one.code == "settings"]  # not cut off
        if within := [_one(one) for one in compared if "cpu" not in one.about]:
            found.append(f"Compared: {'; '.join(within)}.")
        again = [one for one in compared if one.reasons[0].code == "not_again"]
        if again:
            names = ", ".join(f"{one.subject}" for one in again[:3])
            found.append(f"Slower once, and not again, so it was interference: {names}.")
        if why:
            missing = "; ".join(
                f"{', '.join(name for name in why if why[name] == text)} ({text})"
                for text in dict.fromkeys(why.values())
            )
            found.append(f"Not compared: {missing}.")
        for remark in remarks:
            if (text := self._remark(remark)) not in found:
                found.append(text)
        return found[:MOST_SENTENCES]

    def _remark(self, remark: Reason) -> str:
        return sentences.render(self.reasons[remark.code], remark.numbers)

    def drain_reason(self, wrong: Sequence[Finding], slower: Sequence[Finding]) -> str:
        """One line for ``scontrol update reason=``: ASCII, no quotes, at most 80 characters."""
        sure = [one for one in wrong if one.verdict == "supported"]
        if sure:
            text = f"{_cpus(sure)} computes wrong results".strip()
        else:
            text = self._slower(slower)[0].replace(" %", "%").replace(f" of {self.model}", "")
        plain = re.sub(r"[^ -~]|[\"'`$\\]", "", f"perflib: {text}")
        return plain if len(plain) <= MOST_CHARS else f"{plain[: MOST_CHARS - 2]}.."

    def _slower(self, slower: Sequence[Finding]) -> list[str]:
        """What is slower, the most first, a text each experiment: the node, or cores of it."""
        by: dict[tuple[bool, str], list[Finding]] = {}
        for one in sorted(slower, key=lambda one: -one.effect):
            by.setdefault(("cpu" in one.about, one.about["experiment"]), []).append(one)
        return [
            f"{_cpus(mine) if of_core else self.node} {'are up to' if len(mine) > 1 else 'is'} "
            f"{mine[0].effect:.1f} % slower than {mine[0].facts['nodes']} nodes of {self.model} "
            f"({experiment})"
            for (of_core, experiment), mine in by.items()
        ]


def _one(found: Finding) -> str:
    usual = found.evidence["usual_percent"]
    return f"{found.about['experiment']} {found.effect:+.1f} % (usual: ± {usual:.1f})"


def _cpus(found: Sequence[Finding]) -> str:
    cpus = sorted({int(one.about["cpu"]) for one in found if "cpu" in one.about})
    return f"cpu{format_cpus(cpus)}" if cpus else ""


def write_metrics(found: Acceptance, path: Path) -> None:
    """Write it for the textfile collector of Prometheus's node_exporter; the file is replaced."""
    of_node = {"node": found.node, "model": found.model}
    samples: dict[str, dict[str, float]] = {name: {} for name in _FAMILIES}
    samples["perflib_accept_verdict"][labels({**of_node, "verdict": found.verdict})] = 1
    for row in found.table.dropna().to_dict("records"):
        where = {name: row[name] for name in ("experiment", "kind", "cpu")}
        for name in ("slower", "usual"):
            value = row["percent" if name == "slower" else "usual_percent"]
            samples[f"perflib_accept_{name}_percent"][labels({**of_node, **where})] = value
    try:
        with replacing(path) as temporary:
            temporary.write_text(exposition(_FAMILIES, samples), encoding="utf-8")
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}"
        raise MeasurementError(msg) from error
