"""A stranger's names, opened in Chromium: texts that would run a script run none.

Reports are escaped, and have a policy that stops a script even where an escape were missing;
widgets and tables in JupyterLab, which has no such policy, are escaped.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perflib.investigation.conclusion import conclude
from perflib.investigation.evidence import Evidence, Question, Step, Taken
from perflib.lab.investigation_report import write_investigation
from perflib.lab.report import write_report
from perflib.lab.threads.page import shown
from perflib.model.run import Run
from perflib.store.run_files import load
from tests.browser.notebooks import errors, open_notebook, run_all, write_notebook
from tests.browser.payloads import CANARY, PAYLOADS, WATCH
from tests.investigation.cases import EXPERIMENT, PART
from tests.stored import RUNS

if TYPE_CHECKING:
    from playwright.sync_api import Dialog

_PATIENCE_MS = 120_000
_ALL = " ".join(PAYLOADS)
_TEXT = "document.documentElement.textContent"
# What no page of ours has, and every payload would make.
_ACTIVE = """() => [...document.querySelectorAll('*')]
  .filter((one) => one.matches('script,iframe,object,embed,base,form,svg,math,template,[style]')
    || one.getAttributeNames().some((name) => name.startsWith('on'))
    || /^\\s*\\w+:/.test(one.getAttribute('href') ?? ''))
  .map((one) => one.outerHTML)"""
_TOUCH = """async () => {
  const stay = (event, to) => { if (!/^javascript:/.test(to)) event.preventDefault(); };
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a');
    if (link) stay(event, link.href.baseVal ?? link.href);
  });
  document.addEventListener('submit', (event) =>
    stay(event, event.submitter?.formAction ?? event.target.action));
  for (const one of document.querySelectorAll('a, button, details, summary, svg a')) {
    one.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
    one.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}));
  }
  await new Promise((done) => setTimeout(done, 30));
  return [hits, violations];
}"""


@pytest.fixture
def asked(page: Any) -> list[str]:
    """What pages asked a stranger's host for, and dialogs; scripts that run count in the page."""
    found: list[str] = []

    def refuse(route: Any) -> None:
        found.append(route.request.url)
        route.abort()

    page.set_default_timeout(_PATIENCE_MS)
    page.add_init_script(WATCH)
    page.route(re.compile(re.escape(CANARY)), refuse)

    def dismissed(dialog: Dialog) -> None:
        found.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismissed)
    return found


def strangers_run(name: str) -> Run:
    """A run whose every text is a stranger's."""
    run = load(RUNS / f"{name}.parquet")
    texts = {"hostname", "processor", "microarchitecture", "product", "kernel", "system"}
    machine = run.provenance["machine"]
    machine |= dict.fromkeys(texts | {"hypervisor", "container", "clocksource"}, _ALL)
    machine["cpus"] = [{**cpu, "where": _ALL} for cpu in machine["cpus"]]
    machine["caches"] = [{**one, "name": _ALL} for one in machine["caches"]]
    run.provenance |= {"problems": PAYLOADS, "stopped": _ALL, "versions": {_ALL: _ALL}}
    run.provenance["kernel"] = {"compiler_version": _ALL, "flags": PAYLOADS, "link": PAYLOADS}
    return run


def check_text_only(page: Any, asked: list[str], console: list[str]) -> None:
    text = page.evaluate(_TEXT)
    assert [payload for payload in PAYLOADS if payload not in text] == []
    assert page.evaluate(_ACTIVE) == []
    assert page.evaluate(_TOUCH) == [[], []]
    assert asked == []
    assert console == []


