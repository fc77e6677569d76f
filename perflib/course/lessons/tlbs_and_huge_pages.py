"""What the lab on TLBs and huge pages asks."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence

from perflib.course.items import Choice, Code, Prediction, Relation
from perflib.course.lesson import Lesson
from perflib.course.relations import found, reads, verdict

__all__ = ["LESSON"]

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


LESSON = Lesson(
    name="tlbs_and_huge_pages",
    title="TLBs and huge pages",
    minutes=90,
    objectives=[
        "Predict from a TLB's entries and the page size where a program gets slow.",
        "Measure the knee of a chase through pages, and state it with its interval.",
        "Tell page effects from cache effects by a control with equally many lines.",
        "Find out whether huge pages are huge for the TLB of this machine.",
        "Choose a cure: packing, huge pages, or none.",
    ],
    needs=["TLB sizes", "huge pages", "backed huge pages", "no hypervisor", "C compiler"],
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
        Choice(
            name="2",
            question="A ring visits 65 pages in a fixed order, and the TLB has 64 entries. Which "
            "share of the accesses misses?",
            options={"a": "1 of 65", "b": "half", "c": "all", "d": "none: one page too many"},
            right="c",
            because={
                "a": "That would need a TLB that knows which page comes last. The least recently "
                "used entry is exactly the one that the ring visits next.",
                "b": "Half misses at random, over twice as many pages as there are entries.",
                "c": "Each page was replaced just before its turn comes again. This is why the "
                "ring shows a step at the reach, and random visits only a bend.",
                "d": "65 pages do not fit 64 entries, and the ring visits every one.",
            },
            wrong=[("a", "forgets which entry is replaced"), ("b", "takes a ring for random")],
            hints=["Move the slider to 64 and 65 pages.", "Write down 3 entries and 4 pages."],
        ),
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
        Choice(
            name="4",
            question="The control runs as many jumps, through as many cache lines, in a 64th of "
            "the pages. What does a ratio above 1 show?",
            options={
                "a": "the cost of the pages",
                "b": "the cost of the cache misses",
                "c": "the cost of the jumps",
            },
            right="a",
            because={
                "a": "Jumps and lines are equal on both sides and cancel; only the pages differ. "
                "Beyond the first rise, neighbouring lines are also fetched ahead in the control.",
                "b": "Both sides touch equally many lines, so the caches are loaded alike.",
                "c": "Both sides execute the same jumps in the same number.",
            },
            wrong=[("b", "forgets that the control has as many lines")],
            hints=["List what both sides have in common, and what is left."],
        ),
        Relation(
            name="5",
            points=2,
            holds=verdict("huge_pages"),
            wrong=[
                ("supported", "believes smaps, which shows the guest's pages only"),
                ("yes", "gives an answer that is no verdict"),
            ],
            hints=[
                "'supported' means: a load through many huge pages is cheaper than on small ones.",
                "Look at the interval: does it contain 100 %?",
            ],
        ),
        Choice(
            name="6",
            question="smaps shows 2 MiB pages, and many of them cost as much as small ones. Why?",
            options={
                "a": "The kernel lies in smaps.",
                "b": "Huge pages need root.",
                "c": "The data were not in the first-level cache.",
                "d": "The entry of the TLB covers the smaller of the guest's and the host's page.",
            },
            right="d",
            because={
                "a": "smaps is right about the guest's page table. The TLB sees the host's, too.",
                "b": "Transparent huge pages need no privilege, and smaps shows some here.",
                "c": "The page control keeps all its lines in the first-level cache.",
                "d": "A translation in a virtual machine joins both page tables. If the host uses "
                "4 KiB pages, an entry covers 4 KiB, and no file of the guest says so.",
            },
            wrong=[("a", "knows one page table only"), ("b", "mixes up reserved and transparent")],
            hints=["How many page tables does a load in a virtual machine pass?"],
        ),
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
        Choice(
            name="8",
            question="A list of 4096 nodes of 16 bytes, one in each 4 KiB page, is slow on your "
            "virtual machine, whose huge pages are not backed. What helps?",
            options={
                "a": "huge pages",
                "b": "the nodes side by side in 16 pages",
                "c": "a faster clock",
                "d": "prefetching the next node",
            },
            right="b",
            because={
                "a": "Without the host's help they save no entry; they only shorten the walk.",
                "b": "4096 nodes of 16 bytes take 64 KiB, 16 pages: that fits every TLB, and the "
                "caches hold it, too. Packing works on every machine.",
                "c": "All of it gets faster by as much, and the share of the walks stays.",
                "d": "The next node's address is known only when this one has been loaded.",
            },
            wrong=[("a", "forgets what exercise 5 found"), ("d", "forgets the dependence")],
            hints=["How many entries are needed before and after? Use the first slider."],
        ),
    ],
)
