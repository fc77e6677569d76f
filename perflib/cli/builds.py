"""``perflib compare-builds``: which of two builds is faster, where, and is it too slow?"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.output import (
    Wanted,
    examples,
    measuring,
    print_findings,
    print_json,
    put,
    quiet,
    records,
    say,
    show,
    show_statements,
    verbose,
    working,
)
from perflib.model.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from perflib.framework.experiment import Experiment
    from perflib.model.finding import Finding
    from perflib.model.run import Run

_SENTENCES = 7
_MOST_PERCENT = 1000
_ROWS = 10  # of the table of functions
# The claims that sentences are made of, the most important first; -v shows all.
_SAID = ("gate", "faster", "functions", "one_function", "changed_code", "outputs", "layout_alone")
_MOST_OF_ONE = 2  # sentences of one claim
_STATUS = {"supported": 3, "refuted": 0, "inconclusive": 4}
_GATE = {"supported": "fails", "refuted": "passes", "inconclusive": "not decided"}


def _percent(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """``1`` or ``1%`` as a number."""
    if value is None:
        return None
    with contextlib.suppress(ValueError):
        if 0 < (found := float(value.strip().removesuffix("%"))) <= _MOST_PERCENT:
            return found
    msg = f"--fail-above {value!r} is no limit: write a percentage above 0, as 1%"
    raise UserError(msg)


@click.command(
    "compare-builds",
    epilog=examples(
        "perflib compare-builds ./before ./after",
        "perflib compare-builds --functions ./job-O2 ./job-O3 -- --events 3",
        "perflib compare-builds --fail-above 1% --markdown ./before ./after",
        'perflib compare-builds --git main..HEAD --build "make job" -- --events 3',
        "perflib compare-builds -p precision_percent=0.2 ./before ./after",
    ),
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[A B] [-- ARGUMENT...]")
@click.option("--functions", is_flag=True, help="Where: record both with perf, by function.")
@click.option(
    "--fail-above",
    metavar="PERCENT",
    callback=_percent,
    help="Exit status 3 where B is slower by more, 0 where it is not, 4 where that stays open.",
)
@click.option("--git", "range_", metavar="A..B", help="Two revisions in place of A and B.")
@click.option("--build", metavar="LINE", help="With --git: what builds a revision, in its top.")
@click.option("--program", metavar="PATH", help="With --git: the program that the build makes.")
@click.option("--markdown", is_flag=True, help="A table for a comment on a merge request.")
@measuring
def compare_builds(
    words: tuple[str, ...],
    functions: bool,
    fail_above: float | None,
    range_: str | None,
    build: str | None,
    program: str | None,
    markdown: bool,
    wanted: Wanted,
) -> None:
    """Say which of two builds is faster, and in which function.

    Both run with the same ARGUMENTs in the same random layouts, in random order. A few runs say
    beforehand how many it takes; the result warns where layout moves more than the difference. It
    is a run of 'layout' with other_command.
    """
    from perflib.cli.measure import given_by, measured
    from perflib.experiments.layout import MIN_STARTS
    from perflib.framework.jobs import command_template
    from perflib.framework.params import assignments

    if markdown and wanted.as_json:
        msg = "--markdown and --json are two outputs: give one"
        raise UserError(msg)
    options: dict[str, Any] = {"fail_above_percent": fail_above, "functions": functions or None}
    if fail_above is not None and "precision_percent" not in assignments(wanted.assignments):
        options["precision_percent"] = fail_above / 2  # a difference of 0 is below the limit then
    gate: list[Finding] = []

    def finish(experiment: Experiment, done: Run) -> None:
        with working("analysis of layout"):
            findings = experiment.analyse(done)
        gate.extend(one for one in findings if one.of.name == "gate")
        _print(experiment, done, findings, markdown=markdown, as_json=wanted.as_json)

    with _commands(words, range_, build, program) as (a, b):
        say(
            f"A and B start {MIN_STARTS} times each, or more: twice to see how long they take, "
            "then in at least one round of random layouts; budget_s does not shorten that"
        )
        given = given_by(a, other_command=command_template(b), **options)
        measured("layout", given, wanted, finish=finish)
    if gate:
        click.get_current_context().exit(_STATUS[gate[0].verdict])


@contextlib.contextmanager
def _commands(
    words: Sequence[str], range_: str | None, build: str | None, program: str | None
) -> Iterator[tuple[list[str], list[str]]]:
    """The command lines of both builds, which are there within the ``with`` block."""
    if range_ is None:
        if build is not None or program is not None:
            msg = "--build and --program go with --git"
            raise UserError(msg)
        if len(words) < 2:
            msg = f"two builds are compared, and {len(words) or 'none'} is given (or --git A..B)"
            raise UserError(msg)
        a, b, *arguments = words
        yield [a, *arguments], [b, *arguments]
        return
    if build is None:
        msg = "--git needs the line that builds a revision: --build 'make job'"
        raise UserError(msg)
    from perflib.machine.scratch import scratch
    from perflib.measure.revisions import built, revisions

    sides = revisions(range_)
    with scratch() as folder, contextlib.ExitStack() as trees:
        programs = []
        for name, revision in zip("AB", sides, strict=True):
            say(f"{name}: building {revision.name} ({revision.commit[:12]})")
            with working(f"build of {revision.name}"):
                tree = built(revision, build, program or "", folder / name)
                programs.append(str(trees.enter_context(tree)))
        yield [programs[0], *words], [programs[1], *words]


def _print(
    experiment: Experiment, done: Run, findings: Sequence[Finding], *, markdown: bool, as_json: bool
) -> None:
    from perflib.store.run_files import saved_path

    tables = experiment.derived(done)
    rows = tables["functions"]() if "functions" in tables else None
    path = saved_path(done.id)
    if as_json:
        record = {"run": done.id, "experiment": experiment.name, "findings": records(findings)}
        named = [one for one in ("functions", "libraries", "lines") if one in tables]
        for one in named:
            record[one] = json.loads(tables[one]().to_json(orient="records"))
        print_json({**record, "recorded": None, "samples": str(path)})
    elif markdown:
        for line in markdown_lines(done, findings, rows):
            put(line)
    elif quiet() or verbose():
        print_findings(findings)
    else:
        show(f"{done.id}: {done.provenance['trials']} starts, {done.provenance['stopped']}")
        show(str(path))
        said = said_of(findings)
        show_statements(said)
        for finding in said:
            if finding.of.name == "gate" and finding.verdict == "inconclusive":
                show(finding.reason, "  ", "  ")
        if rows is not None:
            say(f"'perflib report {done.id}' has all functions, libraries, lines, a flame graph")


def said_of(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that are sentences, at most seven, the most important first."""
    found: list[Finding] = []
    for name in _SAID:
        found += [one for one in findings if one.of.name == name][:_MOST_OF_ONE]
    found += [one for one in findings if one.of.name == "output_same" and one.verdict == "refuted"]
    return found[:_SENTENCES]


