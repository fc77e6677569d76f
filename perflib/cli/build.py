"""The command that compiles for other machines: build."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perflib.cli.names import FILE, LEVEL
from perflib.cli.output import examples, json_option, print_json, show, working
from perflib.model.errors import MeasurementError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from perflib.kernels.cache import Build
    from perflib.kernels.sources import Request


@click.command(
    epilog=examples(
        "perflib build /shared/kernels",
        "perflib build /shared/kernels --march baseline --march x86-64-v3",
        "perflib build /shared/kernels --kernel kv --copies 50",
        "PERFLIB_KERNELS=/shared/kernels perflib run kv_per_core",
    )
)
@click.argument("folder", type=FILE)
@click.option(
    "--march",
    "marches",
    multiple=True,
    type=LEVEL,
    help="What the compiler may use: may be given several times, the best that a processor has is "
    "chosen there. 'native': the best of this one. [default: those that FOLDER has, or baseline]",
)
@click.option("--kernel", "names", multiple=True, metavar="NAME", help="This kernel, not all.")
@click.option("--copies", multiple=True, type=click.IntRange(1), help="Of the kernel's code.")
@click.option("--define", multiple=True, metavar="NAME=VALUE", help="A macro of the kernel.")
@json_option
def build(
    folder: Path,
    marches: tuple[str, ...],
    names: tuple[str, ...],
    copies: tuple[int, ...],
    define: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile the kernels, for machines without a compiler.

    All of them, as experiments use them by default and in their presets. Where PERFLIB_KERNELS
    names FOLDER, kernels are taken from there. What it has already is kept.
    """
    if (copies or define) and len(names) != 1:
        msg = "--copies and --define are of one kernel: name it with --kernel"
        raise UserError(msg)
    macros = _macros(define)
    with working("build"):
        bundle, levels, built, lacking = bundled(folder, marches, names, copies, macros)
    size = sum(file.stat().st_size for one in built for file in one.files)
    if as_json:
        sizes = {"builds": len(built), "bytes": size}
        print_json({"bundle": bundle, "levels": levels, **sizes, "lacking": lacking})
        return
    show(f"{folder}: {len(built)} builds for {', '.join(levels)}, {size / 1e6:.0f} MB")
    for wanted, why in lacking.items():
        words = why.splitlines()
        error = next((line for line in words if re.search("cannot find|error:", line)), words[0])
        show(f"not in it: {wanted}: {error.strip()}", "  ", "    ")
    show(f"to use it: export PERFLIB_KERNELS={folder.resolve()}")


def bundled(
    folder: Path,
    marches: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    copies: tuple[int, ...] = (),
    macros: Mapping[str, int] | None = None,
) -> tuple[str, list[str], list[Build], dict[str, str]]:
    """Make a bundle, or add to one: what the options of ``perflib build`` say.

    Returns
    -------
    tuple
        The SHA-256 of its manifest, its levels, what was built, and why what was not.
    """
    from perflib.kernels import bundling, compiler
    from perflib.kernels.levels import BASELINE, required_level

    compiler()  # there is one
    begun = bundling.begun(folder)
    levels = list(dict.fromkeys(map(required_level, marches))) or list(begun) or [BASELINE]
    made = {}
    for level in dict.fromkeys([*levels, *begun]):
        asked = _wanted(level, names, copies, dict(macros or {})) if level in levels else ()
        made[level] = _made(level, [*asked, *begun.get(level, [])])
    built, lacking = _sorted(made)
    if lacking and (names or not built):
        raise MeasurementError(next(iter(lacking.values())))
    return bundling.write(folder, made), levels, built, lacking


def _macros(words: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        if not value.isdecimal():
            msg = f"--define {word!r}: write NAME=VALUE with a whole number, as in FUNCTIONS=64"
            raise UserError(msg)
        found[name] = int(value)
    return found


def _wanted(
    level: str, names: tuple[str, ...], copies: tuple[int, ...], define: dict[str, int]
) -> Iterator[Request]:
    """What a bundle is to have of each kernel."""
    from perflib import kernels
    from perflib.kernels.sources import request

    for name in names or kernels.names():
        source = kernels.source(name)
        repeats: tuple[int | None, ...] = copies or (None,)
        if source.copied and not copies:
            repeats = (1, *_copies_of_presets(level))
        for variant, executable in source.bundled():
            for count in repeats:
                yield request(name, variant, count, define, executable)


def _made(level: str, requests: Iterable[Request]) -> list[tuple[Request, Build | str]]:
    """Each compiled for a level; or why it does not compile here."""
    from perflib.kernels.cache import compiled

    made: list[tuple[Request, Build | str]] = []
    for wanted in {one.key: one for one in requests}.values():
        try:
            made.append((wanted, compiled(wanted, level)))
        except MeasurementError as error:
            made.append((wanted, str(error)))
    return made


def _copies_of_presets(level: str) -> list[int]:
    """How often experiments repeat KV's code, by default and in their presets."""
    from perflib import kernels
    from perflib.experiments import NAMES, get
    from perflib.framework.jobs import copies_for
    from perflib.kernels.cache import compiled
    from perflib.kernels.sources import request

    # Nothing but the distance of two addresses is computed: any processor of the architecture can.
    kernel = kernels.opened(compiled(request("kv"), level))
    params = [
        experiment.params({}, preset)
        for experiment in map(get, NAMES)
        for preset in (None, *experiment.presets)
    ]
    sizes = {one.code_kib for one in params if hasattr(one, "code_kib")}
    return [copies_for(size, kernel) for size in sorted(sizes)]


def _sorted(
    made: Mapping[str, list[tuple[Request, Build | str]]],
) -> tuple[list[Build], dict[str, str]]:
    """What was built, and why what was not."""
    built, lacking = [], {}
    for each in made.values():
        for wanted, one in each:
            if isinstance(one, str):
                lacking[str(wanted)] = one
            else:
                built.append(one)
    return built, lacking
