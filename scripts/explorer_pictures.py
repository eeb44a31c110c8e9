"""Write the pictures of docs/explorer.md.

python scripts/explorer_pictures.py runs/demo

The run is that of `make explore`. Needs chromium, as the tests of the page do.
"""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

from allneg.serve.app import make_app
from allneg.serve.loaded_run import load_runs
from allneg.serve.server import LOOPBACK, listen, serve
from allneg.serve.workers import Workers

DOCS = Path(__file__).parents[1] / "docs"
QUESTION = "?x : official_language(?y, Danish), in_subregion(?y, ?x)"
# Each picture: the state of the page, an element that is there once it has loaded, pressed keys.
PICTURES = {
    "explorer": ({"head": "France", "relation": "borders"}, "table.ranked", ""),
    "explorer-hops": (
        {"view": "hops", "question": QUESTION, "certain": "1"}, ".derivation svg", ""
    ),
    "explorer-missing": (
        {"view": "missing", "relation": "in_timezone", "within": "seen"},
        ".review tbody tr", "jaarr",
    ),
}  # fmt: skip


def main() -> None:
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    with listen("127.0.0.1", 0) as listener, sync_playwright() as playwright:
        app = make_app(load_runs([Path(sys.argv[1])], {}, "cpu"), Workers(), LOOPBACK)
        threading.Thread(target=serve, args=(app, listener), daemon=True).start()
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 1000})
        for name, (state, there, keys) in PICTURES.items():
            page.goto("about:blank")
            page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}/#{urlencode(state)}")
            page.locator(there).first.wait_for()
            for key in keys:
                page.keyboard.press(key)
            page.screenshot(path=DOCS / f"{name}.png", full_page=name == "explorer")
        browser.close()


if __name__ == "__main__":
    main()
