from __future__ import annotations

import difflib
import signal

import pytest

from allneg import errors
from allneg.errors import (
    AllnegError,
    DataError,
    Diverged,
    Interrupted,
    RecipeError,
    ResourceError,
    RunError,
    UsageError,
    close_names,
    counted,
    error_for_exit_code,
    printable,
)


def test_each_error_has_its_exit_code() -> None:
    kinds = [AllnegError, UsageError, RecipeError, DataError, RunError, Diverged, ResourceError]
    assert [kind("why").exit_code for kind in kinds] == [1, 2, 2, 3, 4, 5, 6]
    assert all(issubclass(kind, AllnegError) and str(kind("why")) == "why" for kind in kinds)
    for code in range(2, 7):
        assert error_for_exit_code(code, "why").exit_code == code


def test_the_name_of_earlier_versions_is_an_alias() -> None:
    assert errors.Problem is AllnegError


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_exits_with_128_plus_its_signal(number: int, code: int) -> None:
    assert Interrupted("saved", number).exit_code == code


def test_control_characters_are_escaped() -> None:
    shown = printable("a\x1b[31m\u202eb\x9b\n")
    assert shown == r"'a\x1b[31m\u202eb\x9b\n'"


def test_the_middle_of_a_long_text_is_cut_out() -> None:
    shown = printable("start" + "x" * 1_000_000 + "end")
    assert len(shown) < 80
    assert shown.startswith("'start")
    assert shown.endswith("end'")


@pytest.mark.battery(66)
def test_among_many_names_only_a_few_are_compared_in_detail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    compare = difflib.get_close_matches

    def counted(word: str, names: dict[str, str], **more: float) -> list[str]:
        sizes.append(len(names))
        return compare(word, names, **more)

    monkeypatch.setattr("difflib.get_close_matches", counted)
    # More than one block, names of all lengths, in blocks' last places too.
    names = [f"http://kb.example/{i * 7919:x}" for i in range(70_000)]
    for place in (0, 1, 40_000, (1 << 16) - 1, 1 << 16, 69_999):
        typed = names[place].replace("kb", "bk") + "q"
        assert close_names(typed, names).startswith(f"; close names: '{names[place]}'")
    assert close_names("ÖÄÜ", names) == close_names("", names) == ""
    assert max(sizes) <= 200


@pytest.mark.battery(65, 66)
def test_long_names_are_compared_by_their_starts() -> None:
    long = ["x" * 100_000 + str(i) for i in range(300)]
    assert close_names("x" * 200_000, long).startswith("; close names: 'xxx")


def test_only_close_names_are_suggested() -> None:
    assert close_names("Berln", ["Berlin", "Bern", "Oslo"]) == "; close names: 'Berlin', 'Bern'"
    assert close_names("Berlin", ["Oslo"]) == ""


def test_a_name_in_another_unicode_form_is_shown_escaped() -> None:
    assert close_names("Go\u0308ran", ["Gon", "G\u00f6ran"]) == (
        r"; close names: 'G\xf6ran', which has another Unicode form (NFC, NFD), 'Gon'"
    )


def test_a_count_of_one_has_no_plural() -> None:
    assert counted(1, "triple") == "1 triple"
    assert counted(0, "triple") == "0 triples"
    assert counted(2000, "duplicate triple") == "2,000 duplicate triples"
    assert (counted(1, "entity"), counted(2, "entity")) == ("1 entity", "2 entities")
