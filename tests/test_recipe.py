from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allneg.errors import RecipeError
from allneg.models import MODELS
from allneg.recipe import Recipe, load_tables, merged, parse_settings
from allneg.scoring.losses import LOSSES
from allneg.scoring.regularizers import REGULARIZERS
from allneg.training.optimizers import OPTIMIZERS


def mistakes(*texts: str) -> list[str]:
    """The lines of the error for some settings."""
    with pytest.raises(RecipeError) as caught:
        Recipe().with_settings(texts)
    assert caught.value.exit_code == 2
    return str(caught.value).splitlines()


def test_every_default_is_written_and_read_back(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(Recipe().to_toml())
    assert Recipe.read(tmp_path / "recipe.toml") == Recipe()
    written = tomllib.loads(Recipe().to_toml())
    for part in dataclasses.fields(Recipe):
        values = dataclasses.asdict(getattr(Recipe(), part.name))
        assert written[part.name] == {
            key: value for key, value in values.items() if value is not None
        }


def test_an_empty_file_is_the_default_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("")
    assert Recipe.read(tmp_path / "recipe.toml") == Recipe()


@given(
    name=st.text(),
    weight=st.floats(0, 3e38),
    seed=st.integers(0, 2**63 - 1),
    count=st.none() | st.integers(1, 2**63 - 1),
    flag=st.booleans(),
)
@settings(max_examples=40, derandomize=True, deadline=None)
def test_odd_values_survive_writing(
    name: str, weight: float, seed: int, count: int | None, flag: bool
) -> None:
    recipe = Recipe()
    recipe = dataclasses.replace(
        recipe,
        data=dataclasses.replace(recipe.data, name=name, drop_unseen=flag),
        regularizer=dataclasses.replace(recipe.regularizer, weight=weight),
        training=dataclasses.replace(recipe.training, seed=seed, micro_batch=count),
    )
    assert Recipe.from_tables(tomllib.loads(recipe.to_toml())) == recipe


def test_a_written_recipe_holds_no_control_characters() -> None:
    odd = "".join(map(chr, range(0xA0)))
    recipe = Recipe.from_tables({"data": {"name": odd}})
    assert all(c.isprintable() or c == "\n" for c in recipe.to_toml())
    assert Recipe.from_tables(tomllib.loads(recipe.to_toml())) == recipe


@pytest.mark.battery(19)
def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        """
        traning.epochs = 3
        [training]
        lerning_rate = 0.1
        batch_size = -5
        epochs = "many"
        [optimizer]
        learning_rate = nan
        [model]
        name = "complx"
        reciprocal = 1
        [loss]
        count = 10
        """
    )
    with pytest.raises(RecipeError) as caught:
        Recipe.read(tmp_path / "mine.toml")
    assert caught.value.exit_code == 2
    assert str(caught.value).replace(f"{tmp_path}/", "").splitlines() == [
        "mine.toml: traning is not a part of a recipe; did you mean training?",
        "mine.toml: training.lerning_rate is not a setting; did you mean optimizer.learning_rate?",
        "mine.toml: training.batch_size must be more than 0, not -5",
        "mine.toml: training.epochs must be a whole number, not 'many'",
        "mine.toml: optimizer.learning_rate must be finite, not nan",
        f"mine.toml: model.name must be one of {', '.join(MODELS)}, "
        "not 'complx'; did you mean complex?",
        "mine.toml: model.reciprocal must be true or false, not 1",
        "mine.toml: loss.n_negatives needs loss.negatives shared or per_query; "
        "reset it with --set loss.n_negatives=",
    ]


