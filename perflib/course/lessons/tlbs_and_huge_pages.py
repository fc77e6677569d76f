"""What the lab on TLBs and huge pages asks."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence

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
    items=[
        Code(
            name="1",
            points=2,
            reference=_missed,
            cases=_trace,
            always=[([], 4), ([1, 1, 1], 1), ([0, 1, 2, 0, 1, 2], 2), ([0, 1, 0, 2, 0, 1], 2)],
            wrong=[
                (_missed_fifo, "replaces the oldest entry, not the least recently used one"),
                (lambda pages, _: len(set(pages)), "counts each page's first visit only"),
            ],
            hints=[
                "Keep the pages that are held in order of their last use.",
                "A hit also changes the order: the page moves to the end.",
            ],
        ),
        "2",
        Prediction(
            name="iTLB reach",
            unit="KiB",
            measured=_KNEE,
            hints=["Multiply the entries of a level by 4 KiB."],
        ),
        Prediction(
            name="huge against small",
            unit="%",
            measured=_HUGE,
            hints=["100 % means: huge pages save nothing. What does the host put behind them?"],
        ),
        Relation(
            name="3",
            points=2,
            holds=reads(_ENTRIES, "entries"),
            wrong=[
                (1e9, "gives the knee in bytes"),
                (1, "divides by 2 MiB, the size of a huge page"),
            ],
            hints=["The ring visits one jump in each page of 4 KiB.", "Divide the knee by 4 KiB."],
        ),
        "4",
        Relation(
            name="5",
            points=2,
            holds=verdict("huge_pages"),
            wrong=[("supported", "believes smaps, which shows the guest's pages only"), NO_VERDICT],
            hints=[
                "'supported' means: a load through many huge pages is cheaper than on small ones.",
                "Look at the interval: does it contain 100 %?",
            ],
        ),
        "6",
        Prediction(
            name="random loads",
            unit="%",
            measured=_TLB,
            hints=["A walk takes some 20 to 100 cycles; what does the load itself take?"],
        ),
        Code(
            name="7",
            points=2,
            reference=_touched,
            cases=_addresses,
            always=[([], 4096), ([0, 4095, 4096], 4096), ([8192, 0], 4096)],
            wrong=[
                (_touched_by_size, "takes the extent for the pages that are touched"),
                (lambda addresses, _: len(addresses), "counts nodes, not pages"),
            ],
            hints=["Two addresses lie in one page if they agree after division by its size."],
        ),
        "8",
    ],
)
