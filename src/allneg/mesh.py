"""How the processes of a training share its work: a grid of rows × batch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from allneg.errors import RecipeError

_ROWS, _BATCH = (rf"{name}=[1-9]\d{{0,5}}" for name in ("rows", "batch"))
_FORM = re.compile(f"{_ROWS}(,{_BATCH})?|{_BATCH}(,{_ROWS})?")


@dataclass(frozen=True)
class Mesh:
    """`rows` processes hold different entity rows and get the same queries; `batch` such groups
    hold the same rows and get different queries.
    """

    rows: int = 1
    batch: int = 1

    @classmethod
    def read(cls, text: str) -> Mesh:
        """The mesh of a text such as rows=4,batch=2; a missing part is 1."""
        if not is_mesh(text):
            raise RecipeError(f"--mesh {text!r} is not a mesh; write rows=4,batch=2")
        pairs = (part.split("=") for part in text.split(","))
        return cls(**{name: int(number) for name, number in pairs})

    @classmethod
    def of(cls, text: str | None, size: int) -> Mesh:
        """The mesh of `size` processes that a recipe sets; None means rows only."""
        if text is None:
            return cls(rows=size)
        mesh = cls.read(text)
        if mesh.size != size:
            raise RecipeError(
                f"hardware.mesh {mesh} needs {mesh.size} processes, but {size} started; start "
                f"them with `torchrun --nproc-per-node {mesh.size} -m allneg …`, or change --mesh"
            )
        return mesh

    @property
    def size(self) -> int:
        return self.rows * self.batch

    def __str__(self) -> str:
        return f"rows={self.rows},batch={self.batch}"


def is_mesh(text: str) -> bool:
    return _FORM.fullmatch(text) is not None
