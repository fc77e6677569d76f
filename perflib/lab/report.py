"""The report: one HTML file without anything outside it, for whoever was not there."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from perflib import experiments
from perflib.investigation.correction import corrected
from perflib.lab.ledger import ledger_table
from perflib.lab.machine import caches, cores, facts, tlbs, warnings_of
from perflib.lab.markup import seen
from perflib.lab.summary import summary
from perflib.lab.tables import STYLE, Table, table, verdicts
from perflib.lab.theme import figures, png
from perflib.machine.describe import describe
from perflib.machine.doctor.diagnose import diagnose
from perflib.model.errors import MeasurementError, UserError
from perflib.model.finding import Finding
from perflib.model.run import Run, recording_of
from perflib.store.files import replacing

_UNKNOWN = "unknown"


def write_report(runs: Sequence[Run], path: Path) -> str:
    """Write the report of some runs.

    Parameters
    ----------
    runs
        What was measured; each run is analysed anew, and the anomaly claims of several are
        corrected together (``perflib.investigation.correction``). The machine that is described is
        the first run's; what the doctor says is shown only if that is this machine.
    path
        The HTML file to write. Figures and style are inside it.

    Returns
    -------
    What was found, in plain sentences, one a line, run by run below its experiment's title: the
    report begins with them.
    """
    judged = corrected([experiments.get(run.experiment).analyse(run) for run in runs])
    found = list(zip(runs, judged, strict=True))
    texts = [(experiments.get(run.experiment).title, summary(findings)) for run, findings in found]
    hypotheses = ledger_table(found)
    here = describe()
    machine = runs[0].provenance.get("machine") if runs else here
    if machine is None:
        msg = f"run {runs[0].id} does not say which machine it is of, and a report describes it"
        raise UserError(msg)
    host = runs[0].provenance["recording"]["machine"] if runs and recording_of(runs[0]) else None
    same = all(machine[key] == here[key] for key in ("fingerprint", "hostname"))
    page = template("report.html.j2").render(
        title=f"{host or machine['hostname']}: what slows it down",
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=STYLE,
        texts=texts or [("", ["Nothing was measured."])],
        facts=facts(machine),
        cores=cores(machine).html(),
        caches=caches(machine).html(),
        tlbs=tlbs(machine).html() if machine["tlbs"] else "",
        warnings=warnings_of(diagnose()) if same else None,
        sections=[_section(run, findings) for run, findings in found],
        hypotheses=hypotheses.html() if hypotheses.rows else "",
    )
    write_page(page, path)
    return "\n\n".join("\n".join([title, *sentences]) for title, sentences in texts)


def write_page(page: str, out: Path) -> None:
    """Write a page, whole or not at all.

    Raises
    ------
    MeasurementError
        The disk is full or may not be written.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as temporary:
            temporary.write_text(page, encoding="utf-8")
    except OSError as error:
        msg = f"the report cannot be written to {out}: {error.strerror or error}"
        raise MeasurementError(msg) from error


def template(name: str) -> Any:
    """A page of this folder; what is filled in is escaped, and nothing may be missing.

    Should a text ever get through as markup, it can neither run nor load anything: see `_policy`.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["policy"] = _policy
    return environment.get_template(name)


def _finalized(value: Any) -> Any:
    """A text with nothing unseen in it; what is HTML already (a Jinja ``Markup``) stays."""
    return seen(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _policy(style: str, script: str = "") -> str:
    """A page's content security policy: this style, this script or none, pictures within."""
    allowed = ["default-src 'none'"]
    for kind, text in (("style", style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        allowed += [f"{kind}-src 'sha256-{digest}'"] if text else []
    return "; ".join([*allowed, "img-src data:", "base-uri 'none'", "form-action 'none'"])


def _section(run: Run, findings: Sequence[Finding]) -> dict[str, Any]:
    """All that the report says of one run."""
    experiment = experiments.get(run.experiment)
    published = experiment.published()
    return {
        "title": experiment.title,
        "question": experiment.question,
        "recorded": recording_of(run),
        "verdicts": verdicts(findings).html(),
        "figures": [
            {"name": name.replace("_", " "), "data": base64.b64encode(png(figure)).decode()}
            for name, figure in figures(run).items()
        ],
        "problems": run.provenance.get("problems", []),
        "published": table(published).html() if published is not None else "",
        "details": Table(("", ""), how_measured(run), {}).html(),
        "id": run.id,
    }


def how_measured(run: Run) -> list[tuple[str, str]]:
    """How a run was made, in pairs of words: enough to repeat it, where its record has it."""
    known = run.provenance
    kernel = known.get("kernel") or {}
    rows = {
        "machine": known.get("machine", {}).get("hostname", _UNKNOWN),
        "measured": f"{known.get('start', _UNKNOWN)} to {known.get('end', _UNKNOWN)}",
        "stopped": known.get("stopped", _UNKNOWN),
        "samples": f"{len(run.samples)} in {known.get('trials', _UNKNOWN)} trials",
        "failed trials": known.get("failed_trials", _UNKNOWN),
        "parameters": ", ".join(f"{name}={value}" for name, value in run.params.items()),
        "compiler": " ".join(
            [kernel.get("compiler_version", "–"), *kernel.get("flags", []), *kernel.get("link", [])]
        ),
        "versions": ", ".join(f"{k} {v}" for k, v in known.get("versions", {}).items()),
    }
    return [(name, str(value)) for name, value in rows.items()]
