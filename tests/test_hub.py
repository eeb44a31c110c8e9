"""Runs on a fake of the Hugging Face Hub."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

import allneg
from allneg import hub
from allneg.errors import AllnegError, DataError, RunError, UsageError
from allneg.runs import Run
from fake_hub import FakeHub


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub without repositories, and an empty cache."""
    fake = FakeHub()
    api = huggingface_hub.HfApi
    monkeypatch.setattr(
        huggingface_hub, "HfApi", lambda **given: api(fake.url, token="hf_x", **given)
    )
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    yield fake
    fake.close()


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def test_a_pushed_run_is_loaded_with_the_same_answers(
    server: FakeHub, toy_run: Run, tmp_path: Path
) -> None:
    address = allneg.push(toy_run.folder, "me/toy")
    assert address == f"{server.url}/me/toy"
    files = dict(server.repositories["me/toy"][server.last("me/toy")])
    assert files.pop(".gitattributes") == b""
    assert b"allneg.load" in files.pop("README.md")
    assert set(files) == set(content(toy_run.folder))
    here, there = (allneg.load(at, device="cpu") for at in (toy_run.folder, "hf:me/toy"))
    assert there.tails("France", "borders") == here.tails("France", "borders")
    cached = tmp_path / "home" / "hub" / "me" / "toy" / server.last("me/toy")
    assert content(cached) == files
    assert not any(path.is_symlink() for path in cached.rglob("*"))
    count = len(server.requests)
    allneg.load(f"hf:me/toy@{cached.name}", device="cpu")
    assert len(server.requests) == count  # a commit in the cache needs no hub


def test_a_second_push_replaces_the_run(server: FakeHub, toy_run: Run, trained_longer: Run) -> None:
    allneg.push(toy_run, "me/toy", private=True)
    assert server.private == {"me/toy"}
    first = server.last("me/toy")
    allneg.push(trained_longer, "me/toy")
    files = server.repositories["me/toy"][server.last("me/toy")]
    checkpoints = {name.split("/")[1] for name in files if name.startswith("checkpoints/epoch")}
    assert checkpoints == {f"epoch-{len(trained_longer.metrics()):06d}-step-00000000"}
    for at, run in (("", trained_longer), (f"@{first}", toy_run)):
        assert Run.open(hub.local_folder(f"hf:me/toy{at}")).report == run.report


@pytest.fixture
def trained_longer(toy_copy: Run) -> Run:
    from allneg.training.train import resume

    return resume(toy_copy.folder, settings={"training.epochs": 40})


def test_an_unfinished_run_is_not_pushed(toy_copy: Run, server: FakeHub) -> None:
    toy_copy.set_status("interrupted")
    with pytest.raises(UsageError, match="not finished; run `allneg resume`"):
        allneg.push(toy_copy, "me/toy")
    assert server.repositories == {}


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def changed(name: str, change: Callable[[bytes], bytes]) -> Callable[[dict[str, bytes]], Any]:
    def apply(files: dict[str, bytes]) -> None:
        path = next(path for path in files if path.endswith(name))
        files[path] = change(files[path])

    return apply


@pytest.mark.parametrize(
    "attack",
    [
        changed("best.safetensors", flip),
        changed("entities.txt", lambda _: b"x\n"),
        changed("recipe.toml", lambda data: data.replace(b"dim = 4", b"dim = 8")),
        changed("run.json", lambda _: b"{}"),
        changed("checkpoints/last", lambda _: b"../../../etc\n"),
        lambda files: files.pop("run.json"),
        lambda files: files.clear(),
        lambda files: files.update({"checkpoints/../../../../evil.txt": b"x"}),
        lambda files: files.update({"checkpoints/epoch-000030-step-00000000/x.pkl": b"x"}),
    ],
)
def test_an_untrusted_run_is_refused_and_leaves_nothing(
    server: FakeHub, toy_run: Run, tmp_path: Path, attack: Callable[[dict[str, bytes]], Any]
) -> None:
    files = content(toy_run.folder)
    attack(files)
    server.add("evil/run", files)
    with pytest.raises((RunError, DataError), match="hf:evil/run: "):
        allneg.load("hf:evil/run", device="cpu")
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in left] == [".lock"]


def test_only_the_files_of_a_run_are_downloaded(
    server: FakeHub, toy_run: Run, tmp_path: Path
) -> None:
    server.add("me/run", {**content(toy_run.folder), "setup.py": b"x", "x/run.json": b"{}"})
    allneg.load("hf:me/run", device="cpu")
    assert not any("setup.py" in asked or "x/run" in asked for asked in server.requests)


def test_a_commit_that_is_no_hash_is_refused(
    server: FakeHub, toy_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.repositories["me/run"] = {"../../x": content(toy_run.folder)}
    with pytest.raises(DataError, match="the hub names no commit"):
        allneg.load("hf:me/run")


@pytest.mark.parametrize(
    "name", ["hf:me", "hf:../x/y", "hf:me/..", "hf:me/a b", "hf:", "hf:me/x@../y"]
)
def test_a_name_that_is_no_repository_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a repository of the hub; write user/name"):
        allneg.load(name)


def test_errors_of_the_hub_are_one_line(
    server: FakeHub, toy_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"^hf:me/no: the hub answered 404; check the name[^\n]*$"):
        allneg.load("hf:me/no")
    monkeypatch.setattr(server, "post", lambda *_: (401, {"error": "no"}, {}))
    with pytest.raises(DataError, match=r"401; log in with `hf auth login`$"):
        allneg.push(toy_run, "me/toy")
    with pytest.raises(UsageError, match="push to a repository without @main"):
        allneg.push(toy_run, "me/toy@main")
    for value in ("1", "true"):
        monkeypatch.setenv("ALLNEG_OFFLINE", value)
        with pytest.raises(DataError, match="ALLNEG_OFFLINE forbids downloads"):
            allneg.load("hf:me/no")


def test_an_unreachable_hub_is_one_line(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    api = huggingface_hub.HfApi()
    monkeypatch.setattr(api, "endpoint", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda **_: api)
    with pytest.raises(AllnegError, match=r"^hf:me/no: the hub cannot be used \([^\n]*\)$"):
        allneg.load("hf:me/no")


def test_a_missing_package_is_named(
    toy_run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ALLNEG_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for use in (lambda: allneg.push(toy_run, "me/x"), lambda: allneg.load("hf:me/x")):
        with pytest.raises(UsageError, match=r"needs huggingface_hub: pip install 'allneg\[hub\]'"):
            use()
