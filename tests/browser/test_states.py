"""Errors, slow answers, hostile names and empty results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import APIResponse, Page, Route

    from conftest import Explorer

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><b>bold</b>"


def test_an_unknown_entity_in_the_address_offers_close_names(
    explorer: Explorer, page: Page
) -> None:
    page.goto(explorer.at(head="Frnce", relation="borders"))
    alert = page.get_by_role("alert")
    alert.get_by_text("No such entity").wait_for()
    alert.get_by_role("link", name="France", exact=True).click()
    page.get_by_role("heading", name="France — borders — ?").wait_for()


def test_unknown_relations_and_models_have_their_own_messages(
    explorer: Explorer, page: Page
) -> None:
    page.goto(explorer.at(head="France", relation="border"))
    page.get_by_role("alert").get_by_text("No such relation").wait_for()
    page.get_by_role("alert").get_by_role("link", name="borders").click()
    page.locator("table.ranked").wait_for()
    page.goto(explorer.at(model="nobody"))
    page.get_by_role("alert").get_by_text("No such model").wait_for()
    page.get_by_role("alert").get_by_role("link", name="distmult").click()
    page.locator(".empty").get_by_text("Choose a head and a relation").wait_for()


def test_a_lost_service_is_reported_and_can_be_retried(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(head="France", relation="borders"))
    page.locator("table.ranked").wait_for()
    page.context.set_offline(True)
    page.get_by_role("button", name="Swap direction").click()
    alert = page.get_by_role("alert")
    alert.get_by_text("The service does not respond").wait_for()
    page.context.set_offline(False)
    alert.get_by_role("button", name="Try again").click()
    page.get_by_role("heading", name="? — borders — France").wait_for()


def test_a_lost_service_is_reported_before_a_relation_is_chosen(
    explorer: Explorer, page: Page
) -> None:
    page.goto(explorer.at(head="France"))
    page.locator(".empty").wait_for()
    page.context.set_offline(True)
    page.get_by_role("link", name="Missing facts").click()
    alert = page.get_by_role("alert")
    alert.get_by_text("The service does not respond").wait_for()
    page.context.set_offline(False)
    alert.get_by_role("button", name="Try again").click()
    page.locator(".review tbody tr").first.wait_for()


def test_a_busy_service_can_be_retried(explorer: Explorer, page: Page) -> None:
    busy = {"error": {"code": "busy", "message": "too many queries at once", "near": []}}
    page.route("**/v1/predict?*", lambda route: route.fulfill(status=503, body=json.dumps(busy)))
    page.goto(explorer.at(head="France", relation="borders"))
    page.get_by_role("alert").get_by_text("The service is busy").wait_for()
    page.unroute("**/v1/predict?*")
    page.get_by_role("button", name="Try again").click()
    page.locator("table.ranked").wait_for()


def test_failed_reasons_can_be_retried(explorer: Explorer, page: Page) -> None:
    busy = {"error": {"code": "busy", "message": "too many queries at once", "near": []}}
    page.route("**/v1/explain?*", lambda route: route.fulfill(status=503, body=json.dumps(busy)))
    page.goto(explorer.at(head="France", relation="borders", why="Germany"))
    page.get_by_role("alert").get_by_text("The service is busy").wait_for()
    page.unroute("**/v1/explain?*")
    page.get_by_role("button", name="Try again").click()
    page.locator("div.why h3").first.wait_for()
    assert page.locator(".why-row").count() == 1


def test_a_close_name_replaces_the_wrong_one(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(view="compare", other="gone", head="France", relation="borders"))
    chip = page.get_by_role("list", name="Close names").get_by_role("link", name="distmult")
    assert "other=distmult" in str(chip.get_attribute("href"))
    page.goto(explorer.at(head="Francee", tail="France"))
    chip = page.get_by_role("list", name="Close names").get_by_role("link", name="France")
    assert "head=France&tail=France" in str(chip.first.get_attribute("href"))


def test_a_name_keeps_the_spaces_around_it(explorer: Explorer, page: Page) -> None:
    names = {"entities": [{"name": "France ", "label": None, "degree": 1}]}
    page.route("**/v1/entities?*", lambda route: route.fulfill(body=json.dumps(names)))
    page.goto(explorer.at(relation="borders"))
    page.get_by_role("combobox", name="Head").fill("France")
    page.get_by_role("listbox").get_by_role("option").click()
    page.wait_for_url("**head=France+&**")


def test_the_old_answer_stays_while_a_new_one_loads(explorer: Explorer, page: Page) -> None:
    held: list[Route] = []
    page.goto(explorer.at(head="France", relation="borders"))
    page.locator("table.ranked").wait_for()
    before = page.locator(".answers").bounding_box()
    page.route("**/v1/predict?*", lambda route: held.append(route))
    page.get_by_role("button", name="Swap direction").click()
    page.locator(".answers[aria-busy]").wait_for()
    assert page.locator("table.ranked").count() == 1
    for route in held:
        route.continue_()
    page.get_by_role("heading", name="? — borders — France").wait_for()
    assert page.locator(".answers[aria-busy]").count() == 0
    assert page.locator(".answers").bounding_box() == before, "nothing jumps"


@pytest.mark.parametrize(
    "view, asks, first, then",
    [
        ("", "predict", {"head": "France"}, {"head": "Spain"}),
        ("quality", "metrics", {"model": "complex"}, {"model": "distmult"}),
        ("map", "map", {}, {"relation": "borders"}),
    ],
)
def test_going_back_during_a_request_shows_the_old_answers(
    explorer: Explorer,
    page: Page,
    view: str,
    asks: str,
    first: dict[str, str],
    then: dict[str, str],
) -> None:
    rest = {"relation": "borders"} if asks == "predict" else {}
    rest |= {"view": view} if view else {}
    page.goto(explorer.at(**rest, **first))
    page.wait_for_load_state("networkidle")
    page.route(f"**/v1/{asks}?*", lambda _: None)  # no answer, ever
    busy = page.locator("main [aria-busy]")
    page.evaluate("hash => { location.hash = hash }", explorer.at(**rest, **then).partition("#")[2])
    busy.wait_for()
    page.go_back()
    busy.wait_for(state="detached")


def test_only_the_last_query_is_shown(explorer: Explorer, page: Page) -> None:
    """A late answer does not replace a newer one."""

    late: list[tuple[Route, APIResponse]] = []
    page.goto(explorer.at(head="France", relation="borders"))
    page.locator("table.ranked").wait_for()
    page.route("**/v1/predict?*head=Spain*", lambda route: late.append((route, route.fetch())))
    chips = "model => history.pushState(null, '', `#model=complex&head=${model}&relation=borders`)"
    for name in ("Spain", "Italy"):
        page.evaluate(chips, name)
        page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
    page.get_by_role("heading", name="Italy — borders — ?").wait_for()
    for route, answer in late:
        route.fulfill(response=answer)
    page.evaluate("fetch('/healthz')")  # its answer comes after the late one
    assert len(late) == 1
    assert page.locator(".answers h2").inner_text() == "Italy — borders — ?"


def test_names_are_text_never_markup(explorer: Explorer, page: Page) -> None:
    def nasty(route: Route) -> None:
        answer = route.fetch()
        data = answer.json()
        for item in data["answers"]:
            item |= {"entity": HOSTILE, "label": HOSTILE}
        route.fulfill(response=answer, body=json.dumps(data))

    page.route("**/v1/predict?*", nasty)
    page.goto(explorer.at(head="France", relation="borders", tail=HOSTILE))
    page.locator("table.ranked .name a").first.wait_for()
    assert page.locator("table.ranked .name a").first.inner_text() == HOSTILE
    assert page.locator("main img, main b b").count() == 0
    assert "owned" not in page.title()


def test_names_in_arabic_do_not_change_the_order_of_a_query(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(head="\u0645\u0635\u0631", relation="\u062d\u062f", tail="x", ask="tail"))
    page.locator(".trouble").wait_for()
    title = page.title().partition(" \u00b7 ")[0]
    assert title == "\u2068\u0645\u0635\u0631\u2069 \u2014 \u2068\u062d\u062f\u2069 \u2014 ?"


@pytest.mark.battery(65)
def test_a_long_name_does_not_fill_the_page(explorer: Explorer, page: Page) -> None:
    long = "very long " * 400

    def renamed(route: Route) -> None:
        answer = route.fetch()
        text = answer.text().replace("Germany", long)
        route.fulfill(response=answer, body=text)

    page.route("**/v1/*", renamed)
    heights = {}
    for view in ("ask", "entity", "compare", "map", "quality"):
        state = {"head": "France", "relation": "borders"} if view in ("ask", "compare") else {}
        page.goto(explorer.at(view=view, name="France", **state))
        page.wait_for_load_state("networkidle")
        assert page.get_by_text(long).count() == 0, view
        heights[view] = page.evaluate("document.documentElement.scrollHeight")
    assert max(heights.values()) < 4000, heights
    page.goto(explorer.at(head="France", relation="borders"))
    link = page.locator("table.ranked").get_by_role("link", name="very long")
    assert link.get_attribute("title") == long
    link.click()
    page.wait_for_url(lambda address: parse_qs(address).get("name") == [long])
    assert len(page.get_by_role("heading", level=1).inner_text()) < 100


def test_one_model_cannot_be_compared(explorer: Explorer, page: Page) -> None:
    def one(route: Route) -> None:
        answer = route.fetch()
        data = answer.json()
        route.fulfill(response=answer, body=json.dumps({**data, "models": data["models"][:1]}))

    page.route("**/v1/models?*", one)
    page.goto(explorer.at(view="compare", head="France", relation="borders"))
    page.get_by_text("Only one model is loaded").wait_for()


def test_without_the_answers_of_one_model_there_are_no_moves(
    explorer: Explorer, page: Page
) -> None:
    def failing(route: Route) -> None:
        if "distmult" in route.request.url:
            route.fulfill(status=500, body="{}")
        else:
            route.continue_()

    page.route("**/v1/predict?*", failing)
    page.goto(explorer.at(view="compare", head="France", relation="borders"))
    page.locator(".rows li").first.wait_for()
    assert page.locator(".rows li").count() == 10
    assert page.locator(".move").count() == 0


def test_there_is_a_message_if_all_answers_are_known(explorer: Explorer, page: Page) -> None:
    def none(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=json.dumps({**answer.json(), "answers": []}))

    page.route("**/v1/predict?*", none)
    page.goto(explorer.at(head="France", relation="borders", fresh="1"))
    page.get_by_text("No new answers").wait_for()
