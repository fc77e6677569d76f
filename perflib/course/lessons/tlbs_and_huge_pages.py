"""What the lab on TLBs and huge pages asks."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from perflib.course.items import Code, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import NO_VERDICT, found, reads, verdict

_KNEE = found("ring_knee", "knee", what="the chase's knee")
_ENTRIES = found("ring_knee", "knee", what="the knee in pages of 4 KiB", scale=1 / 4)
_HUGE = found("huge_pages", what="on huge pages")
_TLB = found("tlb_misses", what="random loads")


def _missed(pages: Sequence[int], entries: int) -> int:
    """Misses of a TLB whose least recently used entry is replaced."""
    held: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for page in pages:
        misses += page not in held
        held[page] = None
        held.move_to_end(page)
        if len(held) > entries:
            held.popitem(last=False)
    return misses


def _missed_fifo(pages: Sequence[int], entries: int) -> int:
    """The oldest entry is replaced, however often it was used."""
    held: list[int] = []
    misses = 0
    for page in pages:
        if page not in held:
            misses += 1
            held = [*held, page][-entries:]
    return misses


def _trace(drawn: random.Random) -> tuple[list[int], int]:
    pages = drawn.randint(1, 40)
    return [drawn.randrange(pages) for _ in range(drawn.randint(0, 200))], drawn.randint(1, 32)


def _touched(addresses: Sequence[int], page_bytes: int) -> int:
    return len({address // page_bytes for address in addresses})


def _touched_by_size(addresses: Sequence[int], page_bytes: int) -> int:
    """The extent in pages, as if all of it were touched."""
    return (max(addresses) - min(addresses)) // page_bytes + 1 if addresses else 0


def _addresses(drawn: random.Random) -> tuple[list[int], int]:
    page = drawn.choice([4096, 2 << 20])
    most = page * drawn.randint(2, 50)
    return [drawn.randrange(most) for _ in range(drawn.randint(0, 60))], page


LESSON = Lesson.of(
    "tlbs_and_huge_pages",
    {
        "1": partial(
            Code,
            reference=_missed,
            cases=_trace,
            always=[([], 4), ([1, 1, 1], 1), ([0, 1, 2, 0, 1, 2], 2), ([0, 1, 0, 2, 0, 1], 2)],
            wrong=[
                (_missed_fifo, "replaces the oldest entry, not the least recently used one"),
                (lambda pages, _: len(set(pages)), "counts each page's first visit only"),
            ],
        ),
        "iTLB reach": partial(Prediction, measured=_KNEE),
        "huge against small": partial(Prediction, measured=_HUGE),
        "3": partial(
            Relation,
            holds=reads(_ENTRIES, "entries"),
            wrong=[
                (1e9, "gives the knee in bytes"),
                (1, "divides by 2 MiB, the size of a huge page"),
            ],
        ),
        "5": partial(
            Relation,
            holds=verdict("huge_pages"),
            wrong=[("supported", "believes smaps, which shows the guest's pages only"), NO_VERDICT],
        ),
        "random loads": partial(Prediction, measured=_TLB),
        "7": partial(
            Code,
            reference=_touched,
            cases=_addresses,
            always=[([], 4096), ([0, 4095, 4096], 4096), ([8192, 0], 4096)],
            wrong=[
                (_touched_by_size, "takes the extent for the pages that are touched"),
                (lambda addresses, _: len(addresses), "counts nodes, not pages"),
            ],
        ),
    },
)
