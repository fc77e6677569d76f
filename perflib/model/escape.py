"""Names are data: how a text from anywhere stands in a terminal, a figure, a CSV file, a file name.

Names of functions, threads, processes, hosts, runs and files come from programs and from strangers;
none of them may be an instruction to what shows it. HTML has Jinja's and the library's own escape.
"""

from __future__ import annotations

import hashlib
import re

_FORMULA = re.compile(r"'*[=+\-@\t\r]")  # how a spreadsheet's formula begins, escaped or not
_NO_WIDTH = "\u200b"
_UNFIT = re.compile(r"[/\\]|^[-.]")  # in a file's name, apart from what is not printable
_MAX_NAME_BYTES = 180  # of 255: there is room for a suffix and a temporary file's mark
_HASH_DIGITS = 8


def visible(text: str) -> str:
    r"""A text in one line, what no one would see in it written as Python writes it.

    That is control characters (a terminal obeys them), line ends, marks that turn the direction of
    writing, and halves of characters that no encoding has.

    >>> visible("\x1b[2J\n\u202e"), visible("_LT$impl$u20$Größe")
    ('\\x1b[2J\\n\\u202e', '_LT$impl$u20$Größe')
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def lines(text: str) -> str:
    """A text of several lines as a terminal may have it: each line `visible`, tabs as blanks."""
    return "\n".join(map(visible, text.expandtabs().split("\n")))


def in_legend(text: str) -> str:
    """A label that a legend has, too: matplotlib leaves out what begins with an underscore.

    A sign without width stands before it.
    """
    return _NO_WIDTH + text if text.startswith("_") else text


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters: what is in the middle of a longer one is left out.

    >>> shortened("abcdefghij", 5)
    'ab…ij'
    """
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def csv_cell(text: str) -> str:
    r"""A text as a CSV file has it: a spreadsheet takes none for a formula.

    An apostrophe stands before what begins like one; `from_csv_cell` takes it away.

    >>> csv_cell("=1+2"), csv_cell("main"), csv_cell("'=1")
    ("'=1+2", 'main', "''=1")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def from_csv_cell(text: str) -> str:
    """The text that `csv_cell` was given.

    >>> from_csv_cell(csv_cell("'=1")), from_csv_cell("it's")
    ("'=1", "it's")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def file_name(text: str) -> str:
    r"""A text as the name of a file: in no other folder, no option, no longer than names may be.

    What is fit stays as it is. Other texts keep a part of theirs, and end in eight digits of a hash
    that keep them apart.

    >>> file_name("kv_per_core-20260102-030405-node17-7k2m9qx4tb")
    'kv_per_core-20260102-030405-node17-7k2m9qx4tb'
    >>> file_name("../../bin")
    '_._.._bin-511be466'
    """
    if text.isprintable() and not _UNFIT.search(text) and 0 < len(text.encode()) <= _MAX_NAME_BYTES:
        return text
    plain = _UNFIT.sub("_", "".join(one if one.isprintable() else "_" for one in text))
    digits = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_HASH_DIGITS]
    kept = plain.encode()[: _MAX_NAME_BYTES - _HASH_DIGITS - 1].decode(errors="ignore")
    return f"{kept or '_'}-{digits}"
