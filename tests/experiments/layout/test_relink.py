"""Programs that are linked again: orders, lines that cannot be used, what a run makes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from perflib.experiments import get
from perflib.experiments.layout.relink import check_link_line, link, orders, words
from perflib.model.errors import MeasurementError, UserError
from tests.experiments.layout.test_programs import compiler, measured

EXPERIMENT = get("layout")
_TRUE = {"job": "command", "job_command": "/bin/true"}
_MAIN = "int f(void); int g(void); int main(void) { return f() + g(); }"
_OTHERS = {"f": "int f(void) { return 1; }", "g": "int g(void) { return -1; }"}


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three objects and the program that they make, which a run starts in."""
    cc = compiler()
    for name, text in {"main": _MAIN, **_OTHERS}.items():
        source = tmp_path / f"{name}.c"
        source.write_text(text)
        subprocess.run([cc, "-c", source, "-o", source.with_suffix(".o")], check=True)
    monkeypatch.chdir(tmp_path)
    subprocess.run([cc, "-o", "job", "main.o", "f.o", "g.o"], check=True)
    return tmp_path


def test_orders_are_all_different_and_begin_with_the_given_one() -> None:
    line = "cc a.o b.o c.o d.o -o job"
    found = orders(line, 10, 3)
    assert found[0] == ("a.o", "b.o", "c.o", "d.o")
    assert len(set(found)) == len(found) == 10
    assert {frozenset(one) for one in found} == {frozenset(found[0])}
    assert found == orders(line, 10, 3)
    assert found != orders(line, 10, 4)
    assert len(orders("cc a.o b.o -o job", 10, 3)) == 2
    assert len(orders("cc a.o a.o b.o -o job", 10, 3)) == 3  # one object is named twice


def test_only_objects_change_places() -> None:
    line = "g++ -Wl,-O1 -o 'my job' x/main.o lib.obj a.out -lm old.o.bak y.o"
    found = words(line, ("y.o", "x/main.o"), "/new place/job")
    assert found == [
        *("g++", "-Wl,-O1", "-o", "/new place/job", "y.o", "lib.obj", "a.out", "-lm"),
        *("old.o.bak", "x/main.o"),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("gcc -o job 'a.o", "cannot be split into words"),
        ("gcc -o job a.o -lm", "fewer than two objects"),
        ("gcc -o job a.c b.c", "fewer than two objects"),
        ("ld a.o b.o", "does not say where the program goes"),
    ],
)
def test_a_line_that_cannot_be_used(line: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        check_link_line(line)
    with pytest.raises(UserError, match=says):
        EXPERIMENT.plan(EXPERIMENT.params({**_TRUE, "relink": line}))


def test_a_link_that_fails_says_how(objects: Path) -> None:
    with pytest.raises(MeasurementError, match=r"ended with status .*; its errors end with: .*"):
        link("gcc -o job f.o g.o", ("g.o", "f.o"), objects / "other")
    with pytest.raises(MeasurementError, match="cannot be run"):
        link("/nowhere/ld -o job f.o g.o", ("g.o", "f.o"), objects / "other")
    with pytest.raises(MeasurementError, match="made no program there"):
        link("true -o job f.o g.o", ("g.o", "f.o"), objects / "other")


def test_a_run_links_the_program_in_its_orders_and_leaves_the_users_alone(objects: Path) -> None:
    program = objects / "job"
    before = program.read_bytes()
    run = measured(
        program,
        relink="cc -o job main.o f.o g.o",
        link_orders=4,
        factors="link_order,argv0",
        layouts=4,
        budget_s=2.0,
    )
    assert run.samples["ok"].all()
    assert set(run.samples["link_order"]) <= {0, 1, 2, 3}
    assert run.samples["link_order"].nunique() > 1
    assert program.read_bytes() == before
    assert "link_order" in set(EXPERIMENT.derived(run)["levels"]()["factor"])


def test_without_the_line_link_order_is_not_varied() -> None:
    plan = EXPERIMENT.plan(EXPERIMENT.params(_TRUE))
    assert "relink" in plan["absent"]["link_order"]
    with pytest.raises(UserError, match="relink goes with"):
        EXPERIMENT.params({"relink": "cc -o job a.o b.o"})
