"""Write a model card for the packaged run, and for every row of the paper's tables with a result.

python scripts/model_cards.py --out build/cards     # DATA/ROW.md, countries-demo.md, cards.md

The numbers are those of the run's report and of the result files. These have no metrics by
relation: the report of a run that is trained again has them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from allneg.errors import counted
from allneg.evaluation.report import by_heading
from allneg.exports.model_card import card, metrics_table, model_card
from allneg.graph.datasets import DATASETS
from allneg.reproduce import CELLS, Result, Results
from allneg.runs import Run, make_model
from allneg.runs.run import PACKAGED

ROOT = Path(__file__).parents[1]
DEMO = "countries-demo"
INTRO = f"""# Model cards

A card has data, protocol, metrics, limits and the recipe of a run. `scripts/model_cards.py`
writes them.

[{DEMO}]({DEMO}.md) is part of the package, with its weights: `allneg predict {DEMO}`
answers without training. Its facts come from GeoNames (CC BY 4.0) and Unicode CLDR
([sources](countries.md)).

The other cards describe the runs behind the [results](results.md). Their weights are not
published; the recipe on the card trains them. The result files have no metrics by relation; the
report of a training has them.

| data | rows |
|---|---|
"""


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
        about=f"The row `{found.row}` on `{found.data}`: {what}. To train it, save the recipe "
        f"below: `allneg train {found.data} --recipe recipe.toml`.",
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


def write_cards(folder: Path, results: Path) -> list[str]:
    """Write all cards, and the page cards.md that lists them; the names of the rows.

    Results whose weights were selected with the earlier filter of valid are in results/seen.
    """
    names = []
    for cell in {cell.name: cell for cell in CELLS if "/" not in cell.row}.values():
        found = Results(results).get(cell) or Results(results / "seen").get(cell)
        if cell.data in DATASETS and found is not None:
            path = folder / f"{cell.name}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(result_card(found), encoding="utf-8")
            names.append(cell.name)
    demo = model_card(Run.open(PACKAGED[DEMO]), DEMO, DEMO)
    (folder / f"{DEMO}.md").write_text(demo, encoding="utf-8")
    by_data = {name.partition("/")[0]: "" for name in names}
    for name in names:
        data, _, row = name.partition("/")
        by_data[data] += f"{', ' if by_data[data] else ''}[{row}]({name}.md)"
    rows = "".join(f"| `{data}` | {links} |\n" for data, links in by_data.items())
    (folder / "cards.md").write_text(INTRO + rows, encoding="utf-8")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--out", type=Path, required=True, help="a folder for the cards")
    chosen = parser.parse_args()
    n_cards = len(write_cards(chosen.out, chosen.results)) + 1
    print(f"{chosen.out}: {counted(n_cards, 'card')}")


if __name__ == "__main__":
    main()
