"""JupyterLab in headless Chromium: a server, a browser page, and what its console says."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_START_S = 120


def chromium() -> str | None:
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where JupyterLab works: the test puts its notebook there."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def lab_url(tmp_path: Path, folder: Path) -> Iterator[str]:
    """The address of a JupyterLab of its own, with nothing from the user's configuration."""
    pages = tmp_path / "config" / "labconfig"
    pages.mkdir(parents=True)
    disabled = {"@jupyterlab/apputils-extension:announcements": True}
    (pages / "page_config.json").write_text(json.dumps({"disabledExtensions": disabled}))
    token, port = secrets.token_hex(16), _free_port()
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PERFLIB_HOME": str(tmp_path / "home"),
    }
    argv = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    argv += ["--expose-app-in-browser", f"--port={port}", "--ServerApp.port_retries=0"]
    argv += [f"--IdentityProvider.token={token}", "--ServerApp.ip=127.0.0.1", str(folder)]
    log = tmp_path / "jupyterlab.log"
    with (
        log.open("w") as out,
        subprocess.Popen(argv, env=environment, stdout=out, stderr=subprocess.STDOUT) as server,
    ):
        try:
            _wait_for(f"http://127.0.0.1:{port}/api/status?token={token}", server, log)
            yield f"http://127.0.0.1:{port}/lab/tree/{{path}}?token={token}&reset"
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_for(url: str, server: subprocess.Popen[Any], log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"JupyterLab did not answer within {_START_S} s:\n{log.read_text()}")


@pytest.fixture
def console() -> list[str]:
    """Errors of the page's console, as they come."""
    return []


def inaccessible(page: Any, part: str = "document") -> list[str]:
    """What axe finds that not everyone can read: on the page, or in a part of it."""
    axe = pytest.importorskip(
        "axe_playwright_python", reason="needs axe-core: pip install 'perflib-jupyter[dev]'"
    )
    page.evaluate((Path(axe.__path__[0]) / "axe.min.js").read_text())  # a page's policy: no tag
    run = f"async () => (await axe.run({part}, {{resultTypes: ['violations']}})).violations"
    nodes = ".map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' | '))"
    return list(page.evaluate(run + nodes))


@contextlib.contextmanager
def started_browser() -> Iterator[Any]:
    """Headless Chromium; a test that needs it is skipped where it is missing."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs Playwright: pip install 'perflib-jupyter[dev]'"
    )
    path = chromium()
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(console: list[str]) -> Iterator[Any]:
    """A page of headless Chromium whose errors go to ``console``."""
    with started_browser() as browser:
        opened = browser.new_page(viewport={"width": 1300, "height": 1600})
        opened.on("pageerror", lambda error: console.append(f"uncaught: {error}"))
        opened.on(
            "console",
            lambda said: (
                console.append(f"{said.text} ({said.location.get('url', '')})")
                if said.type == "error"
                else None
            ),
        )
        yield opened
