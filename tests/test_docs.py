"""The pages are true: links, files, settings, commands and code blocks that they show."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import huggingface_hub
import pytest
import torch
import yaml

import allneg
from allneg.cli import allneg as cli
from allneg.cli import main
from allneg.kernels.fused import softmax
from allneg.models import MODELS, Model
from allneg.predict.question import Question
from allneg.recipe.parts import PARTS, registered
from allneg.scoring.losses import Loss
from allneg.training.trackers import TRACKERS, Tracker
from fake_hub import FakeHub

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("reproduction/*.md")])
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in PAGES}
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A mark before a block of code that no test runs.
NOT_RUN = re.compile(r"^<!-- not run: [^\n]+ -->\n```\w*\n.*?^```$", re.DOTALL | re.MULTILINE)
RUN_BY_OTHER_TESTS = (
    "README.md", "CONTRIBUTING.md", "docs/ask.md", "docs/complete.md", "docs/data.md",
    "docs/export.md", "docs/growing.md",
)  # fmt: skip
PYTHON_PAGES = [
    page
    for page, text in TEXTS.items()
    if "```python" in NOT_RUN.sub("", text) and page not in RUN_BY_OTHER_TESTS
]
INLINE = re.compile(r"`([^`\n]+)`")
# A training on `countries` of a fraction of a second.
QUICK = {
    "model.dim": 8, "training.epochs": 1, "training.batch_size": 2000, "hardware.device": "cpu",
}  # fmt: skip
# Settings of a tuning with the learning rate alone left to try.
TUNED = (
    "training.average=0", "loss.name=softmax", "loss.relation_weight=0", "loss.class_weights=false",
    "regularizer.name=n3", "regularizer.weight=0.01", "optimizer.name=adagrad",
    "model.entity_dropout=0",
)  # fmt: skip
FOLDERS = ("src/", "tests/", "docs/", "scripts/", "benchmarks/", "reproduction/")


def blocks(text: str, language: str) -> list[str]:
    return [code for found, code in BLOCK.findall(text) if found == language]


def run_python(page: str) -> dict[str, Any]:
    """Run the Python blocks of a page in one namespace, which is returned."""
    namespace: dict[str, Any] = {"__name__": "page"}
    for code in blocks(NOT_RUN.sub("", TEXTS[page]), "python"):
        exec(compile(code, page, "exec"), namespace)
    return namespace


def commands() -> Iterator[tuple[str, list[str]]]:
    """The page and the words of every shown call of allneg or make."""
    for page, text in TEXTS.items():
        shown = [
            line for code in blocks(text, "") for line in code.replace("\\\n", " ").split("\n")
        ]
        for line in [*shown, *INLINE.findall(text), *re.findall(r"^    (.*)", text, re.MULTILINE)]:
            words = line.partition("  #")[0].removeprefix("$ ").split()
            if words[:1] == ["torchrun"] and "allneg" in words:
                words = words[words.index("allneg") :]
            if len(words) > 1 and words[0] in ("allneg", "make"):
                yield page, words


def headings(path: Path) -> list[str]:
    """The anchors of a page, as GitHub names them."""
    titles = re.findall(r"^#+ (.*)", path.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]


def test_links_lead_to_files_and_headings() -> None:
    wrong = []
    for page, text in TEXTS.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", text)):
            name, _, heading = link.partition("#")
            target = (ROOT / page).parent / name if name else ROOT / page
            if "://" in link or (target.exists() and (not heading or heading in headings(target))):
                continue
            wrong.append(f"{page}: {link}")
    assert not wrong


def test_named_files_exist() -> None:
    wrong = []
    for page, text in TEXTS.items():
        for name in INLINE.findall(text):
            is_path = re.fullmatch(r"[\w./-]+(\.(py|c|toml|md|png|svg)|/)", name)
            if is_path and name.startswith(FOLDERS) and "NAME" not in name:
                wrong += [] if (ROOT / name).exists() else [f"{page}: {name}"]
    assert not wrong


def test_named_tests_exist() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = {
        name
        for text in TEXTS.values()
        for name in INLINE.findall(text)
        if re.fullmatch(r"test_\w+", name)
    }
    assert len(named) > 15  # the promises of SECURITY.md
    assert sorted(name for name in named if f"def {name}(" not in tests) == []


def test_settings_exist() -> None:
    setting = re.compile(rf"(?<![\w./])({'|'.join(PARTS)})\.([a-z]\w*)(?![\w(/])")
    code = {"model": Model, "loss": Loss}  # in CONTRIBUTING.md, names of methods
    wrong = []
    for page, text in TEXTS.items():
        if page == "CHANGELOG.md":
            text = re.sub(r"^\| `.*?\|", "|", text, flags=re.MULTILINE)  # earlier names
        shown = [*INLINE.findall(BLOCK.sub("", text)), *blocks(text, ""), *blocks(text, "toml")]
        for part, field in setting.findall("\n".join(shown)):
            if field in ("md", "py") or field in PARTS[part].__dataclass_fields__:
                continue
            if not hasattr(code.get(part), field):
                wrong.append(f"{page}: {part}.{field}")
    assert not wrong


@pytest.mark.parametrize("part", ["model", "loss", "regularizer", "optimizer"])
def test_the_page_on_models_has_every_name_of_a(part: str) -> None:
    names = registered(f"{part}.name")
    assert names
    assert [name for name in names if f"`{name}`" not in TEXTS["docs/models.md"]] == []


def test_commands_and_their_options_exist() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    wrong = []
    context = click.Context(cli)
    for page, words in commands():
        if words[0] == "make":
            wrong += [] if words[1] in targets else [f"{page}: {' '.join(words)}"]
            continue
        command: click.Command | None = cli
        while isinstance(command, click.Group) and len(words) > 1:
            words = words[1:]
            if words[0].startswith("-") or words[0] in ("COMMAND", "…"):
                break
            command = command.get_command(context, words[0])
        if command is None:
            wrong.append(f"{page}: no command {words[0]}")
            continue
        options = {name for param in command.params for name in param.opts} | {"--help"}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        wrong += [f"{page}: {words[0]} {option}" for option in given - options]
    assert not wrong


def test_the_readme_lists_every_command() -> None:
    table = TEXTS["README.md"].partition("| command | purpose |")[2].partition("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    named = {name.split()[0] for cell in first for name in INLINE.findall(cell)}
    assert set(cli.list_commands(click.Context(cli))) == named


def test_python_blocks_are_python() -> None:
    for page, text in TEXTS.items():
        for code in blocks(text, "python"):
            ast.parse(code, page)


@pytest.fixture
def quick_training(quick_data: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Trainings of the pages take one epoch here, and write to another folder."""

    def quickly(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, settings: dict[str, object], **kwargs: Any) -> Any:
            return original(*args, settings={**settings, **QUICK}, **kwargs)

        return call

    monkeypatch.setattr(allneg, "train", quickly(allneg.train))
    monkeypatch.setattr(allneg, "audit", quickly(allneg.audit))
    monkeypatch.setattr("allneg.completer.train", allneg.train)
    monkeypatch.chdir(tmp_path)


