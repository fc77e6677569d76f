"""The causes that a mystery may have: what each does, where it may be, and what tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["CAUSES", "FUNCTIONS", "LEVELS", "LOCKS", "NOTHING", "Cause", "Level"]

Level = Literal["easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")

FUNCTIONS = ("propagate_track", "lose_energy", "shape_pulse", "fit_line")
LOCKS = ("geometry_lock", "calibration_lock", "output_lock")
NOTHING = "nothing"


@dataclass(frozen=True)
class Cause:
    """One thing that may be wrong.

    Parameters
    ----------
    does
        What it does to the machine or to the job.
    place
        What kind of place an answer names: ``core``, ``function``, ``lock``, or nothing: ``""``.
    size
        What the interval of an answer is about, in percent.
    notebook
        Where it is examined.
    tells
        What tells it from the others.
    sizes
        Of each level on which it occurs, the range that its size is drawn from, in thousandths:
        of a core's time; of calls, steps or walks of the job; times that a function is called more.
    """

    does: str
    place: Literal["core", "function", "lock", ""]
    size: str
    notebook: str
    tells: str
    sizes: Mapping[Level, tuple[int, int]]


CAUSES: Mapping[str, Cause] = {
    "thief": Cause(
        "another process computes on one core for a share of its time",
        "core",
        "of that core's time that it takes",
        "01_kv_per_core",
        "kv_per_core says which core loses time to other tasks, and names the task; that core is "
        "as fast as the others while it has its time.",
        {"easy": (240, 350), "medium": (100, 160), "hard": (30, 55)},
    ),
    "hog": Cause(
        "another process streams through memory on one core for a share of its time; all cores "
        "share the memory",
        "core",
        "of that core's time that it takes",
        "06_memory_levels",
        "It looks like a thief, but holds much memory (ps -o pid,rss,psr,comm), and loads of the "
        "other cores from memory may take longer.",
        {"medium": (300, 400), "hard": (100, 160)},
    ),
    "quota": Cause(
        "a control group allows this process, and all that it starts, only a part of a core's time",
        "",
        "of one core's time that is withheld",
        "01_kv_per_core",
        "All cores lose alike, and no other task has what they lose; kv_per_core and pl.doctor() "
        "name the quota, which the control group's own file states.",
        {"easy": (350, 500), "medium": (180, 300), "hard": (80, 140)},
    ),
    "function": Cause(
        "one function of the job does more work on one core",
        "function",
        "by which an event of the job takes longer there",
        "02_event_profile",
        "kv_per_core with the job finds a core slow on which our own simulation is not; "
        "event_profile says which function takes the additional time.",
        {"easy": (1800, 2400), "medium": (800, 1200), "hard": (350, 500)},
    ),
    "code": Cause(
        "on one core the job runs through much more code, with the same instructions",
        "core",
        "by which an event of the job takes longer there",
        "04_instruction_cache",
        "The job is slow on that core alone, and event_profile finds more cache lines of code "
        "there: its footprint.",
        {"medium": (900, 1000), "hard": (350, 500)},
    ),
    "buffer": Cause(
        "two buffers of the job may lie so that loads seem to wait for stores 4 KiB away: it "
        "depends on where the stack lies",
        "",
        "by which an event takes longer where they do",
        "09_aliasing_environment",
        "Starts of the job differ, on every core; with fixed addresses (aslr=False) they do not.",
        {"medium": (900, 1000), "hard": (350, 500)},
    ),
    "lock": Cause(
        "the job's threads do a part of their work with a lock held",
        "lock",
        "of the threads' time that they wait for that lock",
        "13_threads",
        "On one core the job is as fast as ever; with several threads `threads` names the lock.",
        {"easy": (800, 900), "medium": (600, 700), "hard": (350, 450)},
    ),
    NOTHING: Cause(
        "nothing is wrong: all that you find is noise, or is there always",
        "",
        "the most that can have stayed unseen; the interval begins at 0 or below",
        "00_machine",
        "Every run refutes its claim; what is left is how large a trouble the runs could miss.",
        {"medium": (0, 0), "hard": (0, 0)},
    ),
}
"""Every cause, in the order in which a table lists them."""
