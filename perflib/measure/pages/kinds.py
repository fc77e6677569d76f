"""The kinds of pages that code or data can be placed on: their names, numbers and sizes.

``loaded`` leaves the text as the loader mapped it. ``4k`` is a copy that must not become huge,
``thp`` one that the kernel may put on transparent huge pages at the first touch, ``collapse`` one
that the kernel is made to put there (MADV_COLLAPSE, Linux 6.1), ``hugetlb`` one on pages of the
reserved pool. ``hugectl`` (of libhugetlbfs) does the last for a program's main executable, from
outside. ``hugetlb_1g``, for data only, has pages of 1 GiB from a pool of their own.

`perflib.measure.pages.backings` says which are available here.
"""

from __future__ import annotations

from collections.abc import Mapping

# The numbers by which the kernels' code_lay() knows them.
BACKINGS: Mapping[str, int] = {"loaded": 0, "4k": 1, "thp": 2, "collapse": 3, "hugetlb": 4}
SMALL_PAGES = "4k"  # with which the others are compared
GIGANTIC_PAGES = "hugetlb_1g"
PROGRAMS_ONLY = "hugectl"
DATA_BACKINGS: Mapping[str, int] = {
    **{name: number for name, number in BACKINGS.items() if name != "loaded"},
    GIGANTIC_PAGES: 5,
}
SMALL_PAGE_BYTES = 4096
HUGE_PAGE_BYTES = 2 << 20
GIGANTIC_PAGE_BYTES = 1 << 30


def page_words(backing: str) -> str:
    """The size of a backing's pages in words.

    >>> page_words("4k"), page_words("thp"), page_words("hugetlb_1g")
    ('4 KiB', '2 MiB', '1 GiB')
    """
    return {SMALL_PAGES: "4 KiB", GIGANTIC_PAGES: "1 GiB"}.get(backing, "2 MiB")