def quick_words() -> list[str]:
    """The same as options of a command."""
    return [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]


@pytest.mark.usefixtures("quick_training")
def test_the_readmes_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    run_python("README.md")
    assert len(capsys.readouterr().out.splitlines()) == 6  # two metrics, five answers


def test_the_readmes_transcripts_have_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Every predict of the README, with the packaged run, whose numbers are exact in float32."""
    shown = blocks(TEXTS["README.md"].partition("## A first result")[2].partition("\n## ")[0], "")
    transcripts = [part for code in shown for part in re.split(r"^\$ ", code, flags=re.M) if part]
    n_checked = 0
    for command, *lines in (part.splitlines() for part in transcripts):
        words = shlex.split(command)
        if words[:2] != ["allneg", "predict"]:
            continue
        cli.main(
            ["predict", "countries-demo", *words[3:], "--device", "cpu"], standalone_mode=False
        )
        printed = [line.split() for line in capsys.readouterr().out.splitlines()]
        whole = words[2] == "countries-demo"  # of another run, the header is the same
        expected = [line for line in lines if line != "…" and (whole or line.startswith("┃"))]
        assert [line for line in expected if line.split() not in printed] == []
        n_checked += 1
    assert n_checked == 2


def run_page(page: str) -> int:
    """Run every command and Python block of a page, with smaller trainings; counts commands."""
    n_commands = 0
    for language, code in BLOCK.findall(TEXTS[page]):
        if language == "python":
            exec(compile(code, page, "exec"), {"__name__": "page"})
            continue
        for line in code.splitlines():
            if not line.startswith("$ "):
                continue
            n_commands += 1
            if line.startswith("$ allneg "):
                run_command(line.removeprefix("$ "))
            else:
                subprocess.run(["bash", "-ec", line.removeprefix("$ ")], check=True)
    return n_commands


def run_command(line: str) -> None:
    """Run a command of allneg with smaller trainings."""
    _, *words = shlex.split(line)
    if words[0] in ("train", "audit", "tune"):
        words += quick_words()
    more = {
        "audit": ["--folds", "2"], "extend": ["--set", "training.epochs=2"],
        "resume": ["--set", "training.epochs=2"],
    }  # fmt: skip
    more["tune"] = [word for setting in TUNED for word in ("--set", setting)]
    words += more.get(words[0], [])
    cli.main(words, standalone_mode=False)


@pytest.mark.usefixtures("quick_data")
def test_the_commands_of_the_first_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = allneg.read_graph("countries")
    facts = graph.facts("train")[:2000]
    Path("facts.tsv").write_text("".join("\t".join(fact) + "\n" for fact in facts))
    shown = re.findall(r"^    (allneg .*)", TEXTS["docs/index.md"], re.MULTILINE)
    for line in shown:
        if not line.startswith("allneg explore"):  # it serves until it is stopped
            run_command(line)
    assert len(shown) == 7
    assert len(Path("new.tsv").read_text().splitlines()) == 100
    assert allneg.load("tunings/mine/best").tails("France", "borders")


def test_the_story_of_a_growing_knowledge_base_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page("docs/growing.md") == 11
    printed = capsys.readouterr()
    shown = next(line for line in TEXTS["docs/growing.md"].splitlines() if "are trained" in line)
    assert shown in printed.err
    assert "['kb', 'grown']" in printed.out


@pytest.mark.usefixtures("quick_data")
def test_the_story_of_complete_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command and every Python block of docs/complete.md, with smaller trainings."""
    monkeypatch.chdir(tmp_path)
    assert run_page("docs/complete.md") == 15
    assert len((tmp_path / "new-2.tsv").read_text().splitlines()) == 500
    facts = (tmp_path / "facts.tsv").read_text().splitlines()
    assert facts[-4:] == (tmp_path / "accepted.tsv").read_text().splitlines()
    rejected = (tmp_path / "rejected.tsv").read_text().splitlines()
    assert not any(fact in (tmp_path / "new-2.tsv").read_text() for fact in rejected)


