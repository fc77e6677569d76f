"""Commands for lecturers and students: course list, build, mystery, fix."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.course_fix import fix
from perflib.cli.course_mystery import mystery
from perflib.cli.names import FILE
from perflib.cli.output import Commands, examples, json_option, print_json, put, quiet, say, show
from perflib.model.errors import UserError

if TYPE_CHECKING:
    from perflib.course.build import Handout, Version


@click.group(
    cls=Commands,
    epilog=examples(
        "perflib course list",
        "perflib course build handout tlbs_and_huge_pages --student",
        "perflib course mystery 7",
        "perflib course fix list",
    ),
)
def course() -> None:
    """Teach and learn with lessons that check themselves."""


@course.command("list", epilog=examples("perflib course list"))
@json_option
def list_(as_json: bool) -> None:
    """Show the lessons: how long each takes, what it asks.

    'needs' are features of a machine without which parts of a lesson stay inconclusive; recorded
    runs need none of them.
    """
    from perflib.course.build import handouts

    rows = [_row(one) for one in handouts()]
    if as_json:
        print_json({"lessons": rows})
        return
    width = max(len(str(row["lesson"])) for row in rows) + 2
    for row in rows:
        if quiet():
            put(str(row["lesson"]))
            continue
        needs = f"; needs {', '.join(row['needs'])}" if row["needs"] else ""
        asked = f"{row['minutes']} minutes, {row['items']} questions, {row['points']:g} points"
        show(f"{row['title']}: {asked}{needs}  [{row['notebook']}]", f"{row['lesson']:{width}}")


def _row(one: Handout) -> dict[str, Any]:
    lesson = one.lesson
    return {
        "lesson": lesson.name,
        "title": lesson.title,
        "notebook": str(one.place),
        "minutes": lesson.minutes,
        "items": len(lesson.items),
        "points": sum(item.points for item in lesson.items),
        "needs": list(lesson.needs),
    }


@course.command(
    epilog=examples(
        "perflib course build handout --student",
        "perflib course build handout code_segment --student --recorded intel-guest",
        "perflib course build class --nbgrader --recorded intel-guest",
    )
)
@click.argument("folder", type=FILE, metavar="DIR")
@click.argument("lessons", nargs=-1, metavar="[LESSON]...")
@click.option("--student", is_flag=True, help="Without solutions.")
@click.option("--solution", is_flag=True, help="With solutions that are seen and run.")
@click.option("--nbgrader", is_flag=True, help="A course of nbgrader: answers in, checks locked.")
@click.option("--recorded", default="", show_default=False, help="Read a recorded machine.")
@click.option("--force", is_flag=True, help="Replace hand-outs that nobody has changed.")
@json_option
def build(
    folder: Path,
    lessons: tuple[str, ...],
    student: bool,
    solution: bool,
    nbgrader: bool,
    recorded: str,
    force: bool,
    as_json: bool,
) -> None:
    """Make notebooks to hand out, of all lessons or some.

    Of all, those that the recorded machine has no runs of are left out, and named.

    They go to DIR. With --nbgrader, DIR is a course of nbgrader: 'nbgrader generate_assignment
    LESSON' there makes the students' version, 'nbgrader autograde LESSON' grades what comes back.
    """
    from perflib.course.build import CONFIG, handouts, lacking
    from perflib.course.build import build as built

    asked: dict[Version, bool] = {"student": student, "solution": solution, "nbgrader": nbgrader}
    versions = [version for version, wanted in asked.items() if wanted]
    if len(versions) != 1:
        msg = "which version? Give one of --student, --solution, --nbgrader"
        raise UserError(msg)
    wanted = handouts(lessons)
    if recorded and not lessons:
        every, wanted = wanted, []
        for one in every:
            if missing := lacking(one, recorded):
                say(f"{one.place} is left out: {recorded} has no run of {', '.join(missing)}")
            else:
                wanted.append(one)
    paths = built(folder, wanted, versions[0], recorded, force=force)
    if as_json:
        print_json({"version": versions[0], "files": [str(path) for path in paths]})
        return
    for path in paths:
        put(str(path))
    if nbgrader and folder / CONFIG not in paths:
        say(f"{folder / CONFIG} was there and stays as it is")
    following = "nbgrader generate_assignment LESSON" if nbgrader else "jupyter lab"
    say(f"next: cd {shlex.quote(str(folder))} && {following}")


course.add_command(mystery)
course.add_command(fix)
