"""Attention-based multiple-instance learning (ABMIL) from the library torchmil, as the outside reference on bags.

ABMIL is soft attention with an encoder, an attention network of its own form and a linear classifier. Its modules are
put into an `FCAM`, so that it is trained, selected and measured by the same code as the four paradigms; that this
computes what torchmil's own forward pass does is tested. ABMIL has one logit, for label 1; (0, logit) are the class
logits of the same model, and their cross-entropy is the binary one that torchmil takes.
Source: Ilse, Tomczak, Welling 2018, arXiv 1802.04712.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fcamlib.data.sdc import SDCTask
from fcamlib.encoders import build_encoder
from fcamlib.errors import UserError
from fcamlib.fcam import FCAM

ATTENTION_DIM = 64


class _Attention(nn.Module):
    """torchmil's attention network before the softmax: (N, D) -> (N,)."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, encoded: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        _, focus_logits = self.pool(encoded[None], return_att=True)  # one bag: before the softmax bags do not mix
        return focus_logits[0]


class _TwoClasses(nn.Module):
    """The class logits (0, logit) of torchmil's one logit: (N, D) -> (N, 2)."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, encoded: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        logit = self.classifier(encoded)  # (N, 1)
        return torch.cat([torch.zeros_like(logit), logit], dim=1)


def abmil(task: SDCTask, gated: bool, seed: int) -> tuple[FCAM, Any]:
    """torchmil's ABMIL for the bags of `task`, as an `FCAM`, and torchmil's own model on the same weights.

    Raises `UserError` where torchmil is not installed, or the bags have more than two classes.
    """
    try:
        from torchmil.models import ABMIL
    except ImportError:
        raise UserError(
            "the methods abmil and gated-abmil need torchmil: pip install 'fcamlib[mil]', or leave them out."
        ) from None
    if len(task.class_names) != 2:
        raise UserError(
            f"abmil and gated-abmil tell two classes apart, and there are {len(task.class_names)}: leave them out."
        )
    encoder, _ = build_encoder("mlp", task, torch.Generator().manual_seed(seed))
    dense = nn.Sequential(
        *list(encoder.children())[1:]
    )  # the same layers without Flatten: torchmil hands over (B, M, D)
    with torch.random.fork_rng(devices=[]):  # torchmil's layers draw from the global generator
        torch.manual_seed(seed)
        model = ABMIL(task.bank.segment_shape, att_dim=ATTENTION_DIM, gated=gated, feat_ext=dense)
    return FCAM(_Attention(model.pool), _TwoClasses(model.classifier), encoder), model
