"""The other views: an entity, two models, quality, the map."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from conftest import Explorer

pytestmark = pytest.mark.browser


def test_an_entity_has_facts_neighbours_and_a_graph(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(view="entity", name="France"))
    page.get_by_role("heading", name="France", exact=True, level=1).wait_for()
    page.locator(".drawn svg").wait_for()
    facts = page.locator(".facts", has_text="has_capital").locator("li")
    assert facts.locator("a").all_inner_texts() == ["Paris"]
    assert page.locator("td.number data").count() == 10
    assert 2 <= page.locator(".node").count() <= 24
    assert page.locator(".edge.known").count() > 1
    page.locator(".node:not(.own)").first.click()
    page.locator(".entity:not([aria-busy]) .node.own").wait_for()
    page.wait_for_function("document.querySelector('h1').textContent !== 'France'")
    page.go_back()
    page.get_by_role("heading", name="France", exact=True, level=1).wait_for()
    page.get_by_role("link", name="France — borders — ?").click()
    page.locator("table.ranked").wait_for()


def test_all_facts_of_a_relation_can_be_shown(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(view="entity", name="Europe"))
    facts = page.locator(".facts", has_text="… in_region this")
    more = facts.get_by_role("button", name="more")
    total = int(facts.locator("h3 .muted").last.inner_text())
    assert more.inner_text() == f"and {total - 20} more"
    page.route("**/v1/facts?*", lambda route: route.abort())
    more.click()
    facts.get_by_role("button", name="Try again").wait_for()
    page.unroute("**/v1/facts?*")
    facts.get_by_role("button", name="Try again").click()
    facts.get_by_role("button").wait_for(state="detached")
    names = facts.locator("li a").all_inner_texts()
    assert len(set(names)) == len(names) == total
    assert page.evaluate("document.activeElement.textContent") == names[20], "the focus stays"


def test_predicted_edges_are_dashed(explorer: Explorer, page: Page) -> None:
    graph = {
        "nodes": [{"name": name, "label": None} for name in ("France", "Spain", "Italy")],
        "edges": [
            {"head": "France", "relation": "borders", "tail": "Spain", "predicted": False},
            {"head": "France", "relation": "borders", "tail": "Italy", "predicted": True},
        ],
    }

    def with_graph(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        body = json.dumps({**answer.json(), "graph": graph})
        route.fulfill(response=answer, body=body)  # type: ignore[attr-defined]

    page.route("**/v1/entity?*", with_graph)
    page.goto(explorer.at(view="entity", name="France"))
    dashes = "edge => getComputedStyle(edge).strokeDasharray"
    page.locator(".drawn .node").first.wait_for()
    assert page.locator(".drawn .edge.known").evaluate(dashes) == "none"
    assert page.locator(".drawn .edge.predicted").evaluate(dashes) != "none"


def test_two_models_are_compared_with_moves_drawn(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(view="compare", head="France", relation="borders"))
    page.locator(".rows li").first.wait_for()
    left, right = (
        page.get_by_role("list", name=name, exact=True).locator("li").evaluate_all(
            "all => all.map(row => row.dataset.answer)"
        )
        for name in ("complex", "distmult")
    )  # fmt: skip
    assert len(left) == len(right) == 10
    shared = [name for name in left if name in right]
    assert page.locator(".moved").count() == len(shared)
    assert f"{len(shared)} of the first 10" in page.locator(".agree").inner_text()
    moves = page.get_by_role("list", name="distmult").locator("li")
    for place, name in enumerate(right):
        up = left.index(name) - place if name in left else None
        wanted = "in" if up is None else "=" if up == 0 else f"↑{up}" if up > 0 else f"↓{-up}"
        assert moves.nth(place).locator(".move").inner_text() == wanted
    page.get_by_label("Right model").select_option("complex")
    page.locator(".agree").filter(has_text="10 of the first 10").wait_for()
    assert page.locator(".moved.same").count() == 10


def test_quality_shows_the_report_and_links_back(explorer: Explorer, page: Page) -> None:
    report = json.loads((explorer.run / "report.json").read_text())
    page.goto(explorer.at(view="quality"))
    page.locator(".bigs").wait_for()
    numbers = page.locator(".bigs data").evaluate_all("all => all.map(d => Number(d.value))")
    hits = [report["hits"][k] for k in ("1", "3", "10")]
    assert numbers == [report["mrr"], *hits, report["mr"]]
    assert report["protocol"]["in_words"] in page.locator(".protocol").inner_text()
    assert page.locator(".report h2").inner_text() == "complex, dim 16, on countries, test"
    relations = page.locator(".heatmap tbody tr")
    assert relations.count() == len(report["by_relation"])
    for row in relations.all()[:4]:
        name = row.locator("th").inner_text().split()[0]
        cells = row.locator(".heat data").evaluate_all("all => all.map(d => Number(d.value))")
        wanted = report["by_relation"][name]
        assert cells[0] == wanted["tail"]["mrr"]
        tables = [table["by_relation"][name] for table in report["baselines"].values()]
        assert cells[4] == max(table["tail"] for table in tables)
        assert cells[5:7] == [wanted["head"]["mrr"], wanted["head"]["hits"]["1"]]
        assert cells[9] == max(table["head"] for table in tables)
    curves = page.locator(".curve")
    assert curves.count() == 2
    assert "epoch 3" in (curves.first.get_attribute("aria-label") or "")
    worst = page.locator(".worst tbody tr").first
    right = worst.locator("td").last.inner_text()
    worst.get_by_role("link").click()
    page.locator("table.ranked").wait_for()
    assert right in page.locator(".expected").inner_text()


def test_relations_are_sorted_by_size_or_quality(explorer: Explorer, page: Page) -> None:
    tables = json.loads((explorer.run / "report.json").read_text())["by_relation"]
    page.goto(explorer.at(view="quality"))
    names = page.locator(".heatmap tbody th")
    names.first.wait_for()

    def shown() -> list[str]:
        return [text.split()[0] for text in names.all_inner_texts()]

    assert shown() == sorted(tables, key=lambda name: -tables[name]["tail"]["count"])
    for side in ("tail", "head"):
        page.get_by_label("Order").select_option(f"lowest MRR of {side} queries first")
        assert shown() == sorted(tables, key=lambda name: tables[name][side]["mrr"])


def test_the_curves_of_all_runs_lie_over_each_other(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(view="quality"))
    page.locator(".curve").first.wait_for()
    for field, place in (("loss", 0), ("valid_mrr", 1)):
        card = page.locator(".card", has=page.locator(".curve")).nth(place)
        assert card.get_by_role("list", name="Runs").locator("li").all_inner_texts() == [
            "complex",
            "distmult",
        ]
        lines = card.locator("polyline.line")
        assert lines.evaluate_all("all => all.map(e => e.dataset.run)") == ["complex", "distmult"]
        looks = lines.evaluate_all(
            "all => all.map(getComputedStyle).map(e => [e.stroke, e.strokeDasharray])"
        )
        assert looks[0][0] != looks[1][0]
        assert looks[0][1] != looks[1][1], "distinguishable without colour"
        # One scale for both: a line is lower where its numbers are lower.
        ends = []
        for model in ("complex", "distmult"):
            recorded = (explorer.run.parent / model / "metrics.jsonl").read_text().splitlines()
            last = json.loads(recorded[-1])
            value = last["loss"] if field == "loss" else last["valid"]["mrr"]
            points = card.locator(f"polyline[data-run={model}]").get_attribute("points") or ""
            assert len(points.split()) == len(recorded) == 3
            ends.append((value, -float(points.split(",")[-1])))
        assert sorted(ends) == sorted(ends, key=lambda end: end[1])
    page.get_by_label("Model").select_option("distmult")
    page.wait_for_url("**model=distmult**")
    page.locator(".report", has_text="distmult").wait_for()
    assert page.locator(".curve").first.locator("polyline.line").count() == 2


def test_curves_of_runs_on_other_data_are_left_out(explorer: Explorer, page: Page) -> None:
    def elsewhere(route: Route) -> None:
        data = route.fetch().json()
        data["models"][1]["data"] = "elsewhere"
        route.fulfill(json=data)

    page.route("**/v1/models?*", elsewhere)
    page.goto(explorer.at(view="quality"))
    page.locator(".curve").first.wait_for()
    assert page.locator(".curve polyline").evaluate_all("all => all.map(e => e.dataset.run)") == [
        "complex",
        "complex",
    ]


def test_without_ranked_queries_there_are_no_empty_tables(explorer: Explorer, page: Page) -> None:
    data = {"report": None, "heat": [], "worst": [], "worst_of": 0, "curves": []}
    page.route("**/v1/metrics?*", lambda route: route.fulfill(json=data))
    page.goto(explorer.at(view="quality"))
    page.get_by_text("neither a test nor a valid split").wait_for()
    assert page.get_by_text("No queries were ranked", exact=False).count() == 3
    assert page.locator("main table").count() == 0


def test_the_map_pans_zooms_names_and_opens(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(view="map"))
    canvas = page.locator("canvas")
    canvas.wait_for()
    page.get_by_label("Colour by relation").select_option("city_in_subregion")
    page.get_by_role("list", name="Colours").get_by_text("Eastern Asia").wait_for()
    assert page.locator(".map-legend li").count() == 11
    box = canvas.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    page.mouse.move(x, y)
    page.mouse.wheel(0, -400)
    page.wait_for_url("**at=**")
    zoomed = page.url
    page.mouse.down()
    page.mouse.move(x + 60, y + 10, steps=3)
    page.mouse.up()
    page.wait_for_function("before => location.href !== before", arg=zoomed)
    assert "view=map" in page.url, "a drag is not a click"

    page.get_by_role("combobox", name="Find").fill("Paris")
    page.get_by_role("option", name="Paris").first.click()
    page.wait_for_url("**name=Paris**")
    page.goto(explorer.at(view="map", name="Paris"))  # Paris is in the middle
    canvas.wait_for()
    page.wait_for_timeout(300)
    page.mouse.move(x, y)
    tip = page.locator(".tip")
    tip.wait_for()
    name = tip.inner_text()
    page.mouse.click(x, y)
    page.get_by_role("heading", name=name, exact=True, level=1).wait_for()


def test_the_map_is_moved_by_keys(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(view="map"))
    page.locator("canvas").focus()
    page.keyboard.press("+")
    page.wait_for_url("**at=**1.6**")
    before = page.url
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("before => location.href !== before", arg=before)
    page.keyboard.press("0")
    page.wait_for_url(lambda address: address.endswith("%2C1"))


def test_a_key_may_be_pressed_before_the_map_is_observed(
    explorer: Explorer, new_page: Callable[..., Page]
) -> None:
    page = new_page("window.ResizeObserver = class { observe() {} }")
    page.goto(explorer.at(view="map"))
    page.locator("canvas").focus()
    page.keyboard.press("+")
    page.wait_for_url("**at=**1.6**")
    assert "NaN" not in page.url


def test_a_missing_projection_shows_what_to_do(explorer: Explorer, page: Page) -> None:
    failure = {"error": {"code": "bad_parameter", "message": "t-SNE needs openTSNE", "near": []}}
    answer = json.dumps(failure)
    page.route("**/v1/map?*tsne*", lambda route: route.fulfill(status=422, body=answer))
    page.goto(explorer.at(view="map"))
    page.locator("canvas").wait_for()
    page.get_by_label("Projection").select_option("tsne")
    page.get_by_role("alert").filter(has_text="t-SNE needs openTSNE").wait_for()
    page.get_by_label("Projection").select_option("pca")
    page.locator("canvas").wait_for()


def test_the_map_says_whether_it_has_the_entity_that_is_looked_for(
    explorer: Explorer, page: Page
) -> None:
    page.goto(explorer.at(view="map"))
    page.locator("canvas").wait_for()
    note, find = page.locator(".map-note"), page.get_by_role("combobox", name="Find")
    for name, is_missing in (("France", False), ("Atlantis", True)):
        find.fill(name)
        find.press("Enter")
        note.get_by_role("link", name=f"Open {name}").wait_for()
        assert ("is not on the map" in note.inner_text()) == is_missing


def test_a_control_keeps_the_focus_when_the_answers_change(explorer: Explorer, page: Page) -> None:
    focus = "document.activeElement.ariaLabel ?? document.activeElement.textContent"

    def press(key: str, then: str) -> str:
        page.keyboard.press(key)
        page.locator(then).wait_for()
        return str(page.evaluate(focus))

    page.goto(explorer.at(head="France", relation="borders"))
    page.get_by_label("Hide known facts").focus()
    assert press("Space", ".ranked tbody:not(:has(.badge:not(.new)))") == ""
    assert page.get_by_label("Hide known facts").evaluate("e => e === document.activeElement")
    page.get_by_role("link", name="Show 25").focus()
    assert press("Enter", ".ranked tr:nth-child(25)") == "Show 50"
    page.get_by_label("Model").focus()
    assert press("ArrowDown", ".model-card:has-text('distmult')") == "Model"
    page.goto(explorer.at(view="compare", head="France", relation="borders"))
    page.get_by_label("Right model").focus()
    assert press("ArrowUp", "ol[aria-label=complex] >> nth=1") == "Right model"
    # Another entity: the focus moves to its name.
    page.goto(explorer.at(view="entity", name="France"))
    page.locator(".card").get_by_role("link", name="Germany").last.focus()
    # The link has the same text, so wait until the heading has the focus.
    assert press("Enter", "h1:focus:text-is('Germany')") == "Germany"
    assert page.evaluate("scrollY") < 200
