r"""A training pass in bounded memory: segments are processed in chunks with activation checkpointing.

The memory that autograd needs grows with the number U of distinct segments of a batch, up to the whole bank when
instances have many segments. If it would exceed `numerics.BUDGET`, the networks see chunks of segments, and only the
scores of each chunk are kept: a focus logit and K class logits per segment. The backward pass recomputes a chunk's
activations and frees them. This is exact up to the rounding of sums, since chunks interact only through sums of
gradients. It costs one more forward pass, a third of a step.

| paradigm   | kept per chunk                    | recomputed in the backward pass            |
|------------|-----------------------------------|--------------------------------------------|
| HA, LVML   | focus and class logits            | both networks (and an encoder)             |
| SA         | focus logits; the chunk's part of the weighted sums, (B, D) | focus network, then the part of the sums |

Small batches are processed in one piece, including all of the paper's sizes up to m = 20. If an encoder uses a
segment's neighbours, the chunks are groups of instances. Batch normalisation uses all segments of a batch, so a
training pass with it is never divided. Axes: B batch, M segments, U distinct segments of a batch, K classes,
D features. Source: this project.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fcamlib import numerics as limits
from fcamlib.data.sdc import Bank, SDCData
from fcamlib.fcam import FCAM, FCAMOutput, TableOutput, gathered, weighted_sum
from fcamlib.numerics import Numerics
from fcamlib.paradigms import needs

_KEPT: WeakKeyDictionary[FCAM, dict[Any, float]] = WeakKeyDictionary()  # what `kept_of_each` found


def batch_output(model: FCAM, data: SDCData, paradigm: str, numerics: Numerics) -> FCAMOutput:
    """The model's pass over a batch, in one piece or, if that would take too much memory, in chunks."""
    rows, places = numerics.rows_of(data.segments, len(data.bank.values))
    size = chunk_size(model, data, len(rows), paradigm, numerics)
    if size is not None:
        return output_in_chunks(model, data, paradigm, numerics, size)
    with numerics.autocasting():
        return model(data.bank.rows(rows, numerics.dtype, numerics.channels_last), places, paradigm, data.mask)


def output_in_chunks(model: FCAM, data: SDCData, paradigm: str, numerics: Numerics, size: int) -> FCAMOutput:
    """The pass over the instances of `data`, with `size` segments (contextual encoder: instances) at a time."""
    with numerics.autocasting():
        if not model.context_free:
            return _grouped(model, data, paradigm, numerics, size)
        rows, places = numerics.rows_of(data.segments, len(data.bank.values))
        chunks = Chunks(model, data.bank, rows, size, numerics)
        sums = partial(chunks.weighted_sums, places) if needs([paradigm], "mixture") else None
        return model.combine(*chunks.scores(needs([paradigm], "segments")), places, data.mask, sums)


def chunk_size(model: FCAM, data: SDCData, num_rows: int, paradigm: str, numerics: Numerics) -> int | None:
    """How many segments (contextual encoder: instances) fit into memory at once; None if all do."""
    total, units = (num_rows, num_rows) if model.context_free else (data.segments.numel(), len(data))
    sure = min(2 * limits.ROWS, surely_fitting(data.bank, numerics))
    if total <= sure or (model.training and model.counts_segments):
        return None
    known = _KEPT.setdefault(model, {})
    case = (needs([paradigm], "mixture"), 1 if model.context_free else data.num_segments, numerics)
    if case not in known:
        known[case] = kept_of_each(model, data, paradigm, numerics)
    fitting = numerics.rows_at_once(known[case])
    return None if fitting >= units else fitting


def surely_fitting(bank: Bank, numerics: Numerics) -> int:
    """How many segments fit into memory at once in a network that widens them 64 times."""
    return numerics.rows_at_once(64 * numerics.dtype.itemsize * prod(bank.segment_shape))


