"""What the lines of a CSV file are, before it is read: no line of it is lost in silence."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perflib.model.errors import UserError
from perflib.model.escape import visible

_DELIMITERS = (",", ";", "\t", "|")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_SHOWN = 60  # characters of a line in a sentence
_COMMENT = "#"


@dataclass(frozen=True)
class CsvForm:
    """How a file is to be read: its delimiter, the lines before its header, and its comments."""

    delimiter: str
    preamble: int
    comments: frozenset[int] = frozenset()  # lines behind the header, from 0


def csv_form(path: Path, held: Path) -> CsvForm:
    """The form of a CSV file each of whose lines is a sample, a comment, or before the header.

    ``held``: where it is read; ``path`` is its name.

    Raises
    ------
    UserError
        A line is something else; it is named by its number, from 1.
    """
    text = _text(path, held)
    lines = [line.removesuffix("\r") for line in text.split("\n")]  # not at each Unicode line end
    content = [number for number, line in enumerate(lines) if _is_content(line)]
    if not content:
        msg = f"{path} has no lines but comments"
        raise UserError(msg)
    delimiter, first = next(
        filter(None, (_header(lines, number) for number in content)), (",", content[0])
    )
    _check_ends(text, path)
    comments: set[int] = set()
    records = _records(lines, first, delimiter, comments)
    _, header = next(records)
    for number, fields in records:
        if fields == header:
            raise UserError(_second(path, number, "the header again", lines))
        if len(fields) != len(header):
            what = f"of {_columns(fields)} where the header has {_columns(header)}"
            raise UserError(_second(path, number, what, lines))
    return CsvForm(delimiter, first, frozenset(comments))


def _text(path: Path, held: Path) -> str:
    data = held.read_bytes()
    if data.startswith(_UTF_16) or b"\0" in data[:200]:
        msg = f"{path} is UTF-16: save it as UTF-8 (iconv -f UTF-16 -t UTF-8 {path})"
        raise UserError(msg)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        msg = (
            f"{path}: line {line} is no UTF-8 (byte {data[error.start]:#04x}; Latin-1, perhaps: "
            f"iconv -f ISO-8859-1 -t UTF-8 {path})"
        )
        raise UserError(msg) from error


def _header(lines: list[str], first: int) -> tuple[str, int] | None:
    """The delimiter with which this line has as many columns as the next one, two or more."""
    for delimiter in _DELIMITERS:
        records = [fields for _, fields in itertools.islice(_records(lines, first, delimiter), 2)]
        if len(records[0]) > 1 and len(records[-1]) == len(records[0]):
            return delimiter, first
    return None


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(_COMMENT)


def _records(
    lines: list[str], first: int, delimiter: str, comments: set[int] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Each record's first line, from 1, and its fields; a quoted field may hold line ends."""
    begun = [first]

    def kept() -> Iterator[str]:
        within = False
        for number, line in enumerate(lines[first:], first):
            if not within and not _is_content(line):
                if comments is not None and line:
                    comments.add(number)
                continue
            if not within:
                begun[0] = number
            within ^= line.count('"') % 2 == 1
            yield f"{line}\n"

    for fields in csv.reader(kept(), delimiter=delimiter):
        yield begun[0] + 1, fields


def _check_ends(text: str, path: Path) -> None:
    windows, all_ends = text.count("\r\n"), text.count("\n")
    if windows in (0, all_ends):
        return
    ends = [line.endswith("\r") for line in text.split("\n")[:-1]]
    odd = ends.index(not ends[0]) + 1
    msg = (
        f"{path}: line {odd} ends otherwise than those before it (\\r\\n): sed -i 's/\\r$//' {path}"
    )
    raise UserError(msg)


def _columns(fields: list[str]) -> str:
    return "1 column" if len(fields) == 1 else f"{len(fields)} columns"


def _second(path: Path, number: int, what: str, lines: list[str]) -> str:
    shown = visible(lines[number - 1])[:_SHOWN]
    return f"{path}: line {number} is {what} ({shown!r}): one file holds one table"
