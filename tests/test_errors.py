from __future__ import annotations

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


def test_only_close_names_are_suggested() -> None:
    assert close_names("Berln", ["Berlin", "Bern", "Oslo"]) == "; close names: 'Berlin', 'Bern'"
    assert close_names("Berlin", ["Oslo"]) == ""


def test_a_count_of_one_has_no_plural() -> None:
    assert counted(1, "triple") == "1 triple"
    assert counted(0, "triple") == "0 triples"
    assert counted(2000, "duplicate triple") == "2,000 duplicate triples"
    assert (counted(1, "entity"), counted(2, "entity")) == ("1 entity", "2 entities")
