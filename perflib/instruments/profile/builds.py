"""What two builds' files say of their code: is it the same, what was renamed, moved, inlined?

The files are read once, after the measurement: what is found is data, so that a saved run can be
analysed where the builds are gone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from perflib.instruments.profile.disassembly import Instruction, disassemble, find, tool
from perflib.instruments.profile.objects import build_id
from perflib.model.errors import MeasurementError

PROGRAM = "the program"
"""What both builds' own files are called, whatever their names."""
_MIN_SAMPLES = 20  # of a function whose code is read
_MAX_FUNCTIONS = 40  # of each build, the costliest: one disassembly each
_MAX_BYTES = 32 << 20  # of a program whose whole code is compared
_SAME_TEXT = 0.85  # share of equal instructions from which a function is another one renamed
_MIN_RENAMED = 8  # instructions: shorter functions resemble each other by chance
_INLINED = 0.5  # share of a function's sampled lines that its new place has, at least

# What compilers append to a function's name when they clone it or take a part out of it.
_CLONE = re.compile(
    r"(?:\.(?:constprop|isra|part|cold|lto_priv|llvm)(?:\.\d+)*)+$| \[clone [^\]]*\]"
)
_PADDING = re.compile(r"^(?:data16 |cs )*(?:nop\w?\b|xchg +%ax,%ax$)")
_PLACE = re.compile(r"-?0x[0-9a-f]+(?=\(%rip\))|(?<=# )[0-9a-f]+ |\b[0-9a-f]+ (?=<)")
_JUMP = re.compile(r"(?<=[^>])\+0x[0-9a-f]+>$")
_HEAD = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_CODE = re.compile(r"^ *[0-9a-f]+:\t(.*)$")


def canonical(name: str) -> str:
    """A function's name without what a compiler appends to it.

    >>> canonical("track.constprop.0"), canonical("f(int) [clone .part.3]"), canonical("a.out")
    ('track', 'f(int)', 'a.out')
    """
    return _CLONE.sub("", name)


def library(name: str, program: str) -> str:
    """A short name of an object, the same for both builds; ``program``: the build's own file.

    >>> library("/b/job", "/b/job"), library("/b/libphys.so.1", "/b/job"), library("[vdso]", "")
    ('the program', 'libphys.so.1', '[vdso]')
    """
    plain = name.removesuffix(" (deleted)")
    if plain == program:
        return PROGRAM
    return "the kernel" if plain.startswith("[kernel") else plain.rpartition("/")[2] or plain


def stripped(instruction: str) -> str:
    """An instruction without the places of code and data, but with their names.

    >>> stripped("jne    1136 <work+0x16>"), stripped("mov 0x2f(%rip),%eax   # 4028 <limit>")
    ('jne <work>', 'mov (%rip),%eax # <limit>')
    """
    text = _PLACE.sub("", " ".join(instruction.split()))
    return text if "#" in text else _JUMP.sub(">", text)


class Function(NamedTuple):
    """A function of one build that has samples."""

    name: str
    object: str
    code: list[Instruction]

    def texts(self) -> list[str]:
        """Its instructions, to be compared with another's: no padding, no place, no own name."""
        own = f"<{self.name}>"
        shown = (stripped(one.text).replace(own, "<>") for one in self.code)
        return [text for text in shown if not _PADDING.match(text)]


def facts_of(samples: Mapping[str, pd.DataFrame], programs: Mapping[str, str]) -> dict[str, Any]:
    """What the files of two builds say of the functions with samples.

    ``samples``: of each build ``symbol``, ``object``, ``offset``, ``count``; ``programs``: its
    own file.

    Returns
    -------
    ``programs``; ``same_code``: whether nothing but places differs in the builds' code and
    constants (None: not known); ``functions``: of each function with samples in both, ``same`` or
    ``differs``; ``lines``: for each build and function ``[offset, line]``, from where on code is
    of a line; ``changes``: what was renamed, moved, split, inlined, or is in one build alone;
    ``remarks``.
    """
    a, b = samples
    functions = {build: _functions(samples[build]) for build in samples}
    numbers = _renumbered(functions[a], functions[b])
    lines = {
        build: {one.name: _lines(one, numbers if build == b else {}) for one in found}
        for build, found in functions.items()
    }
    named = {
        build: {canonical(one.name): one for one in reversed(found)}
        for build, found in functions.items()
    }
    pairs = {name: (named[a][name], named[b][name]) for name in sorted(named[a].keys() & named[b])}
    no_lines = "The builds have no line numbers: compile with -g to see source lines."
    return {
        "programs": dict(programs),
        "same_code": same_code(Path(programs[a]), Path(programs[b])),
        "functions": {
            name: "same" if old.texts() == new.texts() else "differs"
            for name, (old, new) in pairs.items()
            if old.code and new.code
        },
        "lines": lines,
        "changes": [*_of_one(samples, functions, programs, lines), *_elsewhere(pairs, programs)],
        "remarks": [] if any(any(one.values()) for one in lines.values()) else [no_lines],
    }


