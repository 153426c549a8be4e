r"""The paper's claims as criteria on numbers, quoted in arXiv 2307.13421's order.

Comparisons of paradigms are differences within a seed, and `fcamlib.verdicts` says what follows from them. Measures at
the end are means over the last five measured epochs. How each claim is put into numbers is this project's choice, and
was fixed before any of the runs that it judges were looked at.

| claim      | on runs                                                                                              |
|------------|-----------------------------------------------------------------------------------------------------|
| D1, D2, D3 | mean attention on the foreground: early lead over the first fifth of the epochs; late gain, or end   |
| S1, S2, S3 | shares of test instances by the confidence of focus, max a, and prediction, max p                   |
| H1         | SAIF, and accuracy or BLEU-4, hybrid minus the better of SA and HA in the same seed                  |

What is late is judged only where the training loss of both has flattened or the paper's number of epochs is reached.

| claim      | on the linear theory and at fixed focus                                                              |
|------------|-----------------------------------------------------------------------------------------------------|
| D1, D2, D3 | time to $\alpha = 1/2$, by which the faster leads by 2 % or more; focus logit gained late, or final  |
| D4         | time until half of the smallest final margin, LVML 2 % or more before SA and before HA               |
| H1         | final attention, and score of the label as each predicts from a correct focus                        |
| I1, I2     | slope of the incentive over $\alpha$ in each seed, with and without $\alpha = 1$                     |
| I3         | LVML's incentive less HA's at the smallest $\alpha$, less SA's at the largest                        |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import NDArray

from fcamlib.paradigms import label_of
from fcamlib.verdicts import Criterion, Seeds

Curves = Mapping[str, Float[np.ndarray, "R T"]]
SAIF_MARGIN, ACCURACY_MARGIN = 0.01, 0.02  # how much less still counts as "at least"
MOSTLY = 0.5  # the share from which "is" is meant
EFFECT = 1.02  # ratio of times from which one is faster
EARLY, LATE, LAST = 0.2, 0.5, 5  # the first fifth of the epochs; from the middle on; the last measured epochs
FLAT = 0.05  # of the loss's whole fall, which the last fifth of the epochs may still add
CURVES = {"a_z": "attention on the foreground", "a_z_high": "share with a_z > 0.8", "focus_accuracy": "focus accuracy"}


@dataclass(frozen=True)
class Evidence:
    """Runs of one task, per paradigm: arrays over the same seeds in the same order for all paradigms.

    Parameters
    ----------
    accuracy, saif : paradigm -> (R,)
        On test data at the end; of captions `accuracy_name` takes accuracy's place.
    curves : measure -> paradigm -> (R, T)
        After each measured epoch on test data: a_z (mean attention on the foreground), a_z_high (share with more than
        0.8), focus_accuracy; those that are known.
    confidence : paradigm -> (R, 5, 5)
        Percent per [largest attention, largest class probability] in fifths; empty where it is not known.
    unfinished : paradigm -> str
        Why nothing can be said about the end of its training; empty where something can.
    accuracy_name : str
    """

    accuracy: Mapping[str, Seeds]
    saif: Mapping[str, Seeds]
    curves: Mapping[str, Curves] = field(default_factory=dict)
    confidence: Mapping[str, Float[np.ndarray, "R A P"]] = field(default_factory=dict)
    unfinished: Mapping[str, str] = field(default_factory=dict)
    accuracy_name: str = "accuracy"

    @property
    def paradigms(self) -> set[str]:
        """The paradigms that were run."""
        return set(self.accuracy)

    def shares(self, paradigm: str) -> dict[str, Seeds]:
        """Shares with a sure focus, a sure prediction, and this with an unsure focus; empty where not recorded."""
        cells = self.confidence.get(paradigm, np.empty((0, 5, 5))) / 100
        parts = {"focus": cells[:, 4, :], "prediction": cells[:, :, 4], "blurred": cells[:, 1:4, 4]}
        return {name: part.sum(axis=1) for name, part in parts.items()}


@dataclass(frozen=True)
class Incentives:
    """Incentives after training at fixed focus: rising attention (A,), at least two, and paradigm -> (R, A)."""

    alphas: Float[np.ndarray, " A"]
    of: Mapping[str, Float[np.ndarray, "R A"]]

    @property
    def paradigms(self) -> set[str]:
        """The paradigms that were trained."""
        return set(self.of)


@dataclass(frozen=True)
class Paths:
    """Trajectories of the linear model at the same rising times (T,): margin and focus logit, paradigm -> (R, T).

    The gradient flow is exact and has one row.
    """

    times: Float[np.ndarray, " T"]
    mu: Curves
    nu: Curves
    num_segments: int
    num_classes: int
    is_exact: bool = False

    @property
    def paradigms(self) -> set[str]:
        """The paradigms that moved."""
        return set(self.nu)


def is_flat(loss: Float[np.ndarray, " T"]) -> bool:
    """Whether a training loss has flattened: its last fifth adds at most 5 % to its fall since the first epoch."""
    fifth = max(1, len(loss) // 5)
    before, end = loss[-2 * fifth : -fifth].mean(), loss[-fifth:].mean()
    return len(loss) >= LAST and bool(before - end <= FLAT * (loss[0] - end))


def at_end(curves: Float[np.ndarray, "R T"]) -> Seeds:
    """Mean over the last five measured epochs."""
    return curves[:, -LAST:].mean(axis=1)


# --- criteria on runs -----------------------------------------------------------------------------------------------


def _early(curves: NDArray[np.float64]) -> Seeds:
    """Mean over the first fifth of the epochs: how fast a quantity rises."""
    return curves[:, : max(1, round(EARLY * curves.shape[1]))].mean(axis=1)


def _late_gain(curves: NDArray[np.float64]) -> Seeds:
    """The end less the middle of training."""
    return at_end(curves) - at_end(curves[:, : max(1, round(LATE * curves.shape[1]))])


def _over_epochs(
    e: Evidence, when: str, of: Callable[[NDArray[np.float64]], Seeds], more: str, less: str, late: bool
) -> list[Criterion]:
    """A difference of paradigms in the mean attention on the foreground, and beside it in the other measures.

    Focus accuracy is judged where the attention was not recorded.
    """
    known = [name for name in CURVES if name in e.curves]
    return [
        Criterion(
            f"{when} {CURVES[name]}, {label_of(more)} - {label_of(less)}",
            of(e.curves[name][more]) - of(e.curves[name][less]),
            untested=(e.unfinished.get(more) or e.unfinished.get(less, "")) if late else "",
            is_judged=name == known[0],
        )
        for name in known
    ]


def _early_and_late(
    e: Evidence, early: tuple[str, str], late: tuple[str, str], when: str = "final", of: Callable[..., Seeds] = at_end
) -> list[Criterion]:
    """One paradigm leads another early, and one another late, when the training of both has ended."""
    return _over_epochs(e, "early", _early, *early, late=False) + _over_epochs(e, when, of, *late, late=True)


def _hybrid_wins(e: Evidence) -> list[Criterion]:
    return [
        Criterion(f"{name}, hybrid - better of SA and HA", of["hybrid"] - np.maximum(of["soft"], of["hard"]), -margin)
        for name, of, margin in (("SAIF", e.saif, SAIF_MARGIN), (e.accuracy_name, e.accuracy, ACCURACY_MARGIN))
    ]


def _soft_predicts_without_focus(e: Evidence) -> list[Criterion]:
    soft, lvml = e.shares("soft"), e.shares("lvml")
    return [
        Criterion("SA: share with max p > 0.8 - share with max a > 0.8", soft["prediction"] - soft["focus"]),
        Criterion("share with max p > 0.8 and max a of 0.2 to 0.8, SA - LVML", soft["blurred"] - lvml["blurred"]),
    ]


def _hard_focus_is_sure(e: Evidence) -> list[Criterion]:
    hard, soft = e.shares("hard")["focus"], e.shares("soft")["focus"]
    return [
        Criterion("HA's share with max a > 0.8", hard, MOSTLY, is_share=True),
        Criterion("that share, HA - SA", hard - soft),
    ]


def _lvml_is_sure_of_both(e: Evidence) -> list[Criterion]:
    lvml, soft = e.shares("lvml"), e.shares("soft")
    return [
        Criterion("LVML's share with max a > 0.8", lvml["focus"], MOSTLY, is_share=True),
        Criterion("LVML's share with max p > 0.8", lvml["prediction"], MOSTLY, is_share=True),
        Criterion("the share by max a, LVML - SA", lvml["focus"] - soft["focus"]),
    ]


# --- criteria on the theory -----------------------------------------------------------------------------------------


def _trend(e: Incentives, paradigm: str, sign: int) -> list[Criterion]:
    """Slope of the incentive over alpha in each seed, with and without alpha = 1; from end to end beside it."""
    label, says, values = label_of(paradigm), {1: "rise", -1: "fall"}[sign], e.of[paradigm]
    inner = e.alphas < 1
    parts = [("", np.ones_like(inner))] + ([(" below alpha = 1", inner)] if inner.sum() > 1 and not inner.all() else [])
    criteria = []
    for where, chosen in parts:
        centred = e.alphas[chosen] - e.alphas[chosen].mean()
        slope = values[:, chosen] @ centred / (centred @ centred)
        criteria.append(Criterion(f"{label}: mean {says} per unit of alpha{where}", sign * slope))
    ends = sign * (values[:, -1] - values[:, 0])
    return [*criteria, Criterion(f"{label}: {says} from end to end", ends, is_judged=False)]


def _lvml_is_above_both(e: Incentives) -> list[Criterion]:
    soft, hard, lvml = (e.of[name] for name in ("soft", "hard", "lvml"))
    return [
        Criterion("at the smallest alpha, LVML - HA", lvml[:, 0] - hard[:, 0]),
        Criterion("at the largest alpha, LVML - SA", lvml[:, -1] - soft[:, -1]),
    ]


def time_to(level: float, times: Float[np.ndarray, " T"], values: Float[np.ndarray, "R T"]) -> Seeds:
    """When each row first reaches a level, linearly between times; the last time where it never does."""
    found = []
    for row in values:
        reached = np.flatnonzero(row >= level)
        if len(reached) == 0 or reached[0] == 0:
            found.append(times[-1] if len(reached) == 0 else times[0])
            continue
        after = reached[0]
        share = (level - row[after - 1]) / (row[after] - row[after - 1])
        found.append(times[after - 1] + share * (times[after] - times[after - 1]))
    return np.array(found)


def _faster(p: Paths, fast: str, slow: str, what: str, curves: Curves, level: float) -> Criterion:
    """The ratio of the times at which two paradigms reach a level; with less than 2 % between them none is faster."""
    times = {name: time_to(level, p.times, curves[name]) for name in (fast, slow)}
    late = any((curves[name].max(axis=1) < level).any() for name in times)
    name = f"time to {what}, {label_of(slow)} / {label_of(fast)}"
    reason = "it is not reached in this time" if late else ""
    if not times[fast].all():  # with two segments alpha is 1/2 before any training
        return Criterion(
            name, np.ones_like(times[fast]), EFFECT, is_exact=p.is_exact, untested="it holds from the start"
        )
    return Criterion(name, times[slow] / times[fast], EFFECT, is_exact=p.is_exact, untested=reason)


def _focuses_faster(p: Paths, fast: str, slow: str) -> Criterion:
    return _faster(p, fast, slow, "alpha = 1/2", p.nu, float(np.log(p.num_segments - 1)))


def _ends_above(p: Paths, more: str, less: str, since: float = 0.0) -> Criterion:
    """Final focus logit of one paradigm less that of another, or what both gained since a share of the time."""
    start = int(np.searchsorted(p.times, since * p.times[-1])) if since else 0
    gains = {name: p.nu[name][:, -1] - (p.nu[name][:, start] if since else 0.0) for name in (more, less)}
    what = "gain of the focus logit in the second half" if since else "final focus logit"
    return Criterion(f"{what}, {label_of(more)} - {label_of(less)}", gains[more] - gains[less], is_exact=p.is_exact)


def _lvml_is_first(p: Paths) -> list[Criterion]:
    level = min(float(p.mu[name][:, -1].min()) for name in ("soft", "hard", "lvml")) / 2
    return [_faster(p, "lvml", slow, "half the margin", p.mu, level) for slow in ("soft", "hard")]


def _hybrid_wins_in_theory(p: Paths) -> list[Criterion]:
    """Attention on the foreground, and probability of the label as each paradigm predicts from a correct focus."""
    alpha, prob = {}, {}
    for name in ("soft", "hard", "hybrid"):
        alpha[name] = 1 / (1 + (p.num_segments - 1) * np.exp(-p.nu[name][:, -1]))
        margin = p.mu[name][:, -1] * (alpha[name] if name == "soft" else 1.0)
        prob[name] = 1 / (1 + (p.num_classes - 1) * np.exp(-margin))
    found = (("final attention", alpha, SAIF_MARGIN), ("final probability of the label", prob, ACCURACY_MARGIN))
    return [
        Criterion(f"{what}, hybrid - better of SA and HA", of["hybrid"] - np.maximum(of["soft"], of["hard"]), -margin,
                  is_exact=p.is_exact)
        for what, of, margin in found
    ]  # fmt: skip


# --- the claims -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and how each kind of evidence measures it: kind -> (paradigms needed, criteria)."""

    id: str
    statement: str
    measured: Mapping[type, tuple[tuple[str, ...], Callable[[Any], list[Criterion]]]]

    def measure(self, evidence: Evidence | Incentives | Paths) -> list[Criterion]:
        """The claim's criteria on this evidence; none where a paradigm that it speaks of is missing."""
        needed, criteria = self.measured[type(evidence)]
        return criteria(evidence) if set(needed) <= evidence.paradigms else []