@pytest.mark.parametrize(
    "setting, message",
    [
        ("model.dmi=3", "model.dmi is not a setting; did you mean model.dim?"),
        ("training.qqqqqq=3", "training.qqqqqq is not a setting"),
        ("model.dim=2.0", "model.dim must be a whole number, not 2.0"),
        ("model.dim=true", "model.dim must be a whole number, not True"),
        ("model.dim=0", "model.dim must be more than 0, not 0"),
        ("model.norm=3", "model.norm must be one of 1, 2, not 3"),
        ("model.norm=true", "model.norm must be one of 1, 2, not True"),
        ("regularizer.weight=inf", "regularizer.weight must be finite, not inf"),
        ("regularizer.weight=-1", "regularizer.weight must be at least 0, not -1.0"),
        (
            "loss.label_smoothing=1",
            "loss.label_smoothing must be at least 0 and less than 1, not 1.0",
        ),
        ("hardware.threads=0", "hardware.threads must be more than 0, not 0"),
        ("hardware.threads=1025", "hardware.threads must be at most 1024, not 1025"),
        ("data.name=7", "data.name must be text, not 7"),
        ("data.name=\udcff", "data.name must be valid Unicode, not '\\udcff'"),
        ("training.seed=-1", "training.seed must be at least 0, not -1"),
        (f"training.seed={2**63}", f"training.seed must be at most {2**63 - 1}, not {2**63}"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_should_be(setting: str, message: str) -> None:
    assert mistakes(setting) == [f"--set: {message}"]


@pytest.mark.parametrize(
    "texts, message",
    [
        (["data.columns=hrx"], "data.columns must be the letters h, r, t"),
        (["data.valid_share=0.5", "data.test_share=0.5"], "must be less than 1 together"),
        (["model.norm=2"], "model.norm is for distance models; complex has no norm"),
        (["loss.temperature=3"], "loss.temperature is for loss.name self-adversarial"),
        (["model.name=transe", "model.squared=true"], "model.squared needs model.norm 2"),
        (
            ["model.name=transe", "regularizer.name=dura"],
            "regularizer.name dura is for bilinear models, not transe",
        ),
        (
            ["model.name=quate", "regularizer.name=ivr"],
            "regularizer.name ivr needs a relation query; quate has none",
        ),
        (
            ["loss.grouped=true", "loss.name=margin", "loss.margin=1"],
            "loss.grouped is for loss.name softmax, logistic, not margin",
        ),
        (
            ["loss.grouped=true", "loss.negatives=shared", "loss.n_negatives=4"],
            "loss.grouped needs loss.negatives all, not shared",
        ),
        (
            ["loss.grouped=true", "loss.mask_known=true"],
            "loss.mask_known does not work with loss.grouped and loss.name softmax",
        ),
        (
            ["loss.grouped=true", "loss.name=logistic", "loss.subsampling=true"],
            "loss.subsampling does not work with loss.grouped and loss.name logistic",
        ),
        (
            ["loss.distillation=1", "model.name=rotate"],
            "loss.distillation is for bilinear models, not rotate",
        ),
        (
            ["loss.distillation=1", "training.micro_batch=4"],
            "loss.distillation does not work with training.micro_batch 4",
        ),
        (
            ["loss.distillation=1", "loss.name=logistic"],
            "loss.distillation is for loss.name softmax, not logistic",
        ),
        (["loss.distillation_start=3"], "loss.distillation_start needs loss.distillation"),
        (["training.average=1.5"], "training.average must be at most 1"),
        (["optimizer.warmup=100"], "optimizer.warmup must be less than training.epochs"),
        (["regularizer.exponent=2.5"], "regularizer.exponent is for regularizer.name ivr, not n3"),
        (
            ["regularizer.name=ivr", "regularizer.exponent=1"],
            "regularizer.exponent must be at least 2",
        ),
        (
            ["model.name=tucker", "loss.relation_weight=0.1"],
            "loss.relation_weight needs a relation query; tucker has none",
        ),
        (
            ["model.name=transe", "model.norm=2", "model.bias=true"],
            "model.bias needs model.squared",
        ),
        (
            ["loss.class_weights=true", "loss.subsampling=true"],
            "loss.class_weights and loss.subsampling both weight queries",
        ),
        (
            ["loss.in_batch_negatives=false"],
            "loss.in_batch_negatives is for loss.negatives shared, not all",
        ),
        (
            [
                "loss.negatives=shared",
                "loss.n_negatives=9",
                "loss.in_batch_negatives=false",
                "loss.correction=true",
            ],
            "loss.correction needs loss.in_batch_negatives",
        ),
        (["loss.negatives=shared"], "loss.negatives shared needs loss.n_negatives, such as 256"),
        (["loss.n_negatives=5"], "loss.n_negatives needs loss.negatives shared or per_query"),
        (["loss.correction=true"], "loss.correction needs loss.negatives shared, not all"),
        (
            ["loss.name=logistic", "loss.label_smoothing=0.1"],
            "loss.label_smoothing is for loss.name softmax",
        ),
        (
            ["loss.margin=1"],
            "loss.margin is for loss.name margin, logistic, self-adversarial",
        ),
        (["loss.name=margin"], "loss.name margin needs a loss.margin above 0"),
        (["model.name=transe", "loss.name=logistic"], "logistic on distances needs"),
        (
            ["hardware.table=host", "hardware.engine=gpu"],
            "hardware.table host updates rows on the CPU; set hardware.engine to auto",
        ),
    ],
)
def test_settings_that_clash_are_named_together(texts: list[str], message: str) -> None:
    (line,) = mistakes(*texts)
    assert message in line


def test_a_number_may_be_written_whole() -> None:
    recipe = Recipe().with_settings(["regularizer.weight=1"])
    assert repr(recipe.regularizer.weight) == "1.0"


@pytest.mark.battery(20)
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 10_000,
        "x = " + "{a=" * 5_000,
        "model.dim." + "a." * 3_000 + "a = 1",
        "[model.dim." + "a." * 3_000 + "a]",
        "[[model]]\n" + "a." * 3_000 + "a = 1",
        "training.seed = " + "1" * 10_000,
        "regularizer.weight = " + "1" * 400,
        "regularizer.weight = 1" + "0" * 5_000 + "e1",
        "[model\n",
        "a = '\x00'",
    ],
    ids=lambda text: text[:18],
)
def test_a_hostile_file_is_a_recipe_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(RecipeError, match=r"/deep\.toml: ") as caught:
        Recipe.read(tmp_path / "deep.toml")
    assert len(str(caught.value)) < 500


@pytest.mark.battery(20)
def test_a_file_too_large_for_a_recipe_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "big.toml").open("wb") as file:
        file.truncate(1 << 30)  # a hole: no byte of it is on the disk
    with pytest.raises(RecipeError, match="larger than"):
        Recipe.read(tmp_path / "big.toml")


