"""A real JupyterLab and a real Chromium for tests that work as a learner does.

Use the fixture ``lab``::

    def test_something(lab):
        lab.open("02_number_formats.ipynb")
        lab.run_all()
        lab.set_cell_source("ulp", "def ulp(x): ...")
        lab.run_cell("check-ulp")
        assert "ties go to even" in lab.output_text("check-ulp")

A cell is named by its nbgrader ``grade_id``, its cell id, or its index. Menus may be reached
through ``lab.command``; typing and clicking go through the page's real keyboard and mouse
(``lab.page``, Playwright's sync API). The server's root is ``lab.root``, a copy of the notebooks;
progress goes to ``lab.labkit_home``. After a failure the page is in tests/browser/screenshots/.

Skipped where Playwright or Chromium is missing. LABKIT_CHROMIUM names another Chromium.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

from labkit.base.home import NOTEBOOKS

CHROMIUM = os.environ.get("LABKIT_CHROMIUM", "/usr/bin/chromium")
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = Path(__file__).parent / "screenshots"
PATIENCE = 300  # seconds for a page or a cell; a loaded machine is slow, a broken one never answers
GLANCE = 60  # seconds for what a page does by itself

SETTINGS = {
    # Every cell stays in the page, so that a test finds cells that are scrolled away.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Typed text arrives as it was typed.
    "codemirror-extension/plugin": {
        "defaultConfig": {"autoClosingBrackets": False, "smartIndent": False}
    },
}

# What a learner's environment has not, or no test uses: importing them takes longer than the rest.
WITHOUT = [
    "jupyter_lsp",
    "jupyter_server_terminals",
    "jupyterlab_jupytext",
    "nbgrader.server_extensions.assignment_list",
    "nbgrader.server_extensions.course_list",
    "nbgrader.server_extensions.formgrader",
    "nbgrader.server_extensions.validate_assignment",
    "notebook",
]


@dataclass(frozen=True)
class Server:
    """A running JupyterLab: its address, its token, its root folder and labkit's home."""

    url: str
    token: str
    root: Path
    labkit_home: Path

    def api(self, method: str, path: str) -> object:
        """Call Jupyter's REST API; returns what the JSON says, or None for an empty answer."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            body = answer.read()
        return json.loads(body) if body else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _write_settings(home: Path) -> None:
    for name, settings in SETTINGS.items():
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    extensions = {"ServerApp": {"jpserver_extensions": dict.fromkeys(WITHOUT, False)}}
    (home / "config").mkdir()
    (home / "config" / "jupyter_server_config.json").write_text(json.dumps(extensions))


def _wait_until_up(server: Server, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            server.api("GET", "status")
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start; its log ends in:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    """JupyterLab on a free port of 127.0.0.1, with settings, data and progress of its own."""
    home = tmp_path_factory.mktemp("jupyter")
    root = home / "notebooks"
    shutil.copytree(
        NOTEBOOKS, root, ignore=shutil.ignore_patterns("source", "my_labs", ".ipynb_checkpoints")
    )
    _write_settings(home)
    port, token = _free_port(), secrets.token_hex(16)
    server = Server(f"http://127.0.0.1:{port}", token, root, home / "labkit")
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
        "LABKIT_HOME": str(server.labkit_home),
        "JUPYTER_PLATFORM_DIRS": "1",
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("LABKIT_PROGRESS", None)  # a learner's progress is kept
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={root}", "--LabApp.expose_app_in_browser=True",
        "--LabApp.news_url=None", "--LabApp.check_for_updates_class="
        "jupyterlab.handlers.announcements.NeverCheckForUpdate",
    ]  # fmt: skip
    log = home / "jupyterlab.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, env=environment, cwd=root, stdout=out, stderr=out)
    try:
        _wait_until_up(server, process, log)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="package")
def chromium():
    """Chromium without a window; skips where it or Playwright is missing."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is missing: pip install playwright"
    )
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}: install it, or set LABKIT_CHROMIUM to yours")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