_TWO, _THREE, _LVML, _HYBRID = ("soft", "hard"), ("soft", "hard", "lvml"), ("soft", "lvml"), ("soft", "hard", "hybrid")
CLAIMS = {
    claim.id: claim
    for claim in (
        Claim("D1", "under SA the focus improves first, then stalls",
              {Evidence: (_TWO, lambda e: _early_and_late(e, _TWO, ("hard", "soft"), "late gain in", _late_gain)),
               Paths: (_TWO, lambda p: [_focuses_faster(p, "soft", "hard"), _ends_above(p, "hard", "soft", LATE)])}),
        Claim("D2", "under HA the focus starts slowly, then overtakes",
              {Evidence: (_TWO, lambda e: _early_and_late(e, _TWO, ("hard", "soft"))),
               Paths: (_TWO, lambda p: [_focuses_faster(p, "soft", "hard"), _ends_above(p, "hard", "soft")])}),
        Claim("D3", "LVML combines both",
              {Evidence: (_THREE, lambda e: _early_and_late(e, ("lvml", "hard"), ("lvml", "soft"))),
               Paths: (_THREE, lambda p: [_focuses_faster(p, "lvml", "hard"), _ends_above(p, "lvml", "soft")])}),
        Claim("D4", "the classification model converges faster under LVML than under SA and HA",
              {Paths: (_THREE, _lvml_is_first)}),
        Claim("S1", "SA predicts confidently, its focus is often unsure",
              {Evidence: (_LVML, _soft_predicts_without_focus)}),
        Claim("S2", "HA's focus is confidently right or confidently wrong",
              {Evidence: (_TWO, _hard_focus_is_sure)}),
        Claim("S3", "LVML is confident in both", {Evidence: (_LVML, _lvml_is_sure_of_both)}),
        Claim("H1", "the hybrid's SAIF is at least SA's and HA's at no loss of accuracy",
              {Evidence: (_HYBRID, _hybrid_wins), Paths: (_HYBRID, _hybrid_wins_in_theory)}),
        Claim("I1", "SA's incentive to focus falls with the attention on the foreground",
              {Incentives: (("soft",), lambda e: _trend(e, "soft", -1))}),
        Claim("I2", "HA's incentive rises with it", {Incentives: (("hard",), lambda e: _trend(e, "hard", 1))}),
        Claim("I3", "LVML's incentive is above HA's at little attention and above SA's at much",
              {Incentives: (_THREE, _lvml_is_above_both)}),
    )
}  # fmt: skip


