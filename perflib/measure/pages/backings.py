"""The page backings of a run: which are available, and the huge pages that some must reserve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from perflib.machine.settings.changes import settings
from perflib.measure.pages.text_backings import (
    GIGANTIC_PAGE_BYTES,
    GIGANTIC_PAGES,
    HUGE_PAGE_BYTES,
    pool_pages,
    why_not,
)
from perflib.model.errors import UserError, choose

__all__ = ["resolve", "with_pool"]

_FIRST_OF = ("thp", "collapse")  # what "huge" stands for
_SETTINGS = {
    "hugetlb": "nr_hugepages",
    "hugectl": "nr_hugepages",
    GIGANTIC_PAGES: "nr_hugepages_1g",
}


def _nothing_lacks(_name: str) -> str:
    return ""


def resolve(
    requested: Iterable[str],
    known: Sequence[str],
    pages: int,
    system: Mapping[str, str],
    lacking: Callable[[str], str] = _nothing_lacks,
) -> dict[str, Any]:
    """Which of the backings are available, and why the others are not.

    Parameters
    ----------
    requested
        As the user names them; ``huge`` stands for the first available of thp and collapse.
    known
        All names but ``huge``.
    pages
        How many pages of 2 MiB a backing that reserves them needs; of 1 GiB, fewer follow from it.
    system
        The settings that the user requested: they may switch huge pages on or off.
    lacking
        Why a backing is not available, if there is more to it than the machine.

    Returns
    -------
    ``backings``, those that are available, and ``absent``, the reason of each other.

    Raises
    ------
    UserError
        There is no such backing.
    """
    usable: list[str] = []
    absent: dict[str, str] = {}
    for word in dict.fromkeys(requested):
        if word not in (*known, "huge"):
            msg = f"backings: {choose('backing', word, [*known, 'huge'])}"
            raise UserError(msg)
        for name in _FIRST_OF if word == "huge" else [word]:
            with settings(system):
                reason = why_not(name, pages_needed=_pages_of(name, pages))
            reason = reason or lacking(name)
            if name in _SETTINGS:
                reason = reason or _try_pool(system, name, pages)
            if not reason:
                usable.append(name)
                break
            absent[name] = reason
    return {"backings": list(dict.fromkeys(usable)), "absent": absent}


def with_pool(system: Mapping[str, str], backings: Iterable[str], pages: int) -> dict[str, str]:
    """The settings that were requested, and the huge pages of a backing that reserves them."""
    changed = dict(system)
    for name in set(_SETTINGS) & set(backings):
        total, free = pool_pages(name=name)
        lacking = _pages_of(name, pages) - free
        if lacking > 0:
            changed.setdefault(_SETTINGS[name], str(total + lacking))
    return changed


def _pages_of(name: str, pages: int) -> int:
    """How many pages of a backing hold so many of 2 MiB, and the control's one."""
    if name != GIGANTIC_PAGES:
        return pages
    return -(-pages * HUGE_PAGE_BYTES // GIGANTIC_PAGE_BYTES) + 1


def _try_pool(system: Mapping[str, str], name: str, pages: int) -> str:
    """Reserve the huge pages for a moment: the kernel may not find as many."""
    try:
        with settings(with_pool(system, [name], pages)):
            return ""
    except UserError as error:
        return str(error)