@pytest.mark.usefixtures("quick_training")
def test_the_python_of_the_page_on_data_runs(capsys: pytest.CaptureFixture[str]) -> None:
    namespace = run_python("docs/data.md")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 2 (")
    assert "Prediction(" in lines[1]
    assert lines[2] == "Berlin (http://example.org/Q64)"
    assert lines[3].endswith("dropped literals (data.keep_literals): 1']")
    assert lines[4:] == ["2 1", "[1. 2.]"]
    assert namespace["graph"].vocabulary.entities == ("Berlin", "Germany")


@pytest.mark.usefixtures("quick_training")
def test_the_examples_of_questions_run(capsys: pytest.CaptureFixture[str]) -> None:
    namespace = run_python("docs/ask.md")
    out = capsys.readouterr().out.splitlines()
    assert len(out) >= 5 + 4 + 3  # answers, one answer each, a prompt
    assert "Answer from these facts:" in out
    Question.parse(namespace["line"]["question"], namespace["model"].graph.vocabulary)
    atoms = [line for line in TEXTS["docs/ask.md"].splitlines() if line.startswith("| `")]
    for text in (line.split("`")[1] for line in atoms if "(" in line.split("`")[1]):
        whole = text if text.startswith("?x") else f"?x : {text}"
        whole = whole.replace(": not", ": borders(France, ?x), not")
        Question.parse(whole, namespace["model"].graph.vocabulary)


def test_the_commands_of_questions_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"^    (allneg .*|python .*)", TEXTS["docs/ask.md"], re.MULTILINE)
    for line in shown:
        if line.startswith("allneg "):
            run_command(line)
            continue
        _, program, *words = shlex.split(line.replace("--count 1000", "--count 2"))
        monkeypatch.setattr(sys, "argv", [program, *words])
        runpy.run_path(str(ROOT / program), run_name="__main__")
    assert len(shown) == 3
    printed = capsys.readouterr().out
    assert "Bavarian" in printed
    assert printed.count("1p") == printed.count("up") == 2


