"""Tables of the theory: gradient flow, fixed focus and their agreement with training, for figures and pages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from jaxtyping import Float

from fcamlib import store
from fcamlib.claims import Incentives, Paths, measure
from fcamlib.config import FixedFocusConfig, FixedFocusExperiment, FlowExperiment, Frozen, OrthogonalConfig
from fcamlib.errors import UserError
from fcamlib.provenance import figure_record
from fcamlib.tables import LABELS, claims_table, interval_text
from fcamlib.theory import fixed_focus, flow
from fcamlib.theory.fixed_focus import LAWS
from fcamlib.theory.hessian import hessian_spectrum
from fcamlib.theory.sweep import Sweep, flow_time, train_jointly

PARADIGMS = tuple(LAWS)
POINTS = 400  # of a drawn trajectory
FINE_ALPHAS = np.linspace(0.01, 1.0, 397)
Setting = tuple[int, int, float]  # segments, classes and end time


def setting_title(setting: Setting) -> str:
    """Segments, classes and end time as figures and tables show them."""
    m, classes, time = setting
    return f"m = {m:,}, C = {classes:,}, t to {time:,.0f}"


def flow_frame(settings: Sequence[Setting], points: int = POINTS) -> pd.DataFrame:
    """The gradient flow of each setting at equally spaced times: setting, paradigm, m, C, time, mu, nu, alpha, loss."""
    parts = []
    for setting, paradigm in product(settings, PARADIGMS):
        m, classes, end = setting
        path = flow.trajectory(paradigm, m, classes, np.linspace(0.0, end, points + 1))
        columns = {"time": path.times, "mu": path.mu, "nu": path.nu, "alpha": path.alpha, "loss": path.loss}
        named = {"setting": setting_title(setting), "paradigm": paradigm, "num_segments": m, "num_classes": classes}
        parts.append(pd.DataFrame(columns | named))
    return pd.concat(parts, ignore_index=True)


def flow_table(paths: pd.DataFrame) -> pd.DataFrame:
    """The end of each trajectory, four digits."""
    last = paths.groupby(["setting", "paradigm"], sort=False).last()[["mu", "nu", "alpha", "loss"]]
    return last.rename(index=LABELS, level="paradigm").round(4)


def switch_frame(setting: Setting, shares: Float[np.ndarray, " S"]) -> pd.DataFrame:
    """Where a hybrid ends for each switch: switch / T, mu, nu, alpha, score; and whether it beats SA and HA in both."""
    m, classes, end = setting
    others = [flow.trajectory(name, m, classes, [end]) for name in ("soft", "hard")]
    alpha, score = (max(getattr(path, name)[0] for path in others) for name in ("alpha", "score"))
    paths = [flow.hybrid(m, classes, [end], share * end) for share in shares]
    rows = [(path.mu[0], path.nu[0], path.alpha[0], path.score[0]) for path in paths]
    frame = pd.DataFrame(rows, columns=["mu", "nu", "alpha", "score"]).assign(setting=setting_title(setting))
    beats = (frame["alpha"] > alpha) & (frame["score"] > score)
    return frame.assign(beats_both=beats, **{"switch / T": shares})


def hybrid_table(settings: Sequence[Setting]) -> pd.DataFrame:
    """The end of SA, HA, LVML and the hybrid with the best switch; score is the true label's at test time."""
    rows = {}
    for setting in settings:
        m, classes, end = setting
        paths = {LABELS[name]: flow.trajectory(name, m, classes, [end]) for name in PARADIGMS}
        best = flow.best_switch(m, classes, end)
        paths[f"hybrid, switch at {best / end:.2f} T"] = flow.hybrid(m, classes, [end], best)
        for name, path in paths.items():
            values = {"mu": path.mu[0], "nu": path.nu[0], "alpha": path.alpha[0], "score": path.score[0]}
            rows[setting_title(setting), name] = values | {"alpha x score": path.alpha[0] * path.score[0]}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["setting", "paradigm"]).round(4)


