"""What a kernel's C file declares, and what can be built from it."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflib.kernels.levels import flags_of
from perflib.kernels.records import declarations, included
from perflib.model.errors import UserError, choose
from perflib.store import paths

BASE_FLAGS = ("-std=gnu11", "-Wall", "-Wextra")


@dataclass(frozen=True)
class Source:
    """One kernel's source as declared: its file, its flags, its interface and its variants."""

    name: str
    path: Path
    cdef: str
    flags: tuple[str, ...]
    link: tuple[str, ...]
    copied: Path | None
    define: dict[str, int]
    variants: dict[str, dict[str, Any]]
    bundle: tuple[str, ...]
    fixed: bool

    def parts(self, variant: str | None) -> list[dict[str, Any]]:
        """What a variant changes; of objects that are linked (``a+b``), what each changes."""
        named = [] if variant is None else variant.split("+")
        for name in named:
            if name not in self.variants:
                raise UserError(choose(f"variant of kernel {self.name!r}", name, self.variants))
        return [self.variants[name] for name in named] or [{}]

    def definitions(self, wanted: Mapping[str, int] | None) -> dict[str, int]:
        """Every definition that the kernel declares, with the values wanted instead of its own."""
        values: dict[str, Any] = {**self.define, **(wanted or {})}
        for name, value in values.items():
            if name not in self.define:
                raise UserError(choose(f"definition of kernel {self.name!r}", name, self.define))
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                msg = f"kernel {self.name!r}: {name} must be a positive whole number, not {value!r}"
                raise UserError(msg)
        return values

    def bundled(self) -> Iterator[tuple[str | None, bool]]:
        """What a bundle has of the kernel: variants, each as a library or (true) as a program."""
        objects = []
        for variant in (None, *self.variants):
            (changed,) = self.parts(variant)
            kinds = changed.get("bundle", self.bundle)
            for kind in ("library", "program"):
                if kind in kinds:
                    yield variant, kind == "program"
            if variant is not None and "object" in kinds:
                objects.append(variant)
        if objects:
            for order in itertools.permutations(objects):
                yield "+".join(order), True


@dataclass(frozen=True)
class Request:
    """One requested build: all that decides what comes out, but the compiler."""

    source: Source
    variant: str | None
    copies: int | None
    define: dict[str, int]
    executable: bool

    def flags(self, level: str) -> tuple[str, ...]:
        """The compiler's flags for a level; those of linked objects one after the other."""
        parts = self.source.parts(self.variant)
        declared = (flag for part in parts for flag in part.get("flags", self.source.flags))
        return *declared, *self.level_flags(level)

    def level_flags(self, level: str) -> tuple[str, ...]:
        """What a level adds to the flags of the kernel, and of each of its objects."""
        return () if self.source.fixed else flags_of(level)

    @property
    def pieces(self) -> tuple[Path, int, tuple[str, ...]] | None:
        """C whose objects are linked behind the kernel: its file, how many, the flags of each."""
        declared = self.source.parts(self.variant)[0].get("pieces")
        if declared is None:
            return None
        file = self.source.path.parent / declared["file"]
        return file, int(declared["count"]), tuple(declared["flags"])

    @property
    def link(self) -> tuple[str, ...]:
        """The linker's flags."""
        return tuple(self.source.parts(self.variant)[0].get("link", self.source.link))

    @property
    def key(self) -> str:
        """The request as text, the same for the same."""
        defined = sorted(self.define.items())
        return json.dumps([self.source.name, self.variant, self.copies, defined, self.executable])

    @property
    def contents(self) -> list[bytes]:
        """The kernel's file, then its copied part, its pieces and every header of ours in them."""
        copied = [self.source.copied] if self.source.copied else []
        pieces = [self.pieces[0]] if self.pieces else []
        found = included([self.source.path, *copied, *pieces])
        others = sorted({*copied, *pieces, *found})
        return [file.read_bytes() for file in (self.source.path, *others)]

    def __str__(self) -> str:
        words = [f"kernel {self.source.name!r}"]
        words += [f"variant {self.variant}"] if self.variant is not None else []
        words += [f"{self.copies} copies"] if self.copies is not None else []
        words += [f"{name}={value}" for name, value in self.define.items()]
        return ", ".join([*words, "as a program" if self.executable else "as a library"])


def digest(*parts: str | bytes) -> str:
    """The SHA-256 of several pieces, wherever one ends and the next begins."""
    state = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        state.update(len(raw).to_bytes(8, "little") + raw)
    return state.hexdigest()


def names() -> list[str]:
    """Every kernel there is, those in ``readers`` and ``tools`` among them."""
    return sorted(_files())


def _files() -> dict[str, Path]:
    return {path.stem: path for path in paths.kernels_dir().glob("**/*.c")}


def source(name: str) -> Source:
    """Read a kernel's declarations from its C file."""
    path = _files().get(name)
    if path is None:
        raise UserError(choose("kernel", name, names()))
    return _parse(path, path.stat().st_mtime_ns)


@functools.cache
def _parse(path: Path, _mtime_ns: int) -> Source:
    text = path.read_text()
    comment = text.partition("*/")[0]
    head, marker, declared = comment.partition("@kernel")
    if not marker or not head.startswith("/*"):
        msg = f"{path}: the first comment has no '@kernel' part (flags, link, variants)"
        raise UserError(msg)
    toml = "\n".join(re.sub(r"^\s*\* ?", "", line) for line in declared.splitlines())
    try:
        options = tomllib.loads(toml)
    except tomllib.TOMLDecodeError as error:
        msg = f"{path}: the '@kernel' part is no TOML: {error}"
        raise UserError(msg) from None
    copied = options.get("copied")
    return Source(
        name=path.stem,
        path=path,
        cdef=declarations(path),
        flags=tuple(options.get("flags", ())),
        link=tuple(options.get("link", ())),
        copied=path.parent / copied if copied else None,
        define=options.get("define", {}),
        variants=options.get("variants", {}),
        bundle=tuple(options.get("bundle", ("library",))),
        fixed=options.get("fixed", False),
    )


def request(
    name: str,
    variant: str | None = None,
    copies: int | None = None,
    define: Mapping[str, int] | None = None,
    executable: bool = False,
) -> Request:
    """A build as ``perflib.kernels.build`` requests it, every default filled in.

    Raises
    ------
    UserError
        No such kernel, variant or definition, a definition that is no positive whole number, or
        copies of a kernel that has no copied part.
    """
    declared = source(name)
    parts = declared.parts(variant)
    defined = declared.definitions(define)
    if copies is not None and declared.copied is None:
        msg = f"kernel {name!r} declares no 'copied' part: its code cannot be repeated"
        raise UserError(msg)
    if len(parts) > 1 and not executable:
        msg = f"kernel {name!r}: objects are linked to a program, not to a library"
        raise UserError(msg)
    return Request(
        declared, variant, (copies or 1) if declared.copied else None, defined, executable
    )
