"""Tables of the theory for figures and pages: gradient flow, fixed focus, and their agreement with training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from fcamlib.claims import CLAIMS, Incentives, Paths, measure
from fcamlib.config import FlowParameters, Orthogonal
from fcamlib.errors import UserError
from fcamlib.paradigms import label_of
from fcamlib.theory import fixed_focus, flow
from fcamlib.theory.fixed_focus import LAWS
from fcamlib.theory.hessian import hessian_spectrum
from fcamlib.verdicts import claims_table, interval_text

PARADIGMS = tuple(LAWS)
POINTS = 400  # per drawn trajectory
Setting = tuple[int, int, float]  # segments, classes and end time


def setting_title(setting: Setting) -> str:
    """Segments, classes and end time as a title for figures and tables."""
    m, classes, time = setting
    return f"m = {m:,}, C = {classes:,}, t to {int(time) if time == int(time) else time:,}"


def flow_frame(settings: Sequence[Setting]) -> pd.DataFrame:
    """The gradient flow of each setting at equal time steps: setting, paradigm, m, C, time, mu, nu, alpha, loss."""
    parts = []
    for setting, paradigm in product(dict.fromkeys(settings), PARADIGMS):
        m, classes, end = setting
        path = flow.trajectory(paradigm, m, classes, np.linspace(0.0, end, POINTS + 1))
        columns = {"time": path.times, "mu": path.mu, "nu": path.nu, "alpha": path.alpha, "loss": path.loss}
        named = {"setting": setting_title(setting), "paradigm": paradigm, "num_segments": m, "num_classes": classes}
        parts.append(pd.DataFrame(columns | named))
    return pd.concat(parts, ignore_index=True)


def switch_frame(setting: Setting, shares: Float[np.ndarray, " S"]) -> pd.DataFrame:
    """End of the hybrid for each switch: switch / T, mu, nu, alpha, score, and whether alpha and score are best."""
    m, classes, end = setting
    others = pd.DataFrame([_end(flow.trajectory(name, m, classes, [end])) for name in ("soft", "hard")])
    frame = pd.DataFrame([_end(flow.hybrid(m, classes, [end], share * end)) for share in shares])
    beats = (frame[["alpha", "score"]] > others[["alpha", "score"]].max()).all(axis=1)
    return frame.assign(setting=setting_title(setting), beats_both=beats, **{"switch / T": shares})


def hybrid_table(settings: Sequence[Setting]) -> pd.DataFrame:
    """End of SA, HA, LVML and the hybrid with the best switch; score is the true label's score at test time."""
    rows = {}
    for setting in settings:
        m, classes, end = setting
        paths = {label_of(name): flow.trajectory(name, m, classes, [end]) for name in PARADIGMS}
        best = flow.best_switch(m, classes, end)
        paths[f"hybrid, switch at {best / end:.2f} T"] = flow.hybrid(m, classes, [end], best)
        for name, path in paths.items():
            rows[setting_title(setting), name] = _end(path) | {"alpha x score": path.alpha[0] * path.score[0]}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["setting", "paradigm"]).round(4)


def _end(path: flow.Trajectory) -> dict[str, float]:
    """The end of a trajectory; score is the true label's score."""
    return {"mu": path.mu[-1], "nu": path.nu[-1], "alpha": path.alpha[-1], "score": path.score[-1]}


def portrait_frame(setting: Setting, highest: float) -> pd.DataFrame:
    """Phase curves in closed form (G7 to G11) up to a margin: setting, paradigm, mu, nu."""
    mu = np.linspace(0.0, highest, POINTS + 1)
    curves = [{"mu": mu, "nu": flow.phase_curve(name, mu, *setting[:2]), "paradigm": name} for name in PARADIGMS]
    return pd.concat(map(pd.DataFrame, curves), ignore_index=True).assign(setting=setting_title(setting))


def ratio_frame(paths: pd.DataFrame) -> pd.DataFrame:
    """Ratio of LVML's speed to HA's at each point (G14): columns of `paths`, responsibility, mu_ratio, nu_ratio."""
    paths = paths[paths["time"] > 0]
    place = [paths[name].to_numpy(dtype=np.float64) for name in ("mu", "nu", "num_segments", "num_classes")]
    mu_ratio, nu_ratio = flow.rates("lvml", *place)
    return paths.assign(responsibility=paths["alpha"] * mu_ratio, mu_ratio=mu_ratio, nu_ratio=nu_ratio)


def curvature_frame(paths: pd.DataFrame) -> pd.DataFrame:
    """Extreme eigenvalues of the Hessian: columns of `paths`, largest, and downward (minus the smallest)."""
    parts = []
    for (_, paradigm), rows in paths[paths["time"] > 0].groupby(["setting", "paradigm"], sort=False):
        m, classes = int(rows["num_segments"].iloc[0]), int(rows["num_classes"].iloc[0])
        values = hessian_spectrum(str(paradigm), rows["mu"].to_numpy(), rows["nu"].to_numpy(), m, classes)
        parts.append(rows.assign(largest=values.max(axis=1), downward=-values.min(axis=1)))
    return pd.concat(parts, ignore_index=True)


