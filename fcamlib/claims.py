r"""The paper's claims as numerical criteria, in the order of arXiv 2307.13421.

Paradigms are compared by differences within a seed, and `fcamlib.verdicts` turns these into verdicts. Final measures
are means over the last five measured epochs, or over those after the hybrid's switch if they are fewer. The translation
of each claim into numbers is this project's choice. It was fixed in one commit; the book's page on the claims says
which results were known by then.

| claim      | on runs                                                                                              |
|------------|-----------------------------------------------------------------------------------------------------|
| D1, D2, D3 | mean attention on the foreground: early lead over the first fifth of the epochs; late gain, or end   |
| S1, S2, S3 | shares of test instances by the confidence of focus, max a, and prediction, max p                   |
| H1         | SAIF, and accuracy or BLEU-4, hybrid minus the better of SA and HA in the same seed                  |

Late measures are judged only if the training losses of both have flattened or the paper's number of epochs is reached,
early ones only if five epochs or more were measured.

| claim      | on the linear theory and at fixed focus                                                              |
|------------|-----------------------------------------------------------------------------------------------------|
| D1, D2, D3 | time to $\alpha = 1/2$, with a lead of at least 2%; late gain of the focus logit, or its final value  |
| D4         | time to half of the smallest final margin, LVML at least 2% before SA and before HA                  |
| H1         | final attention, and the label's score under each prediction rule with a correct focus               |
| I1, I2     | slope of the incentive over $\alpha$ in each seed, with and without $\alpha = 1$                     |
| I3         | LVML's incentive minus HA's at the smallest $\alpha$, and minus SA's at the largest                  |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from fcamlib.errors import UserError
from fcamlib.paradigms import label_of
from fcamlib.verdicts import Criterion, Seeds

Curves = Mapping[str, Float[np.ndarray, "R T"]]  # by paradigm
MARGINS = (0.01, 0.02)  # tolerance of "at least": SAIF or attention, accuracy or probability
MOSTLY = 0.5  # share above which a statement counts as generally true
EFFECT = 1.02  # smallest ratio of times that counts as faster
EARLY, LATE, LAST = 0.2, 0.5, 5  # the first fifth of the epochs; the second half; the last measured epochs
FLAT = 0.05  # largest part of the loss's total decrease that the last fifth of the epochs may add
CURVES = {"a_z": "attention on the foreground", "a_z_high": "share with a_z > 0.8", "focus_accuracy": "focus accuracy"}


@dataclass(frozen=True)
class Evidence:
    """Runs of one task: arrays by paradigm over the same seeds in the same order; unknown measures are left out.

    `accuracy` (or the measure `accuracy_name`) and `saif` (R,) are final values on test data; `curves` (R, T) holds
    each measure in `CURVES` after each measured epoch; `confidence` (R, 5, 5) is in percent per [largest attention,
    largest class probability] in fifths; `unfinished` says why late claims cannot be judged.
    """

    accuracy: Mapping[str, Seeds]
    saif: Mapping[str, Seeds]
    curves: Mapping[str, Curves] = field(default_factory=dict)
    confidence: Mapping[str, Float[np.ndarray, "R A P"]] = field(default_factory=dict)
    unfinished: Mapping[str, str] = field(default_factory=dict)
    accuracy_name: str = "accuracy"
    paradigms = property(lambda self: set(self.accuracy))

    def shares(self, paradigm: str) -> dict[str, Seeds]:
        """Shares with confident focus, with confident prediction, and with the latter but max a of 0.2 to 0.8."""
        cells = self.confidence.get(paradigm, np.empty((0, 5, 5))) / 100
        parts = {"focus": cells[:, 4, :], "prediction": cells[:, :, 4], "blurred": cells[:, 1:4, 4]}
        return {name: part.sum(axis=1) for name, part in parts.items()}

    def gap(self, part: str, more: str, less: str) -> Seeds:
        """A share of one paradigm minus that of another."""
        return self.shares(more)[part] - self.shares(less)[part]


@dataclass(frozen=True)
class Incentives:
    """Incentives after training at fixed focus: increasing attention weights (A,), and paradigm -> (R, A)."""

    alphas: Float[np.ndarray, " A"]
    of: Mapping[str, Float[np.ndarray, "R A"]]
    paradigms = property(lambda self: set(self.of))


@dataclass(frozen=True)
class Paths:
    """Margin and focus logit of the linear model at the same increasing times; the exact flow has one row."""

    times: Float[np.ndarray, " T"]
    mu: Curves
    nu: Curves
    num_segments: int
    num_classes: int
    is_exact: bool = False
    paradigms = property(lambda self: set(self.nu))


def is_flat(loss: Float[np.ndarray, " T"]) -> bool:
    """Whether a training loss has flattened: its last fifth adds at most 5% to its decrease since the first epoch."""
    if (fifth := len(loss) // 5) == 0:  # too few epochs to say
        return False
    before, end = loss[-2 * fifth : -fifth].mean(), loss[-fifth:].mean()
    return bool(before - end <= FLAT * (loss[0] - end))


def at_end(curves: Float[np.ndarray, "R T"], last: int = LAST) -> Seeds:
    """Mean over the last measured epochs, five unless fewer follow the hybrid's switch."""
    return curves[:, -last:].mean(axis=1)


