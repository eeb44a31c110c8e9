"""Queries × rows → scores. A kernel is one object with several engines."""

from allneg.kernels.base import Kernel
from allneg.kernels.distances import l1, modulus
from allneg.kernels.dot import dot
from allneg.kernels.fused import complex_mul
from allneg.kernels.l2 import SquaredL2, l2

__all__ = ["Kernel", "SquaredL2", "complex_mul", "dot", "l1", "l2", "modulus"]
