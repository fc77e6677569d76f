"""What the course's notebook on code to mend asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from perflib.course.fix.building import shipped
from perflib.course.fix.problems import NAMES, get
from perflib.course.items import Item, Judged, Measured, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import estimated
from perflib.model.errors import UserError, choose


def _saved(bench: Any) -> Measured | str:
    """The part of the time that a comparison says is saved."""
    what = f"{bench.problem}: time saved"
    return estimated([bench.saved_percent], what, "the comparison has no interval")


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
    """The problem with the smallest saving, as far as the intervals separate it from the others."""
    name = str(answer).strip()
    if name not in benches:
        raise UserError(choose("problem", name, benches))
    saved = {key: one.saved_percent for key, one in benches.items()}
    above = [key for key, one in saved.items() if one.high < saved[name].low]
    says = f"{name} saves {saved[name].effect:.0f} %"
    if above:
        return Judged(0.0, f"{says}; {above[0]} saves less, {saved[above[0]].effect:.0f} %")
    return Judged(1.0, f"{says}; no other saves less as far as the intervals show")


def _mend(name: str, *wrong: tuple[str, str]) -> Callable[..., Item]:
    unchanged = shipped(get(name)), "gives the original back"
    holds, hints = _mended(name), get(name).hints
    return partial(Relation, holds=holds, wrong=[*wrong, unchanged], hints=hints)


_guess = partial(Prediction, measured=_saved)
_LOCK = ("    pthread_mutex_lock(&formula_lock);\n", "")
_UNLOCK = ("    pthread_mutex_unlock(&formula_lock);\n", "")

LESSON = Lesson.of(
    "fix_it",
    {
        NAMES[0]: _guess,
        "2": _mend(
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
        NAMES[1]: _guess,
        "4": _mend(
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
        NAMES[2]: _guess,
        "6": _mend(
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
        NAMES[3]: _guess,
        "8": _mend(
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
        NAMES[4]: _guess,
        "10": _mend(
            NAMES[4],
            (
                shipped(get(NAMES[4]), "mended").replace(
                    "  if (channel >= CHANNELS) // no channel of ours\n    return 0;\n", ""
                ),
                "reads a row that the table does not have, for channels that are not ours",
            ),
        ),
        "11": partial(
            Relation,
            holds=_least,
            wrong=[("false_sharing", "takes the fault that is easiest to mend for the smallest")],
        ),
    },
)