def portrait_frame(setting: Setting, highest: float, points: int = POINTS) -> pd.DataFrame:
    """Phase curves in closed form (G7 to G11) up to a margin: setting, paradigm, mu, nu."""
    mu = np.linspace(0.0, highest, points + 1)
    curves = [{"mu": mu, "nu": flow.phase_curve(name, mu, *setting[:2]), "paradigm": name} for name in PARADIGMS]
    return pd.concat(map(pd.DataFrame, curves), ignore_index=True).assign(setting=setting_title(setting))


def ratio_frame(paths: pd.DataFrame) -> pd.DataFrame:
    """Speed of LVML over that of HA at each point (G14): columns of `paths`, responsibility, mu_ratio, nu_ratio."""
    paths = paths[paths["time"] > 0]
    place = [paths[name].to_numpy(dtype=np.float64) for name in ("mu", "nu", "num_segments", "num_classes")]
    mu_ratio, nu_ratio = flow.rates("lvml", *place)
    return paths.assign(responsibility=paths["alpha"] * mu_ratio, mu_ratio=mu_ratio, nu_ratio=nu_ratio)


def curvature_frame(paths: pd.DataFrame) -> pd.DataFrame:
    """Extreme eigenvalues of the Hessian: columns of `paths`, largest, and downward, minus the smallest."""
    parts = []
    for (_, paradigm), rows in paths[paths["time"] > 0].groupby(["setting", "paradigm"], sort=False):
        m, classes = int(rows["num_segments"].iloc[0]), int(rows["num_classes"].iloc[0])
        values = hessian_spectrum(str(paradigm), rows["mu"].to_numpy(), rows["nu"].to_numpy(), m, classes).eigenvalues
        parts.append(rows.assign(largest=values[:, -1], downward=-values[:, 0]))
    return pd.concat(parts, ignore_index=True)


def curvature_table(spectrum: pd.DataFrame) -> pd.DataFrame:
    """Downward curvature at the start and at its largest, when it ends, and the largest eigenvalue at the end."""
    rows = {}
    for (setting, paradigm), path in spectrum.groupby(["setting", "paradigm"], sort=False):
        downward = path["downward"].to_numpy()
        ends = path["time"][downward <= 0]
        rows[setting, LABELS[str(paradigm)]] = {
            "downward at first": f"{downward[0]:.1e}",
            "largest downward": f"{downward.max():.1e}",
            "none after t": f"{ends.min():.3g}" if len(ends) else "-",
            "largest eigenvalue at the end": f"{path['largest'].iloc[-1]:.1e}",
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["setting", "paradigm"])


def flow_paths(paths: pd.DataFrame) -> dict[str, Paths]:
    """Setting -> the gradient flow's trajectories for the claims."""
    found = {}
    for setting, rows in paths.groupby("setting", sort=False):
        mu, nu = (rows.pivot(index="paradigm", columns="time", values=column) for column in ("mu", "nu"))
        of_mu, of_nu = ({name: table.loc[[name]].to_numpy() for name in PARADIGMS} for table in (mu, nu))
        m, classes = (int(rows[name].iloc[0]) for name in ("num_segments", "num_classes"))
        times = mu.columns.to_numpy(dtype=np.float64)
        switched = flow.hybrid(m, classes, times, flow.best_switch(m, classes, times[-1]))
        of_mu, of_nu = of_mu | {"hybrid": switched.mu[None]}, of_nu | {"hybrid": switched.nu[None]}
        found[str(setting)] = Paths(times, of_mu, of_nu, m, classes, is_exact=True)
    return found


def joint_frame(experiment: FlowExperiment) -> pd.DataFrame:
    """Linear models trained on the first setting until its end time: paradigm, seed, epoch, time, mu, nu."""
    (num_segments, num_classes, end_time), *_ = experiment.settings()
    config = OrthogonalConfig(num_segments=num_segments, num_classes=num_classes, num_train=experiment.num_train)
    rate = end_time / float(flow_time(experiment.steps, 1.0, experiment.momentum))
    schedule = experiment.epochs, rate, experiment.momentum, experiment.batch_size
    parts = [train_jointly(config, name, seed, *schedule) for name in PARADIGMS for seed in experiment.seeds]
    frame = pd.concat(parts, ignore_index=True)
    if not frame["mu"].abs().max() <= flow.MAX_MU:
        raise UserError(
            f"end_times={end_time:g} in {experiment.epochs} epochs needs the learning rate {rate:.3g}, at which "
            "training leaves the flow: give more epochs or an earlier end."
        )
    return frame


