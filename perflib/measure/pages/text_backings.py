"""The pages that code or data can be laid on: which can be had here, and why another cannot.

``loaded`` leaves the text as the loader mapped it. ``4k`` is a copy that is told not to become
huge, ``thp`` one that the kernel may put on transparent huge pages when it is first touched,
``collapse`` one that the kernel is made to put there (MADV_COLLAPSE, Linux 6.1), ``hugetlb`` one
on pages of the reserved pool. ``hugectl`` (of libhugetlbfs) does the last for a program's main
executable, from outside. ``hugetlb_1g``, for data only, has pages of 1 GiB from a pool of their
own.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from perflib.machine.files import fields, integer, text
from perflib.machine.settings.knobs import knob
from perflib.model.errors import UserError, choose

__all__ = [
    "BACKINGS",
    "DATA_BACKINGS",
    "GIGANTIC_PAGES",
    "GIGANTIC_PAGE_BYTES",
    "HUGE_PAGE_BYTES",
    "SMALL_PAGES",
    "explain",
    "page_words",
    "pool_pages",
    "why_not",
]

# The numbers by which the kernels' code_lay() knows them.
BACKINGS: Mapping[str, int] = {"loaded": 0, "4k": 1, "thp": 2, "collapse": 3, "hugetlb": 4}
SMALL_PAGES = "4k"  # with which the others are compared
GIGANTIC_PAGES = "hugetlb_1g"
_PROGRAMS_ONLY = "hugectl"
DATA_BACKINGS: Mapping[str, int] = {
    **{name: number for name, number in BACKINGS.items() if name != "loaded"},
    GIGANTIC_PAGES: 5,
}
HUGE_PAGE_BYTES = 2 << 20
GIGANTIC_PAGE_BYTES = 1 << 30

_THP = "sys/kernel/mm/transparent_hugepage"
_POOLS = {
    "hugetlb": "sys/kernel/mm/hugepages/hugepages-2048kB",
    _PROGRAMS_ONLY: "sys/kernel/mm/hugepages/hugepages-2048kB",
    GIGANTIC_PAGES: "sys/kernel/mm/hugepages/hugepages-1048576kB",
}
_MADV_COLLAPSE = 25  # mmap of Python 3.11 has no name for it
_COLLAPSE_SINCE = (6, 1)


def page_words(backing: str) -> str:
    """The size of a backing's pages in words.

    >>> page_words("4k"), page_words("thp"), page_words("hugetlb_1g")
    ('4 KiB', '2 MiB', '1 GiB')
    """
    return {SMALL_PAGES: "4 KiB", GIGANTIC_PAGES: "1 GiB"}.get(backing, "2 MiB")


# --- beforehand ----------------------------------------------------------------------------------


def why_not(
    name: str,
    root: Path = Path("/"),
    pages_needed: int = 0,
    *,
    may_reserve: bool | None = None,
    which: Callable[[str], str | None] = shutil.which,
) -> str:
    """Say why a backing cannot be had here, and what would enable it; empty: it should work.

    Parameters
    ----------
    name
        One of `BACKINGS` or `DATA_BACKINGS`, or ``hugectl``.
    root
        Where ``proc`` and ``sys`` are looked for.
    pages_needed
        For those of a pool: how many of its pages there must be (0: one).
    may_reserve
        Whether the pool may be enlarged, so that its size does not matter; ``None``: look whether
        this process may write to the setting.
    which
        Finds the program hugectl.

    Raises
    ------
    UserError
        There is no such backing.

    Examples
    --------
    >>> why_not("4k")
    ''
    """
    known = [*dict.fromkeys((*BACKINGS, *DATA_BACKINGS)), _PROGRAMS_ONLY]
    if name not in known:
        raise UserError(choose("page backing", name, known))
    if name in ("thp", "collapse"):
        return _no_transparent_pages(root) or (
            _thp_is_off(root) if name == "thp" else _no_collapse(root)
        )
    if name in _POOLS:
        lacking = _no_hugectl(which) if name == _PROGRAMS_ONLY else ""
        lacking = lacking or _small_pool(root, name, max(pages_needed, 1), may_reserve)
        return lacking or (_no_mount(root) if name == _PROGRAMS_ONLY else "")
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


# --- the pool ------------------------------------------------------------------------------------


def pool_pages(root: Path = Path("/"), name: str = "hugetlb") -> tuple[int, int]:
    """A backing's pool of reserved pages: how many there are, and how many are still to be had.

    A page that is free but promised to a mapping that has not touched it yet is not to be had.
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
    to_be_had = free + max(0, overcommit - surplus)
    if to_be_had >= needed or (may_reserve and setting):
        return ""
    if total == 0:
        state = f"the pool of huge pages is empty, and {needed} of {words} are needed"
    else:
        state = (
            f"{to_be_had} of the pool's {total} huge pages are free, and {needed} of {words} are "
            "needed"
        )
    wanted = total + needed - to_be_had
    if not setting:
        return f"{state}. As root: echo {wanted} | sudo tee /{_POOLS[name]}/nr_hugepages"
    command = knob(setting).command(str(wanted), root)
    return (
        f"{state}. Root may reserve them: perflib does so by itself when it runs as root, and "
        f"gives them back; or: {command}"
    )


