"""The house around the code: packages and bounds, what a wheel carries, who imports whom."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from packaging.requirements import Requirement
from rattler_build import Stage0Recipe, VariantConfig

from perflib.model.extras import EXTRAS

TOP = Path(__file__).parents[1]
MODULES = sorted((TOP / "perflib").rglob("*.py"))

# Names that differ at conda-forge.
CONDA = {"duckdb": "python-duckdb", "matplotlib": "matplotlib-base", "seaborn": "seaborn-base"}
# What environment.yml has besides the packages of pyproject.toml.
CONDA_ONLY = {"c-compiler", "make", "pip"}

OWN = "perflib-jupyter"
# Dependencies that are run, not imported.
RUN = {
    "ipykernel": "executes the notebooks",
    "jupyterlab": "perflib lab starts it as a module",
    "papermill": "perflib batch starts it as a module",
    "pyarrow": "pandas.read_parquet uses it",
}
DEVELOPMENT_TOOLS = {
    "build", "check-wheel-contents", "clang-format", "hatchling", "latex2mathml", "mypy", "myst-nb",
    "nbval", "nox", "pandas-stubs", "pre-commit", "pydata-sphinx-theme",
    "pytest-timeout", "ruff", "sphinx", "twine", "types-cffi", "types-psutil", "types-pyyaml",
    "types-regex", "types-tqdm",
}  # fmt: skip


@functools.cache
def project() -> dict[str, Any]:
    with (TOP / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def split(requirement: str) -> tuple[str, str]:
    """``("numpy", ">=1.26")`` of a requirement; names as indices compare them."""
    match = re.fullmatch(
        r"\s*([A-Za-z0-9._-]+)(?:\[\w+\])?\s*(.*?)\s*", requirement.partition("#")[0]
    )
    assert match is not None, requirement
    return re.sub(r"[-_.]+", "-", match[1]).lower(), match[2]


def bounds(requirements: list[str]) -> dict[str, str]:
    return {name: bound for name, bound in map(split, requirements) if name != OWN}


def extra(name: str) -> dict[str, str]:
    """The packages that an extra adds, without those of the extras that it includes."""
    return bounds(project()["project"]["optional-dependencies"][name])


def core() -> dict[str, str]:
    return bounds(project()["project"]["dependencies"])


# --- dependencies ------------------------------------------------------------------------------


def test_environment_yml_has_the_packages_and_bounds_of_pyproject() -> None:
    environment = yaml.safe_load((TOP / "environment.yml").read_text())
    listed = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    conda = bounds(listed)
    declared = core() | extra("report") | extra("lab")
    wanted = {CONDA.get(name, name): bound for name, bound in declared.items()}
    wanted["python"] = project()["project"]["requires-python"]
    assert {name: bound for name, bound in conda.items() if name not in CONDA_ONLY} == wanted
    assert len(conda) == len(listed)  # none twice
    assert conda.keys() >= CONDA_ONLY
    assert environment["dependencies"][-1] == {"pip": ["-e ."]}


def test_the_conda_recipe_has_the_packages_and_bounds_of_pyproject() -> None:
    recipe = Stage0Recipe.from_file(TOP / "recipe" / "recipe.yaml")
    found = {}
    for variant in recipe.render(VariantConfig()):
        package = variant.recipe.package
        assert str(package.version) == project()["project"]["version"]
        run = [str(one) for one in variant.recipe.requirements.run]
        found[package.name] = bounds([one for one in run if re.fullmatch("[a-z].*", one)])
    own, python = "perflib-jupyter-core", project()["project"]["requires-python"]
    assert found[own].pop("python") == python
    assert found[own].pop("c-compiler") == found[OWN].pop("make") == ""

    def at_conda(packages: dict[str, str]) -> dict[str, str]:
        return {CONDA.get(name, name): bound for name, bound in packages.items()}

    assert found[own] == at_conda(core())
    assert found[OWN] == at_conda(extra("report") | extra("lab"))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def at_import(tree: ast.AST) -> Iterator[ast.stmt]:
    """The import statements that run when a module is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from (found for part in node.orelse for found in at_import(part))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from at_import(node)


