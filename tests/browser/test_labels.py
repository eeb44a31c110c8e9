"""Labels of entities whose names are ids, in search and display."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from conftest import Explorer

pytestmark = pytest.mark.browser


def test_an_entity_is_found_by_its_label_and_the_label_is_shown(
    labelled: Explorer, page: Page
) -> None:
    page.goto(labelled.at(view="ask", relation="borders"))
    head = page.get_by_role("combobox", name="Head")
    head.fill("ecnar")  # in no name, but in a label
    option = page.get_by_role("option").first
    option.get_by_text("ECNARF", exact=True).wait_for()
    assert option.locator(".option-name").inner_text().startswith("France")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**head=France**")
    assert head.input_value() == "France"

    rows = page.locator("table.ranked tbody tr")
    rows.first.wait_for()
    assert rows.count() == 10
    for row in rows.all():
        name = row.locator(".name a").first.inner_text()
        assert row.locator(".name small").first.inner_text() == name.upper()[::-1]

    page.goto(labelled.at(view="entity", name="Paris"))
    page.get_by_role("heading", name="Paris", exact=True, level=1).wait_for()
    page.get_by_text("SIRAP · ").wait_for()
    page.locator(".node.own").get_by_text("SIRAP", exact=True).wait_for()


def test_the_name_of_a_method_has_no_label(labelled: Explorer, page: Page) -> None:
    step = {"head": "France", "relation": "borders", "tail": "toString", "probability": 0.5}
    answer = {"entity": "toString", "probability": 0.5, "steps": [{**step, "known": None}]}
    data = {"answers": [answer], "labels": {"France": "ECNARF"}, "seconds": 1}
    page.route("**/v1/ask?*", lambda route: route.fulfill(json=data))
    page.goto(labelled.at(view="hops", question="?x : borders(France, ?x)"))
    page.locator(".derivation svg").wait_for()
    assert page.locator(".derivation .node text").all_text_contents() == ["ECNARF", "toString"]
    assert page.locator(".derived small").count() == 0
