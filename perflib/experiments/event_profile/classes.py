"""Several events in one run: each class of them is a profile of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from perflib.model.finding import Finding
from perflib.model.run import Run

_Made = TypeVar("_Made")


def classes_of(run: Run) -> dict[str, Run]:
    """The run of each class, by the class's name; a run of one class is itself, without a name.

    What is claimed of one class is claimed of every other, too: ``classes`` in the provenance says
    how many there are, for the correction over all of them.
    """
    names = run.samples.get("event_name")
    if names is None or names.nunique() < 2:
        return {"": run}
    provenance = {**run.provenance, "classes": int(names.nunique())}
    return {
        str(name): replace(run, samples=samples.reset_index(drop=True), provenance=provenance)
        for name, samples in run.samples.groupby("event_name", sort=True)
    }


def of_class(made: Mapping[str, _Made], name: str) -> dict[str, _Made]:
    """Tables or figures of a class, by names that say so: ``cost`` is ``cost_Zee``."""
    return {f"{one}_{name}" if name else one: what for one, what in made.items()}


def named(finding: Finding, name: str) -> Finding:
    """The same finding, which says of which class it is."""
    if not name:
        return finding
    subject = finding.of.subject
    if finding.about.get("core") == "":  # of the only one that is compared
        subject = subject.replace("{core} ", "")
    claim = replace(
        finding.of,
        subject=f"{{event_name}} {subject}",
        exact=f"of {{event_name}}: {finding.of.exact}",
        plain={verdict: f"{{event_name}}: {said}" for verdict, said in finding.of.plain.items()},
        together={},  # what is said of several cores at once would mix classes
    )
    return replace(finding, of=claim, about={**finding.about, "event_name": name})
