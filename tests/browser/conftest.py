"""A real service on two quick runs, and a real browser."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

import allneg

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = "axe-core@4.14.0"
# Without windows, chromium needs a third less time of the processor.
BROWSERS = ("chromium-headless-shell", "chromium")
# With these, Debian's chromium makes no requests of its own. It takes the last list of features:
# after Playwright's come the two pop-ups of the address bar, two pages for every page of a test.
FLAGS = (
    "--no-sandbox", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
    "--disable-features=AimEnabled,AvoidUnnecessaryBeforeUnloadCheckSync,HttpsUpgrades,"
    "DestroyProfileOnBrowserClose,MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,"
    "PaintHolding,PreconnectToSearch,WebUIOmniboxAimPopup,WebUIOmniboxPopup",
)  # fmt: skip
QUICK = (
    "model.dim=16", "training.epochs=3", "training.batch_size=1000", "evaluation.every=1",
    "hardware.device=cpu", "hardware.threads=1",
)  # fmt: skip

AUDIT = """\
France\tborders\tParis\t0.001\t90\t123.5\tSpain\ta capital borders nothing
<img src=x onerror=alert(1)>\tborders\t{long}\t0.002\t80\t12\t<b>Spain</b>\t<i>unseen</i>
Kenya\tspeaks\tDanish\t0.003\t70\t1200\tSwahili\tno neighbour speaks it
""".format(long="VeryLongName" * 30)


@dataclass(frozen=True)
class Explorer:
    """A running service."""

    address: str
    run: Path  # of the model `complex`, which is shown first; the other is `distmult`

    def at(self, **state: str) -> str:
        """The address of a view."""
        return f"{self.address}/#{urlencode({'model': 'complex', **state})}"


@pytest.fixture(scope="session")
def explorer(
    chromium: Browser,
    small_countries: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Explorer]:
    """The service; without a browser nothing is trained."""
    pytest.importorskip("fastapi", reason="the explorer needs allneg[serve]")
    folder = tmp_path_factory.mktemp("runs")
    for model in ("complex", "distmult"):
        settings = [*QUICK, f"model.name={model}"]
        allneg.train(small_countries["countries"], settings=settings, out=folder / model)
    audit = folder / "audit.tsv"
    audit.write_text(AUDIT)
    with _served([folder / "complex", folder / "distmult"], {}, audit) as address:
        yield Explorer(address, folder / "complex")


@pytest.fixture(scope="session")
def labelled(explorer: Explorer) -> Iterator[Explorer]:
    """A service whose entities have labels: their names in capitals, spelt backwards."""
    names = (explorer.run / "entities.txt").read_text().splitlines()
    with _served([explorer.run], {name: name.upper()[::-1] for name in names}) as address:
        yield Explorer(address, explorer.run)


@contextlib.contextmanager
def _served(runs: list[Path], labels: dict[str, str], audit: Path | None = None) -> Iterator[str]:
    """The address of the service, in a thread that ends with the process.

    A process of its own, as in tests/serve/test_server.py, takes seconds to start.
    """
    from allneg.serve.app import make_app
    from allneg.serve.loaded_run import load_runs
    from allneg.serve.review import read_suspicious
    from allneg.serve.server import LOOPBACK, listen, serve
    from allneg.serve.workers import Workers

    with listen("127.0.0.1", 0) as listener:
        suspicious = read_suspicious(audit) if audit else []
        app = make_app(load_runs(runs, labels, "cpu"), Workers(), LOOPBACK, suspicious)
        threading.Thread(target=serve, args=(app, listener), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    gc.unfreeze()  # of what `serve` has frozen


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    guest = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no chromium (Debian: apt-get install chromium-headless-shell)")
    with guest.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass(frozen=True)
class Tab:
    """A page, and the errors of its scripts."""

    page: Page
    wrong: list[str]


@pytest.fixture(scope="session")
def tabs() -> dict[str, Tab]:
    """Pages by their options. A new page starts a process; tests share the old ones."""
    return {}


@pytest.fixture
def new_page(
    chromium: Browser, explorer: Explorer, tabs: dict[str, Tab]
) -> Iterator[Callable[..., Page]]:
    """An empty page with the options of `Browser.new_context`; a script error fails the test.

    `script` runs before the scripts of each document.
    """
    used: list[Tab] = []

    def make(script: str = "", **about: object) -> Page:
        key = repr((script, about))
        if key not in tabs:
            tabs[key] = _new_tab(chromium, script, about)
        used.append(tabs[key])
        return tabs[key].page

    yield make
    wrong = []
    for tab in used:
        tab.page.unroute_all(behavior="ignoreErrors")  # a request may still be under way
        tab.page.context.set_offline(False)
        tab.page.evaluate("try { localStorage.clear() } catch { /* an empty page has none */ }")
        tab.page.goto("about:blank")
        wrong += tab.wrong
        tab.wrong.clear()
    assert wrong == []


def _new_tab(chromium: Browser, script: str, about: dict[str, object]) -> Tab:
    tab = Tab(chromium.new_context(**about).new_page(), [])  # type: ignore[arg-type]
    tab.page.set_default_timeout(15_000)
    tab.page.on("pageerror", lambda error: tab.wrong.append(str(error)))
    tab.page.on(
        "console", lambda message: tab.wrong.append(message.text) if _is_wrong(message) else None
    )
    if script:
        tab.page.add_init_script(script)
    return tab


def _is_wrong(message: object) -> bool:
    # The browser logs every failed request; the page shows them.
    kind, text = message.type, message.text  # type: ignore[attr-defined]
    return kind == "error" and not text.startswith("Failed to load resource")


@pytest.fixture
def page(
    new_page: Callable[..., Page], shoot: Callable[..., None], request: pytest.FixtureRequest
) -> Iterator[Page]:
    """A page of a laptop's size; if a test fails, its last state is saved as a screenshot."""
    page = new_page(
        viewport={"width": 1180, "height": 860}, permissions=["clipboard-read", "clipboard-write"]
    )
    n_failed = request.session.testsfailed
    yield page
    if request.session.testsfailed > n_failed:
        shoot(page)


@pytest.fixture
def shoot(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Save a screenshot under the test's name, where ALLNEG_ARTEFACTS names a folder for it."""
    name = re.sub(r"[^\w-]+", "_", request.node.name.removeprefix("test_"))

    def keep(page: Page, more: str = "") -> None:
        if "ALLNEG_ARTEFACTS" in os.environ:
            path = Path(os.environ["ALLNEG_ARTEFACTS"], "explorer", f"{name}{more}.png")
            page.screenshot(path=path, full_page=True)  # makes its folder

    return keep


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core: from the folder ALLNEG_AXE, else from npm."""
    if "ALLNEG_AXE" in os.environ:
        return (Path(os.environ["ALLNEG_AXE"]) / "axe.min.js").read_text()
    folder, npm = tmp_path_factory.mktemp("axe"), shutil.which("npm")
    if npm is None:
        pytest.skip("axe-core: there is no npm, and ALLNEG_AXE names no folder with axe.min.js")
    try:
        subprocess.run([npm, "pack", AXE], cwd=folder, check=True, capture_output=True, timeout=60)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip("axe-core: npm cannot fetch it, and ALLNEG_AXE names no folder with it")
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        source = packed.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()