def test_a_report_shows_a_strangers_texts_as_they_are(
    page: Any, asked: list[str], console: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    write_report([strangers_run("kv_per_core")], path)
    page.goto(path.as_uri())
    check_text_only(page, asked, console)


def test_an_investigation_shows_a_strangers_texts_as_they_are(
    page: Any, asked: list[str], console: list[str], tmp_path: Path
) -> None:
    run = strangers_run("kv_per_core")
    check = {"state": "warn", "now": _ALL, "cost": _ALL, "command": _ALL, "values": []}
    checks = [{"name": name, **check} for name in ("load", *PAYLOADS)]
    known = Evidence(Question(), [0, 1], {"machine": run.provenance["machine"], "checks": checks})
    step = Step("symptom", PART["symptom"], _ALL, EXPERIMENT["symptom"], {"tag": _ALL}, 30.0)
    known.add(Taken(step, run, 30.0))
    known.add(Taken(Step("levels", PART["levels"], _ALL, "memory_levels", {}, 30.0), None, 0, _ALL))
    path = tmp_path / "report.html"
    write_investigation(known, conclude(known), path)
    page.goto(path.as_uri())
    check_text_only(page, asked, console)


@pytest.mark.timeout(900)
def test_the_policy_alone_stops_what_an_escape_let_through(
    page: Any, asked: list[str], tmp_path: Path
) -> None:
    """Each payload put into a page as it is: in an element, and in an attribute."""
    path = tmp_path / "report.html"
    write_report([], path)
    escaped = path.read_text().replace("Nothing was measured.", "PAYLOAD")
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy".*>\n')
    assert escaped.count("<li>PAYLOAD</li>") == 1
    assert len(policy.findall(escaped)) == 1
    stopped, ran = set(), set()
    for number, payload in enumerate(PAYLOADS):
        element = escaped.replace("<li>PAYLOAD</li>", f"<li>{payload}</li>")
        attribute = escaped.replace("<li>PAYLOAD</li>", f'<li><b title="{payload}">x</b></li>')
        for text in (element, attribute):
            path.write_text(text)
            page.goto(path.as_uri())
            hits, violations = page.evaluate(_TOUCH)
            assert hits == asked == [], payload
            assert page.evaluate("getComputedStyle(document.body).maxWidth") == "1024px", payload
            stopped |= {number} if violations else set()
            path.write_text(policy.sub("", text))  # so: it is the policy that stops them
            page.goto(path.as_uri())
            ran |= {number} if page.evaluate(_TOUCH)[0] or asked else set()
            asked.clear()
    every = set(range(len(PAYLOADS)))
    assert len(stopped) > 0.7 * len(every), sorted(every - stopped)
    assert len(ran) > 0.7 * len(every), sorted(every - ran)


_CELL = """
from pathlib import Path
from IPython.display import display
from perflib.instruments.threads.formats import Lock
from perflib.lab.choice import Choice
from perflib.lab.flamegraph import flame_graph
from perflib.lab.form import Form
from perflib.lab.tables import Table, table
from perflib.lab.threads.views import thread_view
from tests.browser.payloads import PAYLOADS
from tests.browser.test_strangers import strangers_run
from tests.instruments.profile.tables import samples_of
from tests.instruments.threads.made import recording_of
MS = 1_000_000
every = range(len(PAYLOADS))
waits = [[(0, 50 * MS, 2, 0, -1, n, every[-1 - n], n), (50 * MS, 99 * MS, 0)] for n in every]
recording = recording_of(
    Path("recording"), waits, names=PAYLOADS,
    locks=tuple(Lock(text, "mutex", 4096 * (n + 1), 100) for n, text in enumerate(PAYLOADS)),
    stacks=tuple("main;" + text.replace(";", "") for text in PAYLOADS),
    samples=[(60 * MS, n, n, 20 * MS) for n in every],
    meta={"cpus": 2},
)
view = thread_view(recording, rows_per_page=64)
graph = flame_graph(samples_of({"main;" + ";".join(t.replace(";", "") for t in PAYLOADS): 10}))
choice = Choice()
choice.show(PAYLOADS[0], PAYLOADS, [PAYLOADS] * 2)
form = Form("kv_per_core")
form._say(" ".join(PAYLOADS), wrong=True)
form._finish(strangers_run("kv_per_core"))
display(table([dict.fromkeys(PAYLOADS, PAYLOADS[0])]))
display(Table(PAYLOADS, [PAYLOADS], {(0, 0): PAYLOADS[44]}))
display(view, graph, choice, form)
"""
_TABS = ("Threads", "Locks", "Longest waits", "Bottom-up", "Top-down", "Calls")
_SHOWN = """() => [...document.querySelectorAll('.perflib-threads .widget-tab-contents *')]
  .some((one) => one.offsetParent && one.textContent.includes('ran('))"""


@pytest.mark.timeout(900)
def test_widgets_in_jupyterlab_show_a_strangers_names_as_they_are(
    page: Any, asked: list[str], lab_url: str, folder: Path, console: list[str]
) -> None:
    path = write_notebook(folder / "strangers.ipynb", _CELL)
    open_notebook(page, lab_url.format(path=path.name))
    run_all(page)
    page.locator(".perflib-timeline").wait_for()
    names = page.locator(".perflib-timeline-name")
    assert names.all_text_contents() == [shown(name) for name in PAYLOADS[:64]]
    assert "<" in page.locator(".perflib-choice-row").first.text_content()
    for title in _TABS:
        page.get_by_role("tab", name=title, exact=True).click()
        page.wait_for_function(_SHOWN)
    page.get_by_role("tab", name="Flame graph", exact=True).click()
    page.locator(".perflib-timeline-stage").hover()
    frames = page.locator(".perflib-flame-frame", has_text=PAYLOADS[12])
    frames.last.hover()
    frames.last.click()
    written = page.locator(".jp-OutputArea").all_text_contents()
    missing = [text for text in PAYLOADS if not any(text in one for one in written)]
    assert missing == []
    assert page.evaluate("hits") == []
    assert asked == []
    assert errors(console) == []
