"""The orthogonal task: each segment lies where the paper puts it, with the noise that it states."""

from __future__ import annotations

import torch
from torch.testing import assert_close

from fcamlib.config import Orthogonal
from fcamlib.data.orthogonal import orthogonal_task
from fcamlib.data.sdc import SDCTask

SMALL = Orthogonal(num_segments=4, num_classes=3, num_train=600, num_validation=50, num_test=70)


def segments_of(task: SDCTask, split: str) -> torch.Tensor:
    data = task.splits[split]
    return data.bank.values[data.segments.long()]  # (n, M, C + 1)


def test_foreground_is_the_unit_vector_of_its_class_and_background_its_own_axis() -> None:
    task = orthogonal_task(SMALL, seed=3)
    assert {split: len(data) for split, data in task.splits.items()} == {"train": 600, "validation": 50, "test": 70}
    for split, data in task.splits.items():
        values = segments_of(task, split)
        assert values.shape == (len(data), 4, 4) and values.dtype == torch.float64
        assert_close(values[:, 0], torch.eye(4, dtype=torch.float64)[data.label], atol=1e-4, rtol=0)
        assert bool((values[:, 0] != torch.eye(4, dtype=torch.float64)[data.label]).all())  # noise on every axis
        assert float(values[:, 1:, :3].abs().max()) == 0.0
        assert data.foreground.tolist() == [[True, False, False, False]] * len(data)
    label = task.splits["train"].label
    assert 0.25 < float((label == 0).double().mean()) < 0.42 and set(label.tolist()) == {0, 1, 2}


def test_noise_has_the_stated_variances() -> None:
    config = SMALL.model_copy(update={"num_train": 20_000, "num_backgrounds": 0})
    task = orthogonal_task(config, seed=0)
    values = segments_of(task, "train")
    noise = values[:, 0] - torch.eye(4, dtype=torch.float64)[task.splits["train"].label]
    assert_close(noise.var(dim=0), torch.full((4,), 1e-10, dtype=torch.float64), rtol=0.05, atol=0)
    background = values[:, 1:, 3]
    assert_close(background.var().item(), 1e-2, rtol=0.02, atol=0)
    assert abs(background.mean().item()) < 2e-3
    assert len(background.unique()) == background.numel()  # every place has its own
    assert abs(torch.corrcoef(background.T)[0, 1].item()) < 0.03


def test_backgrounds_are_drawn_from_a_pool_of_the_stated_size_and_splits_share_none() -> None:
    task = orthogonal_task(SMALL.model_copy(update={"num_backgrounds": 7}), seed=0)
    pools = [set(segments_of(task, split)[:, 1:, 3].flatten().tolist()) for split in task.splits]
    assert [len(pool) for pool in pools] == [7, 7, 7] and len(set.union(*pools)) == 21
    assert len(task.bank.values) == 600 + 50 + 70 + 21
