"""Which page backings are available here, why another is not, and the huge pages to reserve.

The one place that answers it: `why_not` for one backing, `resolve` for those of a run.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perflib.machine.files import fields, integer, text
from perflib.machine.settings.changes import settings
from perflib.machine.settings.knobs import knob
from perflib.measure.pages.kinds import (
    BACKINGS,
    DATA_BACKINGS,
    GIGANTIC_PAGE_BYTES,
    GIGANTIC_PAGES,
    HUGE_PAGE_BYTES,
    PROGRAMS_ONLY,
    SMALL_PAGE_BYTES,
    SMALL_PAGES,
    page_words,
)
from perflib.model.errors import UserError, choose

_THP = "sys/kernel/mm/transparent_hugepage"
_POOLS = {
    "hugetlb": "sys/kernel/mm/hugepages/hugepages-2048kB",
    PROGRAMS_ONLY: "sys/kernel/mm/hugepages/hugepages-2048kB",
    GIGANTIC_PAGES: "sys/kernel/mm/hugepages/hugepages-1048576kB",
}
_MADV_COLLAPSE = 25  # mmap of Python 3.11 has no name for it
_COLLAPSE_SINCE = (6, 1)
_FIRST_OF = ("thp", "collapse")  # what "huge" stands for
_SETTINGS = {
    "hugetlb": "nr_hugepages",
    PROGRAMS_ONLY: "nr_hugepages",
    GIGANTIC_PAGES: "nr_hugepages_1g",
}


# --- one backing ---------------------------------------------------------------------------------


def why_not(
    name: str,
    root: Path = Path("/"),
    pages_needed: int = 0,
    *,
    may_reserve: bool | None = None,
) -> str:
    """Say why a backing is not available here, and what would enable it; empty: it should work.

    Parameters
    ----------
    name
        One of `BACKINGS` or `DATA_BACKINGS`, or ``hugectl``.
    root
        Where ``proc`` and ``sys`` are.
    pages_needed
        For those of a pool: how many of its pages there must be (0: one).
    may_reserve
        Whether the pool may be enlarged, so that its size does not matter; ``None``: whether this
        process may write to the setting.

    Raises
    ------
    UserError
        There is no such backing.

    Examples
    --------
    >>> why_not("4k")
    ''
    """
    known = [*dict.fromkeys((*BACKINGS, *DATA_BACKINGS)), PROGRAMS_ONLY]
    if name not in known:
        raise UserError(choose("page backing", name, known))
    if name == SMALL_PAGES and mmap.PAGESIZE != SMALL_PAGE_BYTES:
        return f"this system's smallest pages have {mmap.PAGESIZE >> 10} KiB, and not 4 KiB"
    if name in ("thp", "collapse"):
        return _no_transparent_pages(root) or (
            _thp_is_off(root) if name == "thp" else _no_collapse(root)
        )
    if name in _POOLS:
        lacking = _no_hugectl() if name == PROGRAMS_ONLY else ""
        lacking = lacking or _small_pool(root, name, max(pages_needed, 1), may_reserve)
        return lacking or (_no_mount(root) if name == PROGRAMS_ONLY else "")
    return ""


def _no_transparent_pages(root: Path) -> str:
    if text(root / _THP / "enabled") is None:
        return (
            "this kernel has no transparent huge pages: it takes one that was built with "
            "CONFIG_TRANSPARENT_HUGEPAGE"
        )
    size_bytes = integer(root / _THP / "hpage_pmd_size")
    if size_bytes not in (None, HUGE_PAGE_BYTES):
        return f"transparent huge pages have {size_bytes} bytes here, and this is made for 2 MiB"
    if fields(root / "proc/self/status").get("THP_enabled") == "0":
        return (
            "transparent huge pages are forbidden to this process by whoever started it "
            "(prctl PR_SET_THP_DISABLE; a batch system or a container may do that)"
        )
    return ""


def _thp_is_off(root: Path) -> str:
    """Linux 6.8 and later have a switch for each size, which as a rule follows the common one."""
    one_size = root / _THP / "hugepages-2048kB/enabled"
    word = _chosen(text(one_size))
    if word == "never":
        return (
            f"transparent huge pages of 2 MiB are switched off (/{one_size.relative_to(root)} "
            f"says never). As root: echo inherit | sudo tee /{one_size.relative_to(root)}"
        )
    if word not in (None, "inherit") or knob("thp").read(root) != "never":
        return ""
    return (
        "transparent huge pages are switched off (never). As root: perflib run ... "
        f"-p settings=thp=madvise, or: {knob('thp').command('madvise', root)}"
    )


def _chosen(switch: str | None) -> str | None:
    return None if switch is None else switch.partition("[")[2].partition("]")[0]


def _no_collapse(root: Path) -> str:
    release = text(root / "proc/sys/kernel/osrelease") or ""
    if root == Path("/"):
        # Distributions bring new calls to old kernels: this one is requested, not its number.
        known = _accepts(_MADV_COLLAPSE)
    else:
        numbers = release.split("-")[0].split(".")[:2]
        known = (
            not all(number.isdigit() for number in numbers)
            or tuple(int(number) for number in numbers) >= _COLLAPSE_SINCE
        )
    if known:
        return ""
    return (
        f"this kernel ({release}) has no MADV_COLLAPSE, which came with Linux 6.1: backing 'thp' "
        "needs none"
    )


def _accepts(advice: int) -> bool:
    """Does this kernel know an advice? For no bytes at all it only checks the name."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        try:
            page.madvise(advice, 0, 0)
        except OSError:
            return False
    return True


