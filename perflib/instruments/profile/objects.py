"""The object files that a profile's samples are in: which build is it, and is it still here?"""

from __future__ import annotations

from pathlib import Path


def build_id(path: str | Path) -> str:
    """The GNU build id of an ELF file, in hexadecimal; empty where there is no file or no id.

    The linker makes it from the contents: two files with one id are the same build, whatever
    their times and names.

    Examples
    --------
    >>> build_id("/no/such/file")
    ''
    """
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import NoteSegment

    place = Path(path)
    try:
        if not place.is_file():  # a pipe would be waited for
            return ""
        with place.open("rb") as file:
            for segment in ELFFile(file).iter_segments("PT_NOTE"):
                assert isinstance(segment, NoteSegment)
                for note in segment.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
    except (OSError, ValueError, LookupError, AssertionError, ELFError, ConstructError):
        pass  # it cannot be read, is cut off or damaged
    return ""
