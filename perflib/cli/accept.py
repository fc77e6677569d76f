"""``perflib accept``: is this node like the nodes of its model?"""

from __future__ import annotations

from pathlib import Path

import click

from perflib.cli.names import FILE
from perflib.cli.output import (
    examples,
    json_option,
    print_findings,
    print_json,
    put,
    quiet,
    reporter,
    show,
    verbose,
)


@click.command(
    epilog=examples(
        "perflib accept --against plan",
        "perflib accept --against plan --model r650 --openmetrics accept.prom",
        "perflib accept --against plan --node node17",
    )
)
@click.option(
    "--against",
    required=True,
    metavar="FARM",
    help="A plan that was collected, 'store' (all saved runs), or a folder of exported runs.",
)
@click.option("--model", help="The farm's name of this node's model. [default: that of its nodes.]")
@click.option("--node", help="Judge a node of the farm by its last runs; nothing is measured.")
@click.option(
    "--threshold",
    default=1.0,
    type=click.FloatRange(0, 1000, min_open=True),
    help="Smallest slowdown that matters, in %.",
)
@click.option(
    "--alpha",
    default=0.01,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="How often one comparison finds a healthy node outside.",
)
@click.option("--openmetrics", type=FILE, help="Also a file for Prometheus's textfile collector.")
@json_option
@click.pass_context
def accept(
    context: click.Context,
    against: str,
    model: str | None,
    node: str | None,
    threshold: float,
    alpha: float,
    openmetrics: Path | None,
    as_json: bool,
) -> None:
    """Say whether this node is like the nodes of its model.

    It takes about a minute. What refuses it is measured a second time first. The last line of a
    refusal is a reason for the scheduler. 'perflib fleet plan --acceptance' makes the farm's runs.

    Exit status 0: accepted; 3: refused; 4: cannot tell; 2: it cannot be done as asked; 1: the
    measurement failed.
    """
    from perflib.fleet.acceptance import accept as accepted
    from perflib.fleet.acceptance_words import write_metrics

    found = accepted(
        against,
        model=model,
        node=node,
        threshold_percent=threshold,
        alpha=alpha,
        watch=lambda name: reporter(f"accept: {name}"),
    )
    if openmetrics is not None:
        write_metrics(found, openmetrics)
    if as_json:
        print_json(found.to_dict())
    else:
        for sentence in found.sentences[: 1 if quiet() else None]:
            show(sentence, rest="  ")
        if verbose():
            print_findings(found.findings)
        if found.drain_reason:
            put(found.drain_reason)
    context.exit(found.exit_status)
