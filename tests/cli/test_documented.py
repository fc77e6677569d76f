"""docs/command_line.md against the code, and every command's help against the house's rules."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest

import perflib as pl
from perflib.cli import cli
from perflib.experiments import get
from perflib.store import config
from tests.cli.calling import call, too_wide

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
COMMANDS = cli.list_commands(click.Context(cli))
OF_A_COURSE = ["course list", "course build", "course mystery", "course fix"]


def in_code() -> set[str]:
    """Every variable that the package's Python names, and those that its C reads."""
    python = (path.read_text(encoding="utf-8") for path in (ROOT / "perflib").rglob("*.py"))
    c = (path.read_text(encoding="utf-8") for path in (ROOT / "kernels_c").rglob("*.[ch]"))
    found = {name for text in python for name in re.findall(r"\b_?PERFLIB_[A-Z_]*[A-Z]\b", text)}
    return found | {name for text in c for name in re.findall(r'getenv\("(PERFLIB_\w+)"\)', text)}


def test_every_variable_is_documented_and_there_is_no_other() -> None:
    assert set(re.findall(r"`(_?PERFLIB_[A-Z_]*[A-Z])`", PAGE)) == in_code()


def test_the_example_of_a_configuration_file_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert found
    file = tmp_path / "perflib.toml"
    file.write_text(found[1])
    monkeypatch.setenv("PERFLIB_CONFIG", str(file))
    assert config.files()[0].content == tomllib.loads(found[1])
    made = pl.experiment("kv_per_core").params(preset="night").model_dump()
    assert (made["events"], made["cores"], made["budget_s"]) == (100, [0, 1, 2, 3], 3600)


def helped(words: str) -> tuple[click.Command, str]:
    """A command, and its help in a terminal of 80 columns."""
    context = click.Context(cli, info_name="perflib", **cli.context_settings)
    for name in words.split():
        assert isinstance(context.command, click.Group)
        command = context.command.get_command(context, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=context, max_content_width=80)
    return context.command, context.get_help()


@pytest.mark.parametrize("name", [*COMMANDS, *OF_A_COURSE])
def test_help_has_examples_and_fits(name: str) -> None:
    command, text = helped(name)
    _, sign, examples = text.partition("Examples:\n")
    assert sign
    assert f"perflib {name}" in examples
    assert "--profile" not in text
    assert not too_wide(text)
    short = command.get_short_help_str(60)
    assert short.endswith("."), short
    assert not short.endswith("..."), short
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.name
    assert {"-q", "-v"} <= {one for option in command.params for one in option.opts}


def test_defaults_are_shown() -> None:
    assert "[default: report.html]" in helped("report")[1]


def test_both_ways_to_say_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (("-q", "list"), ("list", "-q"), ("-v", "list", "-q"), ("list", "-v")):
        assert call(*words) == 0
        said.append(capsys.readouterr().out)
    quietly, again, last, verbosely = said
    assert quietly == again == last
    assert get("machine").question.split()[0] not in quietly
    assert len(verbosely) > len(quietly)