def pool_pages(root: Path = Path("/"), name: str = "hugetlb") -> tuple[int, int]:
    """A backing's pool of reserved pages: how many there are, and how many are still available.

    A page that is free but promised to a mapping that has not touched it yet is not available.
    Both are 0 where this machine has no such pages.

    Examples
    --------
    >>> total, free = pool_pages()
    >>> 0 <= free <= total
    True
    """
    total, free, promised = (
        integer(root / _POOLS[name] / count) or 0
        for count in ("nr_hugepages", "free_hugepages", "resv_hugepages")
    )
    # Read one after the other: somebody may have changed the pool in between.
    return total, min(total, max(0, free - promised))


def _small_pool(root: Path, name: str, needed: int, may_reserve: bool | None) -> str:
    pool, words = root / _POOLS[name], page_words(name)
    if not pool.is_dir():
        return (
            f"this kernel reserves no pages of {words}: it takes one that was built with "
            "CONFIG_HUGETLBFS, on a processor (and a hypervisor) that has them"
        )
    total, free = pool_pages(root, name)
    overcommit, surplus = (
        integer(pool / count) or 0 for count in ("nr_overcommit_hugepages", "surplus_hugepages")
    )
    # The setting nr_hugepages means the default size, which the boot parameters may have changed.
    default = fields(root / "proc/meminfo").get("Hugepagesize", "2048 kB") == "2048 kB"
    setting = "nr_hugepages_1g" if name == GIGANTIC_PAGES else "nr_hugepages" if default else ""
    if may_reserve is None:
        may_reserve = all(
            os.access(path, os.W_OK) for path in knob(setting or "nr_hugepages").paths(root)
        )
    available = free + max(0, overcommit - surplus)
    if available >= needed or (may_reserve and setting):
        return ""
    if total == 0:
        state = f"the pool of huge pages is empty, and {needed} of {words} are needed"
    else:
        state = (
            f"{available} of the pool's {total} huge pages are free, and {needed} of {words} are "
            "needed"
        )
    wanted = total + needed - available
    if not setting:
        return f"{state}. As root: echo {wanted} | sudo tee /{_POOLS[name]}/nr_hugepages"
    command = knob(setting).command(str(wanted), root)
    return (
        f"{state}. Root may reserve them: perflib does so by itself when it runs as root, and "
        f"gives them back; or: {command}"
    )


def _no_hugectl() -> str:
    if shutil.which("hugectl") is not None:
        return ""
    return "hugectl is not installed: apt-get install libhugetlbfs-bin libhugetlbfs-dev"


def _no_mount(root: Path) -> str:
    """Hugectl's library copies the text into a file of hugetlbfs, and without one leaves it.

    Measured with libhugetlbfs 2.23: "Hugepage size 2097152 unavailable", and the program runs on
    small pages.
    """
    mounted = False
    for line in (text(root / "proc/mounts") or "").splitlines():
        words = line.split()  # none /mnt/huge hugetlbfs rw,relatime,pagesize=2M 0 0
        if words[2:3] == ["hugetlbfs"] and "pagesize=2M" in words[3].split(","):
            mounted = True
            if os.access(root / words[1].lstrip("/"), os.W_OK | os.X_OK):
                return ""
    if mounted:
        return (
            "hugetlbfs is mounted where this user may not write. As root: hugeadm "
            "--create-user-mounts=USER"
        )
    return (
        "hugetlbfs is not mounted, and hugectl copies the text into a file there. As root: "
        "hugeadm --create-mounts, or: mount -t hugetlbfs -o pagesize=2M none DIRECTORY"
    )


# --- those of a run ------------------------------------------------------------------------------


def resolve(
    requested: Iterable[str],
    known: Sequence[str],
    pages: int,
    system: Mapping[str, str],
    lacking: Callable[[str], str] | None = None,
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
            reason = reason or (lacking(name) if lacking is not None else "")
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