def _until(curves: Float[np.ndarray, "R T"], share: float) -> Float[np.ndarray, "R S"]:
    return curves[:, : max(1, round(share * curves.shape[1]))]


WHEN: dict[str, Callable[[Float[np.ndarray, "R T"]], Seeds]] = {
    "early": lambda curves: _until(curves, EARLY).mean(axis=1),
    "late gain in": lambda curves: at_end(curves) - at_end(_until(curves, LATE)),
    "final": at_end,
}


def _lead(e: Evidence, when: str, more: str, less: str) -> list[Criterion]:
    """A difference of paradigms, judged in the first known curve and also shown in the others."""
    known = [name for name in CURVES if name in e.curves]
    untested = e.unfinished.get(more) or e.unfinished.get(less, "")
    if when == "early":  # a fifth of fewer epochs holds none
        untested = "" if known and e.curves[known[0]][more].shape[1] >= LAST else "fewer than five epochs are measured"
    return [
        Criterion(
            f"{when} {CURVES[name]}, {label_of(more)} - {label_of(less)}",
            WHEN[when](e.curves[name][more]) - WHEN[when](e.curves[name][less]),
            untested=untested,
            is_judged=name == known[0],
        )
        for name in known
    ]


def _hybrid_wins(measures: Mapping[str, Mapping[str, Seeds]], is_exact: bool = False) -> list[Criterion]:
    """Two measures of the hybrid minus the better of SA and HA."""
    gains = {name: of["hybrid"] - np.maximum(of["soft"], of["hard"]) for name, of in measures.items()}
    return [
        Criterion(f"{name}, hybrid - better of SA and HA", gain, -margin, is_exact=is_exact)
        for (name, gain), margin in zip(gains.items(), MARGINS, strict=True)
    ]


def _trend(e: Incentives, paradigm: str, sign: int) -> list[Criterion]:
    """Slope of the incentive over alpha in each seed, with and without alpha = 1; also the end-to-end difference."""
    label, says, values = label_of(paradigm), {1: "rise", -1: "fall"}[sign], sign * e.of[paradigm]
    if len(e.alphas) == 1:
        return [Criterion(f"{label}: mean {says} per unit of alpha", np.array([]), untested="there is one alpha")]
    parts, inner = {"": e.alphas <= 1}, e.alphas < 1
    if 1 < inner.sum() < len(inner):
        parts[" below alpha = 1"] = inner
    slopes = {where: np.polyfit(e.alphas[chosen], values[:, chosen].T, 1)[0] for where, chosen in parts.items()}
    return [
        *(Criterion(f"{label}: mean {says} per unit of alpha{where}", slope) for where, slope in slopes.items()),
        Criterion(f"{label}: {says} from end to end", values[:, -1] - values[:, 0], is_judged=False),
    ]


def _lvml_above(e: Incentives, other: str, place: int) -> Criterion:
    """LVML's incentive minus another's at the smallest or the largest alpha."""
    name = f"at the {'largest' if place else 'smallest'} alpha, LVML - {label_of(other)}"
    untested = "there is one alpha" if len(e.alphas) == 1 else ""
    return Criterion(name, e.of["lvml"][:, place] - e.of[other][:, place], untested=untested)


