"""The words of ``events``: sets and names, of the processor and of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perflib.instruments.counters.groups import Requested, countable
from perflib.instruments.counters.sets import asked_for, events_of
from perflib.instruments.counters.system_counts import SYSTEM_COUNTS, SYSTEM_SETS

_DEFAULT = "default"
_OF_JOB = {
    "machine": ("cpu", "pressure"),
    "command": ("task",),
    "running": ("task",),
    "cgroup": ("cgroup",),
}


@dataclass
class Chosen:
    """Sets of counters, by name, and names of what the kernel counts."""

    sets: dict[str, list[Requested]] = field(default_factory=dict)
    system: list[str] = field(default_factory=list)


def chosen(words: Sequence[str], job: str) -> Chosen:
    """What the words stand for; by default a control group has no counters of a processor.

    Raises
    ------
    UserError
        A word is no set and no event.
    """
    found, others = Chosen(), []
    for word in words:
        if word == _DEFAULT:
            _add_default(found, job)
        elif word in SYSTEM_SETS or word in SYSTEM_COUNTS:
            found.system += SYSTEM_SETS.get(word, (word,))
        else:
            others.append(word)
    found.sets |= asked_for(others, also=[_DEFAULT, *SYSTEM_SETS, *SYSTEM_COUNTS])
    found.system = list(dict.fromkeys(found.system))
    return found


def _add_default(found: Chosen, job: str) -> None:
    for name in _OF_JOB[job]:
        found.system += SYSTEM_SETS[name]
    if job == "cgroup":
        return
    found.sets["software"] = events_of("software")
    generic = {"generic": events_of("generic")}
    if countable(generic)[0]:
        found.sets |= generic
