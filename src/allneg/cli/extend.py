"""`allneg extend`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli import options

if TYPE_CHECKING:
    from allneg.runs.parents import Touch


@click.command()
@options.run
@click.argument("facts", required=False)
@click.option("--remove", metavar="FILE", help="A file of facts that are no longer true.")
@click.option(
    "--touch",
    type=click.Choice(["new", "neighbours", "all"], case_sensitive=False),
    default="new",
    show_default=True,
    help="Rows to train: only new names, also the entities of new and removed facts, or all.",
)
@options.settings
@options.device_setting
@click.option("--out", type=options.PATH, help="The folder of the new run; it must not exist.")
@options.track
@options.as_json
@options.quiet
def extend_command(
    run: Path,
    facts: str | None,
    remove: str | None,
    touch: Touch,
    settings: tuple[str, ...],
    device: str | None,
    out: Path | None,
    track: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Make a new run from RUN and a file of new FACTS, without training RUN again.

    New entities and relations get rows that fit their facts. All other rows stay bit-identical.
    RUN itself does not change. FACTS is a file, a folder or a URL, as for `allneg train`; valid
    and test in a folder are added to those of RUN. Equal names mean the same entity.
    `allneg resume` continues an interrupted extension.
    """
    from allneg.cli.reports import print_run, training_progress
    from allneg.training.extend import extend

    if facts is None and remove is None:
        raise click.UsageError("give a file of new FACTS, or --remove FILE")
    given = options.with_flags(settings, {"hardware.device": device})
    with training_progress(quiet) as (callbacks, stopped_by):
        made = extend(
            run, facts, out=out, remove=remove, touch=touch, settings=given, track=track,
            callbacks=callbacks, stopped_by=stopped_by,
        )  # fmt: skip
    print_run(made, as_json)
