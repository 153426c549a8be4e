"""The focus-classify attention model (FCAM): an optional encoder, a focus model and a classification model.

An instance is a row of indices into a table of segments, so a segment that occurs twice in a batch is evaluated once.
If the table has a separate row for every occurrence, the result is the plain forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from fcamlib import numerics
from fcamlib.losses import Reduction, logit_mixture, reduced
from fcamlib.networks import CountedSequential, occurrences
from fcamlib.paradigms import needs
from fcamlib.paradigms import paradigm as record_of

BYTES_OF_A_LOGIT = 128  # including everything computed from it, forward and backward


@dataclass(frozen=True)
class FCAMOutput:
    """A forward pass: `mixture_logits` if a paradigm needs the mixture, `segment_logits` if one needs the segments."""

    log_alpha: Float[Tensor, "B M"]  # exponentials sum to 1 over M
    mixture_logits: Float[Tensor, "B K"] | None = None  # of the weighted sum
    segment_logits: Float[Tensor, "B M K"] | None = None  # of each segment alone
    mask: Bool[Tensor, "B M"] | None = None

    def loss(self, paradigm: str, y: Int[Tensor, " B"], reduction: Reduction = "mean") -> Tensor:
        """Training loss of `paradigm`: () or (B,)."""
        return reduced(record_of(paradigm).loss(self, y), reduction)

    def log_prob(self, paradigm: str) -> Float[Tensor, "B K"]:
        """Log probability of each class at test time under the prediction rule of `paradigm`."""
        return record_of(paradigm).log_prob(self)

    def mixture(self) -> Float[Tensor, "B K"]:
        """Class logits of the weighted sum of the segments."""
        if self.mixture_logits is None:
            raise ValueError("this pass was made without the weighted sum: ask the model for paradigm 'soft'.")
        return self.mixture_logits

    def expected_logits(self) -> Float[Tensor, "B K"]:
        """Weighted sum of the segments' class logits."""
        return logit_mixture(self.log_alpha, self._segments(), self.mask)

    def log_likelihood(self, y: Int[Tensor, " B"]) -> Float[Tensor, "B M"]:
        """Log probability of the labels `y` given each segment alone."""
        batch, num_segments, _ = self._segments().shape
        index = y[:, None, None].expand(batch, num_segments, 1)
        return self._segments().log_softmax(dim=-1).gather(2, index).squeeze(2)

    def segment_log_prob(self, place: Int[Tensor, " B"]) -> Float[Tensor, "B K"]:
        """Log probability of each class given only the segment at `place` of each instance."""
        return self._segments().log_softmax(dim=-1)[torch.arange(len(place), device=place.device), place]

    def marginal_log_prob(self) -> Float[Tensor, "B K"]:
        """Log of the weighted sum of the segments' class probabilities."""
        return torch.logsumexp(self.log_alpha[..., None] + self._segments().log_softmax(dim=-1), dim=1)

    def _segments(self) -> Float[Tensor, "B M K"]:
        if self.segment_logits is None:
            raise ValueError("this pass was made without single segments: ask the model for 'hard' or 'lvml'.")
        return self.segment_logits


@dataclass(frozen=True, kw_only=True)
class TableOutput(FCAMOutput):
    """A forward pass that stores (U, K) class logits and (B, M) indices and never builds a (B, M, K) tensor."""

    table: Float[Tensor, "U K"]  # class logits of the distinct segments
    index: Int[Tensor, "B M"]  # row of the table at each place

    def expected_logits(self) -> Float[Tensor, "B K"]:
        return weighted_sum(self.table, self.index, self.log_alpha.exp())

    def log_likelihood(self, y: Int[Tensor, " B"]) -> Float[Tensor, "B M"]:
        log_prob = self.table.log_softmax(dim=-1)
        return gathered(log_prob.flatten(), self.index * log_prob.shape[1] + y[:, None])

    def segment_log_prob(self, place: Int[Tensor, " B"]) -> Float[Tensor, "B K"]:
        return self.table.log_softmax(dim=-1)[self.index.gather(1, place[:, None]).squeeze(1)]

    def marginal_log_prob(self) -> Float[Tensor, "B K"]:
        columns = self.table.log_softmax(dim=-1).T  # (K, U)
        return torch.stack([torch.logsumexp(self.log_alpha + gathered(c, self.index), dim=1) for c in columns], dim=1)