def _no_hugectl(which: Callable[[str], str | None]) -> str:
    if which("hugectl") is not None:
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


# --- afterwards ----------------------------------------------------------------------------------

_ARGUMENT, _MAP, _ADVISE, _COLLAPSE, _PROTECT, _MOVE = range(1, 7)
_STAGES = {
    _ARGUMENT: "its arguments",
    _MAP: "to map memory for the copy",
    _ADVISE: "to tell the kernel which pages the copy wants (madvise)",
    _COLLAPSE: "to put the copy on huge pages (MADV_COLLAPSE)",
    _PROTECT: "to make the copy executable (mprotect)",
    _MOVE: "to move the copy over the text (mremap)",
}
_EMPTY_POOL = (
    "the pool of huge pages has too few left: name it in backings and run as root, and "
    "perflib reserves what it needs and gives it back"
)
_NO_COLLAPSE = (
    "this kernel is older than 6.1, or was built without transparent huge pages, or they are "
    "forbidden to this process"
)
_FRAGMENTED = (
    "there are no 2 MiB of free memory in one piece: it is fragmented, or a control group allows "
    "no more. As root: echo 1 | sudo tee /proc/sys/vm/compact_memory"
)
_NO_MEMORY = "there is not enough memory, or a limit (ulimit -v, a control group) allows no more"
_FORBIDDEN = (
    "a security policy forbids memory that was written to become executable (SELinux execmem, "
    "systemd's MemoryDenyWriteExecute, a seccomp filter)"
)
_MISALIGNED = (
    "the loader did not align the library to 2 MiB, as the C library does from glibc 2.35 on; or "
    "the pattern or its size is none that was built"
)
_NO_RESERVED = "this kernel has no pool of huge pages (CONFIG_HUGETLBFS)"
_LIMITED_POOL = (
    "a control group allows this process no page of the pool (hugetlb.2MB.max, hugetlb.1GB.max), "
    "as containers do that were not given any"
)
_CAUSES: Mapping[tuple[int, int], str] = {
    (_ARGUMENT, errno.EINVAL): _MISALIGNED,
    (_ARGUMENT, errno.ERANGE): "there is less of this code than was requested",
    (_MAP, errno.ENOMEM): _NO_MEMORY,
    (_ADVISE, errno.EINVAL): "this kernel was built without transparent huge pages",
    (_COLLAPSE, errno.EINVAL): _NO_COLLAPSE,
    (_COLLAPSE, errno.EAGAIN): _FRAGMENTED,
    (_COLLAPSE, errno.ENOMEM): _FRAGMENTED,
    (_COLLAPSE, errno.EBUSY): _FRAGMENTED,
    (_PROTECT, errno.EACCES): _FORBIDDEN,
    (_PROTECT, errno.EPERM): _FORBIDDEN,
    (_PROTECT, errno.ENOMEM): _NO_MEMORY,
    (_MOVE, errno.ENOMEM): _NO_MEMORY,
}
_CAUSES_WITH_POOL: Mapping[tuple[int, int], str] = {
    (_MAP, errno.ENOMEM): _EMPTY_POOL,
    (_MAP, errno.EINVAL): _NO_RESERVED,
    (_MAP, errno.ENODEV): _NO_RESERVED,
    (_MAP, errno.ENOSYS): _NO_RESERVED,
    (_MAP, errno.EFAULT): _LIMITED_POOL,
    (_MOVE, errno.EINVAL): "Linux before 5.16 cannot move pages of the pool",
}
_NO_FILE = "the library's file is no longer what the loader mapped: it was deleted or replaced"
_CAUSES_OF_LOADED: Mapping[tuple[int, int], str] = {
    (_ARGUMENT, errno.EINVAL): (
        "no loader mapped this pattern, whose code is made when it is laid; or it was never built"
    ),
    (_MAP, errno.ENOENT): _NO_FILE,
    (_MAP, errno.ESTALE): _NO_FILE,
}
_CAUSES_OF = {
    "hugetlb": _CAUSES_WITH_POOL,
    GIGANTIC_PAGES: _CAUSES_WITH_POOL,
    "loaded": _CAUSES_OF_LOADED,
}


def explain(name: str, answer: int) -> str:
    """The sentence for an answer of the kernels' ``code_lay()``; empty for 0.

    Parameters
    ----------
    name
        The backing that was to be laid.
    answer
        ``stage * 65536 + errno``. Stages: 1 argument, 2 map, 3 advise, 4 collapse, 5 protect,
        6 move.

    Examples
    --------
    >>> explain("4k", 0)
    ''
    >>> explain("collapse", 4 * 65536 + errno.EINVAL)[:62]
    'could not put the copy on huge pages (MADV_COLLAPSE): Invalid '
    """
    if answer == 0:
        return ""
    stage, number = divmod(answer, 1 << 16)
    what = _STAGES.get(stage)
    said = f"{os.strerror(number)} ({errno.errorcode.get(number, number)})"
    if what is None:
        return f"code_lay() answered {answer}, which means no stage of it: {said}"
    start = f"code_lay() refused {what}" if stage == _ARGUMENT else f"could not {what[3:]}"
    key = (stage, number)
    cause = _CAUSES_OF.get(name, {}).get(key) or _CAUSES.get(key)
    return f"{start}: {said}: {cause}" if cause else f"{start}: {said}"