def trained_paths(training: pd.DataFrame, setting: Setting) -> Paths:
    """Trajectories of `joint_frame` for the claims, without times at which no focus has moved."""
    moved = training.groupby("time")["nu"].transform(lambda nu: (nu != 0).any()) | (training["time"] == 0)
    tables = training[moved].pivot(index=["paradigm", "seed"], columns="time", values=["mu", "nu"])
    mu, nu = ({name: tables[column].loc[name].to_numpy() for name in PARADIGMS} for column in ("mu", "nu"))
    return Paths(tables["mu"].columns.to_numpy(dtype=np.float64), mu, nu, *setting[:2])


def path_claims(paths: dict[str, Paths], claims: Sequence[str] = ("D1", "D2", "D3", "D4", "H1")) -> pd.DataFrame:
    """Each claim's verdict on each source of trajectories, and what was measured."""
    return claims_table({source: measure(claims, found) for source, found in paths.items()})


def incentive_claims(sweeps: dict[str, pd.DataFrame], claims: Sequence[str] = ("I1", "I2", "I3")) -> pd.DataFrame:
    """I1 to I3 on the last epoch of each sweep, and what was measured."""
    return claims_table({name: measure(claims, incentives(sweep)) for name, sweep in sweeps.items()})


def incentives(sweep: pd.DataFrame) -> Incentives:
    """What the claims look at: the incentives at a sweep's last epoch."""
    return Incentives(np.sort(sweep["alpha"].unique()).astype(np.float64), last_incentives(sweep))


def last_incentives(sweep: pd.DataFrame) -> dict[str, Float[np.ndarray, "R A"]]:
    """Paradigm -> incentive at the last epoch, one row per seed, one column per rising attention."""
    last = sweep[sweep["epoch"] == sweep["epoch"].max()]
    return {
        str(name): rows.pivot(index="seed", columns="alpha", values="incentive").to_numpy(dtype=np.float64)
        for name, rows in last.groupby("paradigm", sort=False)
    }


def incentive_table(sweep: pd.DataFrame) -> pd.DataFrame:
    """Incentive at the last epoch, mean over seeds: one row per paradigm, one column per attention."""
    last = sweep[sweep["epoch"] == sweep["epoch"].max()]
    table = last.groupby(["paradigm", "alpha"])["incentive"].mean().unstack()
    table = table.loc[[name for name in PARADIGMS if name in table.index]].rename(index=LABELS)
    return table.rename(columns=lambda alpha: f"alpha = {alpha:g}").rename_axis(columns="incentive").round(2)


def closed_form(sweep: pd.DataFrame, num_classes: int) -> pd.DataFrame:
    """Loss and incentive in closed form (F4, F5) at each time of a sweep: its columns without seed."""
    parts = []
    for name, rows in sweep[["paradigm", "alpha", "epoch", "time"]].drop_duplicates().groupby("paradigm", sort=False):
        place = str(name), rows["alpha"].to_numpy(), rows["time"].to_numpy(), num_classes
        parts.append(rows.assign(loss=fixed_focus.loss(*place), incentive=fixed_focus.incentive(*place)))
    return pd.concat(parts, ignore_index=True)


def closed_form_at_end(sweep: pd.DataFrame, num_classes: int) -> pd.DataFrame:
    """The closed form at the last epoch's time for many attention weights: paradigm, alpha, incentive."""
    parts = []
    for name, time in sweep.groupby("paradigm", sort=False)["time"].max().items():
        values = fixed_focus.incentive(str(name), FINE_ALPHAS, float(time), num_classes)
        parts.append(pd.DataFrame({"paradigm": name, "alpha": FINE_ALPHAS, "incentive": values}))
    return pd.concat(parts, ignore_index=True)


