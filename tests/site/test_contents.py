"""What the site holds: no page is lost, and what is generated has everything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

import perflib as pl
from perflib.cli import cli
from perflib.course.lesson import declared
from perflib.course.mystery.causes import CAUSES
from perflib.experiments import NAMES, get
from perflib.lab.symptoms import symptoms
from perflib.machine.doctor.permissions import PERMISSIONS
from perflib.model.recorded import RECORDED
from tests.site.building import DOCS, ROOT, site_module

PAGES = sorted(
    path for path in DOCS.rglob("*.md") if not path.relative_to(DOCS).parts[0].startswith("_")
)
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))


def toctree(page: Path) -> set[Path]:
    """The pages and notebooks that a page's toctrees name."""
    found = set()
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            titled = re.fullmatch(r".* <(.*)>", line)
            entry = titled[1] if titled else line
            if not entry or entry.startswith(":"):
                continue
            for suffix in (".md", ".ipynb"):
                folder = (page.parent / entry).resolve().parent
                found |= set(folder.glob(Path(entry).name + suffix))
    return found


def reached(page: Path) -> set[Path]:
    below = toctree(page)
    further = (reached(one) for one in below if one.suffix == ".md" and one != page)
    return {page}.union(below, *further)


MOST_WORDS = 60_000


def test_pages_in_reach_of_the_navigation_stay_readable() -> None:
    """Words of Markdown; neither those of notebooks nor of the reference, which is generated."""
    pages = {page.resolve() for page in reached(DOCS / "index.md") if page.suffix == ".md"}
    words = {
        str(page.relative_to(ROOT)): len(page.read_text(encoding="utf-8").split())
        for page in pages
        if page != DOCS / "reference.md" and page.parent != DOCS / "reference"
    }
    longest = sorted(words.items(), key=lambda one: -one[1])[:5]
    assert sum(words.values()) <= MOST_WORDS, f"say each thing once; the longest pages: {longest}"


def test_every_page_and_notebook_is_in_a_toctree() -> None:
    lost = {*PAGES, *NOTEBOOKS} - reached(DOCS / "index.md")
    assert not lost, f"add to a toctree: {sorted(path.name for path in lost)}"


def test_no_table_is_cut_in_two() -> None:
    """A row below an empty line has no head, and is shown as text with bars."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^\|.*\n(?:\|.*\n)*", text, re.MULTILINE):
            rows = block.splitlines()
            assert len(rows) > 2, (page.name, rows[0])
            assert re.fullmatch(r"[ :|-]+", rows[1]), (page.name, rows[0])


def test_every_experiment_and_notebook_has_a_symptom() -> None:
    assert "\n```{symptoms}\n```\n" in (DOCS / "symptoms.md").read_text(encoding="utf-8")
    page = site_module("site_lists").symptoms()
    assert len(table_rows(page)) == len(symptoms())
    assert set(NAMES) <= set(re.findall(r"`(\w+)`", page))
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"(../notebooks/{path.name})" in page or path.stem == "home", path.name
    for link in re.findall(r"\]\((.+?)\)", page):
        assert (DOCS / link).is_file(), link


def test_every_case_has_its_published_source() -> None:
    cases = (DOCS / "cases.md").read_text(encoding="utf-8")
    pages = sorted((DOCS / "cases").glob("*.md"))
    assert len(pages) == 5
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert f"(cases/{page.name})" in cases
        for part in ("## The story", "## What perflib reproduces", "## What it does not"):
            assert part in text, page.name
        assert "(../references.md)" in text


def test_figures_that_pages_name_exist() -> None:
    named = [
        (page, *found)
        for page in PAGES
        for found in re.findall(r"(?m)^```\{recorded-figure\} (\w+) (\w+)$", page.read_text())
    ]
    assert named
    for page, experiment, plot in named:
        shows = site_module("drawing").shows(get(experiment).plots, plot)
        assert shows, f"{page.name}: {experiment} has no figure {plot}"


def test_addresses_outside_are_well_formed() -> None:
    sources = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *NOTEBOOKS]
    for path in sources:
        for address in re.findall(r"\]\((\w+:[^)\s]*)\)", path.read_text(encoding="utf-8")):
            parts = urlsplit(address)
            assert parts.scheme == "https", f"{path.name}: {address}"
            assert re.fullmatch(r"([a-z0-9-]+\.)+[a-z]+", parts.netloc), f"{path.name}: {address}"


def test_every_command_and_option_is_on_the_page() -> None:
    page = site_module("site_commands").command_pages()
    for name in cli.list_commands(click.Context(cli)):
        assert f"\n## perflib {name}\n" in f"\n{page}"
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.opts[0] in page, (name, option.opts)
    assert "## perflib fleet\n" in page
    assert "### perflib fleet plan\n" in page


def test_every_public_name_is_on_the_page_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant, an error, a module, functions: all names would import all of perflib."""
    kinds = ["GAP_CAUSES", "UserError", "aliasing", "percent", "recorded"]
    assert set(kinds) < set(pl.__all__)
    monkeypatch.setattr(pl, "__all__", kinds)
    page = site_module("site_api").api_page()
    for name in kinds:
        assert page.count(f"\n## pl.{name}\n") == 1
        assert page.count(f"[`pl.{name}`]") == 1
    assert page.count("\n## ") == len(kinds)


# --- tables that are made from the code ----------------------------------------------------------


def table_rows(made: str) -> list[list[str]]:
    """The rows of a Markdown table without its head; each has a cell for each column."""
    head, _, *rows = [line[2:-2].split(" | ") for line in made.splitlines()]
    assert {len(row) for row in rows} == {len(head)}
    return rows


