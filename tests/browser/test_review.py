"""Missing and suspicious facts, decided by keys, and multi-hop questions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from conftest import Explorer

pytestmark = pytest.mark.browser


def decided(page: Page) -> list[str | None]:
    """The decision about each of the first facts."""
    rows = page.locator(".review tbody tr")
    return [rows.nth(i).get_attribute("data-decision") for i in range(3)]


def downloaded(page: Page, name: str) -> tuple[str, str]:
    """The name and the text of a file that a button saves."""
    with page.expect_download() as file:
        page.get_by_role("button", name=name).click()
    return file.value.suggested_filename, Path(file.value.path()).read_text()


def test_facts_are_decided_by_keys_and_saved(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(view="missing", relation="borders"))
    rows = page.locator(".review tbody tr")
    rows.first.wait_for()
    assert rows.count() == 100
    n_entities = len((explorer.run / "entities.txt").read_text().splitlines())
    assert f"All {n_entities} possible heads were asked" in page.locator(".notes").inner_text()
    ends = rows.evaluate_all("all => all.map(({ fact }) => [fact.head, fact.tail])")
    facts = [f"{head}\tborders\t{tail}\n" for head, tail in ends]
    for key in ("j", "a", "r", "r"):  # to the first fact; each decision moves to the next
        page.keyboard.press(key)
    assert decided(page) == ["accept", "reject", "reject"]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("r")
    assert decided(page) == ["accept", "reject", None], "the same key takes it back"
    page.keyboard.press("k")
    page.keyboard.press("a")
    assert decided(page) == ["accept", "accept", None]
    rows.nth(3).get_by_role("button", name="Reject").click()
    assert downloaded(page, "Download 2 accepted") == ("accepted.tsv", facts[0] + facts[1])
    assert downloaded(page, "Download 1 rejected") == ("rejected.tsv", facts[3])
    # The decisions stay, for every relation.
    page.reload()
    page.get_by_label("Hide decided facts").check()
    page.wait_for_function("() => document.querySelectorAll('.review tbody tr').length === 97")
    page.get_by_label("Heads and tails").select_option("seen")
    page.get_by_label("Probability at least").fill("0.9999")
    page.get_by_role("button", name="Find").click()
    page.get_by_text("No new fact fits").wait_for()
    assert page.get_by_role("button", name="Download 2 accepted").is_visible()

    page.get_by_role("link", name="Suspicious facts").click()
    page.get_by_text("a capital borders nothing").wait_for()
    page.locator("h1").focus()
    for key in ("j", "r", "a"):
        page.keyboard.press(key)
    assert decided(page)[:2] == ["remove", "keep"]
    assert downloaded(page, "Download 1 removed") == ("removed.tsv", "France\tborders\tParis\n")
    assert rows.nth(1).locator(".triple a").first.inner_text() == "<img src=x onerror=alert(1)>"
    assert page.locator("img").count() == 0
    page.get_by_label("Relation").select_option("speaks")
    page.wait_for_function("() => document.querySelectorAll('.review tbody tr').length === 1")


def test_a_question_is_built_by_hops_and_edited(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(view="hops"))
    question = page.get_by_role("textbox", name="Question")
    page.get_by_text("Add a hop, or type a question").wait_for()
    page.get_by_role("combobox", name="From").focus()
    page.keyboard.type("South Korea")  # from here on, the keyboard alone
    page.keyboard.press("Tab")
    page.keyboard.type("borders")
    page.keyboard.press("Enter")
    answers = page.locator(".derived > li")
    answers.first.wait_for()
    assert question.input_value() == '?x : borders("South Korea", ?x)'
    # The field of the relation has the focus, and the next hop begins where this one ended.
    page.keyboard.type("speaks")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('#question').value.startsWith('?y')")
    assert question.input_value() == '?y : borders("South Korea", ?x), speaks(?x, ?y)'
    page.locator(".derivation svg[aria-label*='speaks']").first.wait_for()
    assert answers.count() == 10
    first = answers.first.locator("svg")
    reasons = first.get_attribute("aria-label") or ""
    assert reasons.startswith("South Korea borders ")
    names = first.locator(".node text").all_text_contents()
    assert {"South Korea", answers.first.get_attribute("data-answer")} <= set(names)
    kinds = ["known" if "known from" in part else "predicted" for part in reasons.split("; ")]
    shown = first.locator(".edge").evaluate_all("all => all.map(e => e.classList[1])")
    assert shown == kinds
    assert "speaks" in (first.locator(".edge-name").last.text_content() or "")

    question.fill("?y : border(France, ?x), speaks(?x, ?y)")
    page.keyboard.press("Enter")
    page.locator(".where mark").wait_for()
    assert page.locator(".where mark").inner_text() == "b"
    assert "close names: 'borders'" in page.get_by_role("alert").inner_text()
    assert question.evaluate("field => [field.selectionStart, field.selectionEnd]") == [5, 6]
    page.go_back()
    answers.first.wait_for()
    assert question.get_attribute("aria-invalid") is None


def test_the_texts_of_derivations_do_not_cover_each_other(
    explorer: Explorer, new_page: Callable[..., Page]
) -> None:
    def step(text: str, *, negated: bool = False) -> dict[str, object]:
        names = dict(zip(("head", "relation", "tail"), text.split(), strict=True))
        return {**names, "probability": 0.5, "known": "train", "negated": negated}

    hops = ["France borders Spain", "Spain borders Andorra", "Andorra borders Spain"]
    tree = ["France borders Belgium", "Belgium borders Austria", "Austria speaks German"]
    back = [*hops, "Andorra borders France", "France borders Andorra"]
    parts = [step("Belgium speaks French", negated=True), *map(step, tree)]
    answers = [("France", [step(hop) for hop in back]), ("Austria", parts)]
    found = [{"entity": e, "probability": 0.5, "steps": steps} for e, steps in answers]
    data = {"answers": found, "labels": {}, "seconds": 1}
    page = new_page(viewport={"width": 390, "height": 860})
    page.route("**/v1/ask?*", lambda route: route.fulfill(json=data))
    page.goto(explorer.at(view="hops", question="?x : borders(France, ?x)"))
    drawn = page.locator(".derivation svg")
    for width in (390, 1180):
        page.set_viewport_size({"width": width, "height": 860})
        page.wait_for_function(
            "n => [...document.querySelectorAll('.derivation svg')].filter(svg =>"
            " (svg.viewBox.baseVal.width > 390) === (n > 390)).length === 2",
            arg=width,
        )
        covered = drawn.evaluate_all("""all => all.flatMap(svg => {
          const texts = [...svg.querySelectorAll("text")].map(t => [t, t.getBBox()]);
          const covers = ([s, a], [t, b]) => s !== t && Math.abs(a.y - b.y) < 11 &&
            Math.max(a.x, b.x) + 2 < Math.min(a.x + a.width, b.x + b.width);
          return texts.filter(a => a[0].matches(".edge-name") && texts.some(b => covers(a, b)))
            .map(([text]) => text.textContent);
        })""")
        assert covered == [], width
    page.set_viewport_size({"width": 390, "height": 860})  # another test may use the page
    assert page.locator(".legend .negated").count() == 1
    words = drawn.last.get_attribute("aria-label") or ""
    assert words.startswith("not: Belgium speaks French (0.50, but train has this fact)")
