"""One file of triples → a folder with the files train, valid and test."""

import os
from pathlib import Path

from allneg.errors import DataError, ResourceError, UsageError
from allneg.graph.check import graph_hashes
from allneg.graph.clean import cleaned
from allneg.graph.files import split_files
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.mapped import append_names
from allneg.graph.number import read_files
from allneg.graph.read import read_graph
from allneg.graph.split import Shares
from allneg.paths import remove, sync
from allneg.recipe import Data


def split_file(path: Path, out: Path, settings: Data, relation_shares: Shares) -> Graph:
    """Split a file as training on it does, and write the splits as tab-separated text.

    The folder `out` must not exist. It appears complete or not at all.
    """
    if os.path.lexists(out):
        raise UsageError(f"{out}: already exists; choose another --out")
    if not path.is_file():
        raise DataError(f"{path}: not a file; pass one file of triples")
    with split_files(path) as files:
        if "" not in files:
            raise DataError(f"{path}: an archive that is already split; pass one file of triples")
        read = read_files(files, settings)
    if read.weights is not None:
        raise DataError(
            f"{path}: has weights, which are not written; train on the file itself, or leave them "
            "out by `--set data.columns=HEAD,RELATION,TAIL`"
        )
    graph = cleaned(path.name, read, settings, relation_shares)
    temporary = out.with_name(f".tmp-{os.getpid()}-{out.name}")
    try:
        temporary.mkdir(parents=True)
        for split in SPLITS:
            _write(temporary / f"{split}.txt", graph, split)
        written = read_graph(temporary, Data(keep_duplicates=True, store="memory"))
        if graph_hashes(written) != graph_hashes(graph):
            raise DataError(
                f"{path}: tab-separated text cannot hold all names exactly; remove carriage "
                "returns at their ends, byte order marks, and repeated headers"
            )
        os.rename(temporary, out)
        sync(out.parent)
    except OSError as error:
        raise ResourceError(f"{out}: cannot be written ({error.strerror or error})") from None
    finally:
        remove(temporary)
    return graph


def _write(path: Path, graph: Graph, split: str) -> None:
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
    triples = graph.split(split).tolist()
    append_names(path, (f"{entities[h]}\t{relations[r]}\t{entities[t]}" for h, r, t in triples))
    sync(path)