def markdown_lines(done: Run, findings: Sequence[Finding], rows: pd.DataFrame | None) -> list[str]:
    """The comparison for a comment on a merge request."""
    by_claim = {one.of.name: one for one in findings}
    faster, alone = by_claim["faster"], by_claim["layout_alone"]
    gate = by_claim.get("gate")
    takes = _interval(-faster.effect, -faster.high, -faster.low)
    head = f"**{done.params['response'].upper()} time of B, compared with A: {takes}**"
    if gate is not None:
        head += f"; gate at {gate.threshold:g} %: **{_GATE[gate.verdict]}**"
    lines = [head, ""]
    lines += [f"- {_cell(one.plain)}" for one in said_of(findings)[1:]]
    if gate is not None and gate.reason:
        lines.append(f"- {_cell(gate.reason)}")
    if rows is not None and len(rows):
        lines += ["", *_function_rows(rows)]
    machine = done.provenance["machine"]
    layouts = done.samples[["round", "layout"]].drop_duplicates()
    node = f"{machine['processor'] or 'unknown'}, {machine['microarchitecture'] or 'unknown'}"
    excluded = (
        f"Excluded: layout (both in the same {len(layouts)} random layouts; alone it moves the "
        f"time by {alone.effect:.2g} %), node (one: {_cell(node)}), interference "
        "(compared within rounds)."
    )
    return [*lines, "", f"{excluded} Run `{done.id}`."]


def _function_rows(rows: pd.DataFrame) -> list[str]:
    order = rows["of_event_percent"].abs().sort_values(ascending=False, kind="stable").index
    shown = rows.loc[order].sort_values("stands_out", ascending=False, kind="stable").head(_ROWS)
    heads = (
        "function", "library", "beyond the others, % of the time", "significant", "code",
        "instructions, simulated", "became",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "| -- | -- | --: | -- | -- | --: | -- |"]
    for row in shown.to_dict("records"):
        of_event = (row[f"of_event_percent{end}"] for end in ("", "_low", "_high"))
        significant = f"yes (p = {row['p_holm']:.2g})" if row["stands_out"] else "no"
        cells = (
            f"`{_cell(str(row['function']))}`", _cell(row["library"]), _interval(*of_event),
            significant, row["code"], _percent_more(row["instructions_percent"]),
            _cell(row["became"]),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    if left := len(rows) - len(shown):
        lines += ["", f"Not shown: {left} functions with smaller differences."]
    return lines


def _percent_more(value: float) -> str:
    return f"{value:+.1f} %" if math.isfinite(value) else "not known"


def _interval(effect: float, low: float, high: float) -> str:
    return f"{effect:+.2f} % [{low:+.2f}, {high:+.2f}]"


def _cell(text: str) -> str:
    """A text within a table: no bar ends its cell, no quote its code."""
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")
