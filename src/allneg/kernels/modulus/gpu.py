"""`modulus` on a GPU, by Triton: see `allneg.kernels.tiles_gpu`."""

from __future__ import annotations

from allneg.kernels import tiles_gpu
from allneg.kernels.float32 import in_float32
from allneg.kernels.modulus import reference

scores, gradients = in_float32(tiles_gpu, reference, parts=2)
