"""Networks of the captioning model: an encoder from pictures to regions, and the parts of an attention decoder.

Axes: P pictures, B captions, L regions, D features of a region, A attention, E embedding, H state, V words.
Sources: Xu et al., Show, Attend and Tell, ICML 2015 (attention and decoder); arXiv 2307.13421, experiments on MSCOCO
(additive attention 256, LSTM 512, embedding 512).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fcamlib.config.caption_runs import CaptionModelConfig
from fcamlib.errors import UserError

STRIDE = 8  # pixels of a region's side in `SmallCNN`


class SmallCNN(nn.Module):
    """A region is a cell of 8 x 8 pixels and sees the 16 x 16 around it, so that none sees the picture.

    Nothing is normalised over the picture, which would tell every region about all others: what a region does not
    show, the decoder can only learn by attending to another one. A region's place is added as a learned vector.

    Parameters
    ----------
    region_dim : int
        D.
    side : int
        Height and width of the pictures, a multiple of 8.
    """

    def __init__(self, region_dim: int, side: int) -> None:
        super().__init__()
        if side % STRIDE:
            raise UserError(f"picture_size={side} does not fit the encoder smallcnn: give a multiple of {STRIDE}.")
        width = max(8, region_dim // 2)
        # Patches of 4 x 4, then 4 x 4 of them in steps of two: the same margin of 4 pixels on every side of a cell.
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=4),
            nn.ReLU(),
            nn.Conv2d(width, region_dim, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(region_dim, region_dim, 1),
        )
        self.place = nn.Parameter(torch.zeros((side // STRIDE) ** 2, region_dim))

    def forward(self, pictures: Float[Tensor, "P 3 S S"]) -> Float[Tensor, "P L D"]:
        """Regions of pictures, row by row from the top left."""
        return self.layers(pictures).flatten(2).transpose(1, 2) + self.place


class Features(nn.Module):
    """Frozen features as they are: the regions of a network that is not trained here, such as VGG19."""

    def forward(self, regions: Float[Tensor, "P L D"]) -> Float[Tensor, "P L D"]:
        """The regions themselves."""
        return regions


def caption_encoder(config: CaptionModelConfig, segment_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """The encoder for pictures (3, S, S) or features (L, D) of a data set, and the size D of its regions."""
    if len(segment_shape) == 2:
        if config.encoder != "features":
            raise UserError(f"encoder={config.encoder} needs pictures and the data are features: choose features.")
        return Features(), segment_shape[1]
    channels, height, width = segment_shape
    if config.encoder != "smallcnn" or channels != 3 or height != width:
        raise UserError(
            f"encoder={config.encoder} does not take pictures of shape {segment_shape}: "
            "choose smallcnn, and square pictures in colour."
        )
    return SmallCNN(config.region_dim, height), config.region_dim


def num_regions(segment_shape: tuple[int, ...]) -> int:
    """L, of pictures (3, S, S) under `SmallCNN` or of features (L, D)."""
    return segment_shape[0] if len(segment_shape) == 2 else (segment_shape[-1] // STRIDE) ** 2


class AdditiveAttention(nn.Module):
    r"""Scores of regions for a state, before the softmax.

    $$e_l = v^\top \tanh(W_r x_l + W_h h)$$

    Source: Bahdanau et al., ICLR 2015; Xu et al., ICML 2015.
    """

    def __init__(self, region_dim: int, state_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.of_region = nn.Linear(region_dim, attention_dim)
        self.of_state = nn.Linear(state_dim, attention_dim, bias=False)
        self.score = nn.Linear(attention_dim, 1, bias=False)

    def keys(self, regions: Float[Tensor, "P L D"]) -> Float[Tensor, "P L A"]:
        """The part that does not change from word to word."""
        return self.of_region(regions)

    def forward(self, keys: Float[Tensor, "B L A"], hidden: Float[Tensor, "B H"]) -> Float[Tensor, "B L"]:
        """Log attention weights; their exponentials sum to 1 over the regions."""
        return self.score(torch.tanh(keys + self.of_state(hidden)[:, None])).squeeze(2).log_softmax(dim=1)


@dataclass(frozen=True)
class State:
    """What the decoder remembers between two words."""

    hidden: Float[Tensor, "B H"]
    cell: Float[Tensor, "B H"]

    def take(self, index: Int[Tensor, " b"]) -> State:
        """The states of the captions at `index`."""
        return State(self.hidden[index], self.cell[index])


class StartState(nn.Module):
    """The decoder's state before the first word: zero, learned, or a dense layer of the mean region.

    Of these only `mean` tells the decoder about the picture before it attends to any region.
    """

    def __init__(self, kind: str, region_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.kind = kind
        self.hidden_dim = hidden_dim
        if kind == "mean":
            self.dense = nn.Linear(region_dim, 2 * hidden_dim)
        elif kind == "learned":
            self.constant = nn.Parameter(torch.zeros(2 * hidden_dim))

    def forward(self, regions: Float[Tensor, "B L D"]) -> State:
        """The state for each caption of a batch."""
        batch = len(regions)
        if self.kind == "mean":
            hidden, cell = torch.tanh(self.dense(regions.mean(dim=1))).chunk(2, dim=1)
        elif self.kind == "learned":
            hidden, cell = self.constant.expand(batch, -1).chunk(2, dim=1)
        else:
            hidden = cell = regions.new_zeros(batch, self.hidden_dim)
        return State(hidden, cell)


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Draw all weights from `generator`: uniform with variance 1 / fan-in, biases zero, the LSTM's forget bias one."""
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