def test_a_file_that_cannot_be_read_is_a_recipe_error(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"data.name = '\xe9'")
    for path in (tmp_path / "absent.toml", tmp_path, tmp_path / "latin.toml"):
        with pytest.raises(RecipeError, match=path.name):
            load_tables(path)


@pytest.mark.parametrize(
    "text, value",
    [
        ("10", 10),
        ("1e-3", 1e-3),
        (".5", 0.5),
        ("-2.", -2.0),
        ("true", True),
        ("complex", "complex"),
        ("cuda:1", "cuda:1"),
        ("../data/x=y", "../data/x=y"),
        ('"10"', "10"),
        ("", None),
        ('""', ""),
        (" spaced ", "spaced"),
    ],
)
def test_a_setting_is_toml_or_a_bare_word(text: str, value: Any) -> None:
    assert parse_settings([f"part.field={text}"]) == {"part": {"field": value}}


def test_the_last_of_two_settings_counts() -> None:
    assert parse_settings(["a.b=1", "a.c=2", "a.b=3"]) == {"a": {"b": 3, "c": 2}}


@pytest.mark.parametrize("text", ["epochs=3", "training.epochs", "training.=3", "=", ""])
def test_a_setting_without_part_field_or_value_shows_how_to_write_one(text: str) -> None:
    with pytest.raises(RecipeError, match=r"write part\.field=value"):
        parse_settings([text])


@pytest.mark.parametrize("value", ["[" * 10_000, "9" * 10_000])
def test_a_hostile_setting_is_a_recipe_error(value: str) -> None:
    (line,) = mistakes(f"training.epochs={value}")
    assert line.startswith("--set: ")
    assert len(line) < 120


def test_merging_changes_neither_of_the_two() -> None:
    base, top = {"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b": {"z": 4}}
    assert merged(base, top) == {"a": {"x": 1, "y": 3}, "b": {"z": 4}}
    assert base == {"a": {"x": 1, "y": 2}}
    assert top == {"a": {"y": 3}, "b": {"z": 4}}


