"""The five benchmarks as published: sizes, origin, and hashes of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

from allneg.graph.files import TripleFile
from allneg.graph.graph import SPLITS

ORIGIN = (
    "https://raw.githubusercontent.com/DeepGraphLearning/KnowledgeGraphEmbedding/"
    "617062aaedf53bf4d6b44450a580a96dc30e0632/data"
)
MOST_BYTES = 1 << 30  # of a benchmark file


@dataclass(frozen=True)
class Content:
    """What is known about a file. All but `git_blob` are of the text with LF line ends."""

    lines: int
    sha256: str | None = None
    git_blob: str | None = None  # SHA-1 of b"blob SIZE\\0" and the content
    characters: int | None = None  # where no hash is known

    def problem(self, file: TripleFile) -> str | None:
        """What differs, or None. An unreadable file is a `DataError`."""
        with file.stream() as stream:
            blocks = iter(partial(stream.read, 1 << 20), b"")
            data = b"".join(islice(blocks, MOST_BYTES >> 20))
        text = data.replace(b"\r\n", b"\n")
        blob = b"blob %d\0" % len(data) + data
        found = {
            "lines": text.count(b"\n"),
            "sha256": hashlib.sha256(text).hexdigest(),
            "git_blob": self.git_blob and hashlib.sha1(blob, usedforsecurity=False).hexdigest(),
            "characters": self.characters and len(text.decode(errors="replace")),
        }
        for what, value in found.items():
            expected = getattr(self, what)
            if expected is not None and expected != value:
                return f"{what} should be {expected}, but is {value}"
        return None


@dataclass(frozen=True)
class Dataset:
    """A benchmark as published."""

    n_entities: int
    n_relations: int
    origin: str  # its folder below ORIGIN
    about: str
    train: Content
    valid: Content
    test: Content
    archive_sha256: str | None = None  # of the usual NAME.tar.xz

    @property
    def files(self) -> Mapping[str, Content]:
        """By split."""
        return {split: getattr(self, split) for split in SPLITS}


# fmt: off
DATASETS: dict[str, Dataset] = {
    "fb15k": Dataset(
        14_951, 1_345, "FB15k", "Freebase (Bordes et al., 2013); inverse relations leak the test",
        train=Content(483_142, "f9cdfd2685f6483bd3a499d433919b15d62f0715c6cf18b2ca30c2aa5c47a704"),
        valid=Content(50_000, "471929cde9cf74b1caa8348c2b601c8010d6b2f2a56bae49b4ebfd14c9bce855"),
        test=Content(59_071, "5b60b4de325482c3368e22d0b7452d465b09a610fea0ce3768d8b1e8b5a7e42a"),
        archive_sha256="7c8a86b6560c3fcc2b2102177f406b4eea256752e179e593c1189227d8757043",
    ),
    "wn18": Dataset(
        40_943, 18, "wn18", "WordNet 3.0 (Bordes et al., 2013); inverse relations leak the test",
        train=Content(141_442, "24c9b02dc57d3ae8ca8467ce355995edee7be8eddc3bd070ee34d3c6fc3c95eb"),
        valid=Content(5_000, "13347bfb5e17d1cae003e0bfe29b4716d3ab748e8cfb6af997138d37da3a51dc"),
        test=Content(5_000, "d22c19d176d4ba6a6f0d0c6bfce39ab3c16e3b20e1df6f9efe0d9ed86542fa10"),
        archive_sha256="187b8293ab05e8e601094c082cdf175d2b36d819d1542b5b689638e31722241c",
    ),
    "yago3-10": Dataset(
        123_182, 37, "YAGO3-10", "YAGO3, entities with at least ten facts (Dettmers et al., 2018)",
        train=Content(1_079_040, git_blob="1543056ff5af6d3bf841510129529e91e9a8627c"),
        valid=Content(5_000, characters=234_464),
        test=Content(5_000, characters=236_088),
    ),
    "fb15k-237": Dataset(
        14_541, 237, "FB15k-237", "FB15k without inverse relations (Toutanova and Chen, 2015)",
        train=Content(272_115, "61099230e4439f90885ca9767739e31e8e32f54736fa1c35952b27997bc7c08a"),
        valid=Content(17_535, "749cbe9d923bac7b9354da5614ecfed2e0220256d442c3e04a6b303db1f273d9"),
        test=Content(20_466, "e2e35e8e6113de220140b6f44dc71a5207b0fc6872d575e874aefe13259b655b"),
        archive_sha256="3623939ce46dd35902932608c26c1778704428a5fda95a189bc7a5b517ed5b9d",
    ),
    "wn18rr": Dataset(
        40_943, 11, "wn18rr", "WN18 without inverse relations (Dettmers et al., 2018)",
        train=Content(86_835, "038612e783c215ee5f3ca9fbfca27b8d0739be1028fe4ee7c174aecf0b83d5df"),
        valid=Content(3_034, "453ce7202afa58094a04d2b1560ee2b02660f1c260b32ce6651c8ccedd1028ab"),
        test=Content(3_134, "0383bceaaa1096cf3c03ec021ed0048068e2355dbfc0239b292cefdac821cec5"),
        archive_sha256="5c3504ac5de793443bd3e556edfa2c3d65f92f37a3732ccaf35bd7d9b72572c9",
    ),
}
# fmt: on
