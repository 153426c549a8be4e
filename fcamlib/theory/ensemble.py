"""Classification models at fixed attention, trained together: members differ in alpha and learning rate.

Axes: R seeds, G members per seed, B instances, M segments, K classes. Members of a seed share paradigm, data, batch
order and initial weights. Weights are stacked as (R, G, ...), and a step is one call of the network under two `vmap`s.
Soft attention classifies one weighted sum per instance, hard attention and LVML the distinct segments.
Labels (F8, F9) refer to the book's page "Derivations".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fcamlib.data.sdc import SDCData, distinct
from fcamlib.errors import DataError
from fcamlib.fcam import weighted_sum
from fcamlib.numerics import Numerics

DIFFERENCE = 0.01  # step in alpha of the measured incentive (F8)
BYTES = 64  # of memory per number in a call's input, with the network's activations, roughly
ROWS_PER_SUM = 4_096  # instances whose weighted sums are computed at once


@dataclass(frozen=True)
class Member:
    """A model trained at one attention weight."""

    paradigm: str
    alpha: float
    learning_rate: float


class FixedFocusData:
    """Training data of several seeds, of equal sizes: one foreground per instance, and the weights within each part."""

    def __init__(self, splits: Sequence[SDCData], numerics: Numerics) -> None:
        self.splits, self.numerics = list(splits), numerics
        self.num_instances, self.num_segments = len(splits[0]), splits[0].num_segments
        self.label = torch.stack([split.label for split in splits])  # (R, n)
        foreground = torch.stack([split.foreground for split in splits])  # (R, n, M)
        if any(split.mask is not None for split in splits) or not bool((foreground.sum(dim=2) == 1).all()):
            raise DataError("a fixed focus needs instances of one length, each with one foreground segment.")
        self.on_foreground = foreground.to(numerics.dtype)
        self.on_background = (~foreground).to(numerics.dtype) / (self.num_segments - 1)

    @cached_property
    def sums(self) -> tuple[Float[Tensor, "R n ..."], Float[Tensor, "R n ..."]]:
        """Foreground and mean background segment of every instance."""
        return self._summed(self.on_foreground), self._summed(self.on_background)

    def _summed(self, weights: Float[Tensor, "R n M"]) -> Float[Tensor, "R n ..."]:
        return torch.stack([
            torch.cat([
                weighted_sum(*self._rows(split, index), weight[index])
                for index in torch.arange(len(split), device=weight.device).split(ROWS_PER_SUM)
            ])
            for split, weight in zip(self.splits, weights, strict=True)
        ])  # fmt: skip

    def segments(self, index: Int[Tensor, "R B"]) -> tuple[Float[Tensor, "R N ..."], Int[Tensor, "R B M"]]:
        """Distinct segments of some instances of each seed, padded with zeros, and their places."""
        rows, places = zip(*(self._rows(split, i) for split, i in zip(self.splits, index, strict=True)), strict=True)
        return nn.utils.rnn.pad_sequence(list(rows), batch_first=True), torch.stack(places)

    def _rows(self, split: SDCData, index: Int[Tensor, " B"]) -> tuple[Float[Tensor, "N ..."], Int[Tensor, "B M"]]:
        """Distinct segments of some instances, and the index of each place in them."""
        rows, places = distinct(split.segments[index])
        return split.bank.rows(rows, self.numerics.dtype), places


class Ensemble(ABC):
    """Members of one paradigm in training; `networks` have the initial weights of each seed."""

    def __init__(self, networks: Sequence[nn.Module], members: Sequence[Member], momentum: float) -> None:
        self.members, self.momentum, self.network = list(members), momentum, networks[0]
        named = [dict(network.named_parameters()) for network in networks]
        self.weights = {
            name: torch.stack([seed[name].detach() for seed in named])[:, None]
            .expand(-1, len(self.members), *(-1,) * first.dim())
            .clone(memory_format=torch.contiguous_format)
            .requires_grad_()
            for name, first in named[0].items()
        }
        self.velocity = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        example = next(iter(self.weights.values()))
        layers = [layer for layer in self.network.children() if not isinstance(layer, nn.Flatten)]
        self.is_linear = len(self.weights) == len(layers) == 1 and isinstance(layers[0], nn.Linear)
        has_windows = any(isinstance(layer, nn.Conv2d) for layer in self.network.modules())
        self.is_one_by_one = has_windows and example.device.type == "cpu"
        self.rates = example.new_tensor([member.learning_rate for member in self.members])  # (G,)
        alphas = [member.alpha for member in self.members]
        self.alpha = torch.tensor(alphas, dtype=torch.float64, device=example.device)
        self.shift = torch.where(self.alpha + DIFFERENCE > 1.0 + 1e-9, -DIFFERENCE, DIFFERENCE).double()

    @abstractmethod
    def losses(self, data: FixedFocusData, index: Int[Tensor, "R B"]) -> Float[Tensor, "R G B"]:
        """Each member's loss on some instances of each seed."""

    @abstractmethod
    def measures(self, data: FixedFocusData, index: Int[Tensor, "R B"]) -> Float[Tensor, "3 R G"]:
        """Sums of loss, measured incentive and exact incentive over some instances, in float64."""

    @abstractmethod
    def size(self, data: FixedFocusData) -> int:
        """How many numbers `measures` holds per instance and member, roughly."""

    def step(self, data: FixedFocusData, index: Int[Tensor, "R B"]) -> None:
        """One step of SGD with momentum on the mean loss of some instances of each seed."""
        with data.numerics.autocasting():
            loss = self.losses(data, index).mean(dim=2).sum()
        gradients = torch.autograd.grad(loss, list(self.weights.values()))
        with torch.no_grad():
            for (name, weight), gradient in zip(self.weights.items(), gradients, strict=True):
                velocity = self.velocity[name].mul_(self.momentum).add_(gradient)
                weight.sub_(velocity * self.rates.view(1, -1, *(1,) * (weight.dim() - 2)))

    def measure(self, data: FixedFocusData) -> Float[Tensor, "3 R G"]:
        """Mean loss in nats, measured incentive (F8) and exact incentive (F9) on all training instances."""
        at_once = max(64, data.numerics.rows_at_once(BYTES * len(data.splits) * len(self.members) * self.size(data)))
        totals = torch.zeros(3, len(data.splits), len(self.members), dtype=torch.float64, device=self.alpha.device)
        for part in torch.arange(data.num_instances, device=self.alpha.device).split(at_once):
            with data.numerics.autocasting():
                totals += self.measures(data, part.expand(len(data.splits), -1))
        return totals / data.num_instances

    def logits(self, inputs: Tensor, shared: bool) -> Float[Tensor, "R G N K"]:
        """Class logits of all members, float32 or better: inputs (R, G, N, ...), or (R, N, ...) shared by members.

        All members are evaluated together, except for convolutions on a CPU: grouped convolutions take nearly twice as
        long as a loop over members. For a single layer, one product per seed takes a fifth of the time of `vmap`.
        """
        if self.is_linear and shared:
            ((seeds, members, classes, features),) = (weight.shape for weight in self.weights.values())
            stacked = next(iter(self.weights.values())).view(seeds, members * classes, features)
            found = (stacked @ inputs.flatten(2).mT).view(seeds, members, classes, -1).mT
        elif not self.is_one_by_one:
            found = torch.vmap(torch.vmap(self._call, (0, None if shared else 0)))(self.weights, inputs)
        else:
            each = inputs[:, None].expand(-1, len(self.members), *inputs.shape[1:]) if shared else inputs
            found = torch.stack([
                torch.stack([
                    self._call({name: weight[seed, member] for name, weight in self.weights.items()},
                               segments.contiguous(memory_format=torch.channels_last))
                    for member, segments in enumerate(of_seed)
                ])
                for seed, of_seed in enumerate(each)
            ])  # fmt: skip
        return found.float() if found.dtype == torch.bfloat16 else found

    def _call(self, weights: dict[str, Tensor], segments: Tensor) -> Tensor:
        return functional_call(self.network, weights, (segments,))