def anywhere(tree: ast.AST) -> Iterator[ast.stmt]:
    """All import statements, those in functions and for the type checker among them."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def imported(statements: Iterator[ast.stmt]) -> set[str]:
    """The full names of the modules that statements import."""
    found = set()
    for node in statements:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import of {node.module}"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def third_party(paths: list[Path]) -> set[str]:
    names = {name.split(".")[0] for path in paths for name in imported(anywhere(parsed(path)))}
    for path in paths:
        names |= set(re.findall(r'importorskip\(\s*"(\w+)', path.read_text()))
    own = {"perflib", "tests", "benchmarks", "__future__"}
    return names - own - set(sys.stdlib_module_names)


@functools.cache
def providers() -> dict[str, list[str]]:
    return dict(packages_distributions())


def distributions(modules: set[str]) -> set[str]:
    """The distributions that provide modules; a module that is not installed is its own."""
    provider = providers()
    return {split(name)[0] for module in modules for name in provider.get(module, [module])[:1]}


def test_every_import_is_declared_and_every_dependency_is_used() -> None:
    declared = set(core() | extra("report") | extra("lab"))
    used = distributions(third_party(MODULES))
    # pytest imports perflib's plug-in; who has no pytest never does
    assert used - declared <= {*extra("hep"), "pytest"}
    assert declared - used == set(RUN)


LOCKS = {"locked.txt": ("report", "lab"), "locked-dev.txt": ("report", "lab", "dev")}


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_has_every_package_in_a_version_that_pyproject_admits(lock: str) -> None:
    text = (TOP / "recipe" / lock).read_text()
    pinned: dict[str, list[Requirement]] = {}
    for line in re.findall(r"^([^#\s][^\\\n]*?) ?\\?$", text, re.MULTILINE):
        pinned.setdefault(split(line)[0], []).append(Requirement(line))
    lists = project()["project"]["optional-dependencies"]
    wanted = [*project()["project"]["dependencies"]]
    wanted += [one for name in LOCKS[lock] for one in lists[name]]
    for requirement in map(Requirement, wanted):
        name = split(requirement.name)[0]
        if name != OWN:
            versions = [str(one.specifier).removeprefix("==") for one in pinned[name]]
            assert all(requirement.specifier.contains(one) for one in versions), name
    assert "://" not in text  # neither an index nor an address
    assert text.count("--hash=sha256:") > len(pinned)


def test_a_missing_package_is_named_with_the_extra_that_brings_it() -> None:
    for name, modules in EXTRAS.items():
        assert distributions(set(modules)) == set(extra(name)), name


def test_every_development_dependency_is_used() -> None:
    tests = [*(TOP / "tests").rglob("*.py"), *(TOP / "benchmarks").rglob("*.py")]
    used = distributions(third_party(tests))
    known = core() | extra("report") | extra("lab") | extra("dev")
    assert used - set(known) <= set(extra("hep"))
    optional = extra("hep") | extra("fleet")
    assert set(extra("dev")) - used - set(optional) == DEVELOPMENT_TOOLS
    for name, bound in optional.items():
        assert extra("dev")[name].partition(";")[0] == bound


# --- who imports whom ----------------------------------------------------------------------------

# The rooms from the ground up: a module imports from its own room and from those before it.
ROOMS = (
    "stats", "model", "store", "kernels", "machine", "measure", "instruments",
    "framework", "experiments", "remedies", "investigation", "fleet", "lab", "course", "batch",
    "cli", "__main__",
)  # fmt: skip
ON_SCREEN = {"IPython", "anywidget", "ipywidgets", "matplotlib", "seaborn", "traitlets"}
# In these an experiment's declaration imports the modules that implement it and that read it.
CALLED_LATER = {"_steps", "_figures"}
HEAVY = {*ON_SCREEN, "duckdb", "numpy", "pandas", "scipy"}


def name_of(path: Path) -> str:
    parts = path.relative_to(TOP).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in MODULES}


def while_running(tree: ast.AST) -> Iterator[ast.stmt]:
    """All import statements, in functions too, but those for the type checker and CALLED_LATER."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from (found for part in node.orelse for found in while_running(part))
        elif isinstance(node, ast.FunctionDef) and node.name in CALLED_LATER:
            continue
        else:
            yield from while_running(node)


def module_of(imported_name: str) -> str:
    """The module that a name is imported from: ``from perflib.a import b`` may mean either."""
    return imported_name if imported_name in NAMES else imported_name.rpartition(".")[0]


@functools.cache
def uses(path: Path) -> frozenset[str]:
    """The modules of the project that a module imports when it runs."""
    found = imported(while_running(parsed(path)))
    return frozenset(module_of(name) for name in found if name.split(".")[0] == "perflib")


def room_of(module: str) -> str:
    return module.removeprefix("perflib").lstrip(".").partition(".")[0]