@pytest.mark.parametrize("text", ["2020", "true", "'x'", "a=b", " x "])
def test_a_text_among_names_and_values_is_taken_as_it_is(text: str) -> None:
    assert Recipe().with_settings({"data.name": text}).data.name == text


def test_numbers_and_paths_of_other_libraries_are_taken_among_names_and_values() -> None:
    settings = {"model.dim": np.int64(8), "model.scale": np.float32(0.5), "data.name": Path("a/b")}
    recipe = Recipe().with_settings(settings)
    assert (recipe.model.dim, recipe.model.scale, recipe.data.name) == (8, 0.5, "a/b")
    settings = {"model.scale": np.float64(0.1), "model.reciprocal": np.bool_(False)}
    recipe = Recipe().with_settings({**settings, "data.encoding": np.str_("latin-1")})
    assert (recipe.model.scale, recipe.model.reciprocal) == (0.1, False)
    assert recipe.data.encoding == "latin-1"
    assert Recipe().with_settings({"model.scale": torch.tensor(0.5)}).model.scale == 0.5


@pytest.mark.parametrize(
    "back",
    [
        ["loss.n_negatives=", "loss.negatives=all"],
        {"loss.n_negatives": None, "loss.negatives": "all"},
    ],
)
def test_a_setting_can_be_reset(back: Any) -> None:
    few = Recipe().with_settings(["loss.negatives=shared", "loss.n_negatives=5"])
    with pytest.raises(RecipeError, match=r"reset it with --set loss.n_negatives="):
        few.with_settings("loss.negatives=all")
    assert few.with_settings(back) == Recipe()


def test_only_a_setting_can_be_reset() -> None:
    assert mistakes("loss.n_negative=") == [
        "--set: loss.n_negative is not a setting; did you mean loss.n_negatives?"
    ]


def test_names_of_earlier_versions_are_read() -> None:
    old = {
        "penalty": {"name": "l2", "weight": 0.5},
        "loss": {"negatives": "shared", "count": 9, "answers_too": False, "smoothing": 0.1},
    }
    recipe = Recipe.from_tables(old)
    assert (recipe.regularizer.name, recipe.regularizer.weight) == ("l2", 0.5)
    assert (recipe.loss.n_negatives, recipe.loss.in_batch_negatives) == (9, False)
    assert recipe.loss.label_smoothing == 0.1
    again = recipe.with_settings(["loss.negatives=own", "loss.in_batch_negatives=true"])
    assert again.loss.negatives == "per_query"
    assert again.with_settings(["penalty.weight=0.25"]).regularizer.weight == 0.25


def test_a_saved_recipe_without_a_filter_was_made_with_seen() -> None:
    tables = Recipe().to_tables()
    assert Recipe.from_saved(tables) == Recipe()
    del tables["evaluation"]["filter"]
    assert Recipe.from_saved(tables).evaluation.filter == "seen"
    assert Recipe.from_saved({}).evaluation.filter == "seen"
    assert Recipe.from_tables(tables).evaluation.filter == "all"
    with pytest.raises(RecipeError, match="evaluation is a table of settings, not 3"):
        Recipe.from_saved({"evaluation": 3})


@pytest.mark.parametrize(
    "setting, dictionary",
    [
        ("model.name", MODELS),
        ("loss.name", LOSSES),
        ("regularizer.name", REGULARIZERS),
        ("optimizer.name", OPTIMIZERS),
    ],
)
def test_choices_are_the_keys_of_the_dicts(
    setting: str, dictionary: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (message,) = mistakes(f"{setting}=nothing")
    assert message.startswith(f"--set: {setting} must be one of {', '.join(dictionary)}, not")
    first = next(iter(dictionary))
    monkeypatch.setitem(dictionary, "another", dictionary[first])
    part, field = setting.split(".")
    recipe = Recipe().with_settings([f"{setting}=Another"])
    assert getattr(getattr(recipe, part), field) == "another"


def test_settings_are_one_text_many_or_names_and_values() -> None:
    many = Recipe().with_settings(["training.epochs=3", "model.reciprocal=false"])
    assert Recipe().with_settings({"training.epochs": 3, "model.reciprocal": False}) == many
    assert Recipe().with_settings("training.epochs=3").training.epochs == 3
