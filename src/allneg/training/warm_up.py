"""The first use of a GPU, in the background: CUDA, cuBLAS and Triton take a second to start."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch

from allneg.hardware import find_device
from allneg.kernels.fused import adagrad
from allneg.recipe import Hardware


@contextlib.contextmanager
def in_background(work: Callable[[torch.device], object], settings: Hardware) -> Iterator[None]:
    """Let a GPU do `work` during the block. An error is ignored: training will report it."""
    device = find_device(settings.device)
    with ThreadPoolExecutor(1) as thread:
        # Deterministic products need an environment variable, which `prepare` sets later.
        if device.type == "cuda" and not settings.deterministic:
            thread.submit(work, device)
        yield


def first_product(device: torch.device) -> None:
    square = torch.ones(64, 64, device=device)
    torch.mm(square, square)


def first_kernel(device: torch.device) -> None:
    """Run a kernel that most trainings use. Before, Triton hashes its own 500 MB."""
    with torch.cuda.device(device):
        zeros = torch.zeros(16, device=device)
        adagrad(zeros, zeros.clone(), zeros.clone(), zeros[0], 1e-10, None)
