"""Types of what is named at the command line; each completes itself when TAB is pressed.

Nothing heavy is imported to complete: names of runs are those of files, and parameters are
declared where no data is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from perflib.experiments import NAMES
from perflib.model.errors import UserError, choose

if TYPE_CHECKING:
    _Choice = click.Choice[str]
    _Text = click.ParamType[str]
else:  # they take no types in click 8.1
    _Choice = click.Choice
    _Text = click.ParamType

_PRESETS = ("quick", "full")


class OneOf(_Choice):
    """One of a few words; a wrong one is answered with the nearest.

    Parameters
    ----------
    what
        What the words name.
    words
        All of them.
    """

    def __init__(self, what: str, words: Iterable[str]) -> None:
        super().__init__(list(words))
        self.what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word, if it is one."""
        if value not in self.choices:
            raise UserError(choose(self.what, str(value), self.choices))
        return super().convert(value, param, ctx)


class _Completed(_Text):
    """Text that is looked at when the command runs, and completed by a function.

    Parameters
    ----------
    name
        What stands for it in help.
    words
        All words that it may be, given the context and its beginning.
    """

    def __init__(
        self, name: str, words: Callable[[click.Context, str], Iterable[str]], shown: str = ""
    ) -> None:
        self.name = name
        self._words = words
        self._shown = shown or name

    def get_metavar(self, *_: Any, **__: Any) -> str:
        """What help shows."""
        return self._shown

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Those of the words that begin like this; none where they cannot be found."""
        del param
        words: list[str] = []
        with contextlib.suppress(UserError, OSError):
            words = [word for word in self._words(ctx, incomplete) if word.startswith(incomplete)]
        return [CompletionItem(word) for word in words]


def _experiment(ctx: click.Context) -> str | None:
    """The one that was named; click leaves it unread where the last option still lacks a value."""
    return next((word for word in (ctx.params.get("name"), *ctx.args) if word in NAMES), None)


def _presets(ctx: click.Context, _: str) -> Iterable[str]:
    """Of the experiment that was named, else of all."""
    from perflib.store import config

    named = _experiment(ctx)
    names = [named] if named else NAMES
    return dict.fromkeys([*_PRESETS, *(word for name in names for word in config.presets(name))])


def _runs(suffix: str) -> Callable[[click.Context, str], Iterable[str]]:
    def newest_first(_ctx: click.Context, _: str) -> Iterable[str]:
        from perflib.store.config import runs_dir

        return sorted((path.stem for path in runs_dir().value.glob(f"*.{suffix}")), reverse=True)

    return newest_first


def _assignments(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """``KEY=`` of the experiment's parameters; after it, the values that are words."""
    from perflib.experiments import get
    from perflib.framework.params import describe_fields

    named = _experiment(ctx)
    if named is None:
        return []
    key, sign, _ = incomplete.partition("=")
    entries = describe_fields(get(named).Params)
    if not sign:
        return [f"{entry['name']}=" for entry in entries]
    types = [entry["type"] for entry in entries if entry["name"] == key]
    kinds = ["true", "false"] if types == ["true or false"] else "".join(types).split(" | ")
    no_word = ("integer", "number", "text", "list of", "NAME=")
    return [f"{key}={kind}" for kind in kinds if not kind.startswith(no_word)]


def _levels(_ctx: click.Context, _: str) -> Iterable[str]:
    from perflib.kernels.levels import LEVELS

    return ["native", *LEVELS]


FILE = click.Path(path_type=Path)  # or folder
EXPERIMENT = OneOf("experiment", NAMES)
LEVEL = _Completed("LEVEL", _levels)  # of the instructions that a compiler may use
PRESET = _Completed("preset", _presets, "|".join(_PRESETS))
RUN = _Completed("RUN", _runs("parquet"))
UNFINISHED_RUN = _Completed("RUN", _runs("journal"))
ASSIGNMENT = _Completed("KEY=VALUE", _assignments)
