"""What the notebook on virtual machines asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perflib.course.items import Choice, Judged, Measured, Prediction, Relation, number
from perflib.course.lesson import Lesson
from perflib.course.relations import estimated, near

__all__ = ["LESSON"]


def _part(name: str) -> Callable[[Any], Measured | str]:
    """That part of a pair, as far as the probes could tell it from the others."""

    def measured(pair: Any) -> Measured | str:
        found = [one for one in pair.where(claim="pair_part") if name in one.about["part"]]
        return estimated(found, f"{name}, in the pair", f"the pair has no part {name!r} of its own")

    return measured


def _excluded(answer: Any, pair: Any) -> Judged:
    """How many intervals of this pair exclude zero."""
    count = sum(one.low > 0 or one.high < 0 for one in pair)
    right = number(answer) == count
    return Judged(float(right), f"{count} of {len(pair)} intervals of this pair exclude zero")


LESSON = Lesson(
    name="virtual_machine",
    title="Virtual machine: what does a guest cost, and which part of it?",
    minutes=40,
    objectives=[
        "Name the parts by which a guest is slower than its host, and say what tells each.",
        "Say why nested paging costs a program only where it misses the TLB.",
        "Read a pair of machines with its null: two runs of one machine.",
    ],
    items=[
        Prediction(
            name="own speed",
            unit="percent",
            measured=_part("own speed"),
            hints=["A TLB hit costs a guest nothing; this program has little data and code."],
        ),
        Choice(
            name="sold twice",
            question="The host's owner sells the same core twice. Which part of the guest's "
            "time grows?",
            options={
                "a": "clock: a busy core runs at a lower frequency",
                "b": "own speed: the instructions themselves get slower",
                "c": "other tasks: the guest's kernel sees the other customer's processes",
                "d": "hypervisor: wall time that neither the thread nor its queue accounts for",
            },
            right="d",
            because={
                "a": "The clock may fall when more cores work, but selling one core twice makes "
                "the guest wait, not run slower.",
                "b": "Shared caches may cost something, but while the guest is off the core no "
                "instruction of it runs at all.",
                "c": "The other customer's processes live in another guest: this kernel cannot "
                "see them.",
                "d": "While the other guest runs, this one's clock on the wall goes on, and "
                "nothing inside it ran or waited for a core.",
            },
        ),
        Relation(
            name="1",
            holds=_excluded,
            hints=["Count the rows whose low and high end have the same sign."],
            wrong=[(-1, "counts what cannot be counted")],
        ),
        Choice(
            name="2",
            question="The job is limited by a quota of half a CPU, set inside the guest. Which "
            "part is the loss?",
            options={
                "a": "other tasks",
                "b": "hypervisor",
                "c": "own speed",
                "d": "clock",
            },
            right="a",
            because={
                "a": "The guest's own kernel stops the job, and counts that as run-queue delay. "
                "The same quota on the host would be the hypervisor's part.",
                "b": "That is what a quota on the host would be: the guest's kernel cannot see it. "
                "This one is set inside.",
                "c": "While the job runs it runs as fast as before; it is only stopped at times.",
                "d": "A quota changes no frequency.",
            },
            hints=["Who knows that the job was stopped: the guest's kernel, or the host's alone?"],
        ),
        Relation(
            name="3",
            holds=near(
                1.8,
                1.85,
                "60 + 300 against 360 + 300 cycles. Real walks cost less: page-walk caches hold "
                "the upper levels, and notebook 06 measures what is left",
                "a host pays 4 x 15 cycles for the walk, a guest up to 24 x 15; the load itself "
                "takes 300 in both",
            ),
            hints=["Add the walk to the load on each side, then divide."],
            wrong=[
                (6.0, "divides the walks, 360 by 60, without the load"),
                (1.2, "adds one walk of 60 cycles in the guest alone"),
            ],
        ),
    ],
)