def time_to(level: float, times: Float[np.ndarray, " T"], values: Float[np.ndarray, "R T"]) -> Seeds:
    """When each row first reaches a level, by linear interpolation; the last time if it never does."""
    found = []
    for row in values:
        after = int(np.argmax(row >= level))
        step = slice(max(after - 1, 0), after + 1)
        found.append(np.interp(level, row[step], times[step]) if row[after] >= level else times[-1])
    return np.array(found)


def _faster(p: Paths, fast: str, slow: str, what: str, curves: Curves, level: float) -> Criterion:
    """The ratio of the times at which two paradigms reach a level; a lead of less than 2% does not count."""
    soon, late = (time_to(level, p.times, curves[name]) for name in (fast, slow))
    name, untested = f"time to {what}, {label_of(slow)} / {label_of(fast)}", ""
    if min(curves[paradigm].max(axis=1).min() for paradigm in (fast, slow)) < level:
        untested = "it is not reached in this time"
    if not soon.all():  # with two segments alpha is 1/2 before any training
        soon, late, untested = np.ones_like(soon), np.ones_like(soon), "it holds from the start"
    return Criterion(name, late / soon, EFFECT, is_exact=p.is_exact, untested=untested)


def _focuses_faster(p: Paths, fast: str, slow: str) -> Criterion:
    return _faster(p, fast, slow, "alpha = 1/2", p.nu, float(np.log(p.num_segments - 1)))


def _ends_above(p: Paths, more: str, less: str, is_gain: bool = False) -> Criterion:
    """Difference of two paradigms' final focus logits, or of their gains in the second half of the time."""
    middle = int(np.searchsorted(p.times, LATE * p.times[-1]))
    ends = [p.nu[name][:, -1] - is_gain * p.nu[name][:, middle] for name in (more, less)]
    what = "gain of the focus logit in the second half" if is_gain else "final focus logit"
    return Criterion(f"{what}, {label_of(more)} - {label_of(less)}", ends[0] - ends[1], is_exact=p.is_exact)


def _lvml_is_first(p: Paths) -> list[Criterion]:
    level = min(float(p.mu[name][:, -1].min()) for name in ("soft", "hard", "lvml")) / 2
    return [_faster(p, "lvml", slow, "half the margin", p.mu, level) for slow in ("soft", "hard")]


def _hybrid_wins_in_theory(p: Paths) -> list[Criterion]:
    """Attention on the foreground, and the label's probability under each prediction rule with a correct focus."""
    alpha, prob = {}, {}
    for name in _HYBRID:
        alpha[name] = 1 / (1 + (p.num_segments - 1) * np.exp(-p.nu[name][:, -1]))
        margin = p.mu[name][:, -1] * (alpha[name] if name == "soft" else 1.0)
        prob[name] = 1 / (1 + (p.num_classes - 1) * np.exp(-margin))
    return _hybrid_wins({"final attention": alpha, "final probability of the label": prob}, p.is_exact)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and its criteria by kind of evidence: kind -> (required paradigms, criteria)."""

    statement: str
    measured: Mapping[type, tuple[tuple[str, ...], Callable[[Any], list[Criterion]]]]

    @property
    def needed(self) -> tuple[str, ...]:
        """The paradigms whose runs are judged."""
        return self.measured[Evidence][0]

    def measure(self, evidence: Evidence | Incentives | Paths) -> list[Criterion]:
        """The claim's criteria on this evidence; none if a required paradigm is missing."""
        needed, criteria = self.measured[type(evidence)]
        return criteria(evidence) if set(needed) <= evidence.paradigms else []


