from __future__ import annotations

import json
import math

import pytest

from allneg.cli.output import json_document, table
from allneg.terminal import clean, note


def test_numbers_that_are_not_finite_become_null(capsys: pytest.CaptureFixture[str]) -> None:
    json_document({"a": [math.nan, math.inf, (1.5,)], "b": {"c": -math.inf, "d": "é"}})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {
        "schema_version": 1,
        "a": [None, None, [1.5]],
        "b": {"c": None, "d": "é"},
    }
    assert "é" in printed


def test_control_characters_are_escaped_and_letters_are_not() -> None:
    assert clean("Ångström 東京\x1b[0m\n\u202e") == r"Ångström 東京\x1b[0m\n\u202e"


def test_a_note_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    note("beware \x07")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "beware \\x07\n")


def test_table_cells_are_formatted(capsys: pytest.CaptureFixture[str]) -> None:
    table("[b]title[/b]", ("name", "count#"), [("[i]x[/i]", 1234567), (None, 0.123456), (True, "")])
    printed = capsys.readouterr().out
    for part in ("[b]title[/b]", "[i]x[/i]", "1,234,567", "0.1235", " - ", " yes "):
        assert part in printed
    assert "#" not in printed


@pytest.mark.parametrize("width, has_optional", [(20, True), (118, False)])
def test_a_wide_table_leaves_out_optional_columns(
    capsys: pytest.CaptureFixture[str], width: int, has_optional: bool
) -> None:
    table("title", ("name", "MR#?", "MRR#"), [("x" * width, 702.25, 0.5)])
    printed = capsys.readouterr().out
    assert "0.5000" in printed
    assert ("702.25" in printed, "MR " in printed) == (has_optional, has_optional)


def test_a_table_that_is_too_wide_folds_names_but_no_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [f"mean of {i}#" for i in range(14)]
    row = [0.5 + i / 10_000 for i in range(14)]
    table("wide", ("name", *names), [("a_long_name_" * 9, *row)])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 120
    assert all(f"{number:.4f}" in printed for number in row)


def test_a_table_with_a_long_text_keeps_its_padding(capsys: pytest.CaptureFixture[str]) -> None:
    table("long", ("text", "number#"), [("many words " * 20, 0.5)])
    assert " │ 0.5000 │" in " ".join(capsys.readouterr().out.split())
