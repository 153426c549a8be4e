r"""Captioning with attention over the regions of a picture, once per word.

At each word the decoder scores the regions with its state, forms a context from them, feeds the context and the
previous word to an LSTM, and predicts the next word from the new state. The paradigms differ only in the context:

| context of a word   | `soft`                        | `hard`                                                    |
|---------------------|-------------------------------|-----------------------------------------------------------|
| in training         | weighted sum of the regions   | one region, drawn from the attention weights              |
| at test time        | weighted sum of the regions   | the region with the largest weight                        |

Axes: P pictures, B captions, L regions, D features of a region, H state, V vocabulary.
Sources: Xu et al., Show, Attend and Tell, ICML 2015; arXiv 2307.13421, experiments on MSCOCO.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fcamlib.captioning.attention import AdditiveAttention, Attending
from fcamlib.config import CaptionModel
from fcamlib.errors import UserError

Context = Literal["soft", "mode", "drawn"]
State = tuple[Tensor, Tensor]  # of the LSTM between two words: hidden and memory, (B, H) each
STRIDE = 8  # pixels of a region's side in `SmallCNN`


class SmallCNN(nn.Module):
    """A region is a cell of 8 x 8 pixels and sees the 16 x 16 pixels around it, so no region sees the whole picture.

    There is no normalisation over the picture, which would leak information between regions: to use what another region
    shows, the decoder must attend to it. The position of a region is added as a learned vector.
    """

    def __init__(self, region_dim: int, side: int) -> None:
        super().__init__()
        if side % STRIDE:
            raise UserError(f"picture_size={side} does not fit the encoder smallcnn: give a multiple of {STRIDE}.")
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


def caption_encoder(config: CaptionModel, segment_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """The encoder for pictures (3, S, S) or frozen features (L, D), and the size D of its regions."""
    if len(segment_shape) == 2:
        if config.encoder != "features":
            raise UserError(f"encoder={config.encoder} needs pictures, but the data are features: choose features.")
        return nn.Identity(), segment_shape[1]
    channels, height, width = segment_shape
    if config.encoder != "smallcnn" or channels != 3 or height != width:
        raise UserError(
            f"encoder={config.encoder} does not accept pictures of shape {segment_shape}: "
            "choose smallcnn and square colour pictures."
        )
    return SmallCNN(config.region_dim, height), config.region_dim


def num_regions(segment_shape: tuple[int, ...]) -> int:
    """Number L of regions of pictures (3, S, S) under `SmallCNN` or of features (L, D)."""
    return segment_shape[0] if len(segment_shape) == 2 else (segment_shape[-1] // STRIDE) ** 2


class StartState(nn.Module):
    """The decoder's state before the first word: zero, learned, or a dense layer applied to the mean region.

    Only `mean` gives the decoder information about the picture before it attends to a region.
    """

    def __init__(self, kind: str, region_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.kind, self.hidden_dim = kind, hidden_dim
        if kind == "mean":
            self.dense = nn.Linear(region_dim, 2 * hidden_dim)
        elif kind == "learned":
            self.constant = nn.Parameter(torch.zeros(2 * hidden_dim))

    def forward(self, regions: Float[Tensor, "B L D"]) -> State:
        """The state for each caption of a batch."""
        if self.kind == "mean":
            both = torch.tanh(self.dense(regions.mean(dim=1)))
        elif self.kind == "learned":
            both = self.constant.expand(len(regions), -1)
        else:
            both = regions.new_zeros(len(regions), 2 * self.hidden_dim)
        hidden, memory = both.chunk(2, dim=1)
        return hidden, memory


class Captioner(nn.Module):
    """Encoder, additive attention and LSTM decoder.

    Parameters
    ----------
    config : CaptionModel
    segment_shape : tuple of int
        Shape of a picture, (3, S, S), or of its features, (L, D).
    num_words : int
        Size V of the vocabulary.
    generator : torch.Generator
        Draws the initial weights.
    """

    def __init__(
        self, config: CaptionModel, segment_shape: tuple[int, ...], num_words: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.encoder, region_dim = caption_encoder(config, segment_shape)
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
