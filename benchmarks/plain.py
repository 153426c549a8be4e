"""The straightforward way to train on mosaics: the yardstick of the benchmarks and of one test.

It restates in this project's words and code what the paper's public scripts do for CIFAR-10. The library does the same
mathematics another way, so losses, gradients and scores of both can be compared.

| step                    | here                                         | in the library                             |
|-------------------------|----------------------------------------------|--------------------------------------------|
| mosaics                 | float tensors, built one by one and stacked  | rows of indices into the pictures          |
| batches                 | Dataset and DataLoader, channels first       | gathered from the pictures, channels last  |
| focus and classes       | one call for each place of the mosaic        | one call for the batch's distinct pictures |
| convolution             | ReLU, then pooling                           | pooling, then ReLU                         |
| weighted sum            | a product and a sum for each place           | one embedding bag                          |
| loss of a step          | a second forward pass after the step         | read from the one pass                     |
| measures on a data set  | every segment of every mosaic                | every distinct picture once                |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from fcamlib.data.sdc import Bank, SDCData
from fcamlib.fcam import FCAM

Batch = tuple[Tensor, Tensor, Tensor]  # mosaics (B, M, 3, 32, 32), labels (B,), places of the foreground (B,)


def focus_network() -> nn.Sequential:
    """The paper's focus network for CIFAR-10: pictures (N, 3, 32, 32) -> scores (N, 1)."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, bias=False), nn.ReLU(), nn.Flatten(),
        nn.Linear(1024, 512, bias=False), nn.ReLU(), nn.Linear(512, 64, bias=False), nn.ReLU(),
        nn.Linear(64, 10, bias=False), nn.ReLU(), nn.Linear(10, 1, bias=False),
    )  # fmt: skip


def classification_network(num_classes: int) -> nn.Sequential:
    """The paper's classification network for CIFAR-10: pictures (N, 3, 32, 32) -> class logits (N, K)."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10), nn.ReLU(),
        nn.Linear(10, num_classes),
    )  # fmt: skip


class PlainFCAM(nn.Module):
    """Focus and classification network, called place by place. Parameters stand in the order of `fcamlib.fcam.FCAM`."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.focus_model = focus_network()
        self.classification_model = classification_network(num_classes)

    def forward(
        self, mosaics: Float[Tensor, "B M 3 32 32"], paradigm: str
    ) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B P K"]]:
        """Attention weights; class probabilities of each segment (P = M), for "soft" of the weighted sum (P = 1)."""
        num_segments = mosaics.shape[1]
        scores = [self.focus_model(mosaics[:, place])[:, 0] for place in range(num_segments)]
        alpha = torch.stack(scores, dim=1).softmax(dim=1)  # (B, M)
        if paradigm == "soft":
            total = sum(alpha[:, place, None, None, None] * mosaics[:, place] for place in range(num_segments))
            return alpha, self.classification_model(total).softmax(dim=1)[:, None]
        logits = [self.classification_model(mosaics[:, place]) for place in range(num_segments)]
        return alpha, torch.stack(logits, dim=1).softmax(dim=2)  # (B, M, K)


def loss(
    alpha: Float[Tensor, "B M"], probability: Float[Tensor, "B P K"], label: Int[Tensor, " B"], paradigm: str
) -> Float[Tensor, " B"]:
    """The paradigm's loss of each mosaic. Source: arXiv 2307.13421, sec. 2."""
    likelihood = probability[torch.arange(len(label), device=label.device), :, label]  # (B, P)
    if paradigm == "soft":
        return -likelihood[:, 0].log()
    if paradigm == "hard":
        return -(alpha * likelihood.log()).sum(dim=1)
    return -(alpha * likelihood).sum(dim=1).log()


def copy_of(model: FCAM, num_classes: int) -> PlainFCAM:
    """The plain model with the weights of the library's."""
    first = next(model.parameters())
    copy = PlainFCAM(num_classes).to(first.device, first.dtype)
    with torch.no_grad():
        for ours, theirs in zip(model.parameters(), copy.parameters(), strict=True):
            theirs.copy_(ours)
    return copy


def float_pictures(bank: Bank, dtype: torch.dtype = torch.float32) -> Float[Tensor, "N C H W"]:
    """Every base picture as floating-point numbers, channels first; nothing but the result is allocated."""
    pictures = bank.values.permute(0, 3, 1, 2).to(dtype, memory_format=torch.contiguous_format)
    return pictures.mul_(bank.scale).add_(bank.shift)


def materialised(pictures: Float[Tensor, "N C H W"], segments: Int[Tensor, "n M"]) -> Float[Tensor, "n M C H W"]:
    """The mosaics themselves, built one by one and stacked."""
    return torch.stack([torch.stack([pictures[index] for index in row.tolist()]) for row in segments])


class MosaicDataset(Dataset[Batch]):
    """Mosaics with their labels and the places of their foregrounds."""

    def __init__(self, mosaics: Float[Tensor, "n M C H W"], data: SDCData) -> None:
        self.mosaics = mosaics
        self.label = data.label
        self.place = data.foreground.int().argmax(dim=1)

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, index: int) -> Batch:
        return self.mosaics[index], self.label[index], self.place[index]


def batches(dataset: MosaicDataset, batch_size: int, order: Sequence[int] | None = None) -> DataLoader[Batch]:
    """A loader over `dataset`, in the given order of mosaics or in their own."""
    return DataLoader(dataset, batch_size=batch_size, sampler=order)


def train_epoch(
    model: PlainFCAM, loader: Iterable[Batch], optimizer: torch.optim.Optimizer, paradigm: str
) -> list[float]:
    """One pass of steps; returns the batch's loss after each step, from a second forward pass."""
    model.train()
    losses = []
    for mosaics, label, _ in _on_device(model, loader):
        optimizer.zero_grad()
        alpha, probability = model(mosaics, paradigm)
        loss(alpha, probability, label, paradigm).mean().backward()
        optimizer.step()
        with torch.no_grad():
            alpha, probability = model(mosaics, paradigm)
            losses.append(loss(alpha, probability, label, paradigm).mean().item())
    return losses


def evaluate(model: PlainFCAM, loader: Iterable[Batch], paradigm: str) -> dict[str, Tensor]:
    """Scores of each mosaic: `a_z`, `s_y`, `focus_hit`, `prediction_hit` and `loss`, each (n,)."""
    model.eval()
    with torch.no_grad():
        rows = list(_scores(model, loader, paradigm))
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


def _scores(model: PlainFCAM, loader: Iterable[Batch], paradigm: str) -> Iterator[dict[str, Tensor]]:
    for mosaics, label, place in _on_device(model, loader):
        alpha, probability = model(mosaics, paradigm)
        each, focus = torch.arange(len(label), device=label.device), alpha.argmax(dim=1)
        if paradigm == "soft":
            predicted = probability[:, 0]
        elif paradigm == "hard":
            predicted = probability[each, focus]
        else:
            predicted = (alpha[:, :, None] * probability).sum(dim=1)
        yield {
            "a_z": alpha[each, place],
            "s_y": predicted[each, label],
            "focus_hit": focus == place,
            "prediction_hit": predicted.argmax(dim=1) == label,
            "loss": loss(alpha, probability, label, paradigm),
        }


def _on_device(model: PlainFCAM, loader: Iterable[Batch]) -> Iterator[Batch]:
    """Each batch, moved to where the model is when its turn comes."""
    device = next(model.parameters()).device
    for mosaics, label, place in loader:
        yield mosaics.to(device), label.to(device), place.to(device)
