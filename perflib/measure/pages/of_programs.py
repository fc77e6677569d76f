"""Transparent huge pages of a program that somebody else wrote: with none, or with all it can."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from perflib.machine.files import text
from perflib.measure.conditions import Conditions

Level = Literal["never", "default", "malloc"]
_TUNABLES = "GLIBC_TUNABLES"
_MALLOC_HUGE = "glibc.malloc.hugetlb=1"
_THP = "/sys/kernel/mm/transparent_hugepage/enabled"


def levels() -> tuple[list[Level], str]:
    """What can be had here: not for this process, as the machine has it, malloc asks for them.

    The last one has the most. None, and why: the machine has no transparent huge pages.
    """
    switch = (text(_THP) or "[never]").partition("[")[2].partition("]")[0]
    if switch == "never":
        return [], "the machine has switched transparent huge pages off"
    return (["never", "default", "malloc"] if switch == "madvise" else ["never", "default"]), ""


def with_level(wanted: Conditions, level: Level) -> Conditions:
    """The conditions with a level of huge pages."""
    if level == "never":
        return replace(wanted, huge_pages="never")
    if level == "malloc":
        before = wanted.process_environment().get(_TUNABLES)
        tunables = ":".join(filter(None, (before, _MALLOC_HUGE)))
        return replace(wanted, environment={**wanted.environment, _TUNABLES: tunables})
    return wanted