def _functions(samples: pd.DataFrame) -> list[Function]:
    """The costliest functions with their code; without, where there is no file or no symbol."""
    counts = samples.groupby(["symbol", "object"], observed=True)["count"].sum()
    counts = counts[counts >= _MIN_SAMPLES].nlargest(_MAX_FUNCTIONS)
    found = []
    for name, object_ in counts.reset_index()[["symbol", "object"]].itertuples(index=False):
        code: list[Instruction] = []
        if _is_file(object_):
            with contextlib.suppress(MeasurementError):  # stripped: it is compared by name alone
                places, _ = find(Path(object_), {name})
                code = [line for at in places for line in disassemble(Path(object_), at)]
        found.append(Function(name, object_, code))
    return found


def _is_file(name: str) -> bool:
    return name.startswith("/") and Path(name).is_file()


# --- lines ---------------------------------------------------------------------------------------


def _lines(function: Function, numbers: Mapping[str, Mapping[int, str]]) -> list[list[Any]]:
    """From which offset on the code is of which line; ``numbers``: what lines are called."""
    found: list[list[Any]] = []
    for one in function.code:
        if one.source_file is None or one.source_line is None:
            continue
        number = numbers.get(one.source_file, {}).get(one.source_line, str(one.source_line))
        line = f"{Path(one.source_file).name}:{number}"
        if not found or found[-1][1] != line:
            found.append([one.address - function.code[0].address, line])
    return found


def _renumbered(*sides: list[Function]) -> dict[str, dict[int, str]]:
    """What lines of the second build's sources are called: the first's number, or ``+`` if new."""
    first, second = (
        {one.source_file for function in side for one in function.code if one.source_file}
        for side in sides
    )
    by_name = {Path(path).name: path for path in sorted(first)}
    made = {}
    for path in second - first:
        with contextlib.suppress(KeyError, OSError):
            both = Path(by_name[Path(path).name]), Path(path)
            before, after = (one.read_text(errors="replace").splitlines() for one in both)
            made[path] = _matched(before, after)
    return made


def _matched(before: list[str], after: list[str]) -> dict[int, str]:
    """Of each line of ``after``, from 1, the number that it had, or ``+`` and its own.

    >>> _matched(["a", "b"], ["a", "new", "b"])
    {1: '1', 2: '+2', 3: '2'}
    """
    numbers = {number: f"+{number}" for number in range(1, len(after) + 1)}
    for kind, i, i_end, j, j_end in SequenceMatcher(None, before, after, False).get_opcodes():
        if kind == "equal" or (kind == "replace" and i_end - i == j_end - j):
            numbers |= {j + at + 1: str(i + at + 1) for at in range(j_end - j)}
    return numbers


# --- what became of functions --------------------------------------------------------------------


def _of_one(
    samples: Mapping[str, pd.DataFrame],
    functions: Mapping[str, list[Function]],
    programs: Mapping[str, str],
    lines: Mapping[str, Mapping[str, list[list[Any]]]],
) -> Iterator[dict[str, str]]:
    """Functions that one build has not, by their name: renamed, inlined, or gone."""
    a, b = samples
    met = {build: set(map(canonical, samples[build]["symbol"].unique())) for build in samples}
    alone = {
        build: {
            canonical(one.name): one for one in functions[build]
            if canonical(one.name) not in met[other] and one.name != "[unknown]"
            and not _defined(one, build, samples[other], programs)
        }
        for build, other in ((a, b), (b, a))
    }  # fmt: skip
    for old, new in _renamed([*alone[a].values()], [*alone[b].values()]):
        yield _change(canonical(old.name), "renamed", canonical(old.name), new.name)
        del alone[a][canonical(old.name)], alone[b][canonical(new.name)]
    for build, other in ((a, b), (b, a)):
        for name, one in alone[build].items():
            where = _inlined(lines[build][one.name], lines[other])
            sides = (name, where) if build == a else (where, name)
            yield _change(name, "inlined" if where else "only", *sides)


