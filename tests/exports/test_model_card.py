"""Model cards of runs and of result files."""

from pathlib import Path

import pytest

from allneg.exports.model_card import model_card
from allneg.reproduce import Result
from allneg.runs import Run

ROOT = Path(__file__).parents[2]


def test_the_card_has_use_results_protocol_data_and_limits(toy_run: Run) -> None:
    card = model_card(toy_run, "me/toy", "hf:me/toy")
    report = toy_run.report
    for text in (
        "library_name: allneg", 'allneg.load("hf:me/toy")', 'model.tails("France", "borders", k=5)',
        f"| all | {report.mrr:.4f} | {report.mr:.1f} |", "| baseline: frequency |",
        report.protocol["in_words"],
        "12 entities, 3 relations; triples: train 20, valid 2, test 3", "## Limits",
        f"| in | 2 | {report.by_relation['in']['tail']['mrr']:.4f} |",
        'name = "complex"',
    ):  # fmt: skip
        assert text in card, text
    code = (
        card.partition("```python\n")[2]
        .partition("```")[0]
        .replace("hf:me/toy", str(toy_run.folder))
    )
    exec(compile(code, "card", "exec"), {})


def test_the_script_writes_cards_of_result_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import model_cards

    monkeypatch.setattr("sys.argv", ["", "--out", str(tmp_path)])
    model_cards.main()
    n_cards = len(list(tmp_path.rglob("*.md"))) - 1
    assert capsys.readouterr().out == f"{tmp_path}: {n_cards} cards\n"
    assert (tmp_path / "cards.md").read_text().count(".md)") == n_cards + 2  # two other pages
    demo = (tmp_path / "countries-demo.md").read_text()
    assert 'allneg.load("countries-demo")' in demo
    assert "| borders |" in demo  # metrics by relation
    card = (tmp_path / "fb15k-237" / "complex-n3.md").read_text()
    path = ROOT / "results" / "fb15k-237" / "complex-n3.json"
    found = Result.read(path if path.exists() else ROOT / "results/seen/fb15k-237/complex-n3.json")
    assert f"| seed 0 | {found.seeds[0]['mrr']:.4f} |" in card
    assert "14,541 entities, 237 relations; triples: train 272,115" in card
