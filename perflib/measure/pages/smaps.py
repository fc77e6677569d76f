"""Which pages are under a range of addresses: what the kernel says in /proc/PID/smaps.

Asking for huge pages is no promise: the kernel gives small ones where it has none, and some file
systems give huge ones unasked. What a range is on is read here, before and after a sample.

The counts of smaps (Documentation/filesystems/proc.rst of the kernel) belong to whole mappings,
not to a part of one, and know huge pages of 2 MiB only where one entry of the page table maps
them: pages of 16 KiB to 1 MiB (multi-size THP) count as small. MADV_NOHUGEPAGE forbids those, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perflib.measure.pages.kinds import (
    GIGANTIC_PAGE_BYTES,
    GIGANTIC_PAGES,
    SMALL_PAGE_BYTES,
    page_words,
)
from perflib.model.errors import MeasurementError, UserError, choose

# Each mapping begins with its addresses in lower case; all other lines begin with a capital.
_HEADER = re.compile(r"\n([0-9a-f]+)-([0-9a-f]+) (.*)")
_PATH_WORD = 3  # access, offset, device and inode stand before the path
_LAST_FIELD = "\nVmFlags:"

_TRANSPARENT = ("AnonHugePages",)
_RESERVED = ("Shared_Hugetlb", "Private_Hugetlb")
_OF_FILES = ("ShmemPmdMapped", "FilePmdMapped")
_KINDS = (*_TRANSPARENT, *_OF_FILES, *_RESERVED)

# What must make up the whole of the mappings.
_WHOLLY = {
    "thp": _TRANSPARENT,
    "collapse": _TRANSPARENT,
    "hugetlb": _RESERVED,
    "hugetlb_1g": _RESERVED,
    "hugectl": (*_RESERVED, *_OF_FILES),
}


@dataclass(frozen=True)
class TextPages:
    """The pages of a range of addresses; all sizes in bytes.

    Parameters
    ----------
    range_bytes
        The size of the range.
    mapped_bytes
        The part of it that is mapped at all.
    size_bytes
        The mappings that overlap it, as a whole. All that follows counts the whole of them, for
        smaps does not divide a mapping: where they are larger than the range, they may be huge in
        another part.
    resident_bytes
        In memory.
    huge_bytes
        On huge pages of any kind.
    by_kind
        The same by kind, as smaps names it (``AnonHugePages``); kinds of which there is nothing
        are left out.
    kernel_page_bytes
        The largest page size by which a mapping is managed: 4096, or 2 MiB or 1 GiB with hugetlb.
    files
        The files that are mapped.
    """

    range_bytes: int
    mapped_bytes: int
    size_bytes: int
    resident_bytes: int
    huge_bytes: int
    by_kind: Mapping[str, int]
    kernel_page_bytes: int
    files: tuple[str, ...]


def read(pid: int, root: Path = Path("/")) -> str:
    """The text of a process's smaps.

    Raises
    ------
    MeasurementError
        The process has ended, or this user may not read it.
    """
    path = root / f"proc/{pid}/smaps"
    try:
        # A path in it may hold any byte but a line feed: no translation of line ends.
        content = path.read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        content = ""
    except OSError as error:
        msg = (
            f"the pages of process {pid} cannot be seen: {path}: {error.strerror}. Its own user "
            "and root may look; a security policy (ptrace_scope, a container's) may forbid it"
        )
        raise MeasurementError(msg) from error
    if not content:
        msg = f"the pages of process {pid} cannot be seen: it has ended"
        raise MeasurementError(msg)
    return content


def backing_of(smaps: str, begin: int, end: int) -> TextPages:
    r"""The pages of the addresses from ``begin`` up to ``end``.

    Only the mappings that overlap the range are read in full: this is done twice for
    every sample.

    Raises
    ------
    MeasurementError
        The text ends in the middle of one of these mappings.

    Examples
    --------
    >>> text = (
    ...     "7f0000000000-7f0000400000 r-xp 00000000 00:00 0 \n"
    ...     "KernelPageSize:        4 kB\nRss:                4096 kB\n"
    ...     "AnonHugePages:      4096 kB\nVmFlags: rd ex mr mw me hg \n"
    ... )
    >>> pages = backing_of(text, 0x7F0000000000, 0x7F0000200000)
    >>> pages.mapped_bytes, pages.size_bytes, pages.by_kind
    (2097152, 4194304, {'AnonHugePages': 4194304})
    >>> violated("thp", pages)
    ''
    """
    if not 0 <= begin < end:
        msg = f"no range of addresses: from {begin:#x} up to {end:#x}"
        raise ValueError(msg)
    smaps = f"\n{smaps}"
    mapped = size = resident = page_bytes = 0
    by_kind: dict[str, int] = {}
    files: dict[str, None] = {}
    for header in _HEADER.finditer(smaps):
        first, last = int(header[1], 16), int(header[2], 16)
        if first >= end:  # they are sorted by address
            break
        if last <= begin:
            continue
        counts = _counts(smaps, header)
        mapped += min(last, end) - max(first, begin)
        size += last - first
        for kind in _KINDS:
            if counts.get(kind):
                by_kind[kind] = by_kind.get(kind, 0) + counts[kind]
        # The kernel leaves the pages of hugetlb out of Rss.
        resident += max(counts.get("Rss", 0), sum(counts.get(kind, 0) for kind in _RESERVED))
        page_bytes = max(page_bytes, counts.get("KernelPageSize", 0))
        path = header[3].split(maxsplit=_PATH_WORD + 1)[_PATH_WORD + 1 :]
        if path and path[0].startswith("/"):
            files[path[0]] = None
    return TextPages(
        range_bytes=end - begin,
        mapped_bytes=mapped,
        size_bytes=size,
        resident_bytes=resident,
        huge_bytes=sum(by_kind.values()),
        by_kind=by_kind,
        kernel_page_bytes=page_bytes,
        files=tuple(files),
    )


def _counts(smaps: str, header: re.Match[str]) -> dict[str, int]:
    """The sizes that are listed of one mapping, in bytes."""
    following = _HEADER.search(smaps, header.end())
    part = smaps[header.end() : following.start() if following else len(smaps)]
    if _LAST_FIELD not in part:
        # A count that was cut off would read as no huge page at all.
        msg = f"smaps ends in the middle of the mapping {header[1]}-{header[2]}"
        raise MeasurementError(msg)
    counts = {}
    for line in part.splitlines():
        words = line.split()
        if words[2:] == ["kB"]:
            counts[words[0].removesuffix(":")] = int(words[1]) << 10
    return counts


def violated(requested: str, found: TextPages) -> str:
    """Say that a range is not on the pages that were requested; empty: it is.

    Parameters
    ----------
    requested
        ``4k``: no huge page in any mapping that overlaps the range; ``thp`` and ``collapse``: all
        on transparent huge pages; ``hugetlb`` and ``hugetlb_1g``: all on pages of that size of the
        reserved pool; ``hugectl``: those of 2 MiB, or a file on huge pages; ``loaded``: anything.
        All but ``loaded`` want the whole range to be mapped.
    found
        The pages of the range.

    Raises
    ------
    UserError
        There is no such backing.
    """
    if requested == "loaded":
        return ""
    if requested != "4k" and requested not in _WHOLLY:
        raise UserError(choose("page backing", requested, ["loaded", "4k", *_WHOLLY]))
    start = f"requested pages of {page_words(requested)} ({requested})"
    if found.mapped_bytes < found.range_bytes:
        gap = found.range_bytes - found.mapped_bytes
        return f"{start}, but {_kib(gap)} of the {_kib(found.range_bytes)} are not mapped"
    if requested == "4k":
        small = not found.huge_bytes and found.kernel_page_bytes <= SMALL_PAGE_BYTES
        return "" if small else f"{start}, found {_description(found)}{_unasked(found)}"
    wholly = sum(found.by_kind.get(kind, 0) for kind in _WHOLLY[requested]) >= found.size_bytes
    gigantic = found.kernel_page_bytes >= GIGANTIC_PAGE_BYTES
    if not wholly:
        return f"{start}, found {_description(found)}"
    if gigantic != (requested == GIGANTIC_PAGES):
        return f"{start}, found pages of {_kib(found.kernel_page_bytes)}"
    return ""


def _description(found: TextPages) -> str:
    if not found.huge_bytes and found.kernel_page_bytes > SMALL_PAGE_BYTES:
        return f"a mapping of huge pages that are not there yet (of {_kib(found.size_bytes)})"
    kinds = ", ".join(f"{kind} {_kib(count)}" for kind, count in found.by_kind.items())
    return f"{kinds or 'no huge page'} of {_kib(found.size_bytes)}"


def _unasked(found: TextPages) -> str:
    if "FilePmdMapped" not in found.by_kind:
        return ""
    return (
        f": the file system gave {' and '.join(found.files) or 'the file'} huge pages unasked, as "
        "some do with a file that was written at one go"
    )


def _kib(size_bytes: int) -> str:
    return f"{size_bytes >> 10} KiB"