def test_course_pages_show_the_points_and_wrong_answers_of_their_lesson() -> None:
    lists = site_module("site_lists")
    for page in sorted({*(DOCS / "course").glob("*.md")} - {DOCS / "course" / "index.md"}):
        lesson, text = declared(page.stem), page.read_text(encoding="utf-8")
        for directive in ("lesson-points", "wrong-answers"):
            assert f"\n```{{{directive}}} {page.stem}\n```\n" in text, page.name
        *each, total = table_rows(lists.lesson_points(page.stem))
        assert [row[2] for row in each] == [f"{one.points:g}" for one in lesson.items]
        assert total[2] == f"{sum(one.points for one in lesson.items):g}"
        wrong = table_rows(lists.wrong_answers(page.stem))
        assert [row[0].replace("\\", "") for row in wrong] == [
            one.name for one in lesson.items for _ in one.wrong
        ]
        assert all(cell for row in wrong for cell in row)


def test_what_a_check_answers_is_in_the_table() -> None:
    rows = table_rows(site_module("site_lists").wrong_answers("mystery"))
    choice = ["2", "`c`", "overlooks that the other core loses nothing"]
    assert [*choice, "A quota holds both cores back alike."] in rows
    assert ["3", "`88`", "gives what is left"] in [row[:3] for row in rows]
    assert rows[0][1] == "`kv_per_core` for all"


def test_tables_of_what_is_recorded_and_allowed_are_whole() -> None:
    lists = site_module("site_lists")
    recorded, allowed = table_rows(lists.recorded_keys()), table_rows(lists.permissions())
    assert len(recorded) == len(RECORDED)
    assert ["`machine`", "`hostname`"] in [row[:2] for row in recorded]
    assert [row[0] for row in allowed] == [f"`{one.name}`" for one in PERMISSIONS]
    assert "\n```{recorded-keys}\n```\n" in (DOCS / "recorded.md").read_text()
    assert "\n```{permissions}\n```\n" in (DOCS / "containers.md").read_text()


def test_every_cause_of_a_mystery_is_explained() -> None:
    text = (DOCS / "mystery.md").read_text(encoding="utf-8")
    assert [name for name in CAUSES if f"| `{name}` |" not in text] == []


# --- notebooks as they are shown -----------------------------------------------------------------


def cell(kind: str, source: str, **more: object) -> dict[str, object]:
    return {"cell_type": kind, "source": source, "metadata": {}, **more}


def test_pictures_of_notebooks_have_an_alternative_text() -> None:
    figure = {"output_type": "display_data", "data": {"image/png": "", "text/plain": "<Figure>"}}
    named = figure | {"metadata": {"image/png": {"alt": "latency by size"}}}
    made = site_module("executing").readable(
        {
            "metadata": {"papermill": {"input_path": "/somewhere"}},
            "cells": [
                cell("markdown", "**Drift over the run**: what all cores do together."),
                cell("code", "run.plot('drift')", outputs=[figure]),
                cell("code", "pl.show(other)", outputs=[named]),
            ],
        }
    )
    alts = [one["metadata"]["mystnb"]["image"]["alt"] for one in made["cells"][1:]]
    assert alts == ["Drift over the run", "latency by size"]
    assert "somewhere" not in json.dumps(made)


@pytest.mark.parametrize(
    ("plain", "shown"),
    [
        ("VBox(children=(HTML(value='x'),))", "It needs a running notebook"),
        ("Which is it?\n  a: <this>", "```text\nWhich is it?\n  a: <this>\n```\n"),
        ("Is it ``` or not?", "````text\nIs it ``` or not?\n````\n"),
    ],
)
def test_widgets_become_a_note(plain: str, shown: str) -> None:
    executing = site_module("executing")
    data = {executing.WIDGET: {"model_id": "1"}, "text/plain": plain}
    output = {"output_type": "execute_result", "data": data, "metadata": {}}
    notebook = {"metadata": {}, "cells": [cell("code", "form", outputs=[output])]}
    made = executing.readable(notebook)["cells"][0]["outputs"][0]["data"]
    assert shown in made["text/markdown"]
    assert "It needs a running notebook" in made["text/markdown"]
    assert list(made) == ["text/markdown"]


@pytest.mark.parametrize("tag", ["solution", "parameters"])
def test_long_cells_are_closed_until_a_reader_opens_them(tag: str) -> None:
    closed = cell("code", "# Solution 1\nanswer = 4", outputs=[])
    closed["metadata"] = {"tags": [tag]}
    made = site_module("executing").readable({"metadata": {}, "cells": [closed]})
    assert "hide-input" in made["cells"][0]["metadata"]["tags"]


def test_a_changed_notebook_is_executed_again(tmp_path: Path) -> None:
    executing = site_module("executing")
    path = tmp_path / "one.ipynb"
    path.write_text(json.dumps({"cells": [cell("code", "1")]}))
    before = executing.key_of(path)
    path.write_text(json.dumps({"cells": [cell("code", "2")]}))
    assert executing.key_of(path) != before


def test_the_reference_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLIB_CONFIG", "none")
    made = site_module("reference_pages").reference()
    assert set(made) == {"reference.md", *(f"reference/{name}.md" for name in NAMES)}
    kept = {str(path.relative_to(DOCS)) for path in (DOCS / "reference").iterdir()}
    assert kept == set(made) - {"reference.md"}
    for file, text in made.items():
        assert (DOCS / file).read_text(encoding="utf-8") == text, "run 'make reference'"