def agreement_table(sweep: pd.DataFrame, num_classes: int) -> pd.DataFrame:
    """How far training is from the closed form, per paradigm: mean over seeds with its interval.

    The distance is the root of the mean square difference over all epochs and attention weights, in percent of
    the range that the closed form covers.
    """
    theory = closed_form(sweep, num_classes)
    both = sweep.merge(theory, on=["paradigm", "alpha", "epoch"], suffixes=("", " in theory"))
    rows = {}
    for name, group in both.groupby("paradigm", sort=False):
        rows[LABELS[str(name)]] = {
            f"{measure}, % of its range": interval_text(_distances(group, measure), 2)
            for measure in ("loss", "incentive")
        } | {"n": group["seed"].nunique()}
    return pd.DataFrame.from_dict(rows, orient="index")


def phase_agreement(training: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """How far training lies from the phase curve, in units of the focus logit: mean over seeds with its interval."""
    m, classes, _ = setting
    rows = {}
    for name, group in training.groupby("paradigm", sort=False):
        off = group["nu"] - flow.phase_curve(str(name), group["mu"].to_numpy().clip(0.0), m, classes)
        roots = np.sqrt((off**2).groupby(group["seed"]).mean())
        rows[LABELS[str(name)]] = {
            "distance in nu": interval_text(roots.to_numpy(), 2),
            "largest nu": round(float(group["nu"].max()), 1),
            "n": len(roots),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def provenance(notebook: str, experiment: Frozen) -> dict[str, object]:
    """What `plots.save` writes beside a figure of the theory: the notebook, its parameters, and a sweep's origin."""
    results: dict[str, list[store.Stored[FixedFocusConfig]]] = {}
    if isinstance(experiment, FlowExperiment):  # nothing but its equations, and training that is not stored
        results = {f"gradient flow, {setting_title(setting)}": [] for setting in experiment.settings()}
    config = experiment.config() if isinstance(experiment, FixedFocusExperiment) else experiment
    if isinstance(config, FixedFocusConfig) and (found := store.find(config)):
        results = {sweep_title(Sweep(found)): [found]}
    return figure_record(notebook, results) | {"parameters": experiment.model_dump(mode="json")}


def _distances(group: pd.DataFrame, measure: str) -> Float[np.ndarray, " R"]:
    """Root mean square difference to theory of each seed, in percent of the range in theory."""
    theory = group[f"{measure} in theory"]
    squares = ((group[measure] - theory) ** 2).groupby(group["seed"]).mean()
    return 100 * np.sqrt(squares.to_numpy(dtype=np.float64)) / (float(theory.max() - theory.min()) or 1.0)


def sweep_title(found: Sweep) -> str:
    """One line on what a sweep was trained on."""
    epochs = f"{found.config.epochs} epochs"
    return f"{found.stored.summary['title']}, {found.config.data.described}, {epochs}"


def recorded_sweep_or(live: Sweep) -> tuple[str, Sweep]:
    """Title and sweep of the recorded one on other pictures with most seeds; where none is kept, `live` again."""
    kept = [Sweep(stored) for stored in store.every(FixedFocusConfig, recorded=True)]
    kept = [found for found in kept if found.config.data.source not in ("orthogonal", live.config.data.source)]
    if not kept:
        return "No sweep on natural pictures is kept here, so the one above is shown again.", live
    chosen = max(kept, key=lambda found: (len(found.config.seeds), found.config.epochs, found.config.name))
    return sweep_title(chosen), chosen


def sweep_provenance_table(found: Sweep) -> pd.DataFrame:
    """Where a sweep's numbers come from; for one that this machine computed, only that."""
    if not found.is_recorded:
        return pd.DataFrame({"kept": ["computed here"]}, index=pd.Index([found.config.name], name="sweep"))
    source = found.provenance
    seconds = next((round(source[key]) for key in ("train_seconds", "last_session_seconds") if key in source), "")
    row = {"commit": source["commit"] or "none", "date": source["date"], "device": source["device"]}
    row |= {"torch": source["packages"]["torch"], "seconds": seconds, "seeds": len(found.config.seeds)}
    return pd.DataFrame([row], index=pd.Index([found.config.name], name="sweep"))
