"""Repeat a compiled C file's machine code: a large code segment without a large compile time.

gcc's cost grows faster than the code; assembling does not. So one copy is compiled to assembly and
the text is repeated with every label renamed. Each copy has symbols (``kv_step_0042``) and
unwind tables of its own, so a profiler sees functions like any other, and a section of its own: the
assembler's time grows with the square of a section's length. A file compiled with ``-g`` cannot be
repeated: its tables of line numbers name one file.
"""

from __future__ import annotations

import re
from pathlib import Path

from perflib.model.errors import MeasurementError

# What a copy defines: its labels, the names that gcc gives to parts of constants (.set), and its
# static variables that begin as zero (.local).
_NAME = r"([A-Za-z_.$][\w.$]*)"
_LABEL = re.compile(rf"^{_NAME}:|^\s*\.(?:set|local)\s+{_NAME}", re.MULTILINE)
_TEXT = re.compile(r"^\s*(?:\.text|\.section\s+\.text\b.*)$", re.MULTILINE)
_ENTRY = re.compile(r"^\s*\.globa?l\s+(\w+)", re.MULTILINE)
_WORDS = re.compile(r"^\s*\.(?:string|ascii|asciz|file|ident)\b")  # text, not names
_MARK = "\x00"


def repeat(single: Path, repeated: Path, copies: int) -> None:
    """Write ``copies`` renamed copies of the assembly ``single``, and a table of their entries.

    For the one global function ``f`` of the file the table is ``f_copies`` (pointers), its length
    ``f_count`` (a 64-bit integer); the code of all copies is between ``f_begin`` and ``f_end``.
    """
    text = single.read_text()
    entries = [name for name in _ENTRY.findall(text) if re.search(rf"^{name}:", text, re.MULTILINE)]
    if len(entries) != 1:
        msg = f"{single}: one global function was expected to be repeated, found {entries}"
        raise MeasurementError(msg)
    entry = entries[0]
    labels = sorted({label or name for label, name in _LABEL.findall(text)}, key=len, reverse=True)
    pattern = re.compile(r"(?<![\w.$])(" + "|".join(map(re.escape, labels)) + r")(?![\w.$])")
    template = "\n".join(
        line if _WORDS.match(line) else pattern.sub(rf"\1{_MARK}", line)
        for line in text.splitlines()
    )
    section = f'\t.section\t.text.{entry}{_MARK},"ax",@progbits'
    pieces = _TEXT.sub(section, template).split(_MARK)

    def bound(name: str, copy: int) -> str:
        where = section.replace(_MARK, f"_{copy:04d}")
        return f"{where}\n\t.globl {entry}_{name}\n{entry}_{name}:\n"

    with repeated.open("w") as out:
        out.write(bound("begin", 0))
        for copy in range(copies):
            out.write(f"_{copy:04d}".join(pieces))
            out.write("\n")
        out.write(bound("end", copies - 1))
        out.write('\n\t.section .data.rel.ro,"aw"\n\t.balign 8\n')
        for symbol, lines in (
            (f"{entry}_copies", [f"\t.quad {entry}_{copy:04d}" for copy in range(copies)]),
            (f"{entry}_count", [f"\t.quad {copies}"]),
        ):
            out.write(f"\t.globl {symbol}\n\t.type {symbol}, @object\n")
            out.write(f"\t.size {symbol}, {8 * len(lines)}\n{symbol}:\n")
            out.write("\n".join(lines) + "\n")
        out.write('\t.section .note.GNU-stack,"",@progbits\n')