def measure(claims: Iterable[str], evidence: Evidence | Incentives | Paths) -> dict[str, list[Criterion]]:
    """Claim -> its criteria, of those of the claims that this kind of evidence speaks of."""
    return {name: CLAIMS[name].measure(evidence) for name in claims if type(evidence) in CLAIMS[name].measured}


def hybrid_gains(history: pd.DataFrame, by: Sequence[str]) -> dict[tuple[Any, ...], list[Criterion]]:
    """Combination of the columns `by` -> the criteria of H1 on a study's rows, seeds without one of the three left out.

    Where the hybrid's `soft_share` tells combinations apart, SA and HA count for each.
    """
    rows = history[history["paradigm"].isin(_HYBRID)]
    if "soft_share" in by:
        shares = np.sort(rows.loc[rows["paradigm"] == "hybrid", "soft_share"].unique())
        others = rows[rows["paradigm"] != "hybrid"]
        rows = pd.concat([rows[rows["paradigm"] == "hybrid"], *(others.assign(soft_share=share) for share in shares)])
    found = {}
    for key, group in rows.groupby(list(by), sort=False):
        wide = group.pivot(index="seed", columns="paradigm", values=["saif", "accuracy"]).dropna()
        of = {m: {p: wide[m][p].to_numpy(dtype=np.float64) for p in _HYBRID} for m in ("accuracy", "saif")}
        found[key] = _hybrid_wins(Evidence(of["accuracy"], of["saif"]))
    return found