class FCAM(nn.Module):
    """Focus-classify attention model.

    The focus model scores segments, (N, ...) -> (N,); a softmax over an instance's segments gives the attention
    weights. The classification model maps segments and weighted sums of them to class logits, (N, ...) -> (N, K). An
    encoder is applied first: with `context_free = False` it is called as `encoder(segments, mask)` on (B, M, ...) and
    may use a segment's neighbours; otherwise it maps single segments (N, ...).

    Source: arXiv 2307.13421, sec. 2.
    """

    def __init__(
        self, focus_model: nn.Module, classification_model: nn.Module, encoder: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.focus_model = focus_model
        self.classification_model = classification_model
        self.encoder = encoder

    @property
    def context_free(self) -> bool:
        """Whether a segment's scores depend only on that segment."""
        return self.encoder is None or bool(getattr(self.encoder, "context_free", True))

    @property
    def counts_segments(self) -> bool:
        """Whether, because of batch normalisation, a training pass depends on how often each segment occurs."""
        return any(isinstance(model, CountedSequential) for model in (self.focus_model, self.classification_model))

    def forward(
        self,
        segments: Tensor,
        index: Int[Tensor, "B M"],
        paradigms: str | Sequence[str],
        mask: Bool[Tensor, "B M"] | None = None,
    ) -> FCAMOutput:
        """One pass over a batch: place m of instance b holds row `index[b, m]` of the table `segments`, (N, ...).

        `paradigms` determine whether the weighted sum, the single segments or both are classified. `mask` is True for
        real segments; padding gets zero weight.
        """
        names = [paradigms] if isinstance(paradigms, str) else paradigms
        encoded, index = self.encode(segments, index, mask)
        counts = occurrences(index, mask, len(encoded)) if self.training and self.counts_segments else None
        scores = self.scores(encoded, needs(names, "segments"), counts)
        sums = partial(weighted_sum, encoded, index) if needs(names, "mixture") else None
        return self.combine(*scores, index, mask, sums)

    def scores(
        self, encoded: Float[Tensor, "N ..."], classified: bool, counts: Float[Tensor, " N"] | None = None
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, "N K"] | None]:
        """Focus logits of encoded segments and, if `classified`, their class logits.

        `counts` is how often each row occurs in the batch; batch normalisation uses it in training.
        """
        focus_logits = _called(self.focus_model, encoded, counts)
        return focus_logits, self.class_logits(encoded, counts) if classified else None

    def combine(
        self,
        focus_logits: Float[Tensor, " N"],
        class_logits: Float[Tensor, "N K"] | None,
        index: Int[Tensor, "B M"],
        mask: Bool[Tensor, "B M"] | None,
        weighted_sums: Callable[[Tensor], Tensor] | None = None,
    ) -> FCAMOutput:
        """The forward pass of instances whose place (b, m) has the scores in row `index[b, m]`.

        `weighted_sums`, if given, maps weights (B, M) to sums of the encoded segments (B, ...), which are classified.
        Class logits are gathered for every place, or stay in the table if the gathered tensor would be large.
        """
        log_alpha = log_attention(gathered(focus_logits, index), mask)  # (B, M)
        mixture = None if weighted_sums is None else self.class_logits(weighted_sums(log_alpha.exp()))
        if class_logits is None:
            return FCAMOutput(log_alpha, mixture, mask=mask)
        if index.numel() * class_logits.shape[1] > numerics.BUDGET // BYTES_OF_A_LOGIT:
            return TableOutput(log_alpha, mixture, mask=mask, table=class_logits, index=index)
        return FCAMOutput(log_alpha, mixture, gathered(class_logits, index), mask)

    def class_logits(
        self, segments: Float[Tensor, "N ..."], counts: Float[Tensor, " N"] | None = None
    ) -> Float[Tensor, "N K"]:
        """Class logits of encoded segments or of their weighted sums, in float32 or better."""
        return _at_least_float32(_called(self.classification_model, segments, counts))

    def encode(self, segments: Tensor, index: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Encoded segments, and for each place its row among them; padding may point to any row."""
        if self.encoder is None:
            return segments, index
        if self.context_free:
            return self.encoder(segments), index
        encoded = self.encoder(segments[index], mask)  # (B, M, ...)
        if mask is None or mask.is_cuda:  # on a GPU, counting the real segments would force a synchronisation
            return encoded.flatten(0, 1), torch.arange(index.numel(), device=index.device).view(index.shape)
        place = (mask.flatten().cumsum(0) - 1).clamp_(min=0).view(index.shape)
        return encoded[mask], place


def _called(model: nn.Module, segments: Tensor, counts: Tensor | None) -> Tensor:
    return model(segments, counts) if isinstance(model, CountedSequential) else model(segments)


def gathered(values: Float[Tensor, "N ..."], index: Int[Tensor, "B M"]) -> Float[Tensor, "B M ..."]:
    """`values[index]`, in a form with a deterministic gradient that takes one addition per row."""
    return values.index_select(0, index.flatten()).unflatten(0, index.shape)


def log_attention(focus_logits: Float[Tensor, "B M"], mask: Bool[Tensor, "B M"] | None = None) -> Float[Tensor, "B M"]:
    """Log attention weights: the log-softmax of the focus logits over the segments where `mask` is True."""
    focus_logits = _at_least_float32(focus_logits)
    if mask is not None:
        focus_logits = focus_logits.masked_fill(~mask, -torch.inf)
    return focus_logits.log_softmax(dim=1)


def weighted_sum(
    segments: Tensor, index: Tensor, alpha: Tensor, offsets: Int[Tensor, " B"] | None = None
) -> Float[Tensor, "B ..."]:
    """Sum of the segments at `index` with weights `alpha`: (N, ...), (B, M), (B, M) -> (B, ...).

    Uses a single `embedding_bag`, so the (B, M, ...) tensor of gathered segments is never built. Channels-last
    pictures stay channels-last. With `offsets`, `index` and `alpha` are flat and instance b starts at `offsets[b]`.
    """
    channels_last = segments.dim() == 4 and segments.is_contiguous(memory_format=torch.channels_last)
    table = segments.permute(0, 2, 3, 1) if channels_last else segments
    total = functional.embedding_bag(
        index, table.flatten(1), offsets, per_sample_weights=alpha.to(table.dtype), mode="sum"
    )  # (B, D)
    total = total.view(len(total), *table.shape[1:])
    return total.permute(0, 3, 1, 2) if channels_last else total


def _at_least_float32(value: Tensor) -> Tensor:
    """Cast to float32: log-softmax and losses need at least that precision, also under bfloat16 autocast."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