class Lab:
    """One learner in front of JupyterLab."""

    def __init__(self, page, server: Server) -> None:
        self.page = page
        self.server = server
        self.root = server.root
        self.labkit_home = server.labkit_home
        self.opened: list[str] = []

    def open(self, name: str) -> None:
        """Open a notebook of the server's root in a fresh workspace and wait for its kernel."""
        url = f"{self.server.url}/lab/tree/{name}?token={self.server.token}&reset"
        self.opened.append(name)
        self.page.goto(url, timeout=PATIENCE * 1000)
        self.page.wait_for_function(
            "window.jupyterapp?.shell?.currentWidget?.context?.isReady", timeout=PATIENCE * 1000
        )
        self.page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for()
        self.wait_idle()

    def wait_idle(self) -> None:
        """Wait until no cell waits or runs and the kernel says that it is idle."""
        self.page.wait_for_function(
            """() => {
                const panel = window.jupyterapp.shell.currentWidget;
                const kernel = panel.sessionContext.session?.kernel;
                const waiting = panel.content.widgets.some(
                    (cell) => cell.model.type === "code" && cell.model.executionState === "running"
                        || cell.promptNode?.textContent.includes("*"));
                return kernel?.status === "idle" && !waiting;
            }""",
            timeout=PATIENCE * 1000,
        )

    def command(self, name: str, **arguments) -> None:
        """Execute a command of JupyterLab, as its menu would."""
        self.page.evaluate(
            "([name, args]) => { window.jupyterapp.commands.execute(name, args); }",
            [name, arguments],
        )

    def run_all(self) -> None:
        """Run All Cells, to the last one."""
        before = self._executions()
        self.command("notebook:run-all-cells")
        # Neither the command's promise nor an idle kernel tells a pause between two cells from the
        # end: the promise breaks at the first cell that raises, expected or not.
        self.page.wait_for_function(
            "(before) => window.jupyterapp.shell.currentWidget.content.widgets"
            ".filter((cell) => cell.model.type === 'code')"
            ".every((cell) => (cell.model.executionCount ?? 0) > before)",
            arg=before,
            timeout=PATIENCE * 1000,
        )
        self.wait_idle()

    def _executions(self) -> int:
        return self.page.evaluate(
            "() => Math.max(0, ...window.jupyterapp.shell.currentWidget.content.widgets.map("
            "(cell) => cell.model.executionCount ?? 0))"
        )

    def cell_count(self) -> int:
        """How many cells the notebook has."""
        return self.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.content.widgets.length"
        )

    def _index(self, name: str | int) -> int:
        index = self.page.evaluate(
            """(name) => window.jupyterapp.shell.currentWidget.content.widgets.findIndex(
                (cell, i) => i === name || cell.model.id === name
                    || cell.model.getMetadata("nbgrader")?.grade_id === name)""",
            name,
        )
        if index < 0:
            raise KeyError(f"no cell with grade_id or id {name!r} in this notebook")
        return index

    def cell(self, name: str | int):
        """Playwright's locator of a cell: by grade_id, cell id or index."""
        cells = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell")
        return cells.nth(self._index(name))

    def cell_source(self, name: str | int) -> str:
        """The text of a cell."""
        return self.page.evaluate(
            "(i) => window.jupyterapp.shell.currentWidget.content.widgets[i]"
            ".model.sharedModel.getSource()",
            self._index(name),
        )

    def set_cell_source(self, name: str | int, text: str) -> None:
        """Click into a cell, select all of it and type (one input, as a paste does)."""
        self.cell(name).locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(text)
        assert self.cell_source(name) == text

    def run_cell(self, name: str | int) -> None:
        """Click into a code cell, press Ctrl+Enter and wait until it has run."""
        self.cell(name).locator(".cm-content").click()
        before = self._executions()
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_function(
            "([i, before]) => window.jupyterapp.shell.currentWidget.content.widgets[i]"
            ".model.executionCount > before",
            arg=[self._index(name), before],
            timeout=PATIENCE * 1000,
        )
        self.wait_idle()

    def output_text(self, name: str | int) -> str:
        """What a reader sees below a cell, as text; empty where it has no output."""
        return "\n".join(self.cell(name).locator(".jp-OutputArea-output").all_inner_texts())

    def output_data(self, name: str | int) -> list[dict]:
        """The outputs of a cell as they would be saved in the notebook."""
        return self.page.evaluate(
            "(i) => window.jupyterapp.shell.currentWidget.content.widgets[i]"
            ".model.outputs.toJSON()",
            self._index(name),
        )

    def save(self) -> None:
        """Save the notebook and wait until the disk has it."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")

    def restart_kernel(self) -> None:
        """Restart the kernel, answer the dialog as a learner does, and wait for the new one."""
        self.command("kernelmenu:restart")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.page.locator(".jp-Dialog").wait_for(state="detached")
        self.wait_idle()

    def theme(self, name: str) -> None:
        """Change the theme: "JupyterLab Light" or "JupyterLab Dark"."""
        self.page.evaluate(
            "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", name
        )
        # JupyterLab hides its whole shell between the new theme and the next frame.
        self.page.wait_for_function(
            "(light) => document.body.dataset.jpThemeLight === light"
            " && window.jupyterapp.shell.isVisible",
            arg="false" if "Dark" in name else "true",
        )


@contextmanager
def _learner(chromium, server: Server):
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(GLANCE * 1000)
    learner = Lab(page, server)
    try:
        yield learner
    finally:
        context.close()
        for session in server.api("GET", "sessions"):
            if session["path"] in learner.opened:
                server.api("DELETE", f"sessions/{session['id']}")


@pytest.fixture
def lab(chromium, server):
    """A learner with a fresh page; every kernel is shut down afterwards."""
    with _learner(chromium, server) as learner:
        yield learner


@pytest.fixture(scope="module")
def module_lab(chromium, server):
    """The same for a whole file whose tests share one notebook and one kernel."""
    with _learner(chromium, server) as learner:
        yield learner


class Workbench:
    """One notebook and one kernel that the tests of small widgets share: a kernel starts slowly."""

    CELLS = 80

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.page = lab.page
        self._next = 0

    def show(self, source: str):
        """Run the source in a new cell; returns Playwright's locator of the widget it displays."""
        cell, self._next = self._next, self._next + 1
        self.lab.set_cell_source(cell, source)
        self.lab.run_cell(cell)
        widget = self.lab.cell(cell).locator(".lk")
        widget.wait_for()
        return widget

    def say(self, expression: str) -> str:
        """What Python prints for an expression, in a new cell."""
        cell, self._next = self._next, self._next + 1
        self.lab.set_cell_source(cell, f"print({expression})")
        self.lab.run_cell(cell)
        return self.lab.output_text(cell).strip()

    def until(self, expression: str, wanted: str) -> None:
        """Ask Python, in a new cell, until it prints that: what the page tells may come later."""
        deadline = time.monotonic() + GLANCE
        said = self.say(expression)
        while said != wanted and time.monotonic() < deadline:
            self.lab.run_cell(self._next - 1)
            said = self.lab.output_text(self._next - 1).strip()
        assert said == wanted

    def focused(self) -> str:
        """The accessible name of what has the focus, or its class."""
        return self.page.evaluate(
            "() => document.activeElement.ariaLabel ?? document.activeElement.className"
        )


@pytest.fixture(scope="package")
def workbench(chromium, server):
    """A notebook of empty cells, opened once; the tests of a widget show theirs in it."""
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    cells = [nbformat.v4.new_code_cell("", id=f"cell-{i}") for i in range(Workbench.CELLS)]
    written = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(written, server.root / "workbench.ipynb")
    with _learner(chromium, server) as learner:
        learner.open("workbench.ipynb")
        yield Workbench(learner)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Keep a picture of the page where a test failed."""
    report = yield
    pages = [used.page for used in getattr(item, "funcargs", {}).values() if hasattr(used, "page")]
    if report.when == "call" and report.failed and pages:
        SCREENSHOTS.mkdir(exist_ok=True)
        path = SCREENSHOTS / f"{re.sub(r'[^A-Za-z0-9_.-]', '-', item.name)}.png"
        try:
            pages[0].screenshot(path=path)
            report.sections.append(("screenshot", str(path)))
        except Exception as problem:  # a page that is gone must not hide the test's own failure
            report.sections.append(("screenshot", f"none: {problem}"))
    return report
