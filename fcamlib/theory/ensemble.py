"""Classification models at fixed attention, trained at once: members differ in paradigm, alpha and learning rate.

Axes: R seeds, G members of a seed, B instances, M segments, K classes. Members of a seed share data, order of batches
and initial weights. Weights are stacked as (R, G, ...) and every step is one call of the network under two `vmap`s, or
one product of matrices where the network is linear; soft attention classifies one weighted sum an instance, hard
attention and LVML share one pass over the distinct segments.
Equation labels (F8, F9) are those of the book's page "Derivations".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fcamlib.data.sdc import SDCData
from fcamlib.errors import DataError
from fcamlib.fcam import weighted_sum
from fcamlib.numerics import Numerics
from fcamlib.theory.linear_gradients import segment_gradient, soft_gradient, soft_measures

DIFFERENCE = 0.01  # step in alpha of the measured incentive (F8)
BUDGET = 2**25  # numbers that the input of one call without gradient may hold, roughly
ROWS_PER_SUM = 4_096  # instances whose weighted sums are made at once
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Member:
    """A training at one attention weight."""

    paradigm: str
    alpha: float
    learning_rate: float


@dataclass(frozen=True)
class Measures:
    """What is measured of every seed and member at one moment: (R, G) each."""

    loss: Float[Tensor, "R G"]  # mean over the training instances, nats
    incentive: Float[Tensor, "R G"]  # [L(alpha) - L(alpha + 0.01)] / 0.01 at the same classifier (F8)
    incentive_exact: Float[Tensor, "R G"]  # -dL/dalpha (F9)


class FixedFocusData:
    """Training data of several seeds with the weights that hold the focus.

    The foreground's weight alpha is spread evenly over an instance's foreground segments, 1 - alpha evenly over the
    others; padding has none.

    Parameters
    ----------
    splits : sequence of SDCData
        One a seed, on the same device, of equal numbers of instances and places.
    numerics : Numerics
    """

    def __init__(self, splits: Sequence[SDCData], numerics: Numerics) -> None:
        self.splits, self.numerics = list(splits), numerics
        self.num_instances, self.num_segments = len(splits[0]), splits[0].num_segments
        self.label = torch.stack([split.label for split in splits])  # (R, n)
        even = [_even_weights(split, numerics.dtype) for split in splits]
        self.on_foreground = torch.stack([foreground for foreground, _ in even])  # (R, n, M)
        self.on_background = torch.stack([background for _, background in even])
        is_single = bool((self.on_foreground == 1).any(dim=2).all())
        self.foreground_place = self.on_foreground.argmax(dim=2) if is_single else None  # (R, n)
        self._sums: tuple[Tensor, Tensor] | None = None

    def sums(self) -> tuple[Tensor, Tensor]:
        """Mean foreground and mean background segment of every instance, (R, n, ...) each, made once."""
        if self._sums is None:
            self._sums = self._all_summed(self.on_foreground), self._all_summed(self.on_background)
        return self._sums

    def _all_summed(self, weights: Float[Tensor, "R n M"]) -> Tensor:
        return torch.stack([self._summed(split, weight) for split, weight in zip(self.splits, weights, strict=True)])

    def _summed(self, split: SDCData, weight: Tensor) -> Tensor:
        parts = []
        for index in torch.arange(len(split), device=weight.device).split(ROWS_PER_SUM):
            rows, places = _distinct(split.segments[index], len(split.bank.values))
            segments = split.bank.rows(rows, self.numerics.dtype)
            parts.append(weighted_sum(segments, places, weight[index]))
        return torch.cat(parts)

    def segments(self, index: Int[Tensor, "R B"]) -> tuple[Tensor, Int[Tensor, "R B M"]]:
        """Distinct segments (R, N, ...) of some instances of each seed, and their places among them.

        Seeds with fewer distinct segments are filled up with copies of their first.
        """
        found = [
            _distinct(split.segments[i], len(split.bank.values)) for split, i in zip(self.splits, index, strict=True)
        ]
        most = max(len(rows) for rows, _ in found)
        filled = [functional.pad(rows, (0, most - len(rows)), value=int(rows[0])) if len(rows) < most else rows
                  for rows, _ in found]  # fmt: skip
        tables = [split.bank.rows(rows, self.numerics.dtype) for split, rows in zip(self.splits, filled, strict=True)]
        return torch.stack(tables), torch.stack([places for _, places in found])


def _in_fast_layout(segments: Tensor) -> Tensor:
    """Pictures with their channels last in memory, which convolutions on a CPU take less time for."""
    return segments.contiguous(memory_format=torch.channels_last) if segments.dim() == 4 else segments


def _distinct(index: Int[Tensor, "B M"], num_rows: int) -> tuple[Int[Tensor, " N"], Int[Tensor, "B M"]]:
    """What `fcamlib.data.sdc.distinct` gives, without sorting: the bank's rows are counted through instead."""
    occurs = torch.zeros(num_rows, dtype=torch.bool, device=index.device)
    occurs[index.flatten()] = True
    rows = occurs.nonzero()[:, 0]
    place = torch.empty(num_rows, dtype=torch.int64, device=index.device)
    place[rows] = torch.arange(len(rows), device=index.device)
    return rows, place[index]


