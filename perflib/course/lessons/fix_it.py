"""What the course's notebook on code to mend asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from perflib.course.fix.building import shipped
from perflib.course.fix.problems import NAMES, get
from perflib.course.items import Choice, Item, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.model.errors import UserError, choose

__all__ = ["LESSON"]


def _saved(bench: Any) -> Measured | str:
    """The part of the time that a comparison says is saved."""
    effect, low, high = bench.saved_percent
    if not math.isfinite(low):
        return "the comparison has no interval"
    return Measured(low, effect, high, f"{bench.problem}: time saved")


def _mended(name: str) -> Callable[[Any], Judged]:
    """Whether a C source computes what it did, and is another one."""

    def holds(answer: Any) -> Judged:
        from perflib.course.fix import fix

        problem = fix(name)
        found = problem.validate(answer)
        if not found:
            return Judged(0.0, found.says)
        if str(answer).strip() == problem.code.strip():
            return Judged(0.0, "that is the original: its results are right, and nothing is mended")
        return Judged(1.0, found.says)

    return holds


def _changed(name: str, *changes: tuple[str, str]) -> str:
    """The code to mend, changed as students change it."""
    code = shipped(get(name))
    for old, new in changes:
        code = code.replace(old, new)
    return code


def _least(answer: Any, benches: Mapping[str, Any]) -> Judged:
    """The problem with the smallest saving, as far as the intervals tell it from the others."""
    name = str(answer).strip()
    if name not in benches:
        raise UserError(choose("problem", name, benches))
    saved = {key: one.saved_percent for key, one in benches.items()}
    above = [key for key, one in saved.items() if one.high < saved[name].low]
    says = f"{name} saves {saved[name].effect:.0f} %"
    if above:
        return Judged(0.0, f"{says}; {above[0]} saves less, {saved[above[0]].effect:.0f} %")
    return Judged(1.0, f"{says}; no other saves less as far as the intervals tell")


def _prediction(name: str, hint: str) -> Item:
    return Prediction(name=name, unit="%", measured=_saved, hints=[hint])


def _mend(number: str, name: str, *wrong: tuple[str, str]) -> Item:
    unchanged = shipped(get(name)), "gives the original back"
    return Relation(
        name=number,
        points=2,
        holds=_mended(name),
        wrong=[*wrong, unchanged],
        hints=get(name).hints,
    )


_LOCK = ("    pthread_mutex_lock(&formula_lock);\n", "")
_UNLOCK = ("    pthread_mutex_unlock(&formula_lock);\n", "")

LESSON = Lesson(
    name="fix_it",
    title="Fix it: five pieces of code, mended and proved",
    minutes=90,
    objectives=[
        "Read from a few lines of C where two threads, or two addresses, get in each other's way.",
        "Mend a needless lock, false sharing, 4K aliasing, a chase over pages, a large switch.",
        "Prove that the results are unchanged, on edge cases and at random.",
        "State by how much the code is faster, with an interval, and say what it cannot tell.",
    ],
    needs=["C compiler", "two cores"],
    items=[
        Choice(
            name="1",
            question="Which of the variables that are used under the lock do both threads write?",
            options={
                "a": "own->terms",
                "b": "text",
                "c": "corrected",
                "d": "correction[i]",
            },
            right="c",
            because={
                "a": "A worker belongs to one thread: each call is given another one.",
                "b": "The text is read, and never written to.",
                "c": "It is the one number that both threads count up.",
                "d": "Each thread has an array of its own for its corrections.",
            },
            wrong=[("a", "takes what is used under the lock for what is shared"), ("d", "as a")],
            hints=["Ask of each variable which thread owns it."],
        ),
        _prediction(NAMES[0], "Side by side, two threads need half of the time, at best."),
        _mend(
            "2",
            NAMES[0],
            (
                _changed(
                    NAMES[0], _LOCK, _UNLOCK, ("int64_t corrected", "volatile int64_t corrected")
                ),
                "takes the lock away and leaves the shared count without it: additions are lost",
            ),
            (
                _changed(NAMES[0], _LOCK, _UNLOCK, ("    corrected++;\n", "")),
                "takes the count away with the lock",
            ),
        ),
        Choice(
            name="3",
            question="Two threads write to two counters, and no counter is shared. What is?",
            options={
                "a": "Nothing: atomic additions are slow by themselves.",
                "b": "The lock that makes an addition atomic.",
                "c": "The cache line on which both counters lie.",
            },
            right="c",
            because={
                "a": "An atomic addition to a line that the core owns takes some nanoseconds; the "
                "comparison shows how much longer it takes here.",
                "b": "No lock is taken: the core keeps the line for the time of the addition.",
                "c": "A core owns a whole line, of 64 bytes here, before it writes to any of it.",
            },
            wrong=[("a", "blames the instruction"), ("b", "takes atomics for locks")],
            hints=["sizeof(tally) is 8. Where does the second one begin?"],
        ),
        _prediction(NAMES[1], "A line goes from core to core in some 50 to 100 ns."),
        _mend(
            "4",
            NAMES[1],
            (
                _changed(NAMES[1], ("&tallies[thread]", "&tallies[0]")),
                "gives both threads one counter",
            ),
            (
                _changed(NAMES[1], ("i < n", "i + 1 < n")),
                "loses the last item",
            ),
        ),
        Choice(
            name="5",
            question="next begins at 0x7000 and rank at 0x9000. Which low 12 bits have rank[5] and "
            "next[5]?",
            options={
                "a": "0x014 and 0x014",
                "b": "0x005 and 0x005",
                "c": "0x014 and 0x034",
            },
            right="a",
            because={
                "a": "Items have 4 bytes: both lie 20 bytes behind a multiple of 4096.",
                "b": "An index counts items; an address counts bytes.",
                "c": "Both arrays begin at a multiple of 4096, so what is added is the same.",
            },
            wrong=[("b", "takes indices for bytes")],
            hints=["sizeof(uint32_t) is 4, and 0x7000 is 7 times 4096."],
        ),
        _prediction(NAMES[2], "A wait of some ten cycles, in a step of a load's five."),
        _mend(
            "6",
            NAMES[2],
            (
                _changed(NAMES[2], ("(memory + bytes)", "(memory + bytes + 2048)")),
                "moves an array and asks for no more memory: writes behind its end",
            ),
            (
                _changed(
                    NAMES[2],
                    (
                        "rank[at] = step;\n    at = next[at];",
                        "at = next[at];\n    rank[at] = step;",
                    ),
                ),
                "exchanges the two lines: the rank goes to the next event",
            ),
        ),
        Choice(
            name="7",
            question="4096 records of 4160 bytes. How many pages does a walk touch, and how many "
            "if headers of 16 bytes lie side by side?",
            options={
                "a": "4096, and 16",
                "b": "4096, and 4096",
                "c": "65, and 16",
            },
            right="a",
            because={
                "a": "Each header lies on a page of its own; 256 of 16 bytes fit on one.",
                "b": "That would be so if only the raw data were smaller, not apart.",
                "c": "A walk reads 64 bytes of each record, and each of them is on another page.",
            },
            wrong=[("c", "counts bytes where pages count")],
            hints=["The TLB has an entry for each page, however little of it is used."],
        ),
        _prediction(NAMES[3], "A walk through page tables costs more than the load itself."),
        _mend(
            "8",
            NAMES[3],
            (
                _changed(
                    NAMES[3],
                    ("    memcpy(one->raw, raw + i * RAW_BYTES, RAW_BYTES);\n", ""),
                ),
                "leaves the raw data out, since the walk needs none",
            ),
            (
                _changed(
                    NAMES[3],
                    (
                        "memcpy(one->raw, raw + i * RAW_BYTES, RAW_BYTES)",
                        "one->raw = raw + i * RAW_BYTES",
                    ),
                    ("unsigned char raw[RAW_BYTES];", "const unsigned char *raw;"),
                ),
                "keeps a pointer to the caller's raw data, which is gone later",
            ),
        ),
        Choice(
            name="9",
            question="In what do the 512 cases differ?",
            options={
                "a": "in what they compute with: constants",
                "b": "in what they compute: operations",
                "c": "in how many terms they add",
            },
            right="a",
            because={
                "a": "So one piece of code can serve all, if the constants are data.",
                "b": "All are made by one macro: the same operations in the same order.",
                "c": "Each has 16 terms.",
            },
            wrong=[("b", "takes generated code for different code")],
            hints=["Write down what CASE(0) and CASE(1) become."],
        ),
        _prediction(NAMES[4], "A mispredicted jump costs some 15 cycles; 16 terms some 20."),
        _mend(
            "10",
            NAMES[4],
            (
                shipped(get(NAMES[4]), "mended").replace(
                    "  if (channel >= CHANNELS) // no channel of ours\n    return 0;\n", ""
                ),
                "reads a row that the table does not have, for channels that are not ours",
            ),
        ),
        Relation(
            name="11",
            holds=_least,
            wrong=[("false_sharing", "takes the fault that is easiest to mend for the smallest")],
            hints=["Compare the intervals of saved_percent, not the times."],
        ),
        Choice(
            name="12",
            question="The original beside itself: 3 % saved, with an interval from −4 % to 10 %. "
            "What follows?",
            options={
                "a": "The copy is 3 % faster.",
                "b": "Nothing differs, and a change of 5 % could not be seen with this budget.",
                "c": "The measurement is broken: it must say 0.",
            },
            right="b",
            because={
                "a": "They are the same code; the interval holds 0.",
                "b": "Each process draws where its memory lies. The interval says how much that "
                "matters, and only what lies beyond it can be seen.",
                "c": "An estimate of nothing scatters about 0; its interval covers it.",
            },
            wrong=[("a", "reads the estimate without its interval"), ("c", "expects no scatter")],
            hints=["What would a second null test say?"],
        ),
    ],
)
