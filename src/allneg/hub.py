"""Runs on the Hugging Face Hub: `push` uploads one with a model card, `download` fetches one.

A downloaded run is untrusted: every file of it is checked before it enters the cache, and it is
read with the same care as any other run (SECURITY.md).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allneg import __version__
from allneg.errors import AllnegError, DataError, RunError, UsageError, extra, printable
from allneg.exports.model_card import model_card
from allneg.paths import cache_folder, complete_folder, is_offline, locked, remove
from allneg.runs import Run, files
from allneg.runs.copy import RUN_FILES, export
from allneg.runs.verify import verify
from allneg.terminal import clean

PREFIX = "hf:"
_NAME = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_SHA = re.compile(r"[0-9a-f]{40}")
_FILES = [*RUN_FILES, "checkpoints/*"]  # nothing else is downloaded


def push(run: Run | Path | str, name: str, private: bool = False) -> str:
    """Upload a finished run to the repository `user/name` of the hub, and return its address.

    The repository is created if it is missing; an earlier run in it is replaced. The upload has
    the triples, the weights and a model card, which is written from the report. Log in first with
    `hf auth login`.
    """
    with extra("hub", "push"):
        from huggingface_hub import HfApi

    opened = run if isinstance(run, Run) else Run.open(run)
    repository, revision = _parsed(name)
    if revision is not None:
        raise UsageError(f"{name}: push to a repository without @{revision}")
    if not opened.finished:
        raise UsageError(f"{opened.folder}: not finished; run `allneg resume` first")
    api = HfApi(library_name="allneg", library_version=__version__)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        export(opened, folder)  # without locks and leftovers, and with its shards joined
        card = model_card(opened, repository, PREFIX + repository)
        files.write_text(folder / "README.md", card)
        with _hub_errors(repository):
            api.create_repo(repository, private=private, exist_ok=True)
            found = api.upload_folder(
                repo_id=repository, folder_path=folder, commit_message="Upload a run of allneg",
                delete_patterns=_FILES,
            )  # fmt: skip
    return str(found.repo_url)


def local_folder(run: Path | str) -> Path:
    """The folder of a run. `hf:user/name` or `hf:user/name@revision` is downloaded first."""
    return download(str(run)) if str(run).startswith(PREFIX) else Path(run)


def download(name: str) -> Path:
    """The folder, in the cache, of a run on the hub."""
    repository, revision = _parsed(name.removeprefix(PREFIX))
    cache = cache_folder() / "hub" / repository
    if revision is not None and _SHA.fullmatch(revision) and (cache / revision).exists():
        return cache / revision
    if is_offline():
        raise DataError(f"{name}: not in the cache, and ALLNEG_OFFLINE forbids downloads")
    with extra("hub", name):
        from huggingface_hub import HfApi
    api = HfApi(library_name="allneg", library_version=__version__)
    with _hub_errors(repository):
        commit = str(api.model_info(repository, revision=revision).sha)
    if not _SHA.fullmatch(commit):
        raise DataError(f"{name}: the hub names no commit")
    with locked(cache, ".lock"):
        if not (cache / commit).exists():
            with complete_folder(cache / commit) as folder:
                with _hub_errors(repository):
                    api.snapshot_download(
                        repository, revision=commit, local_dir=folder, allow_patterns=_FILES
                    )
                remove(folder / ".cache")  # of the hub's own client
                _check(name, folder)
    return cache / commit


def _check(name: str, folder: Path) -> None:
    """Raise a `RunError` unless a downloaded folder is a whole run."""
    try:
        wrong = [check.wrong for check in verify(folder) if check.wrong is not None]
    except AllnegError as error:
        wrong = [str(error)]
    if wrong:
        raise RunError(f"{name}: not a whole run: {wrong[0].replace(f'{folder}/', '')}")


def _parsed(name: str) -> tuple[str, str | None]:
    match = _NAME.fullmatch(name)
    if match is None or ".." in name:
        raise UsageError(f"{printable(name)} is not a repository of the hub; write user/name")
    return match["repo"], match["revision"]


@contextmanager
def _hub_errors(repository: str) -> Iterator[None]:
    """Turn an error of the hub or of the network into a `DataError` of one line."""
    from huggingface_hub.errors import HfHubHTTPError

    network_error: Any = HfHubHTTPError.__bases__[0]  # of the HTTP package that this version uses
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        advice = {
            401: "; log in with `hf auth login`", 403: "; this account may not do that",
            404: "; check the name, and log in if it is private",
        }.get(status, "")  # fmt: skip
        raise DataError(f"{PREFIX}{repository}: the hub answered {status}{advice}") from None
    except (network_error, ValueError, OSError) as error:
        why = clean(str(error).split("\n")[0])
        raise DataError(f"{PREFIX}{repository}: the hub cannot be used ({why})") from None
