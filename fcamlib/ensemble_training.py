"""Models of one architecture that train together, step by step: learning rates that are compared, or seeds.

Their weights are stacked, (G, ...) for G members, and each network is called once for all members (torch's `vmap`), so
that a GPU gets few large operations in place of many small ones. Losses and measures are those of one model at a time.
Members may share their batches, as learning rates do, or have their own, as seeds do. Numbers agree with training one
model after the other to the rounding of sums: within 1e-9 of the weights after an epoch in 64 bits, as a test holds.

On a CPU it is not used: there, the CIFAR networks of several members at once took up to twice as long as one after the
other. The digits networks gained about a fifth (`fcam bench --measure ensemble`), too little for the price: the last
digits of a run then depend on the seeds that trained beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.nn import functional

from fcamlib.chunked import chunk_size
from fcamlib.config import Phase
from fcamlib.data.sdc import SDCData
from fcamlib.evaluation import batch_scores
from fcamlib.fcam import FCAM, FCAMOutput, gathered, log_attention, segment_output, weighted_sum
from fcamlib.meter import Meter, PassResult
from fcamlib.numerics import Numerics
from fcamlib.paradigms import needs

DEVICES = ("cuda",)  # where members train together
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class TrainingMember:
    """A model with its optimiser, its training data and the order that it takes them in."""

    model: FCAM
    optimizer: torch.optim.Optimizer
    data: SDCData
    order: Int[Tensor, " n"]


def can_train_together(
    model: FCAM, data: SDCData, number: int, phase: Phase, numerics: Numerics, batch_size: int
) -> bool:
    """Whether `number` members train together in a phase, on data of the size of `data`.

    They do by SGD, on a GPU, with segments evaluated by themselves and without batch normalisation, where a batch of
    all fits without chunks.
    """
    if number < 2 or numerics.device.type not in DEVICES or phase.optimizer != "sgd":
        return False
    if not model.context_free or model.counts_segments:
        return False
    num_rows = min(batch_size * data.num_segments, len(data.bank.values))
    return chunk_size(model, data, number * num_rows, phase.paradigm, numerics) is None


def pass_together(
    members: Sequence[TrainingMember], paradigm: str, numerics: Numerics, batch_size: int
) -> list[PassResult]:
    """One pass of every member over its training data, in place: weights and momentum of each are what it leaves alone.

    Parameters
    ----------
    members : sequence of TrainingMember
        Models of one architecture, context-free, optimisers SGD without weight decay; data of equal sizes.
    paradigm : str
    numerics : Numerics
    batch_size : int
    """
    stacked = _Stacked(members, numerics)
    shared = all(member.data is members[0].data and member.order is members[0].order for member in members)
    meters = [Meter(member.data.label.device) for member in members]
    losses: list[list[Tensor]] = [[] for _ in members]
    parts = [member.order.split(batch_size) for member in members[: 1 if shared else None]]
    for number in range(len(parts[0])):
        batches = [
            member.data.take(part[number]) for member, part in zip(members, parts, strict=not shared)
        ] * (len(members) if shared else 1)  # fmt: skip
        outputs = stacked.outputs(batches, paradigm, shared)
        each = [output.loss(paradigm, batch.label) for output, batch in zip(outputs, batches, strict=True)]
        stacked.step(torch.stack(each).sum())
        for place, (output, batch) in enumerate(zip(outputs, batches, strict=True)):
            losses[place].append(each[place].detach())
            with torch.no_grad():
                meters[place].add(batch_scores(output, batch, paradigm))
    stacked.write_back()
    return [PassResult.of(meter, values) for meter, values in zip(meters, losses, strict=True)]


class _Stacked:
    """The members' weights and momentum buffers, (G, ...) each."""

    def __init__(self, members: Sequence[TrainingMember], numerics: Numerics) -> None:
        self.members, self.numerics, self.model = members, numerics, members[0].model
        for member in members:
            member.model.train()
        stacked, _ = stack_module_state([member.model for member in members])
        self.weights: Weights = {name: weight.detach().requires_grad_() for name, weight in stacked.items()}
        self.velocity = {name: self._velocity(name) for name in self.weights}
        groups = [member.optimizer.param_groups[0] for member in members]
        example = next(iter(self.weights.values()))
        self.rates, self.momenta = (
            torch.tensor([group[name] for group in groups], dtype=example.dtype, device=example.device)
            for name in ("lr", "momentum")
        )

    def _velocity(self, name: str) -> Tensor:
        buffers = []
        for member in self.members:
            weight = member.model.get_parameter(name)
            kept = member.optimizer.state[weight].get("momentum_buffer") if weight in member.optimizer.state else None
            buffers.append(torch.zeros_like(weight) if kept is None else kept)
        return torch.stack([buffer.detach() for buffer in buffers])

    def outputs(self, batches: Sequence[SDCData], paradigm: str, shared: bool) -> list[FCAMOutput]:
        """Each member's pass over its batch."""
        segments, places = self._segments(batches, shared)
        axis = None if shared else 0
        with self.numerics.autocasting():
            if self.model.encoder is not None:
                segments, axis = self._called("encoder", self.model.encoder, segments, axis), 0
            focus_logits = self._called("focus_model", self.model.focus_model, segments, axis)  # (G, N)
            log_alphas = [
                log_attention(gathered(logits, place), batch.mask)
                for logits, place, batch in zip(focus_logits, places, batches, strict=True)
            ]
            classifier = self.model.classification_model
            if needs([paradigm], "mixture"):
                tables = [segments] * len(batches) if axis is None else list(segments)
                sums = [weighted_sum(t, p, a.exp()) for t, p, a in zip(tables, places, log_alphas, strict=True)]
                logits = _at_least_float32(self._called("classification_model", classifier, torch.stack(sums), 0))
                return [FCAMOutput(a, mixture_logits=mixed) for a, mixed in zip(log_alphas, logits, strict=True)]
            logits = _at_least_float32(self._called("classification_model", classifier, segments, axis))  # (G, N, K)
            return [
                segment_output(log_alpha, table, place, batch.mask)
                for log_alpha, table, place, batch in zip(log_alphas, logits, places, batches, strict=True)
            ]

    def _segments(self, batches: Sequence[SDCData], shared: bool) -> tuple[Tensor, list[Int[Tensor, "B M"]]]:
        """The segments to evaluate, (N, ...) where members share them, else (G, N, ...), and each place's row."""
        found = [
            self.numerics.rows_of(batch.segments, len(batch.bank.values)) for batch in batches[: 1 if shared else None]
        ]
        most = max(len(rows) for rows, _ in found)
        tables = []
        for batch, (rows, _) in zip(batches, found, strict=False):
            filled = functional.pad(rows, (0, most - len(rows)))  # with row 0, which no place points at
            tables.append(batch.bank.rows(filled, self.numerics.dtype, self.numerics.channels_last))
        if shared:
            return tables[0], [found[0][1]] * len(batches)
        return torch.stack(tables), [places for _, places in found]

    def _called(self, part: str, network: nn.Module, inputs: Tensor, axis: int | None) -> Tensor:
        """A network of every member at once."""
        weights = {n.removeprefix(f"{part}."): w for n, w in self.weights.items() if n.startswith(f"{part}.")}

        def call(weights: Weights, inputs: Tensor) -> Tensor:
            return functional_call(network, weights, (inputs,))

        return torch.vmap(call, (0, axis))(weights, inputs)

    def step(self, loss: Float[Tensor, ""]) -> None:
        """SGD with momentum, written out: members differ in their learning rates."""
        gradients = torch.autograd.grad(loss, list(self.weights.values()))
        with torch.no_grad():
            for (name, weight), gradient in zip(self.weights.items(), gradients, strict=True):
                shape = (-1, *(1,) * (weight.dim() - 1))
                velocity = self.velocity[name].mul_(self.momenta.view(shape)).add_(gradient)
                weight.sub_(velocity * self.rates.view(shape))

    @torch.no_grad()
    def write_back(self) -> None:
        """Give each member its weights and momentum."""
        for place, member in enumerate(self.members):
            for name, weight in self.weights.items():
                own = member.model.get_parameter(name)
                own.copy_(weight[place])
                if member.optimizer.param_groups[0]["momentum"]:
                    member.optimizer.state[own]["momentum_buffer"] = self.velocity[name][place].clone()


def _at_least_float32(value: Tensor) -> Tensor:
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
