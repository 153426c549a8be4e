r"""The attention paradigms as records: loss, prediction, required part of the forward pass, label and figure style.

| record        | loss                                               | prediction                                  |
|---------------|----------------------------------------------------|---------------------------------------------|
| `soft`        | $-\log p_y(\sum_j a_j x_j)$                        | class probabilities of the weighted sum     |
| `hard`        | $-\sum_j a_j \log p_y(x_j)$                        | that of the segment with the largest weight |
| `lvml`        | $-\log \sum_j a_j\, p_y(x_j)$                      | the mixture $\sum_j a_j\, p(x_j)$           |
| `logit_mixture` | $-\log \mathrm{softmax}_y(\sum_j a_j\, g(x_j))$   | softmax of the weighted sum of the logits   |

`register` adds a paradigm from outside; model, training, evaluation, tables and figures read only its record.
Torch is not imported until a loss is called. Source: arXiv 2307.13421, sec. 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from fcamlib.errors import UserError

PAPER = ("soft", "hard", "lvml")  # the paper's three losses, compared in every table of aggregations


@dataclass(frozen=True, kw_only=True)
class Style:
    """Label in text and style in figures: hexadecimal colour, matplotlib marker and line style."""

    name: str
    label: str
    color: str = "#1a1c20"
    marker: str = "X"
    linestyle: str | tuple[float, tuple[float, ...]] = (0.0, (7.0, 1.5, 1.0, 1.5))


@dataclass(frozen=True, kw_only=True)
class Paradigm(Style):
    """A training loss and its prediction rule, as functions of a forward pass, a `fcamlib.fcam.FCAMOutput`."""

    needs: Literal["mixture", "segments"]  # whether the weighted sum of the segments or each segment is classified
    loss: Callable[[Any, Any], Any]  # (pass, y) -> (B,) loss of each instance in nats; training minimises the mean
    log_prob: Callable[[Any], Any]  # pass -> (B, K) log probability of each class at test time


@dataclass(frozen=True, kw_only=True)
class Schedule(Style):
    """Two phases of training with one paradigm each; the second begins with a fresh optimiser."""

    paradigms: tuple[str, ...]


def _losses() -> Any:
    """`fcamlib.losses`, which imports torch."""
    from fcamlib import losses

    return losses


# The colours differ in lightness (CIE L* 47, 54, 64, 41), have a contrast of at least 2.8 with white and with a dark
# page, and remain distinguishable to readers who lack red, green or blue cones.
_KNOWN = (
    Paradigm(
        name="soft",
        label="SA",
        color="#2f63fa",
        marker="o",
        linestyle="-",
        needs="mixture",
        loss=lambda output, y: _losses().soft_attention_loss(output.mixture(), y, "none"),
        log_prob=lambda output: output.mixture().log_softmax(dim=-1),
    ),
    Paradigm(
        name="hard",
        label="HA",
        color="#ea4822",
        marker="s",
        linestyle=(0.0, (5.0, 2.0)),
        needs="segments",
        loss=lambda output, y: _losses().hard_attention_loss(
            output.log_alpha, output.log_likelihood(y), "none", output.mask
        ),
        log_prob=lambda output: output.segment_log_prob(output.log_alpha.argmax(dim=1)),
    ),
    Paradigm(
        name="lvml",
        label="LVML",
        color="#34ae7d",
        marker="^",
        linestyle=(0.0, (1.2, 1.4)),
        needs="segments",
        loss=lambda output, y: _losses().lvml_loss(output.log_alpha, output.log_likelihood(y), "none", output.mask),
        log_prob=lambda output: output.marginal_log_prob(),
    ),
    Paradigm(
        name="logit_mixture",
        label="logit mixture",
        color="#6a6f78",
        marker="v",
        needs="segments",
        loss=lambda output, y: _losses().soft_attention_loss(output.expected_logits(), y, "none"),
        log_prob=lambda output: output.expected_logits().log_softmax(dim=-1),
    ),
)
PARADIGMS: dict[str, Paradigm] = {record.name: record for record in _KNOWN}
_PHASES = (  # the hybrid, and its controls: a restart at the same epoch without a switch
    Schedule(
        name="hybrid",
        label="hybrid",
        color="#b21c7a",
        marker="D",
        linestyle=(0.0, (3.6, 1.3, 1.0, 1.3)),
        paradigms=("soft", "hard"),
    ),
    Schedule(name="soft+soft", label="SA to SA", color="#2f63fa", marker="P", paradigms=("soft", "soft")),
    Schedule(name="hard+hard", label="HA to HA", color="#ea4822", marker="p", paradigms=("hard", "hard")),
)
SCHEDULES: dict[str, Schedule] = {record.name: record for record in _PHASES}


def register(paradigm: Paradigm) -> Paradigm:
    """Register a paradigm; its name must be new."""
    if paradigm.name in PARADIGMS or paradigm.name in SCHEDULES:
        raise UserError(f"the paradigm '{paradigm.name}' exists already: choose another name.")
    PARADIGMS[paradigm.name] = paradigm
    return paradigm


def paradigm(name: str) -> Paradigm:
    """The paradigm called `name`."""
    if name not in PARADIGMS:
        raise UserError(f"paradigm='{name}' is unknown: choose one of {', '.join(PARADIGMS)}.")
    return PARADIGMS[name]


def needs(names: Iterable[str], part: Literal["mixture", "segments"]) -> bool:
    """Whether any of the named paradigms needs `part` of a forward pass."""
    return any(paradigm(name).needs == part for name in names)


def style_of(name: str) -> Style:
    """Label, colour, marker and line style of a paradigm or schedule; other names serve as their own label."""
    return PARADIGMS.get(name) or SCHEDULES.get(name) or Style(name=name, label=name)


def label_of(name: str) -> str:
    """The label of a paradigm or schedule, such as "SA"."""
    return style_of(name).label