class Soft(Ensemble):
    """Members that classify the weighted sum of an instance's segments; the exact incentive by autograd."""

    def losses(
        self, data: FixedFocusData, index: Int[Tensor, "R B"], alpha: Tensor | None = None
    ) -> Float[Tensor, "R G B"]:
        """Cross-entropy of alpha x_foreground + (1 - alpha) x_background, alpha (G,) or (R, G)."""
        seeds, alpha = torch.arange(len(index), device=index.device)[:, None], self.alpha if alpha is None else alpha
        foreground, background = (mean[seeds, index][:, None] for mean in data.sums)  # (R, 1, B, ...)
        shaped = alpha.to(foreground.dtype).view(-1, len(self.members), *(1,) * (foreground.dim() - 2))
        logits = self.logits(background + shaped * (foreground - background), shared=False)  # (R, G, B, K)
        label = data.label[seeds, index][:, None].expand(logits.shape[:3])
        losses = functional.cross_entropy(logits.flatten(0, 2), label.flatten(), reduction="none")
        return losses.view(label.shape)

    def measures(self, data: FixedFocusData, index: Int[Tensor, "R B"]) -> Float[Tensor, "3 R G"]:
        alpha = self.alpha.expand(len(index), -1).clone().requires_grad_()  # (R, G)
        loss = self.losses(data, index, alpha).double().sum(dim=2)
        (slope,) = torch.autograd.grad(loss.sum(), alpha)
        with torch.no_grad():
            moved = self.losses(data, index, alpha + self.shift).double().sum(dim=2)
        return torch.stack([loss.detach(), (loss.detach() - moved) / self.shift, -slope])

    def size(self, data: FixedFocusData) -> int:
        return 8 * data.sums[0][0, 0].numel()  # times eight for the network's activations


