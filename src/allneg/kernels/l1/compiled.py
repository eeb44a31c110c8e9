"""`l1` on a CPU, by a C compiler: see `allneg.kernels.pairs`."""

from __future__ import annotations

from allneg.kernels import pairs
from allneg.kernels.float32 import in_float32
from allneg.kernels.l1 import reference

scores, gradients = in_float32(pairs, reference, parts=1)