def test_every_room_has_its_place_and_every_place_its_room() -> None:
    assert {room_of(name) for name in NAMES} - {""} == set(ROOMS)


def test_imports_run_downwards() -> None:
    upwards = []
    for path in MODULES:
        name = name_of(path)
        if name == "perflib":  # the interface imports what is asked of it, by name
            assert uses(path) == {"perflib.model.extras"}
            continue
        for other in uses(path) - {name}:
            assert other != "perflib", f"{name} imports the interface of notebooks"
            if ROOMS.index(room_of(other)) > ROOMS.index(room_of(name)):
                upwards.append(f"{name} imports {other}, which is above")
    assert upwards == []


def child_of(package: str, module: str) -> str:
    """The part of a package that a module is or belongs to; of the package itself ``__init__``."""
    return module.removeprefix(package).lstrip(".").partition(".")[0] or "__init__"


def test_no_circle_among_the_parts_of_a_folder() -> None:
    for package in (name_of(path) for path in MODULES if path.name == "__init__.py"):
        check_no_circle(package)


def check_no_circle(package: str) -> None:
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        name = name_of(path)
        if f"{name}.".startswith(f"{package}."):
            inside = {one for one in uses(path) if f"{one}.".startswith(f"{package}.")}
            here = child_of(package, name)
            graph.setdefault(here, set()).update(child_of(package, one) for one in inside)
    for here, others in graph.items():
        others.discard(here)
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_no_experiment_imports_another() -> None:
    from perflib import experiments

    homes = {type(experiments.get(name)).__module__ for name in experiments.NAMES}
    for path in MODULES:
        home = next((one for one in homes if f"{name_of(path)}.".startswith(f"{one}.")), None)
        if home is not None:
            others = tuple(f"{one}." for one in homes - {home})
            assert not [one for one in uses(path) if f"{one}.".startswith(others)], path


def test_only_what_draws_imports_figures_and_widgets() -> None:
    """At import time: the lab, and an experiment's figures, which are imported to be drawn."""
    for path in MODULES:
        drawing = path.stem in {"figures", "plots"} or room_of(name_of(path)) in {"lab", "course"}
        if not drawing:
            found = {name.split(".")[0] for name in imported(at_import(parsed(path)))}
            assert not found & ON_SCREEN, path