def kept_of_each(model: FCAM, data: SDCData, paradigm: str, numerics: Numerics) -> float:
    """Bytes that autograd keeps per segment (contextual encoder: instance), from the difference of three and one."""

    def kept(number: int) -> int:
        part = data.take(torch.arange(number, device=data.label.device) % len(data))
        rows = part.segments[:, 0] if model.context_free else part.segments.flatten()
        segments = data.bank.rows(rows, numerics.dtype, numerics.channels_last)

        def call() -> Any:
            with numerics.autocasting():
                if not model.context_free:
                    return model(segments, torch.arange(len(rows), device=rows.device).view_as(part.segments), paradigm)
                encoded = segments if model.encoder is None else model.encoder(segments)
                return model.scores(encoded, needs([paradigm], "segments"))

        return saved_bytes(call)

    return (kept(3) - kept(1)) / 2  # without what does not depend on the number, such as the weights


def saved_bytes(call: Callable[[], Any]) -> int:
    """Bytes that autograd keeps for the backward pass of `call`, each storage once."""
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = call()  # held until everything is counted: the address of a freed storage may be reused
    total = sum(sizes.values())
    del result
    return total


@dataclass(frozen=True)
class Chunks:
    """Distinct segments of a set of instances, passed through the model `size` at a time."""

    model: FCAM
    bank: Bank
    rows: Int[Tensor, " U"]  # of the bank
    size: int
    numerics: Numerics

    def scores(self, classified: bool) -> tuple[Float[Tensor, " U"], Float[Tensor, "U K"] | None]:
        """Focus logits of the segments and, if `classified`, their class logits."""

        def call(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            return self.model.scores(self._encoded(rows), classified)

        focus_logits, class_logits = zip(*(recomputed(call, part) for part in self.rows.split(self.size)), strict=True)
        return torch.cat(focus_logits), torch.cat(class_logits) if classified else None

    def weighted_sums(self, places: Int[Tensor, "B M"], alpha: Float[Tensor, "B M"]) -> Float[Tensor, "B ..."]:
        """`weighted_sum` of the encoded segments, one chunk after the other."""
        if len(self.rows) <= self.size:
            return weighted_sum(self._encoded(self.rows), places, alpha)
        chunks, batch = self.rows.split(self.size), len(places)
        instance = torch.arange(batch, device=places.device)[:, None]
        key = (places // self.size * batch + instance).flatten()  # chunk, then instance
        order = key.argsort(stable=True)
        counts = key.bincount(minlength=len(chunks) * batch).view(-1, batch)  # (chunks, B)
        sizes = counts.sum(dim=1).tolist()
        weights = alpha.flatten().index_select(0, order).split(sizes)
        local = (places.flatten()[order] % self.size).split(sizes)

        def part(rows: Tensor, count: Tensor, index: Tensor, weight: Tensor) -> Tensor:
            return weighted_sum(self._encoded(rows), index, weight, count.cumsum(0) - count)

        parts = zip(chunks, counts, local, weights, strict=True)
        return reduce(torch.add, (recomputed(part, *each) for each in parts))

    def _encoded(self, rows: Tensor) -> Tensor:
        segments = self.bank.rows(rows, self.numerics.dtype, self.numerics.channels_last)
        return segments if self.model.encoder is None else self.model.encoder(segments)


def recomputed(call: Callable[..., Any], *arguments: Any) -> Any:
    """`call(*arguments)`, for which autograd keeps only the arguments and recomputes the rest."""
    if not torch.is_grad_enabled():
        return call(*arguments)
    return checkpoint(call, *arguments, use_reentrant=False)


def _grouped(model: FCAM, data: SDCData, paradigm: str, numerics: Numerics, size: int) -> FCAMOutput:
    """A pass with a contextual encoder, `size` instances at a time."""
    kind = "mixture_logits" if needs([paradigm], "mixture") else "segment_logits"

    def call(index: Tensor) -> tuple[Tensor, Tensor | None]:
        part = data.take(index)
        rows, places = numerics.rows_of(part.segments, len(data.bank.values))
        segments = data.bank.rows(rows, numerics.dtype, numerics.channels_last)
        output = model(segments, places, paradigm, part.mask)
        if isinstance(output, TableOutput):
            return output.log_alpha, gathered(output.table, output.index)
        return output.log_alpha, getattr(output, kind)

    instances = torch.arange(len(data), device=data.label.device)
    parts = [recomputed(call, part) for part in instances.split(size)]
    log_alpha, logits = (torch.cat(column) for column in zip(*parts, strict=True))
    return FCAMOutput(log_alpha, mask=data.mask, **{kind: logits})