_TWO, _THREE, _LVML, _HYBRID = ("soft", "hard"), ("soft", "hard", "lvml"), ("soft", "lvml"), ("soft", "hard", "hybrid")
CLAIMS = {
    "D1": Claim(
        "under SA the focus improves first, then stalls",
        {Evidence: (_TWO, lambda e: _lead(e, "early", "soft", "hard") + _lead(e, "late gain in", "hard", "soft")),
         Paths: (_TWO, lambda p: [_focuses_faster(p, "soft", "hard"), _ends_above(p, "hard", "soft", is_gain=True)])}),
    "D2": Claim(
        "under HA the focus starts slowly, then overtakes",
        {Evidence: (_TWO, lambda e: _lead(e, "early", "soft", "hard") + _lead(e, "final", "hard", "soft")),
         Paths: (_TWO, lambda p: [_focuses_faster(p, "soft", "hard"), _ends_above(p, "hard", "soft")])}),
    "D3": Claim(
        "LVML combines both",
        {Evidence: (_THREE, lambda e: _lead(e, "early", "lvml", "hard") + _lead(e, "final", "lvml", "soft")),
         Paths: (_THREE, lambda p: [_focuses_faster(p, "lvml", "hard"), _ends_above(p, "lvml", "soft")])}),
    "D4": Claim("the classification model converges faster under LVML than under SA and HA",
                {Paths: (_THREE, _lvml_is_first)}),
    "S1": Claim("SA predicts confidently, its focus is often unsure", {Evidence: (_LVML, lambda e: [
        Criterion("SA: share with max p > 0.8 - share with max a > 0.8",
                  e.shares("soft")["prediction"] - e.shares("soft")["focus"]),
        Criterion("share with max p > 0.8 and max a of 0.2 to 0.8, SA - LVML", e.gap("blurred", "soft", "lvml")),
    ])}),
    "S2": Claim("HA's focus is confidently right or confidently wrong", {Evidence: (_TWO, lambda e: [
        Criterion("HA's share with max a > 0.8", e.shares("hard")["focus"], MOSTLY, is_share=True),
        Criterion("that share, HA - SA", e.gap("focus", "hard", "soft")),
    ])}),
    "S3": Claim("LVML is confident in both", {Evidence: (_LVML, lambda e: [
        Criterion("LVML's share with max a > 0.8", e.shares("lvml")["focus"], MOSTLY, is_share=True),
        Criterion("LVML's share with max p > 0.8", e.shares("lvml")["prediction"], MOSTLY, is_share=True),
        Criterion("the share by max a, LVML - SA", e.gap("focus", "lvml", "soft")),
    ])}),
    "H1": Claim(
        "the hybrid's SAIF is at least SA's and HA's at no loss of accuracy",
        {Evidence: (_HYBRID, lambda e: _hybrid_wins({"SAIF": e.saif, e.accuracy_name: e.accuracy})),
         Paths: (_HYBRID, _hybrid_wins_in_theory)}),
    "I1": Claim("SA's incentive to focus falls with the attention on the foreground",
                {Incentives: (("soft",), lambda e: _trend(e, "soft", -1))}),
    "I2": Claim("HA's incentive rises with it", {Incentives: (("hard",), lambda e: _trend(e, "hard", 1))}),
    "I3": Claim("LVML's incentive is above HA's at little attention and above SA's at much",
                {Incentives: (_THREE, lambda e: [_lvml_above(e, "hard", 0), _lvml_above(e, "soft", -1)])}),
}  # fmt: skip


def measure(claims: Iterable[str], evidence: Evidence | Incentives | Paths) -> dict[str, list[Criterion]]:
    """Claim -> its criteria, for the claims that apply to this kind of evidence."""
    return {name: CLAIMS[name].measure(evidence) for name in claims if type(evidence) in CLAIMS[name].measured}


def hybrid_gains(history: pd.DataFrame, by: Sequence[str]) -> dict[tuple[Any, ...], list[Criterion]]:
    """Combination of the columns `by` -> the criteria of H1 on a study's rows, for seeds with all three paradigms.

    If combinations differ in the hybrid's `soft_share`, SA and HA are used for each of them.
    """
    rows, is_hybrid, names = history, history["paradigm"] == "hybrid", {"saif": "SAIF", "accuracy": "accuracy"}
    if "soft_share" in by and is_hybrid.any():
        shares = np.sort(history.loc[is_hybrid, "soft_share"].unique())
        rows = pd.concat([history[is_hybrid], *(history[~is_hybrid].assign(soft_share=share) for share in shares)])
    found = {}
    for key, group in rows.groupby(list(by), sort=False):
        if group.duplicated(["seed", "paradigm"]).any():
            raise UserError(f"rows at one {', '.join(by)} differ in other settings: give one value of each of these.")
        wide = group.pivot(index="seed", columns="paradigm", values=list(names))
        whole = wide.reindex(columns=list(product(names, _HYBRID))).dropna().astype(float)
        of = {name: {p: whole[measure, p].to_numpy() for p in _HYBRID} for measure, name in names.items()}
        found[key] = _hybrid_wins(of)
    return found
