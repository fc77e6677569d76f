"""The words of ``events``: sets and names, of the processor and of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perflib.instruments.counters.events import event
from perflib.instruments.counters.groups import Requested, countable
from perflib.instruments.counters.sets import events_of, expand, sets
from perflib.instruments.counters.system_counts import SYSTEM_COUNTS, SYSTEM_SETS
from perflib.model.errors import UserError, choose

__all__ = ["Chosen", "chosen"]

_OWN = "events"  # the set of events that are named one by one
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
    """What the words stand for; a control group has no counters of a processor.

    Raises
    ------
    UserError
        A word is no set and no event.
    """
    found = Chosen()
    for word in words:
        if word == _DEFAULT:
            _add_default(found, job)
        elif word in SYSTEM_SETS or word in SYSTEM_COUNTS:
            found.system += SYSTEM_SETS.get(word, (word,))
        elif (several := _sets_of(word)) is not None:
            found.sets |= {name: events_of(name) for name in several}
        else:
            found.sets.setdefault(_OWN, []).append(_event(word))
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


def _sets_of(word: str) -> list[str] | None:
    try:
        return expand(word)
    except UserError:
        return None


def _event(word: str) -> Requested:
    try:
        return event(word)
    except UserError as error:
        known = [_DEFAULT, *sets(), *SYSTEM_SETS, *SYSTEM_COUNTS]
        near = choose("set or count", word, known).partition(" (")[0]
        msg = f"{str(error).rstrip('.')}; nor is it a set or a count of the kernel: {near}"
        raise UserError(msg) from None
