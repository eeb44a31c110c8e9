"""TuckER (Balažević et al., 2019): RESCAL whose matrices are mixed from one shared core tensor."""

from torch import Generator, Tensor, nn

from allneg.models.rescal import RESCAL


class TuckER(RESCAL):
    """score(h, r, t) = sum_kij W_kij r_k h_i t_j

    The core W (dim × dim × dim) is shared by all relations; a relation row holds `dim` numbers.
    """

    defaults = (
        "model.dim=200", "regularizer.name=ivr", "regularizer.weight=3e-4",
        "optimizer.learning_rate=0.03",
    )  # fmt: skip

    @property
    def relation_width(self) -> int:
        return self.dim

    @property
    def shared_shape(self) -> tuple[int, ...]:
        return self.dim, self.dim, self.dim

    def combine(self, relation: Tensor, shared: Tensor) -> Tensor:
        """The matrix Σ_k r_k W_k of each relation, row by row: (B, D) -> (B, D²)."""
        return relation @ shared.flatten(1)

    def init_shared(self, shared: Tensor, generator: Generator) -> None:
        # As in the authors' code. At a small scale, all gradients would begin near 0.
        nn.init.uniform_(shared, -1.0, 1.0, generator=generator)
