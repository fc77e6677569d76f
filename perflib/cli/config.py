"""The command that shows what is set, and by whom: config."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from perflib.cli.names import EXPERIMENT
from perflib.cli.output import examples, json_option, print_json, quiet, show

if TYPE_CHECKING:
    from perflib.store.config import Given, Parameters


@click.command("config", epilog=examples("perflib config", "perflib config kv_per_core"))
@click.argument("name", required=False, type=EXPERIMENT, metavar="[NAME]")
@json_option
def config_(name: str | None, as_json: bool) -> None:
    """Show every setting, and where its value comes from.

    The command line counts most, then the environment, perflib.toml in the current folder or the
    nearest above it, perflib.toml in your configuration folder, and what is built in. With NAME
    every parameter of that experiment is shown, too; otherwise those that a file sets.
    """
    from perflib.experiments import NAMES, get
    from perflib.framework import configured
    from perflib.store import config
    from perflib.store.config import Given

    values = {**_settings(), **_variables()}
    for experiment in NAMES:
        tables = {"defaults": config.defaults(experiment)}
        tables |= {f"presets.{word}": set_ for word, set_ in config.presets(experiment).items()}
        parameters = {f"{table}.{experiment}": _strongest(set_) for table, set_ in tables.items()}
        if any(parameters.values()) or experiment == name:
            described = configured.documentation(get(experiment))  # complains of what is wrong
        if experiment == name:
            built_in = {
                entry["name"]: Given(entry["default"], config.BUILT_IN)
                for entry in described["parameters"]
            }
            parameters[f"defaults.{name}"] = built_in | parameters[f"defaults.{name}"]
        for table, found in parameters.items():
            values |= {f"{table}.{key}": value for key, value in found.items()}
    config.check_experiments(NAMES)
    if as_json:
        shown = {key: {"value": one.value, "origin": one.origin} for key, one in values.items()}
        print_json({"settings": shown, "files": [str(file.path) for file in config.files()]})
        return
    for key, one in values.items():
        show(f"{key} = {_word(one.value)}", rest="    ")
        if not quiet():
            show(one.origin, "    ")
    if not quiet():
        read = {file.path for file in config.files()}
        for path in sorted(read | {config.user_path()}):
            show(f"{'read' if path in read else 'not there'}: {path}", rest="    ")


def _settings() -> dict[str, Given]:
    """What files may set next to parameters."""
    from perflib.store import config
    from perflib.store.config import Given

    runs = config.runs_dir()
    fitting = Given("a bar in a terminal and in Jupyter, log lines elsewhere", config.BUILT_IN)
    return {
        "store": Given(str(runs.value), runs.origin),
        "progress": config.progress() or fitting,
    }


def _variables() -> dict[str, Given]:
    """What the environment alone sets; the others of its variables stand with what they set."""
    from perflib.store.config import BUILT_IN, Given
    from perflib.store.paths import cache_dir

    built_in = {
        "PERFLIB_CACHE": str(cache_dir()),
        "PERFLIB_CC": "gcc, cc or clang, whichever is there",
        "PERFLIB_CC_TIMEOUT_S": "300",
        "PERFLIB_KERNELS": "compiled when they are needed",
        "PERFLIB_TAG": "",
    }
    return {
        variable.removeprefix("PERFLIB_").lower(): Given(os.environ[variable], variable)
        if os.environ.get(variable)
        else Given(default, BUILT_IN)
        for variable, default in built_in.items()
    }


def _strongest(tables: Iterable[Parameters]) -> dict[str, Given]:
    from perflib.store.config import Given

    return {
        key: Given(value, table.origin) for table in tables for key, value in table.values.items()
    }


def _word(value: Any) -> str:
    """A value as it can be written with ``-p``."""
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return "none" if value in (None, "") else str(value)
