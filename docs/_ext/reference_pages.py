"""The reference, from what the experiments declare.

``make reference`` writes docs/reference.md, and a page an experiment below docs/reference, by
running this module.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perflib.cli.reference import (
    Shared,
    claim_lines,
    own_page,
    parameter_line,
    readable,
    shared_by_all,
)


def reference() -> dict[str, str]:
    """The whole reference as Markdown, by file in docs: ``reference.md``, and one an experiment."""
    from perflib.experiments import NAMES, get

    shared = shared_by_all()
    documents = [get(name).documentation() for name in NAMES]
    lines = [
        "# Reference",
        "",
        "What every experiment takes, measures, claims and shows.",
        "`make reference` writes these pages from what the experiments declare.",
        "`perflib list NAME` shows one of them.",
        "",
        "A word in braces, such as `{cpu}`, stands for what a claim is about, or for a number.",
        "",
        "## Experiments",
        "",
        *(f"- [{one['name']}](reference/{one['name']}.md): {one['question']}" for one in documents),
        "",
        "## Parameters of every experiment",
        "",
        *map(parameter_line, shared.parameters),
        "",
        "## Claims of every comparison of two runs",
        "",
        *(line for claim in shared.claims for line in claim_lines(claim)),
        "",
        *_investigation(),
    ]
    pages = {f"reference/{one['name']}.md": _alone(one, shared) for one in documents}
    return {"reference.md": "\n".join(lines), **pages}


def _alone(document: Mapping[str, Any], shared: Shared) -> str:
    """An experiment's page: its section, and the figures of a recorded run."""
    page = own_page(document, shared, Shared([], []))
    notebook = document["notebook"]
    link = f"[{notebook}.ipynb](../../notebooks/{notebook}.ipynb)"
    page = page.replace(f"Notebook: `{notebook}.ipynb`.", f"Notebook: {link}.", 1)
    lines = [re.sub(r"^##", "#", line) for line in page.splitlines()]
    return "\n".join(
        [*lines, "", "## Figures", "", f"```{{figures}} {document['name']}", "```", ""]
    )


def _investigation() -> Iterator[str]:
    """The words of an investigation's cause, and the rules of its plan."""
    from perflib.investigation.causes import CAUSES
    from perflib.investigation.rules import RULES

    yield from ("## The investigation", "", "### Words of `cause`", "")
    yield from (f"- `{word}`: {cause.means}" for word, cause in CAUSES.items())
    yield from ("", "### Rules, walked from the top", "")
    for rule in RULES:
        yield f"- `{rule.name}` ({rule.part}), when {rule.when}: `{rule.experiment}`"
        yield f"  - why: {readable(rule.why)}"
        more = f", {rule.per_core_s:g} s more for each core beyond two" if rule.per_core_s else ""
        yield f"  - for {rule.least_s:g} to {rule.most_s:g} s{more}"
    yield ""


if __name__ == "__main__":
    os.environ["PERFLIB_CONFIG"] = "none"  # the page is everybody's
    for file, text in reference().items():
        path = Path(sys.argv[1], file)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
