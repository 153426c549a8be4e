r"""A training pass in bounded memory: segments in chunks, whose activations are computed again for their gradients.

What autograd keeps of a pass grows with the number U of distinct segments of a batch, up to the whole bank when
instances have many segments. Where it would be more than `BUDGET`, the networks see chunks of segments, and of each
chunk only its scores stay: a focus logit and K class logits a segment. The backward pass computes a chunk's activations
again and drops them. This is exact: chunks meet only in sums of gradients, so that no more than the rounding of a sum
differs. It costs one more forward pass, a third of a step.

| paradigm   | kept of a chunk                   | computed again in the backward pass        |
|------------|-----------------------------------|--------------------------------------------|
| HA, LVML   | focus and class logits            | both networks (and an encoder)             |
| SA         | focus logits; the chunk's part of the weighted sums, (B, D) | focus network, then the part of the sums |

Small batches, which are all those of the paper's sizes up to m = 20, take the pass in one piece as before, bit for bit.
Where an encoder looks at a segment's neighbours the chunks are groups of instances. Batch normalisation looks at all
segments of a batch, so a training pass with it is never divided. Axes: B batch, M segments of an
instance, U distinct segments of a batch, K classes, D features. Source: this project.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fcamlib.data.sdc import SDCData
from fcamlib.fcam import FCAM, FCAMOutput, TableOutput, gathered, log_attention, segment_output, weighted_sum
from fcamlib.heap import give_back_surplus
from fcamlib.memory import saved_bytes
from fcamlib.numerics import Numerics
from fcamlib.paradigms import needs

BUDGET = 2**31  # bytes that autograd may keep of the networks' passes over a batch's segments; on a GPU half of its own
ALWAYS_WHOLE = 2_048  # segments that are never divided, so that small steps need not measure
_KEPT: WeakKeyDictionary[FCAM, dict[Any, float]] = WeakKeyDictionary()  # what `kept_of_each` found
SegmentsOf = Callable[[Tensor], Tensor]  # rows of the bank -> segments


def batch_output(model: FCAM, data: SDCData, paradigm: str, numerics: Numerics) -> FCAMOutput:
    """The model's pass over the instances of `data`, in one piece or, where that would keep too much, in chunks.

    Parameters
    ----------
    model : FCAM
    data : SDCData
        A batch, on the device of `numerics`.
    paradigm : "soft", "hard", "lvml" or "logit_mixture"
    numerics : Numerics

    Returns
    -------
    What `model` returns for the batch's segments; gradients agree to the rounding of a sum.
    """
    rows, places = numerics.rows_of(data.segments, len(data.bank.values))
    size = chunk_size(model, data, len(rows), paradigm, numerics)
    if len(rows) > ALWAYS_WHOLE:
        give_back_surplus()
    if size is not None:
        return output_in_chunks(model, data, paradigm, numerics, size)
    with numerics.autocasting():
        return model(data.bank.rows(rows, numerics.dtype, numerics.channels_last), places, paradigm, data.mask)


def output_in_chunks(model: FCAM, data: SDCData, paradigm: str, numerics: Numerics, size: int) -> FCAMOutput:
    """The pass over the instances of `data` with `size` segments, or instances of a contextual encoder, at a time."""

    def segments_of(rows: Tensor) -> Tensor:
        return data.bank.rows(rows, numerics.dtype, numerics.channels_last)

    with numerics.autocasting():
        if not model.context_free:
            return _grouped(model, data, paradigm, numerics, size)
        rows, places = numerics.rows_of(data.segments, len(data.bank.values))
        chunks = Chunks(rows.split(size), size, segments_of)
        if needs([paradigm], "mixture"):
            focus_logits = torch.cat([recomputed(_focus, model, segments_of, part) for part in chunks.rows])
            log_alpha = log_attention(gathered(focus_logits, places), data.mask)
            mixture = chunks.weighted_sums(model, places, log_alpha.exp())
            return FCAMOutput(log_alpha, mixture_logits=model.class_logits(mixture))
        scores = [recomputed(_scores, model, segments_of, part) for part in chunks.rows]
        focus_logits, class_logits = (torch.cat(column) for column in zip(*scores, strict=True))
        return segment_output(log_attention(gathered(focus_logits, places), data.mask), class_logits, places, data.mask)


def chunk_size(model: FCAM, data: SDCData, num_rows: int, paradigm: str, numerics: Numerics) -> int | None:
    """How many segments, or instances where these cannot be divided, may be passed at once; None: all of them."""
    total, units = (num_rows, num_rows) if model.context_free else (data.segments.numel(), len(data))
    if total <= ALWAYS_WHOLE or (model.training and model.counts_segments):
        return None
    known = _KEPT.setdefault(model, {})
    case = (needs([paradigm], "mixture"), 1 if model.context_free else data.num_segments, numerics)
    if case not in known:
        known[case] = kept_of_each(model, data, paradigm, numerics)
    fitting = max(1, int(_budget(numerics) / max(known[case], 1.0)))
    return None if fitting >= units else fitting


def _budget(numerics: Numerics) -> int:
    if numerics.device.type != "cuda":
        return BUDGET
    return torch.cuda.get_device_properties(numerics.device).total_memory // 2


def kept_of_each(model: FCAM, data: SDCData, paradigm: str, numerics: Numerics) -> float:
    """Bytes that autograd keeps of a segment, or of an instance where an encoder looks at neighbours.

    Measured on three of them less one, since what a network keeps is known to no one but autograd.
    """

    def kept(number: int) -> int:
        part = data.take(torch.arange(number, device=data.label.device) % len(data))
        rows = part.segments[:, 0] if model.context_free else part.segments.flatten()
        segments = data.bank.rows(rows, numerics.dtype, numerics.channels_last)

        def call() -> Any:
            with numerics.autocasting():
                if not model.context_free:
                    return model(segments, torch.arange(len(rows), device=rows.device).view_as(part.segments), paradigm)
                return (_focus if needs([paradigm], "mixture") else _scores)(model, lambda _: segments, rows)

        return saved_bytes(call, model.parameters())

    return (kept(3) - kept(1)) / 2


@dataclass(frozen=True)
class Chunks:
    """The distinct segments of a batch in chunks of `size` rows of the bank, the last one shorter."""

    rows: tuple[Tensor, ...]  # (size,) each, the last one of fewer
    size: int
    segments_of: SegmentsOf

    def weighted_sums(self, model: FCAM, places: Int[Tensor, "B M"], alpha: Float[Tensor, "B M"]) -> Tensor:
        """What `weighted_sum` gives of the encoded segments, (B, ...), one chunk after the other."""
        batch = len(places)
        instance = torch.arange(batch, device=places.device)[:, None]
        key = (places // self.size * batch + instance).flatten()  # chunk, then instance
        order = key.argsort(stable=True)
        counts = key.bincount(minlength=len(self.rows) * batch).view(-1, batch)  # (chunks, B)
        sizes = counts.sum(dim=1).tolist()
        weights = alpha.flatten().index_select(0, order).split(sizes)
        local = (places.flatten()[order] % self.size).split(sizes)
        total: Tensor | None = None
        for rows, count, index, weight in zip(self.rows, counts, local, weights, strict=True):
            offsets = count.cumsum(0) - count
            part = recomputed(_part, model, self.segments_of, rows, index, weight, offsets)
            total = part if total is None else total + part
        assert total is not None
        return total


def recomputed(call: Callable[..., Any], *arguments: Any) -> Any:
    """`call(*arguments)`, of which autograd keeps the arguments alone and computes the rest again."""
    if not torch.is_grad_enabled():
        return call(*arguments)
    return checkpoint(call, *arguments, use_reentrant=False)


def _encoded(model: FCAM, segments_of: SegmentsOf, rows: Tensor) -> Tensor:
    segments = segments_of(rows)
    return segments if model.encoder is None else model.encoder(segments)


def _focus(model: FCAM, segments_of: SegmentsOf, rows: Tensor) -> Float[Tensor, " N"]:
    return model.focus_model(_encoded(model, segments_of, rows))


def _scores(model: FCAM, segments_of: SegmentsOf, rows: Tensor) -> tuple[Float[Tensor, " N"], Float[Tensor, "N K"]]:
    encoded = _encoded(model, segments_of, rows)
    return model.focus_model(encoded), model.class_logits(encoded)


def _part(
    model: FCAM, segments_of: SegmentsOf, rows: Tensor, index: Tensor, weight: Tensor, offsets: Tensor
) -> Float[Tensor, "B ..."]:
    """What a chunk adds to the weighted sums: entries of instance b begin at `offsets[b]`."""
    return weighted_sum(_encoded(model, segments_of, rows), index, weight, offsets)


def _grouped(model: FCAM, data: SDCData, paradigm: str, numerics: Numerics, size: int) -> FCAMOutput:
    """A pass whose encoder looks at whole instances, `size` of them at a time."""

    def call(index: Tensor) -> tuple[Tensor, Tensor | None]:
        part = data.take(index)
        rows, places = numerics.rows_of(part.segments, len(data.bank.values))
        segments = data.bank.rows(rows, numerics.dtype, numerics.channels_last)
        output = model(segments, places, paradigm, part.mask)
        return output.log_alpha, output.mixture_logits if needs([paradigm], "mixture") else _written_out(output)

    instances = torch.arange(len(data), device=data.label.device)
    log_alpha, logits = (
        torch.cat(column) for column in zip(*(recomputed(call, part) for part in instances.split(size)), strict=True)
    )
    if needs([paradigm], "mixture"):
        return FCAMOutput(log_alpha, mixture_logits=logits)
    return FCAMOutput(log_alpha, segment_logits=logits, mask=data.mask)


def _written_out(output: FCAMOutput) -> Tensor | None:
    """Class logits at every place, (B, M, K)."""
    return gathered(output.table, output.index) if isinstance(output, TableOutput) else output.segment_logits
