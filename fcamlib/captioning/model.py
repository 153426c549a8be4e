r"""Captioning with attention over the regions of a picture, once per word.

At each word the decoder scores the regions with its state, forms a context from them, feeds the context and the
previous word to an LSTM, and predicts the next word from the new state. The paradigms differ only in the context:

| context of a word   | `soft`                        | `hard`                                                    |
|---------------------|-------------------------------|-----------------------------------------------------------|
| in training         | weighted sum of the regions   | one region, drawn from the attention weights              |
| at test time        | weighted sum of the regions   | the region with the largest weight                        |

Attention is additive:

$$\log a = \log\mathrm{softmax}(e), \qquad e_l = v^\top \tanh(k_l + q), \qquad k_l = W_r x_l + b, \quad q = W_h h$$

The tanh over all regions dominates the cost of a step. `Attending` replaces it by a product and a division per word:

$$v^\top \tanh(k_l + q) = \sum_a v_a - 2 \sum_a v_a r_{la}, \qquad r_{la} = \frac{1}{1 + e^{2 k_{la}} e^{2 q_a}},$$

so $e^{2k}$ is computed once for all words, and each step works on a few pictures at a time, within the processor's
cache. The sum of v cancels in the softmax, and $\tanh' = 4 r (1 - r)$.

Axes: P pictures, B captions, b captions with words left, L regions, D features of a region, A attention units, H state,
V vocabulary. Sources: Bahdanau et al., ICLR 2015; Xu et al., Show, Attend and Tell, ICML 2015; arXiv 2307.13421,
experiments on MSCOCO; the form with r is this project's derivation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fcamlib.config import CaptionModel
from fcamlib.errors import UserError

Context = Literal["soft", "mode", "drawn"]
State = tuple[Tensor, Tensor]  # of the LSTM between two words: hidden and memory, (B, H) each
STRIDE = 8  # pixels of a region's side in `SmallCNN`
_CHUNK = 4  # pictures at a time: 196 regions x 256 units x 4 bytes are 200 kB
_LARGEST = 20.0  # of keys and queries: e^(2 k) e^(2 q) stays finite in float32, and tanh(20) is 1


class AdditiveAttention(nn.Module):
    """Log attention weights of regions for a state; their exponentials sum to 1 over the regions."""

    def __init__(self, region_dim: int, state_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.of_region = nn.Linear(region_dim, attention_dim)
        self.of_state = nn.Linear(state_dim, attention_dim, bias=False)
        self.score = nn.Linear(attention_dim, 1, bias=False)

    def forward(self, keys: Float[Tensor, "B L A"], hidden: Float[Tensor, "B H"]) -> Float[Tensor, "B L"]:
        """`keys` is `of_region(regions)`, which is the same for all words."""
        return self.score(torch.tanh(keys + self.of_state(hidden)[:, None])).squeeze(2).log_softmax(dim=1)


class Attending:
    """Attention of one batch, word by word; keys receive their gradient once, summed over all words."""

    def __init__(self, attention: AdditiveAttention, keys: Float[Tensor, "B L A"]) -> None:
        self.of_state, self.weight, self.keys = attention.of_state, attention.score.weight[0], keys
        self.dtype = torch.promote_types(keys.dtype, torch.float32)  # also under autocast
        self.growth = keys.detach().to(self.dtype).clamp(-_LARGEST, _LARGEST).mul_(2.0).exp_()  # e^(2 k)
        self.pending = 0  # words whose gradient is still to be computed
        self.gradient: Tensor | None = None  # of keys, summed over words

    def __call__(self, hidden: Float[Tensor, "b H"]) -> Float[Tensor, "b L"]:
        """Log attention weights of the first b captions."""
        self.pending += 1
        scores: Tensor = _Score.apply(self.keys, self.of_state(hidden).to(self.dtype), self.weight, self)
        return scores.log_softmax(dim=1)

    def shares(self, of_query: Float[Tensor, "b A"]) -> Iterator[tuple[slice, Float[Tensor, "c L A"]]]:
        """Yield slices of the first b captions with their r, in one reused buffer."""
        buffer = self.growth.new_empty(_CHUNK, *self.growth.shape[1:])
        for first in range(0, len(of_query), _CHUNK):
            part = slice(first, min(first + _CHUNK, len(of_query)))
            share = buffer[: part.stop - first]
            torch.mul(self.growth[part], of_query[part, None], out=share)
            yield part, share.add_(1.0).reciprocal_()


class _Score(torch.autograd.Function):
    """The scores of one word up to a constant: the sum of -2 r v."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, query: Tensor, weight: Tensor, attending: Attending) -> Tensor:
        growth = query.clamp(-_LARGEST, _LARGEST).mul_(2.0).exp_()
        ctx.attending = attending
        ctx.save_for_backward(growth, weight)
        found = growth.new_empty(len(query), keys.shape[1])
        for part, share in attending.shares(growth):
            torch.mv(share.flatten(0, 1), weight, out=found[part].view(-1))
        return found.mul_(-2.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        attending: Attending = ctx.attending
        growth, weight = ctx.saved_tensors
        if attending.gradient is None:
            attending.gradient = torch.zeros_like(attending.growth)
        of_query, of_weight = torch.empty_like(growth), torch.zeros_like(weight)
        for part, share in attending.shares(growth):
            of_weight.addmv_(share.flatten(0, 1).T, gradient[part].reshape(-1), alpha=-2.0)
            slope = share.addcmul_(share, share, value=-1.0)  # r (1 - r)
            torch.bmm(gradient[part, None], slope, out=of_query[part, None])
            attending.gradient[part].addcmul_(slope, gradient[part, :, None])
        attending.pending -= 1
        of_keys = None if attending.pending else attending.gradient.mul_(4.0 * weight).to(attending.keys.dtype)
        return of_keys, of_query.mul_(4.0 * weight), of_weight, None


class SmallCNN(nn.Module):
    """A region is a cell of 8 x 8 pixels and sees the 16 x 16 pixels around it, so no region sees the whole picture.

    There is no normalisation over the picture, which would leak information between regions: to use what another region
    shows, the decoder must attend to it. The position of a region is added as a learned vector.
    """

    def __init__(self, region_dim: int, side: int) -> None:
        super().__init__()
        if side % STRIDE:
            raise UserError(f"image_size={side} does not fit the encoder smallcnn: give a multiple of {STRIDE}.")
        width = max(8, region_dim // 2)
        # Patches of 4 x 4, then 4 x 4 of these with stride two: a margin of 4 pixels on every side of a cell.
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=4),
            nn.ReLU(),
            nn.Conv2d(width, region_dim, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(region_dim, region_dim, 1),
        )
        self.place = nn.Parameter(torch.zeros((side // STRIDE) ** 2, region_dim))

    def forward(self, pictures: Float[Tensor, "P 3 S S"]) -> Float[Tensor, "P L D"]:
        """The regions of pictures, row by row from the top left."""
        return self.layers(pictures).flatten(2).transpose(1, 2) + self.place


class StartState(nn.Module):
    """The decoder's state before the first word: zero, or a dense layer applied to the mean region.

    Only `mean` gives the decoder information about the picture before it attends to a region.
    """

    def __init__(self, kind: str, region_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.hidden_dim = hidden_dim
        self.dense = nn.Linear(region_dim, 2 * hidden_dim) if kind == "mean" else None

    def forward(self, regions: Float[Tensor, "B L D"]) -> State:
        """The state for each caption of a batch."""
        if self.dense is None:
            zero = regions.new_zeros(len(regions), self.hidden_dim)
            return zero, zero
        hidden, memory = torch.tanh(self.dense(regions.mean(dim=1))).chunk(2, dim=1)
        return hidden, memory


class Captioner(nn.Module):
    """Encoder, additive attention and LSTM decoder, for segments of shape (3, S, S) or features (L, D), and V words."""

    def __init__(
        self, config: CaptionModel, segment_shape: tuple[int, ...], num_words: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.encoder: nn.Module = nn.Identity()
        region_dim = segment_shape[1]
        if config.encoder == "smallcnn":
            self.encoder, region_dim = SmallCNN(config.region_dim, segment_shape[1]), config.region_dim
        self.sees_region = config.state_sees == "region"
        seen_dim = config.embedding_dim + (region_dim if self.sees_region else 0)
        self.embedding = nn.Embedding(num_words, config.embedding_dim)
        self.attention = AdditiveAttention(region_dim, config.hidden_dim, config.attention_dim)
        self.start = StartState(config.start_state, region_dim, config.hidden_dim)
        self.cell = nn.LSTMCell(seen_dim, config.hidden_dim)
        self.output = nn.Linear(config.hidden_dim + region_dim, num_words)
        initialise(self, generator)

    def parameter_groups(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Weights of the encoder (none with frozen features), and all other weights."""
        own = list(self.encoder.parameters())
        return own, [weight for weight in self.parameters() if all(weight is not other for other in own)]

    def regions(self, pictures: Tensor) -> Regions:
        """Encode pictures (P, 3, S, S), or use their features (P, L, D)."""
        values = self.encoder(pictures)
        return Regions(values, self.attention.of_region(values))

    def step(
        self,
        regions: Regions,
        state: State,
        word: Int[Tensor, " B"],
        context: Context,
        quantile: Float[Tensor, " B"] | None = None,
        attend: Attending | None = None,
    ) -> tuple[Float[Tensor, "B V"], Float[Tensor, "B L"], Int[Tensor, " B"] | None, State]:
        """Decode one word: log probabilities of the next word, log attention, the region used, the new state.

        `context` is the weighted sum of the regions ("soft", without a single region), the region with the largest
        weight ("mode"), or the region at `quantile` of the attention weights ("drawn"), which is a sample if quantiles
        are uniform on [0, 1). `attend` replaces the plain attention.
        """
        log_alpha = attend(state[0]) if attend else self.attention(regions.keys, state[0])  # (B, L)
        region = None
        if context == "soft":
            attended = torch.bmm(log_alpha.exp()[:, None], regions.values).squeeze(1)  # (B, D)
        else:
            region = region_taken(log_alpha.detach(), context, quantile)
            attended = regions.values[torch.arange(len(word), device=word.device), region]  # (B, D)
        seen = self.embedding(word)
        if self.sees_region:
            seen = torch.cat([seen, attended], dim=1)
        hidden, memory = self.cell(seen, state)
        logits = self.output(torch.cat([hidden, attended], dim=1))
        full = torch.promote_types(logits.dtype, torch.float32)  # also under autocast
        return logits.log_softmax(dim=1, dtype=full), log_alpha, region, (hidden, memory)


@dataclass(frozen=True)
class Regions:
    """The regions of a batch of pictures, and their attention keys, which are computed once."""

    values: Float[Tensor, "B L D"]
    keys: Float[Tensor, "B L A"]

    def take(self, index: Int[Tensor, " B"]) -> Regions:
        """The regions at `index`, which may repeat."""
        return Regions(self.values[index], self.keys[index])


def region_taken(
    log_alpha: Float[Tensor, "B L"], context: Context, quantile: Float[Tensor, " B"] | None
) -> Int[Tensor, " B"]:
    """The region used by a hard context."""
    if context == "mode" or quantile is None:
        return log_alpha.argmax(dim=1)
    below = log_alpha.exp().cumsum(dim=1) <= quantile[:, None].to(log_alpha.dtype)  # (B, L)
    return below.sum(dim=1).clamp(max=log_alpha.shape[1] - 1)


def context_at_test(paradigm: str) -> Context:
    """The test-time context of a paradigm."""
    return "soft" if paradigm == "soft" else "mode"


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights from `generator`, uniform with variance 1 / fan-in; biases are 0, the forget bias is 1."""
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.ndim < 2:
                weight.zero_()
            elif name.endswith("embedding.weight"):
                weight.normal_(0.0, 1.0 / math.sqrt(weight.shape[1]), generator=generator)
            elif name.endswith("place"):
                weight.normal_(0.0, 0.1, generator=generator)
            else:
                bound = math.sqrt(3.0 / math.prod(weight.shape[1:]))
                weight.uniform_(-bound, bound, generator=generator)
        for cell in (part for part in module.modules() if isinstance(part, nn.LSTMCell)):
            cell.bias_ih[cell.hidden_size : 2 * cell.hidden_size] = 1.0