def test_the_error_of_a_question_is_the_pages() -> None:
    shown = re.search(
        r"^    \$ allneg ask \S+ \"(.*)\"\n((?:    .*\n)+)", TEXTS["docs/ask.md"], re.M
    )
    assert shown is not None
    with pytest.raises(allneg.AllnegError) as error:
        Question.parse(shown[1], allneg.read_graph("countries").vocabulary)
    lines = [line[4:] for line in shown[2].splitlines()]
    assert "\n".join(lines) == f"allneg: {error.value}"


@pytest.mark.usefixtures("quick_training")
def test_the_code_of_the_export_page_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python and commands, in their order; the hub is a fake."""
    hub, api = FakeHub(), huggingface_hub.HfApi
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda **_: api(hub.url, token="hf_x"))
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(TRACKERS, "tensorboard", Tracker)  # its package is not a requirement
    (tmp_path / "questions.csv").write_text("head,relation\nFrance,borders\n")
    namespace: dict[str, Any] = {"__name__": "export"}
    try:
        for language, code in BLOCK.findall(NOT_RUN.sub("", TEXTS["docs/export.md"])):
            if language == "python":
                exec(compile(code, "docs/export.md", "exec"), namespace)
                continue
            for line in code.replace("\\\n", " ").splitlines():
                words = line.split()
                if words[1] == "train":
                    words += quick_words()
                monkeypatch.setattr(sys, "argv", words)
                main()
    finally:
        hub.close()
    assert (tmp_path / "graph" / "relationships.csv").exists()
    assert (tmp_path / "runs" / "tracked" / "report.json").exists()


@pytest.mark.usefixtures("quick_training")
def test_the_example_of_a_model_trains_and_predicts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace: dict[str, Any] = {"__name__": "contributing"}
    model, use, test = blocks(NOT_RUN.sub("", TEXTS["CONTRIBUTING.md"]), "python")
    exec(compile(model, "CONTRIBUTING.md", "exec"), namespace)
    monkeypatch.setitem(MODELS, "rescal", namespace["RESCAL"])  # what was there comes back
    exec(compile(use, "CONTRIBUTING.md", "exec"), namespace)
    assert capsys.readouterr().out.count("Prediction(") == 3

    def check_formula(rescal: Model, formula: Any) -> None:
        head, tail, relation = torch.randn(5), torch.randn(5), torch.randn(25)
        score = rescal.kernel(rescal.tail_query(head[None], relation[None]), tail[None])
        torch.testing.assert_close(score[0, 0], formula(head, relation, tail))
        score = rescal.kernel(rescal.head_query(tail[None], relation[None]), head[None])
        torch.testing.assert_close(score[0, 0], formula(head, relation, tail))
        by_relation = rescal.relation_query(head[None], tail[None]) @ relation
        torch.testing.assert_close(by_relation[0], formula(head, relation, tail))

    exec(compile(test, "CONTRIBUTING.md", "exec"), namespace)
    namespace["test_scores_and_gradients_are_the_papers"](check_formula)


@pytest.mark.parametrize("model", ["complex", "transe"])
def test_a_training_step_stays_short(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 12 files, 45 functions and 450 lines; CONTRIBUTING.md shows what the program says."""
    if softmax.library() is None:
        pytest.skip("there is no C compiler, so a step takes another path")
    import step_trace

    quick = {**step_trace.SETTINGS, "training.batch_size": 4000}
    monkeypatch.setattr(step_trace, "SETTINGS", quick)
    calls = step_trace.trace("allneg.training.trainer", "Trainer.step", model)
    said = step_trace.summary(model, calls)
    n_files, n_functions, _, n_lines, _ = map(int, re.findall(r"\d+", said))
    assert (n_files <= 12, n_functions <= 45, n_lines <= 450) == (True, True, True), said
    if model == "complex":
        assert f"    {said.partition(' (')[0]}" in TEXTS["CONTRIBUTING.md"], said


@pytest.mark.usefixtures("quick_training")
@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_the_python_of_other_pages_runs(page: str) -> None:
    run_python(page)


def test_the_recipe_for_users_of_libkge_is_one() -> None:
    (code,) = blocks(TEXTS["docs/from-libkge.md"], "toml")
    assert allneg.Recipe.from_tables(tomllib.loads(code)).training.batch_size == 256


