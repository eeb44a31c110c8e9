from __future__ import annotations

import pytest
import torch

from allneg.recipe import Hardware
from allneg.training.warm_up import first_kernel, first_product, in_background


def test_a_gpu_works_in_the_background_unless_it_is_deterministic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[torch.device] = []

    def fail(device: torch.device) -> None:
        started.append(device)
        raise RuntimeError("training would report this")

    monkeypatch.setattr("allneg.training.warm_up.find_device", torch.device)
    for device, deterministic in (("cpu", False), ("cuda:1", True), ("cuda:1", False)):
        with in_background(fail, Hardware(device=device, deterministic=deterministic)):
            pass
    assert started == [torch.device("cuda:1")]


@pytest.mark.gpu
def test_a_gpu_can_be_used_for_the_first_time() -> None:
    first_product(torch.device("cuda"))
    first_kernel(torch.device("cuda"))
