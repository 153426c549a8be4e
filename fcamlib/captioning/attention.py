r"""Additive attention, and a faster form that takes a product and a division per word.

$$\log a = \log\mathrm{softmax}(e), \qquad e_l = v^\top \tanh(k_l + q), \qquad k_l = W_r x_l + b, \quad q = W_h h$$

The tanh over all regions dominates the cost of a step. `Attending` replaces it:

$$v^\top \tanh(k_l + q) = \sum_a v_a - 2 \sum_a v_a r_{la}, \qquad r_{la} = \frac{1}{1 + e^{2 k_{la}} e^{2 q_a}},$$

so $e^{2k}$ is computed once for all words, and each step works on a few pictures at a time, within the processor's
cache. The sum of v cancels in the softmax, and $\tanh' = 4 r (1 - r)$.
Sources: Bahdanau et al., ICLR 2015; Xu et al., ICML 2015; the form with r is this project's derivation.

Axes: B captions, b captions with words left, L regions, D features of a region, A attention units, H state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
