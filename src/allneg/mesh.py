"""How the processes of a training share its work: a grid of rows × batch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from allneg.errors import RecipeError

_SHAPE = re.compile(
    r"rows=[1-9]\d{0,5}(,batch=[1-9]\d{0,5})?|batch=[1-9]\d{0,5}(,rows=[1-9]\d{0,5})?"
)


@dataclass(frozen=True)
class Mesh:
    """`rows` processes hold different entity rows and see the same queries; `batch` such groups
    hold the same rows and see different queries.
    """

    rows: int = 1
    batch: int = 1

    @classmethod
    def read(cls, text: str) -> Mesh:
        """The mesh that a text such as rows=4,batch=2 says; what is not named is 1."""
        if not is_mesh(text):
            raise RecipeError(f"--mesh {text!r} is no mesh; write rows=4,batch=2")
        pairs = (part.split("=") for part in text.split(","))
        return cls(**{name: int(number) for name, number in pairs})

    @classmethod
    def of(cls, text: str | None, size: int) -> Mesh:
        """The mesh of `size` processes that a recipe asks for; without a word, rows alone."""
        if text is None:
            return cls(rows=size)
        mesh = cls.read(text)
        if mesh.size != size:
            raise RecipeError(
                f"hardware.mesh {mesh} is of {mesh.size} processes, and here "
                f"{'is one' if size == 1 else f'are {size}'}: start them with "
                f"`torchrun --nproc-per-node {mesh.size} -m allneg …`, or say another --mesh"
            )
        return mesh

    @property
    def size(self) -> int:
        return self.rows * self.batch

    def __str__(self) -> str:
        return f"rows={self.rows},batch={self.batch}"


def is_mesh(text: str) -> bool:
    return _SHAPE.fullmatch(text) is not None