def flow_paths(paths: pd.DataFrame) -> dict[str, Paths]:
    """Setting -> the gradient flow's trajectories for the claims, including the hybrid with the best switch."""
    found = {}
    for setting, rows in paths.groupby("setting", sort=False):
        times, mu, nu = _pivoted(rows.assign(seed=0))
        m, classes = (int(rows[name].iloc[0]) for name in ("num_segments", "num_classes"))
        switched = flow.hybrid(m, classes, times, flow.best_switch(m, classes, times[-1]))
        mu, nu = mu | {"hybrid": switched.mu[None]}, nu | {"hybrid": switched.nu[None]}
        found[str(setting)] = Paths(times, mu, nu, m, classes, is_exact=True)
    return found


def joint_frame(experiment: FlowParameters) -> pd.DataFrame:
    """Linear models trained on the first setting until its end time: paradigm, seed, epoch, time, mu, nu."""
    from fcamlib.theory.sweep import flow_time, train_jointly

    (num_segments, num_classes, end_time), *_ = experiment.settings()
    config = Orthogonal(num_segments=num_segments, num_classes=num_classes, num_train=experiment.num_train)
    rate = end_time / float(flow_time(experiment.steps, 1.0, experiment.momentum))
    schedule = experiment.epochs, rate, experiment.momentum, experiment.batch_size
    parts = [train_jointly(config, name, seed, *schedule) for name in PARADIGMS for seed in experiment.seeds]
    frame = pd.concat(parts, ignore_index=True)
    if not frame["mu"].abs().max() <= flow.MAX_MU:
        raise UserError(
            f"end_times={end_time:g} in {experiment.epochs} epochs needs the learning rate {rate:.3g}, at which "
            "training no longer follows the flow: give more epochs or an earlier end."
        )
    return frame


def trained_paths(training: pd.DataFrame, setting: Setting) -> Paths:
    """Trajectories of `joint_frame` for the claims, without times before any focus has moved."""
    moved = training.groupby("time")["nu"].transform(lambda nu: (nu != 0).any()) | (training["time"] == 0)
    return Paths(*_pivoted(training[moved]), *setting[:2])


def _pivoted(frame: pd.DataFrame) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Times (T,), then margin and focus logit of each paradigm (R, T)."""
    tables = frame.pivot(index=["paradigm", "seed"], columns="time", values=["mu", "nu"])
    mu, nu = ({name: tables[column].loc[name].to_numpy() for name in PARADIGMS} for column in ("mu", "nu"))
    return tables["mu"].columns.to_numpy(dtype=np.float64), mu, nu


def claims_on(sources: Mapping[str, Paths | pd.DataFrame], claims: Iterable[str] = CLAIMS) -> pd.DataFrame:
    """Each claim's verdict on trajectories or on the last epoch of sweeps, with the measured values."""
    found = ((name, incentives(of) if isinstance(of, pd.DataFrame) else of) for name, of in sources.items())
    return claims_table({name: measure(claims, of) for name, of in found})


def incentives(sweep: pd.DataFrame) -> Incentives:
    """The incentives at a sweep's last epoch: one row per seed, one column per increasing attention weight."""
    table = _last(sweep).pivot(index=["paradigm", "seed"], columns="alpha", values="incentive")
    of = {str(name): table.loc[name].to_numpy(dtype=np.float64) for name in sweep["paradigm"].unique()}
    return Incentives(table.columns.to_numpy(dtype=np.float64), of)


def incentive_table(sweep: pd.DataFrame) -> pd.DataFrame:
    """Incentive at the last epoch, mean over seeds: one row per paradigm, one column per attention weight."""
    table = _last(sweep).pivot_table(index="paradigm", columns="alpha", values="incentive", sort=False)
    table = table.sort_index(axis=1).rename(index=label_of, columns=lambda alpha: f"alpha = {alpha:g}")
    return table.rename_axis(columns="incentive").round(2)


def _last(sweep: pd.DataFrame) -> pd.DataFrame:
    """The rows of a sweep's last epoch."""
    return sweep[sweep["epoch"] == sweep["epoch"].max()]


def closed_form(sweep: pd.DataFrame, num_classes: int) -> pd.DataFrame:
    """Loss and incentive in closed form (F4, F5) at each time of a sweep, with its columns except seed."""
    parts = []
    for name, rows in sweep[["paradigm", "alpha", "epoch", "time"]].drop_duplicates().groupby("paradigm", sort=False):
        place = str(name), rows["alpha"].to_numpy(), rows["time"].to_numpy(), num_classes
        parts.append(rows.assign(loss=fixed_focus.loss(*place), incentive=fixed_focus.incentive(*place)))
    return pd.concat(parts, ignore_index=True)


def agreement_table(sweep: pd.DataFrame, num_classes: int) -> pd.DataFrame:
    """Distance between training and the closed form per paradigm: mean over seeds with its interval.

    The distance is the root mean square difference over all epochs and attention weights, in percent of the range of
    the closed form.
    """
    theory = closed_form(sweep, num_classes)
    both = sweep.merge(theory, on=["paradigm", "alpha", "epoch"], suffixes=("", " in theory"))
    rows = {}
    for name, group in both.groupby("paradigm", sort=False):
        row: dict[str, Any] = {}
        for column in ("loss", "incentive"):
            exact = group[f"{column} in theory"]
            roots = np.sqrt(((group[column] - exact) ** 2).groupby(group["seed"]).mean())
            percent = 100 * roots / (float(exact.max() - exact.min()) or 1.0)
            row[f"{column}, % of its range"] = interval_text(np.asarray(percent), 2)
        rows[label_of(str(name))] = row | {"n": group["seed"].nunique()}
    return pd.DataFrame.from_dict(rows, orient="index")
