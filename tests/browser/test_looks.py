"""Every view in light and dark, wide and narrow: layout and accessibility."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from conftest import Explorer

pytestmark = pytest.mark.browser
QUESTION = "?x : borders(France, ?y), speaks(?y, ?x), not borders(?y, Spain)"
# Each view: its state, and an element that is there once it has loaded.
VIEWS = {
    "ask": ({"head": "France", "relation": "borders"}, "table.ranked"),
    "why": ({"head": "France", "relation": "borders", "why": "Germany"}, "div.why h3"),
    "relations": ({"head": "France", "tail": "Spain"}, "table.ranked"),
    "incomplete": ({}, ".empty"),
    "unknown": ({"head": "Frnce", "relation": "borders"}, ".trouble"),
    "entity": ({"view": "entity", "name": "France"}, ".drawn svg"),
    "compare": ({"view": "compare", "head": "France", "relation": "borders"}, ".moves svg"),
    "quality": ({"view": "quality"}, ".heatmap"),
    "hops": ({"view": "hops", "question": QUESTION}, ".derivation svg"),
    "mistake": ({"view": "hops", "question": "?x : border(France, ?x)"}, ".where"),
    "missing": ({"view": "missing", "relation": "borders", "within": "type"}, ".trouble"),
    "suspicious": ({"view": "suspicious"}, ".review"),
    "map": ({"view": "map", "relation": "city_in_subregion"}, "canvas"),
}


# Sums up how far elements have moved that were drawn already.
JUMPS = """
    window.jumped = 0;
    new PerformanceObserver((list) => {
      const alone = list.getEntries().filter((item) => !item.hadRecentInput);
      for (const item of alone) window.jumped += item.value;
    }).observe({ type: "layout-shift", buffered: true });
"""


def open_view(page: Page, explorer: Explorer, view: str) -> None:
    """Load a view anew."""
    wanted, there = VIEWS[view]
    page.goto("about:blank")
    page.goto(explorer.at(**wanted))
    page.locator(there).first.wait_for()


def visit_view(page: Page, explorer: Explorer, view: str) -> None:
    """Go to a view, in the document that is open if there is one."""
    wanted, there = VIEWS[view]
    page.evaluate("for (const old of document.querySelectorAll('main *')) old.dataset.old = ''")
    page.goto(explorer.at(**wanted))
    page.locator(f"{there}:not([data-old])").first.wait_for()


def test_a_narrow_page_does_not_scroll_sideways(
    explorer: Explorer, new_page: Callable[..., Page], shoot: Callable[..., None]
) -> None:
    page = new_page(viewport={"width": 360, "height": 740}, has_touch=True)
    widths = {}
    for view in VIEWS:
        visit_view(page, explorer, view)
        shoot(page, f"-{view}")
        widths[view] = page.evaluate("document.documentElement.scrollWidth")
    assert max(widths.values()) <= 360, widths


def test_no_short_name_breaks_inside_a_word(
    explorer: Explorer, new_page: Callable[..., Page]
) -> None:
    broken = """all => all.filter(e => /^\\w{1,20}$/.test(e.textContent) && !/_/.test(e.textContent)
        && e.getClientRects().length > 1).map(e => e.textContent)"""
    page = new_page(viewport={"width": 1180, "height": 860})
    found = {}
    for view in ("ask", "relations", "suspicious"):
        visit_view(page, explorer, view)
        for width in (390, 641, 768, 769, 900, 1024, 1025):
            page.set_viewport_size({"width": width, "height": 860})
            names = page.locator(".ranked .name a, .review .triple > *")
            found[view, width] = names.evaluate_all(broken)
    page.set_viewport_size({"width": 1180, "height": 860})  # another test may use the page
    assert not any(found.values()), found


def test_axe_finds_nothing_serious(
    explorer: Explorer, new_page: Callable[..., Page], shoot: Callable[..., None], axe: str
) -> None:
    # Fading lowers the contrast for a moment; there is none with reduced motion.
    page = new_page(viewport={"width": 1180, "height": 860}, reduced_motion="reduce")
    # The dark page differs only in its colours.
    schemes = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
    found = {}
    page.goto(explorer.at())
    page.evaluate(axe)
    for view in VIEWS:
        visit_view(page, explorer, view)
        for scheme, rules in schemes.items():
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            shoot(page, f"-{view}-{scheme}")
            data = page.evaluate(
                "rules => axe.run({ resultTypes: ['violations'], preload: false, ...rules })",
                rules,
            )
            assert data["passes"], "axe ran"
            for item in data["violations"]:
                if item["impact"] in ("serious", "critical"):
                    found[view, scheme, item["id"]] = [node["html"] for node in item["nodes"]][:3]
    assert found == {}


def test_axe_finds_nothing_serious_in_open_suggestions(
    explorer: Explorer, page: Page, axe: str
) -> None:
    page.goto(explorer.at(head="France"))
    page.get_by_role("combobox", name="Head").click()
    page.get_by_role("listbox").get_by_role("option").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.evaluate(axe)
    data = page.evaluate("axe.run()")
    assert [item["id"] for item in data["violations"] if item["impact"] != "minor"] == []


def test_dark_mode_follows_the_system(explorer: Explorer, new_page: Callable[..., Page]) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page = new_page(color_scheme=scheme)
        page.goto(explorer.at(head="France", relation="borders"))
        page.locator("table.ranked").wait_for()
        read = "name => getComputedStyle(document.querySelector(name))"
        back = page.evaluate(f"({read})('body').backgroundColor")
        text = page.evaluate(f"({read})('.answers h2').color")
        colours[scheme] = (_brightness(back), _brightness(text))
    assert colours["light"][0] > 220 > 80 > colours["light"][1]
    assert colours["dark"][1] > 220 > 80 > colours["dark"][0]


def _brightness(colour: str) -> float:
    parts = [float(item) for item in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(parts) / 3


@pytest.mark.parametrize("view", ["ask", "entity", "compare", "quality", "map", "hops"])
def test_nothing_jumps_while_a_view_loads(
    explorer: Explorer, new_page: Callable[..., Page], view: str
) -> None:
    page = new_page(JUMPS, viewport={"width": 1180, "height": 860})
    open_view(page, explorer, view)
    page.wait_for_timeout(300)
    assert page.evaluate("window.jumped") < 0.05


def test_the_focus_is_visible(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(head="France", relation="borders"))
    page.locator("table.ranked").wait_for()
    seen = 0
    for _ in range(24):
        page.keyboard.press("Tab")
        outline = page.evaluate("""() => {
            const at = document.activeElement;
            const drawn = at.type === "radio" ? at.nextElementSibling : at;
            return getComputedStyle(drawn).outlineStyle;
        }""")
        assert outline == "solid", page.evaluate("document.activeElement.outerHTML")
        seen += 1
    assert seen == 24