@pytest.mark.parametrize(
    "code",
    [
        "import perflib",
        "import perflib.cli",
        "import perflib.experiments as e; [e.get(name).documentation() for name in e.NAMES]",
        "import perflib as pl; repr(pl.experiment('kv_per_core'))",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(code: str) -> None:
    code = f"import sys; {code}; print(sorted(set(sys.modules) & {HEAVY!r}))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=TOP
    )
    assert answer.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    import perflib as pl

    assert pl.__all__ == dir(pl)
    assert {"erasure", "experiment", "lesson", "threads", "UserError"} < set(pl.__all__)
    for name in pl.__all__:
        assert getattr(pl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pl.nothing


def test_notebooks_import_the_interface_alone() -> None:
    for path in (TOP / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code":
                found = imported(anywhere(ast.parse("".join(cell["source"]))))
                inside = {name for name in found if name.startswith("perflib.")}
                assert not inside, f"{path.name}: {', '.join(sorted(inside))}"


def test_a_module_is_short() -> None:
    assert [path for path in MODULES if len(path.read_text().splitlines()) > 600] == []


# --- what a wheel carries ------------------------------------------------------------------------


def build(kind: str, source: Path, target: Path) -> Path:
    """A wheel or source distribution made as pip makes it, with the hatchling that is here."""
    target.mkdir(exist_ok=True)
    code = (
        f"import os, hatchling.build as b; os.chdir({str(source)!r}); "
        f"print(b.build_{kind}({str(target)!r}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return target / answer.stdout.split()[-1]


def content(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", TOP, tmp_path_factory.mktemp("wheel"))


def test_a_wheel_carries_kernels_notebooks_and_published_tables(wheel: Path) -> None:
    files = content(wheel)
    data = "perflib/_data"
    for folder, pattern in (("kernels_c", "**/*.[ch]"), ("notebooks", "*.ipynb")):
        found = (TOP / folder).glob(pattern)
        mine = [path for path in found if ".ipynb_checkpoints" not in path.parts]
        assert mine, folder
        assert {f"{data}/{path.relative_to(TOP)}" for path in mine} <= files
    for path in (TOP / "perflib").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert str(path.relative_to(TOP)) in files
    assert "perflib/py.typed" in files
    tops = {name.split("/")[0] for name in files}
    own = f"perflib_jupyter-{project()['project']['version']}"
    assert tops == {"perflib", f"{own}.dist-info"}
    assert not [name for name in files if "__pycache__" in name or "checkpoints" in name]


def test_an_installed_wheel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = (
        "import json, perflib.kernels as k\n"
        "from perflib.store.paths import kernels_dir, notebooks_dir\n"
        "from perflib.framework.published import published\n"
        "print(json.dumps([str(kernels_dir()), str(notebooks_dir()), k.names(),"
        " len(published('kv_haswell')), str(k.build('clock_gaps').library)]))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    assert answer.returncode == 0, answer.stderr
    kernels, notebooks, names, rows, library = json.loads(answer.stdout)
    assert kernels == str(site / "perflib" / "_data" / "kernels_c")
    assert notebooks == str(site / "perflib" / "_data" / "notebooks")
    assert {"clock_gaps", "kv"} <= set(names)
    assert rows > 0
    assert Path(library).is_file()


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", TOP, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(sdist, folder, filter="data")
    (source,) = folder.iterdir()
    return source


@pytest.mark.slow
def test_a_wheel_from_the_source_distribution_is_the_same(
    wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    assert (unpacked / "Makefile").is_file()
    assert (unpacked / "tests" / "conftest.py").is_file()
    assert content(build("wheel", unpacked, tmp_path)) == content(wheel)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_two_builds_are_the_same_to_the_bit(kind: str, unpacked: Path, tmp_path: Path) -> None:
    first = build(kind, unpacked, tmp_path / "first")
    for path in unpacked.rglob("*"):
        os.utime(path, (1, 1))
    second = build(kind, unpacked, tmp_path / "second")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_an_index_would_take_both(wheel: Path, sdist: Path) -> None:
    twine = ["twine", "check", "--strict", str(wheel), str(sdist)]
    for words in (twine, ["check_wheel_contents", str(wheel)]):
        answer = subprocess.run(
            [sys.executable, "-m", *words], capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr


# --- papers --------------------------------------------------------------------------------------


def test_the_readme_names_commands_that_exist() -> None:
    text = (TOP / "README.md").read_text()
    makefile = (TOP / "Makefile").read_text()
    targets = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))
    assert {"investigate", "test", "lab"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_readme_names_subcommands_that_exist() -> None:
    from perflib.cli import cli

    commands = set(cli.list_commands(click.Context(cli)))
    texts = [(TOP / name).read_text() for name in ("README.md", "CONTRIBUTING.md")]
    texts += [path.read_text() for path in (TOP / "docs").glob("*.md")]
    named = set(re.findall(r"(?:^|`)perflib ([a-z][a-z-]*)", "\n".join(texts), re.MULTILINE))
    assert named
    assert named <= commands


def test_the_version_is_the_same_everywhere() -> None:
    import perflib

    version = project()["project"]["version"]
    assert perflib.__version__ == version
    assert f"## [{version}]" in (TOP / "CHANGELOG.md").read_text()
    assert yaml.safe_load((TOP / "CITATION.cff").read_text())["version"] == version


def tracked() -> list[Path]:
    """The files of the checkout: git's, or all where there is no git (an unpacked source)."""
    if (TOP / ".git").exists() and shutil.which("git"):
        answer = subprocess.run(
            ["git", "-c", f"safe.directory={TOP}", "ls-files", "-z"],
            capture_output=True, text=True, check=True, cwd=TOP,
        )  # fmt: skip
        names = [name for name in answer.stdout.split("\0") if name]
        return [TOP / name for name in names if (TOP / name).is_file()]
    folders = ("benchmarks", "docs", "kernels_c", "notebooks", "perflib", "tests")
    found = (path for folder in folders for path in (TOP / folder).rglob("*") if path.is_file())
    return [path for path in found if "__pycache__" not in path.parts]  # which name this machine


def test_no_path_of_a_machine_is_in_a_file() -> None:
    machine = re.compile(rb"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/")
    for path in tracked():
        if path != Path(__file__):
            assert not machine.findall(path.read_bytes()), path.relative_to(TOP)


def test_notebooks_carry_no_outputs() -> None:
    for path in (TOP / "notebooks").glob("*.ipynb"):
        for number, cell in enumerate(json.loads(path.read_text())["cells"]):
            if cell["cell_type"] == "code":
                assert not cell["outputs"], f"{path.name}, cell {number}: run nbstripout"
                assert cell["execution_count"] is None, f"{path.name}, cell {number}"
