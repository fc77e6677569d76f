"""What the commands share: options, JSON, sentences."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from perflib.model.finding import Finding

__all__ = [
    "json_option",
    "parameter_option",
    "preset_option",
    "print_findings",
    "print_json",
    "records",
    "say",
]

json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object on standard output, nothing else."
)
# --profile is what presets were called once; what perf makes has that name now.
preset_option = click.option(
    "--preset",
    "--profile",
    metavar="quick|full",
    help="Parameters for minutes, or for an hour.",
)
parameter_option = click.option(
    "-p", "assignments", multiple=True, metavar="KEY=VALUE", help="A parameter."
)


def say(text: str) -> None:
    """A remark, on standard error."""
    click.echo(text, err=True)


def print_json(value: object) -> None:
    """The one object of ``--json``."""
    click.echo(json.dumps(value, allow_nan=False))


def records(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as ``--json`` has them: the exact claims, with sentences for people beside them."""
    return [finding.to_dict() for finding in findings]


def print_findings(findings: Sequence[Finding]) -> None:
    """What is so, in a few sentences for people."""
    from perflib.lab.summary import summary

    for sentence in summary(findings):
        click.echo(f"  {sentence}")