def test_the_slurm_script_trains_then_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for SLURM's commands and for torchrun, which prints its arguments."""
    (script,) = blocks(TEXTS["docs/clusters.md"], "bash")
    stands = {"srun": '"$@"', "scontrol": "echo node1; echo node2", "torchrun": 'echo "$@"'}
    for name, code in stands.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{code}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, value in {"JOB_ID": "7", "NNODES": "2", "JOB_NODELIST": "node[1-2]"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.chdir(tmp_path)

    def submit() -> str:
        command = ["bash", "-c", script, "train.sbatch", "--model", "rotate"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    shared = (
        "--nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-id 7 "
        "--rdzv-endpoint node1:29500 --max-restarts 3 -m allneg"
    )
    assert submit() == f"{shared} train fb15k-237 --out runs/mine --model rotate\n"
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "run.json").touch()
    assert submit() == f"{shared} resume runs/mine\n"


def test_the_pods_of_kubernetes_find_the_first_one() -> None:
    (text,) = blocks(TEXTS["docs/clusters.md"], "yaml")
    service, job = yaml.safe_load_all(text)
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    (container,) = pod["containers"]
    first = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert f"--rdzv-endpoint {first}:" in container["args"][0]
    assert f"--nnodes {job['spec']['completions']} " in container["args"][0]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_the_numbers_on_negatives_are_those_of_the_results() -> None:
    def row(page: str, name: str) -> list[str]:
        line = re.compile(rf"^\| {re.escape(name)} \|(.*)\|$", re.MULTILINE)
        return line.findall(TEXTS[page])[0].split("|")

    names = {
        "ComplEx, few negatives": "ComplEx",
        "ComplEx-V2, all entities": "ComplEx-V2",
        "RotatE, dim 100, 256 negatives": "RotatE (256 negatives)",
        "RotatE-V2, dim 100, all entities": "RotatE-V2 (all entities)",
    }
    for ours, theirs in names.items():
        shown = [cell.strip() for cell in row("docs/all-negatives.md", ours)]
        results = [cell.strip()[:4] for cell in row("docs/results.md", theirs)]
        assert shown == results[2:4], "docs/all-negatives.md: copy the overview of docs/results.md"


@pytest.mark.usefixtures("quick_training")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_the_notebooks_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    import notebooks

    content = json.loads(path.read_text())
    figures = len(notebooks.images(content))
    notebooks.execute(content)
    assert len(notebooks.images(content)) == figures > 0, "run: make notebooks"


def test_the_page_of_the_api_is_up_to_date() -> None:
    import api_page

    assert api_page.page() == TEXTS["docs/api.md"], "run: python scripts/api_page.py"


def test_the_pages_of_commands_and_settings_are_up_to_date() -> None:
    import reference_pages

    advice = "run: python scripts/reference_pages.py"
    assert reference_pages.commands_page() == TEXTS["docs/commands.md"], advice
    assert reference_pages.settings_page() == TEXTS["docs/settings.md"], advice
    without_effect = re.findall(r"^\| `(\S+)` .*\|  \|$", TEXTS["docs/settings.md"], re.MULTILINE)
    assert not without_effect, "comment these fields in src/allneg/recipe/parts.py"
    without_docstring = [
        part for part in PARTS.values() if str(part.__doc__).startswith(f"{part.__name__}(")
    ]
    assert not without_docstring, "describe these parts in src/allneg/recipe/parts.py"


def test_every_page_is_in_the_navigation() -> None:
    import build_site
    import notebooks

    named = re.findall(r"([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    made = ["cards.md", "reference.md"]  # only on the site
    assert sorted(named) == sorted([*build_site.sources(), *notebooks.pages(), *made])


def test_the_table_of_default_settings_is_up_to_date() -> None:
    import defaults_table

    text = TEXTS["docs/models.md"]
    assert defaults_table.page(text) == text, "run: python scripts/defaults_table.py"


def test_the_packages_in_the_readme_are_those_of_the_source() -> None:
    tree = next(code for code in blocks(TEXTS["README.md"], "") if code.startswith("src/allneg/"))
    named = set(re.findall(r"[\w.]+\.py|\w+(?=/[ ,])", tree.partition("reproduction/")[0]))
    source = ROOT / "src" / "allneg"
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    modules = {path.name for path in source.glob("*.py") if not path.name.startswith("__")}
    assert named == packages | modules
