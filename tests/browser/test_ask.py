"""Queries: examples, suggestions, directions, the ranked table, copies, reasons."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from allneg.cli import allneg

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from conftest import Explorer

pytestmark = pytest.mark.browser
KINDS = {"known-train", "known-valid", "known-test", "new"}


def state(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).fragment).items()}


def heading(page: Page) -> Locator:
    """The query above its answers."""
    return page.locator(".answers[aria-label=Answers]:not([aria-busy]) h2")


def rows(page: Page) -> Locator:
    return page.locator("table.ranked tbody tr:not(.why-row)")


def shown(page: Page, query: str) -> None:
    """Wait until the answers to a query are there."""
    heading(page).filter(has_text=query).wait_for()


def predicted(explorer: Explorer, *arguments: str) -> Any:
    """The answers that `allneg predict --json` prints."""
    done = CliRunner().invoke(allneg, ["predict", str(explorer.run), *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["answers"]


def test_the_page_opens_with_a_working_example_and_chips(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.address)
    rows(page).first.wait_for()
    assert rows(page).count() == 10
    first = heading(page).inner_text()
    assert state(page)["model"] == "complex"
    assert state(page)["relation"] in first, "the example is in the address"
    chips = page.get_by_role("list", name="Examples").get_by_role("link")
    assert chips.count() == 6
    another = chips.nth(1).inner_text()
    assert another != first
    chips.nth(1).click()
    shown(page, another)
    page.go_back()
    shown(page, first)


def test_the_keyboard_alone_asks_and_opens_why(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at())
    page.locator(".empty").get_by_text("Choose a head and a relation").wait_for()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.labels?.[0]?.textContent") == "Head":
            break
    # Suggestions for the first letters may come, too; those for the whole word are the last.
    with page.expect_response(re.compile("q=portugal(&|$)")):
        page.keyboard.type("portugal")
    box = page.get_by_role("combobox", name="Head")
    page.get_by_role("option", name="Portugal").wait_for()
    assert box.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    active = page.locator("[role=option][aria-selected=true]")
    assert active.get_attribute("id") == box.get_attribute("aria-activedescendant")
    page.keyboard.press("Enter")
    page.locator(".empty").get_by_text("Choose a relation").wait_for()
    assert box.get_attribute("aria-expanded") == "false"
    page.keyboard.press("Tab")
    page.keyboard.type("borders")
    page.keyboard.press("Enter")  # a name in full needs no suggestion
    shown(page, "Portugal — borders — ?")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "why":
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Paths of two steps").wait_for()
    assert page.evaluate("document.activeElement.ariaExpanded") == "true", "the focus stays"


def test_suggestions_are_prefix_then_infix_then_fuzzy(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at())
    box = page.get_by_role("combobox", name="Head")
    options = page.locator("[role=option] .option-name")
    box.fill("guinea")
    options.first.wait_for()
    names = options.all_inner_texts()
    assert names[0].startswith("Guinea")
    assert "Papua New Guinea" in names
    starts = [name.lower().startswith("guinea") for name in names]
    assert starts == sorted(starts, reverse=True)
    box.fill("Germny")
    options.filter(has_text="Germany").wait_for()
    page.keyboard.press("Escape")
    assert options.count() == 0
    box.fill("xqzxqzxqz")
    page.get_by_role("listbox").get_by_text("No similar name").wait_for()


def test_relations_of_the_head_come_first(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(head="Paris"))
    page.get_by_role("combobox", name="Relation").click()
    options = page.get_by_role("listbox").get_by_role("option")
    options.first.wait_for()
    marks = ["typical" in text for text in options.all_inner_texts()]
    assert any(marks)
    assert marks == sorted(marks, reverse=True)
    assert len(marks) == 13


def test_one_click_swaps_the_direction(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(head="France", relation="borders"))
    shown(page, "France — borders — ?")
    swap = page.get_by_role("button", name="Swap direction")
    swap.click()
    shown(page, "? — borders — France")
    assert page.locator("thead").inner_text().startswith("#\thead")
    swap.click()
    shown(page, "France — borders — ?")
    page.get_by_label("relation?").check()
    page.locator(".empty").get_by_text("Choose a tail").wait_for()
    page.get_by_role("combobox", name="Tail").fill("Spain")
    page.keyboard.press("Enter")
    shown(page, "France — ? — Spain")
    assert rows(page).locator(".name").filter(has_text="borders").count() == 1
    swap.click()
    shown(page, "Spain — ? — France")
    page.go_back()
    shown(page, "France — ? — Spain")


@pytest.mark.parametrize("hidden", [False, True], ids=["all", "hide known"])
@pytest.mark.parametrize("side", ["tail", "head"])
def test_numbers_equal_the_command_line(
    explorer: Explorer, page: Page, side: str, hidden: bool
) -> None:
    known = "head" if side == "tail" else "tail"
    query = ["--relation", "borders", f"--{known}", "Germany", *["--new"] * hidden]
    page.goto(explorer.at(relation="borders", **{known: "Germany"}))
    rows(page).first.wait_for()
    if hidden:
        page.get_by_label("Hide known facts").check()
        page.wait_for_url("**fresh=1**")
        heading(page).wait_for()
    for place, answer in enumerate(predicted(explorer, *query)):
        row = rows(page).nth(place)
        score, share, calibrated = (
            float(item) for item in row.locator("data").evaluate_all("all => all.map(d => d.value)")
        )
        assert row.locator(".rank").inner_text() == str(place + 1)
        assert row.locator(".name a").inner_text() == answer["entity"]
        assert score == answer["score"]
        assert share == answer["share"]
        assert 0 <= calibrated <= 1
        mark = f"known-{answer['known']}" if answer["known"] else "new"
        assert row.locator(".badge").inner_text() == mark
        assert row.locator("data").first.inner_text() == f"{score:.3f}"
    assert rows(page).count() == 10
    marks = set(page.locator(".ranked .badge").all_inner_texts())
    assert marks == {"new"} if hidden else marks <= KINDS and len(marks) > 1


def test_the_calibrated_probability_is_named_and_explained(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(head="Germany", relation="borders"))
    page.get_by_role("columnheader", name="calibrated probability").wait_for()
    note = page.locator(".notes").inner_text()
    assert "softmax" in note
    assert "valid" in note


def test_more_answers_are_a_link(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(head="Germany", relation="borders"))
    page.get_by_role("link", name="Show 25").click()
    rows(page).nth(24).wait_for()
    assert state(page)["k"] == "25"


def test_answers_are_copied_as_tsv_json_and_python(
    explorer: Explorer,
    page: Page,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page.goto(explorer.at(tail="Germany", relation="borders"))
    rows(page).first.wait_for()
    names = rows(page).locator(".name a").all_inner_texts()

    def copied(kind: str) -> str:
        page.get_by_role("button", name=f"Copy as {kind}").click()
        page.locator("#status").filter(has_text=f"Copied as {kind}").wait_for(state="attached")
        text: str = page.evaluate("navigator.clipboard.readText()")
        return text

    lines = [line.split("\t") for line in copied("TSV").splitlines()]
    assert lines[0][:4] == ["rank", "head", "relation", "tail"]
    assert [line[1:4] for line in lines[1:]] == [[name, "borders", "Germany"] for name in names]
    document = json.loads(copied("JSON"))
    assert document["question"] == {"head": None, "relation": "borders", "tail": "Germany"}
    assert [item["entity"] for item in document["answers"]] == names
    monkeypatch.chdir(explorer.run.parent)
    capsys.readouterr()
    exec(copied("Python"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 10
    assert all(line.startswith(name) for line, name in zip(printed, names, strict=True))


def test_why_shows_reasons_and_is_a_link(explorer: Explorer, page: Page) -> None:
    page.goto(explorer.at(head="France", relation="borders"))
    row = page.locator("tr[data-answer=Germany]")
    row.get_by_role("button", name="Why?").click()
    reasons = page.locator("div.why")
    reasons.get_by_role("heading", name="Similar to France, with the same answer").wait_for()
    others = reasons.locator("section", has_text="Other facts between the two")
    assert others.locator(".triple").all_inner_texts() == ["Germany borders France"]
    assert reasons.locator(".path").count() >= 1
    assert state(page)["why"] == "Germany"
    page.reload()
    reasons.get_by_role("heading", name="Paths of two steps").wait_for()
    row.get_by_role("button", name="Why?").click()
    reasons.wait_for(state="detached")
    assert "why" not in state(page)
