"""Rows × rows → scores. A kernel is one function with several engines."""

from allneg.kernels.dot import dot
from allneg.kernels.l1 import l1
from allneg.kernels.l2 import l2
from allneg.kernels.modulus import modulus
from allneg.kernels.times import times

__all__ = ["dot", "l1", "l2", "modulus", "times"]