@dataclass(frozen=True)
class Pooling:
    """How a paradigm turns the log-likelihoods of single segments into its loss."""

    pool: Callable[[Tensor, Tensor], Tensor]  # values (R, G, B, M) and weights (R, 1, B, M) -> (R, G, B)
    join: Callable[[Tensor, Tensor, Tensor], Tensor]  # foreground's, background's and alpha -> minus the loss
    slope: Callable[[Tensor, Tensor, Tensor], Tensor]  # foreground's, background's and joined -> derivative of `join`


class Segments(Ensemble):
    """Members that classify each segment alone; the exact incentive in closed form (F9)."""

    pooling: Pooling

    def losses(self, data: FixedFocusData, index: Int[Tensor, "R B"]) -> Float[Tensor, "R G B"]:
        own, other = self._parts(data, index)
        return -self.pooling.join(own, other, self.alpha.to(own.dtype)[:, None])

    @torch.no_grad()
    def measures(self, data: FixedFocusData, index: Int[Tensor, "R B"]) -> Float[Tensor, "3 R G"]:
        own, other = (part.double() for part in self._parts(data, index))
        alpha, shift = self.alpha[:, None], self.shift[:, None]
        joined, moved = (self.pooling.join(own, other, at) for at in (alpha, (alpha + shift).clamp(0.0, 1.0)))
        return torch.stack([-joined, (moved - joined) / shift, self.pooling.slope(own, other, joined)]).sum(dim=3)

    def size(self, data: FixedFocusData) -> int:
        return data.num_segments * int(list(self.network.parameters())[-1].shape[0])  # class logits

    def _parts(self, data: FixedFocusData, index: Int[Tensor, "R B"]) -> tuple[Tensor, Tensor]:
        """Pooled log-likelihoods of foreground and background, (R, G, B) each."""
        seeds = torch.arange(len(index), device=index.device)[:, None]
        segments, places = data.segments(index)
        numbers = 8 * len(index) * len(self.members) * segments[0, 0].numel()
        rows = segments.shape[1] if torch.is_grad_enabled() else data.numerics.rows_at_once(BYTES * numbers)
        # Classes come before rows, which is faster on a CPU.
        tables = [self.logits(part, shared=True).mT.log_softmax(dim=2) for part in segments.split(rows, dim=1)]
        table = torch.cat(tables, dim=3) if len(tables) > 1 else tables[0]  # (R, G, K, N)
        place = (data.label[seeds, index][:, :, None] * table.shape[3] + places).flatten(1)  # (R, BM)
        values = table.flatten(2).gather(2, place[:, None].expand(-1, len(self.members), -1))
        values = values.view(*table.shape[:2], *places.shape[1:])  # (R, G, B, M)
        own, other = (weights[seeds, index][:, None] for weights in (data.on_foreground, data.on_background))
        return self.pooling.pool(values, own), self.pooling.pool(values, other)


class Hard(Segments):
    """Weighted sums of log-likelihoods."""

    pooling = Pooling(
        pool=lambda values, weights: (weights * values).sum(dim=3),
        join=lambda own, other, alpha: alpha * own + (1.0 - alpha) * other,
        slope=lambda own, other, joined: own - other,
    )


class Lvml(Segments):
    """Logarithms of weighted sums of likelihoods."""

    pooling = Pooling(
        pool=lambda values, weights: torch.logsumexp(weights.log() + values, dim=3),
        join=lambda own, other, alpha: torch.logaddexp(alpha.log() + own, (1.0 - alpha).log() + other),
        slope=lambda own, other, joined: (own - joined).exp() - (other - joined).exp(),
    )


ENSEMBLES: dict[str, type[Ensemble]] = {"soft": Soft, "hard": Hard, "lvml": Lvml}