def _elsewhere(
    pairs: Mapping[str, tuple[Function, Function]], programs: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Functions of both builds that are in another library, or are cut differently."""
    for name, (old, new) in pairs.items():
        first, second = map(library, (old.object, new.object), programs.values())
        if first != second:
            yield _change(name, "moved", first, second)
        elif old.name != new.name:
            yield _change(name, "split", old.name, new.name)


def _change(function: str, kind: str, first: str, second: str) -> dict[str, str]:
    return {"function": function, "kind": kind, "first": first, "second": second}


def _defined(
    function: Function, build: str, other: pd.DataFrame, programs: Mapping[str, str]
) -> bool:
    """Whether the other build has the function, too: no sample of a cheap one says nothing."""
    name = library(function.object, programs[build])
    theirs = next(one for key, one in programs.items() if key != build)
    for path in {*other["object"].unique(), theirs}:
        if library(path, theirs) == name and _is_file(path):
            with contextlib.suppress(MeasurementError):
                find(Path(path), {function.name, canonical(function.name)})
                return True
    return not function.code  # without symbols nothing says that it is gone


def _renamed(first: list[Function], second: list[Function]) -> list[tuple[Function, Function]]:
    """Functions of one build alone whose code is another's of the other alone, closest first."""
    texts = {one.name: one.texts() for one in (*first, *second)}
    alike = [
        (SequenceMatcher(None, texts[old.name], texts[new.name], False).ratio(), old, new)
        for old in first
        for new in second
        if min(len(texts[old.name]), len(texts[new.name])) >= _MIN_RENAMED
    ]
    pairs: list[tuple[Function, Function]] = []
    for ratio, old, new in sorted(alike, key=lambda one: -one[0]):
        taken = {one.name for pair in pairs for one in pair}
        if ratio >= _SAME_TEXT and not {old.name, new.name} & taken:
            pairs.append((old, new))
    return pairs


def _inlined(lines: list[list[Any]], others: Mapping[str, list[list[Any]]]) -> str:
    """The function of the other build that has most of a function's lines; empty: there is none."""
    mine = {line for _, line in lines}
    shares = [(len(mine & {line for _, line in one}), name) for name, one in others.items()]
    share, name = max(shares, default=(0, ""))
    return name if mine and share >= _INLINED * len(mine) else ""


# --- the whole code ------------------------------------------------------------------------------


def same_code(first: Path, second: Path) -> bool | None:
    """Whether two programs differ in nothing but the places of their code; None: not known.

    All functions have the same instructions, padding aside, and constants and initial data the
    same bytes. Libraries are not compared.
    """
    from elftools.common.exceptions import ELFError

    if (known := build_id(first)) and known == build_id(second):
        return True
    try:
        if max(first.stat().st_size, second.stat().st_size) > _MAX_BYTES:
            return None
        if _constants(first) != _constants(second):
            return False
        code = _all_code(first)
        return code == _all_code(second) if code else None
    except (OSError, MeasurementError, ELFError):  # a script
        return None


def _all_code(path: Path) -> dict[str, list[str]]:
    """The instructions of every function; those of one name together."""
    found: dict[str, list[str]] = {}
    mine: list[str] = []
    text = tool("objdump", "--disassemble", "--demangle", "--wide", "--no-show-raw-insn", str(path))
    for line in text.splitlines():
        if head := _HEAD.match(line):
            mine = found.setdefault(head[1], [])
        elif (code := _CODE.match(line)) and not _PADDING.match(code[1].strip()):
            mine.append(stripped(code[1]))
    return found


def _constants(path: Path) -> dict[str, bytes]:
    """The bytes of constants and initial data."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        sections = {one.name: one for one in ELFFile(file).iter_sections()}
        return {name: sections[name].data() for name in (".rodata", ".data") if name in sections}