def _even_weights(split: SDCData, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weights that sum to 1 over the foreground, and over the background, of each instance: (n, M) each."""
    real = torch.ones_like(split.foreground) if split.mask is None else split.mask
    parts = []
    for name, chosen in (("foreground", split.foreground & real), ("background", ~split.foreground & real)):
        count = chosen.sum(dim=1, keepdim=True)
        if not bool(count.all()):
            raise DataError(
                f"an instance has no {name} segment: a fixed focus needs foreground and background in each."
            )
        parts.append(chosen.to(dtype) / count)
    return parts[0], parts[1]


class Ensemble:
    """Members of every seed in training, soft ones or such that classify single segments, never both.

    Parameters
    ----------
    networks : sequence of modules
        One a seed: the initial weights that its members share, on the device and in the format of training.
    members : sequence of Member
    momentum : float
    """

    def __init__(self, networks: Sequence[nn.Module], members: Sequence[Member], momentum: float) -> None:
        self.members = sorted(members, key=lambda member: member.paradigm != "hard")  # hard ones first
        self.is_soft = self.members[0].paradigm == "soft"
        self.num_hard = sum(member.paradigm == "hard" for member in self.members)
        self.momentum = momentum
        self.network = networks[0]
        named = [dict(network.named_parameters()) for network in networks]
        self.weights: Weights = {
            name: torch.stack([seed[name].detach() for seed in named])[:, None]
            .expand(-1, len(self.members), *(-1,) * first.dim())
            .clone(memory_format=torch.contiguous_format)
            .requires_grad_()
            for name, first in named[0].items()
        }
        self.velocity = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        example = next(iter(self.weights.values()))
        has_windows = any(isinstance(layer, nn.Conv1d | nn.Conv2d) for layer in self.network.modules())
        self.is_one_by_one = has_windows and example.device.type == "cpu"
        rates = [member.learning_rate for member in self.members]
        self.rates = torch.tensor(rates, dtype=example.dtype, device=example.device)  # (G,)
        alphas = [member.alpha for member in self.members]
        self.exact_alpha = torch.tensor(alphas, dtype=torch.float64, device=example.device)
        self.alpha = self.exact_alpha.to(example.dtype)
        self.shift = torch.where(self.exact_alpha + DIFFERENCE > 1.0 + 1e-9, -DIFFERENCE, DIFFERENCE).double()

    def step(self, data: FixedFocusData, index: Int[Tensor, "R B"]) -> None:
        """One step of SGD with momentum on the mean loss of some instances of each seed."""
        batch = _Batch.of(data, index, self.is_soft)
        if (matrix := self._matrix()) is not None:
            gradients: Sequence[Tensor] = [self._linear_gradient(batch, matrix)]
        else:
            with data.numerics.autocasting():
                loss = self._soft_loss(batch, self.alpha) if self.is_soft else self._segment_loss(batch)
            gradients = torch.autograd.grad(loss.mean(dim=2).sum(), list(self.weights.values()))
        with torch.no_grad():
            for (name, weight), gradient in zip(self.weights.items(), gradients, strict=True):
                velocity = self.velocity[name].mul_(self.momentum).add_(gradient)
                weight.sub_(velocity * self.rates.view(1, -1, *(1,) * (weight.dim() - 2)))

    def measure(self, data: FixedFocusData) -> Measures:
        """Loss and incentive on all training instances."""
        totals = torch.zeros(3, len(data.splits), len(self.members), dtype=torch.float64, device=self.alpha.device)
        everything = torch.arange(data.num_instances, device=self.alpha.device)
        for part in everything.split(self._instances_at_once(data)):
            index = part.expand(len(data.splits), -1)
            batch = _Batch.of(data, index, self.is_soft)
            totals += self._soft_measures(batch, data) if self.is_soft else self._segment_measures(batch, data)
        return Measures(*(totals / data.num_instances))

    def _instances_at_once(self, data: FixedFocusData) -> int:
        """How many instances `measure` looks at in one piece."""
        models = len(data.splits) * len(self.members)
        if self.is_soft:
            return max(64, BUDGET // (8 * models * data.sums()[0][0, 0].numel()))
        return max(64, 4 * BUDGET // (models * data.num_segments * _num_classes(self.network)))

    def _soft_loss(self, batch: _Batch, alpha: Tensor) -> Float[Tensor, "R G B"]:
        """Cross-entropy of alpha x_foreground + (1 - alpha) x_background; alpha (G,) or (R, G)."""
        mixture = self._mixture(batch, alpha)
        logits = self._logits(mixture, shared=False)  # (R, G, B, K)
        label = batch.label[:, None].expand(logits.shape[:3])
        losses = functional.cross_entropy(_precise(logits).flatten(0, 2), label.flatten(), reduction="none")
        return losses.view(label.shape)

    def _mixture(self, batch: _Batch, alpha: Tensor) -> Float[Tensor, "R G B ..."]:
        foreground, background = batch.inputs[:, None], batch.background[:, None]  # (R, 1, B, ...)
        shaped = alpha.reshape(-1, len(self.members), *(1,) * (foreground.dim() - 2))
        return background + shaped * (foreground - background)

    def _segment_loss(self, batch: _Batch) -> Float[Tensor, "R G B"]:
        log_likelihood = batch.looked_up(self._log_prob(batch.inputs))  # (R, G, B, M)
        weights = self._attention(batch)
        hard, lvml = slice(self.num_hard), slice(self.num_hard, None)
        losses = [
            -(weights[:, hard] * log_likelihood[:, hard]).sum(dim=3),
            -torch.logsumexp(weights[:, lvml].log() + log_likelihood[:, lvml], dim=3),
        ]
        return torch.cat(losses, dim=1)

    def _attention(self, batch: _Batch) -> Float[Tensor, "R G B M"]:
        """The fixed attention weights."""
        gap = (batch.on_foreground - batch.on_background)[:, None]
        return batch.on_background[:, None] + self.alpha[:, None, None] * gap

    @torch.no_grad()
    def _linear_gradient(self, batch: _Batch, matrix: Float[Tensor, "R G K D"]) -> Float[Tensor, "R G K D"]:
        """The gradient of a linear network, written out."""
        if self.is_soft:
            return soft_gradient(matrix, self._mixture(batch, self.alpha).flatten(3), batch.label)
        segments = batch.inputs.flatten(2)
        return segment_gradient(matrix, segments, self._attention(batch), self.num_hard, batch.places, batch.label)

    def _logits(self, inputs: Tensor, shared: bool) -> Float[Tensor, "R G N K"]:
        """Class logits of every member: inputs (R, G, N, ...), or (R, N, ...) where members share them.

        All at once, but for convolutions on a CPU: there the grouped convolutions that members at once amount to take
        nearly twice as long as one member after the other.
        """
        if not self.is_one_by_one:
            return torch.vmap(torch.vmap(self._call, (0, None if shared else 0)))(self.weights, inputs)
        rows = []
        for seed in range(len(inputs)):
            own = [_in_fast_layout(inputs[seed])] * len(self.members) if shared else inputs[seed]
            rows.append(torch.stack([self._member(seed, member, segments) for member, segments in enumerate(own)]))
        return torch.stack(rows)

    def _member(self, seed: int, member: int, inputs: Tensor) -> Tensor:
        return self._call({name: weight[seed, member] for name, weight in self.weights.items()}, inputs)

    def _call(self, weights: Weights, segments: Tensor) -> Tensor:
        return functional_call(self.network, weights, (segments,))

    def _log_prob(self, segments: Float[Tensor, "R N ..."]) -> Float[Tensor, "R G K N"]:
        """Log probability of each class from each segment; classes come first because that is faster on a CPU."""
        if (matrix := self._matrix()) is not None:
            seeds, members, classes, features = matrix.shape
            logits = matrix.view(seeds, members * classes, features) @ segments.flatten(2).mT
            return logits.view(seeds, members, classes, -1).log_softmax(dim=2)
        logits = self._logits(segments, shared=True)  # (R, G, N, K)
        return _precise(logits).mT.log_softmax(dim=2)

    def _matrix(self) -> Float[Tensor, "R G K D"] | None:
        """The weights of a linear network without bias, in float32 or better; None for any other network."""
        layers = [layer for layer in self.network.children() if not isinstance(layer, nn.Flatten)]
        is_linear = len(layers) == 1 and isinstance(layers[0], nn.Linear) and len(self.weights) == 1
        return next(iter(self.weights.values())) if is_linear and not torch.is_autocast_enabled() else None

    def _soft_measures(self, batch: _Batch, data: FixedFocusData) -> Float[Tensor, "3 R G"]:
        """Sums over the instances, their derivative in alpha by automatic differentiation."""
        alpha = self.alpha.expand(len(data.splits), -1).clone().requires_grad_()  # (R, G)
        shift = self.shift.to(alpha.dtype)
        if (matrix := self._matrix()) is not None:
            inputs = batch.inputs.flatten(2), batch.background.flatten(2)
            return soft_measures(matrix.detach(), *inputs, batch.label, self.alpha, shift)
        with data.numerics.autocasting():
            loss = self._soft_loss(batch, alpha).double().sum(dim=2)
            (slope,) = torch.autograd.grad(loss.sum(), alpha)
            with torch.no_grad():
                shifted = self._soft_loss(batch, alpha + shift).double().sum(dim=2)
        return torch.stack([loss.detach(), (loss.detach() - shifted) / shift, -slope])

    @torch.no_grad()
    def _segment_measures(self, batch: _Batch, data: FixedFocusData) -> Float[Tensor, "3 R G"]:
        """Sums over the instances (F9)."""
        models = len(data.splits) * len(self.members)
        at_once = max(1, BUDGET // (8 * models * batch.inputs[0, 0].numel()))
        with data.numerics.autocasting():
            tables = [self._log_prob(part) for part in batch.inputs.split(at_once, dim=1)]
        log_likelihood = batch.looked_up(torch.cat(tables, dim=3)).double()  # (R, G, B, M)
        alpha, shift = self.exact_alpha[:, None], self.shift[:, None]  # (G, 1)
        hard, lvml = log_likelihood[:, : self.num_hard], log_likelihood[:, self.num_hard :]
        first, rest = alpha[: self.num_hard], alpha[self.num_hard :]
        parts = [
            _hard_measures(batch.mean(hard, True), batch.mean(hard, False), first),
            _lvml_measures(batch.log_mean(lvml, True), batch.log_mean(lvml, False), rest, shift[self.num_hard :]),
        ]
        return torch.cat(parts, dim=2)


@dataclass(frozen=True)
class _Batch:
    """Some instances of each seed: their mean segments for soft attention, their distinct segments for the others."""

    label: Int[Tensor, "R B"]
    inputs: Tensor  # (R, B, ...) mean foreground, or (R, N, ...) segments
    background: Tensor  # (R, B, ...) mean background; empty for the others
    places: Tensor  # (R, B, M) of each segment among the distinct ones; empty for soft attention
    on_foreground: Tensor  # (R, B, M)
    on_background: Tensor  # (R, B, M)
    foreground_place: Tensor | None = None  # (R, B) where every instance has one foreground segment

    @classmethod
    def of(cls, data: FixedFocusData, index: Int[Tensor, "R B"], is_soft: bool) -> _Batch:
        """The instances at `index`."""
        seeds = torch.arange(len(index), device=index.device)[:, None]
        label, none = data.label[seeds, index], index[:, :0]
        if is_soft:
            foreground, background = data.sums()
            return cls(label, foreground[seeds, index], background[seeds, index], none, none, none)
        segments, places = data.segments(index)
        weights = data.on_foreground[seeds, index], data.on_background[seeds, index]
        single = None if data.foreground_place is None else data.foreground_place[seeds, index]
        return cls(label, segments, none, places, *weights, single)

    def mean(self, values: Float[Tensor, "R G B M"], of_foreground: bool) -> Float[Tensor, "R G B"]:
        """Mean over an instance's foreground or background."""
        if of_foreground and self.foreground_place is not None:
            return self._of_the_one(values)
        return torch.einsum(
            "rgbm,rbm->rgb", values, (self.on_foreground if of_foreground else self.on_background).double()
        )

    def log_mean(self, values: Float[Tensor, "R G B M"], of_foreground: bool) -> Float[Tensor, "R G B"]:
        """Logarithm of the mean of the exponentials over an instance's foreground or background."""
        if of_foreground and self.foreground_place is not None:
            return self._of_the_one(values)
        weights = self.on_foreground if of_foreground else self.on_background
        return torch.logsumexp(weights.double().log()[:, None] + values, dim=3)

    def _of_the_one(self, values: Tensor) -> Tensor:
        assert self.foreground_place is not None
        place = self.foreground_place[:, None, :, None].expand(*values.shape[:3], 1)
        return values.gather(3, place).squeeze(3)

    def looked_up(self, table: Float[Tensor, "R G K N"]) -> Float[Tensor, "R G B M"]:
        """Entries of a table over classes and segments, for every segment of an instance and the instance's label."""
        seeds, members, classes, rows = table.shape
        entry = self.label[:, :, None] * rows + self.places  # (R, B, M)
        flat = entry.flatten(1)[:, None].expand(-1, members, -1)
        return table.reshape(seeds, members, classes * rows).gather(2, flat).view(seeds, members, *entry.shape[1:])


def _hard_measures(own: Tensor, other: Tensor, alpha: Tensor) -> Float[Tensor, "3 R G"]:
    """From the log-likelihoods' means over foreground and background (R, G, B): the loss is linear in alpha."""
    loss = -(alpha * own + (1.0 - alpha) * other).sum(dim=2)
    slope = (own - other).sum(dim=2)
    return torch.stack([loss, slope, slope])


def _lvml_measures(own: Tensor, other: Tensor, alpha: Tensor, shift: Tensor) -> Float[Tensor, "3 R G"]:
    """From the logarithms of the likelihoods' means over foreground and background (R, G, B)."""
    marginal = torch.logaddexp(alpha.log() + own, (1.0 - alpha).log() + other)
    moved = (alpha + shift).clamp(0.0, 1.0)
    shifted = torch.logaddexp(moved.log() + own, (1.0 - moved).log() + other)
    loss = -marginal.sum(dim=2)
    slope = ((own - marginal).exp() - (other - marginal).exp()).sum(dim=2)
    return torch.stack([loss, (shifted - marginal).sum(dim=2) / shift[:, 0], slope])


def _precise(logits: Tensor) -> Tensor:
    """Losses are taken in float32 or better, also under bfloat16 autocast."""
    return logits.float() if logits.dtype == torch.bfloat16 else logits


def _num_classes(network: nn.Module) -> int:
    return int(list(network.parameters())[-1].shape[0])
