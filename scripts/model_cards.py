"""Write a model card for every cell of the paper's tables that has a result file.

python scripts/model_cards.py --results results --out cards     # cards/DATA/ROW.md

The numbers are those of the result files. They have no metrics by relation: `allneg push` writes
these from the report of the run that it uploads.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from allneg.errors import counted
from allneg.evaluation.report import by_heading
from allneg.graph.datasets import DATASETS
from allneg.hub import card, metrics_table
from allneg.reproduce import CELLS, Result, Results
from allneg.runs import make_model

ROOT = Path(__file__).parents[1]


def result_card(found: Result) -> str:
    recipe, data, first = found.made_by, DATASETS[found.data], found.seeds[0]
    protocol, summary, unseen = first["protocol"], found.summary(), first["unseen"]["triples"]
    rows = {f"seed {entry['seed']}": entry for entry in found.seeds}
    rows |= {f"seed {first['seed']}, ? {side}": first["by_side"][side] for side in ("tail", "head")}
    spread = f", standard deviation {summary['spread']:.4f}" if summary["spread"] else ""
    what = f"an ensemble of {', '.join(found.members)}" if found.members else ""
    what = what or f"{type(make_model(recipe)).__name__} with dim {recipe.model.dim}"
    limits = [f"- {data.about[0].upper()}{data.about[1:]}.", *(
        [f"- {counted(unseen, 'ranked triple')} with entities that are not in train."]
        if unseen else []
    )]  # fmt: skip
    return card(
        title=f"{found.data}/{found.row}",
        tags=[recipe.model.name],
        about=f"The row `{found.row}` on `{found.data}`: {what}. To train it, save the "
        f"recipe below: `allneg train {found.data} --recipe recipe.toml`.",
        results=f"Ranks of the right answers in {protocol['split']}, {first['count']:,} queries "
        f"with {first['candidates']:,} candidates each; {protocol['in_words']}. Weights were "
        f"selected by MRR on valid. Mean MRR {summary['mrr']:.4f}{spread}; "
        f"{summary['seconds'] / 60:.0f} minutes per seed on {first['machine']['device']}, with "
        f"torch {first['machine']['torch']}.\n\n"
        + metrics_table({name: by_heading(row) for name, row in rows.items()}),
        data=f"`{found.data}`: {counted(data.n_entities, 'entity')}, "
        f"{counted(data.n_relations, 'relation')}; triples: "
        + ", ".join(f"{split} {content.lines:,}" for split, content in data.files.items())
        + f". Published as `{data.origin}`; allneg does not ship it. Its licence is that of its "
        "authors.",
        limits="\n".join([*limits, ""]),
        recipe=found.recipe,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the cards")
    chosen = parser.parse_args()
    results, n_cards = Results(chosen.results), 0
    for cell in {cell.name: cell for cell in CELLS}.values():
        if cell.data in DATASETS and (found := results.get(cell)) is not None:
            path = chosen.out / f"{cell.name}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(result_card(found), encoding="utf-8")
            n_cards += 1
    print(f"{chosen.out}: {counted(n_cards, 'card')}")


if __name__ == "__main__":
    main()
