"""Joint training of a linear focus and a linear classification model on the orthogonal task, by plain SGD.

What `fcamlib.theory.gradient_flow` describes, with noise, batches and momentum: the measured (mu, nu) fall onto the
phase curve. All seeds of a paradigm are trained at once. Axes: R seeds, B instances, M segments, K classes, D features.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fcamlib.config.orthogonal import OrthogonalConfig
from fcamlib.data.orthogonal import orthogonal_task
from fcamlib.errors import DivergenceError, UserError
from fcamlib.losses import hard_attention_loss, lvml_loss, soft_attention_loss
from fcamlib.numerics import Numerics
from fcamlib.theory.ensemble import FixedFocusData
from fcamlib.theory.fixed_focus import LAWS
from fcamlib.theory.special import entry
from fcamlib.theory.sweep import batch_order, flow_time

FLOAT64 = Numerics(torch.device("cpu"), torch.float64)


def train_jointly(
    config: OrthogonalConfig,
    paradigm: str,
    seeds: tuple[int, ...],
    epochs: int,
    learning_rate: float,
    momentum: float = 0.9,
    batch_size: int = 256,
) -> pd.DataFrame:
    """Train both models from zero weights; where they stand before training and after every epoch.

    Parameters
    ----------
    config : OrthogonalConfig
    paradigm : "soft", "hard" or "lvml"
    seeds : tuple of int
        Each draws its own data and order of batches.
    epochs : int
    learning_rate, momentum, batch_size
        Of SGD on the mean loss, the same for both models.

    Returns
    -------
    One row per seed and epoch: `paradigm`, `seed`, `epoch`, `time` of the flow (F7), `mu`, `nu` (means over classes),
    `mu_spread` and `nu_spread` (standard deviations over classes), `loss` (mean over the training instances, nats).
    """
    entry(LAWS, paradigm)
    for name, value in (("epochs", epochs), ("batch_size", batch_size), ("learning_rate", learning_rate)):
        if not 0 < value < float("inf"):
            raise UserError(f"{name}={value} is not allowed: give more than 0.")
    data = FixedFocusData([orthogonal_task(config, seed).splits["train"] for seed in seeds], FLOAT64)
    features = config.num_classes + 1
    classifier = torch.zeros(len(seeds), features, config.num_classes, dtype=torch.float64, requires_grad=True)
    focus = torch.zeros(len(seeds), features, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([classifier, focus], lr=learning_rate, momentum=momentum)
    rows: list[dict[str, Any]] = []
    steps = 0
    for epoch in range(epochs + 1):
        elapsed = float(flow_time(steps, learning_rate, momentum))
        rows += _rows(data, paradigm, classifier.detach(), focus.detach(), seeds, epoch, elapsed)
        if epoch == epochs:
            break
        for index in batch_order(seeds, epoch, data.num_instances).split(batch_size, dim=1):
            loss = _loss(data, paradigm, classifier, focus, index).sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            steps += 1
    return pd.DataFrame(rows)


def _loss(
    data: FixedFocusData,
    paradigm: str,
    classifier: Float[Tensor, "R D K"],
    focus: Float[Tensor, "R D"],
    index: Int[Tensor, "R B"],
) -> Float[Tensor, " R"]:
    """The mean loss of some instances of each seed."""
    segments, places = data.segments(index)  # (R, N, D), (R, B, M)
    seeds = torch.arange(len(index))[:, None]
    label = data.label[seeds, index]
    focus_logits = (segments @ focus[:, :, None]).squeeze(2)[seeds[:, :, None], places]  # (R, B, M)
    log_alpha = focus_logits.log_softmax(dim=2).flatten(0, 1)
    if paradigm == "soft":
        gathered = segments[seeds[:, :, None], places].flatten(0, 1)  # (R * B, M, D)
        mixture = (log_alpha.exp()[:, None] @ gathered).view(*index.shape, -1)  # (R, B, D)
        losses = soft_attention_loss((mixture @ classifier).flatten(0, 1), label.flatten(), "none")
    else:
        log_prob = (segments @ classifier).log_softmax(dim=2)  # (R, N, K)
        log_likelihood = log_prob[seeds[:, :, None], places, label[:, :, None]].flatten(0, 1)
        loss = {"hard": hard_attention_loss, "lvml": lvml_loss}[paradigm]
        losses = loss(log_alpha, log_likelihood, "none")
    return losses.view(index.shape).mean(dim=1)


@torch.no_grad()
def _rows(
    data: FixedFocusData,
    paradigm: str,
    classifier: Float[Tensor, "R D K"],
    focus: Float[Tensor, "R D"],
    seeds: tuple[int, ...],
    epoch: int,
    elapsed: float,
) -> list[dict[str, Any]]:
    loss = _loss(data, paradigm, classifier, focus, torch.arange(data.num_instances).expand(len(seeds), -1))
    own = classifier[:, :-1].diagonal(dim1=1, dim2=2)  # (R, K): the logit of class k on e_k
    wrong = (classifier[:, :-1].sum(dim=2) - own) / (own.shape[1] - 1)
    mu, nu = own - wrong, focus[:, :-1]  # background has zero mean, and so a focus logit of zero
    rows = []
    for place, seed in enumerate(seeds):
        if not bool(torch.isfinite(loss[place])):
            raise DivergenceError(
                f"the {paradigm} loss became NaN or infinite in epoch {epoch} of seed {seed}: "
                "choose a smaller learning rate."
            )
        measures = {
            "mu": mu[place].mean(),
            "nu": nu[place].mean(),
            "mu_spread": mu[place].std(),
            "nu_spread": nu[place].std(),
            "loss": loss[place],
        }
        described = {"paradigm": paradigm, "seed": seed, "epoch": epoch, "time": elapsed}
        rows.append(described | {name: value.item() for name, value in measures.items()})
    return rows
