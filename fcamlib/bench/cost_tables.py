"""Tables of the page on the cost of attention: what was measured, and what is counted and compared on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from fcamlib import paths
from fcamlib.bench.cost import SHAPE, WAYS, counted, measured, output, problem, step
from fcamlib.config.cost import CostExperiment
from fcamlib.data.sdc import SDCData, distinct
from fcamlib.errors import DataError
from fcamlib.fcam import FCAM, PARADIGMS
from fcamlib.losses import hard_attention_loss, lvml_loss
from fcamlib.sampled_losses import (
    TopK,
    reinforce_loss,
    sample_segments,
    straight_through,
    topk_gap_bound,
    topk_lvml_loss,
)
from fcamlib.tables import LABELS

SMALL_CHUNKS = 2**17  # bytes, so that the small batches of this page are divided too
M, K, D = 8, 4, 5  # segments, classes and features of the problem that the sampled losses are judged on


def measurements(experiment: CostExperiment) -> dict[str, Any]:
    """The recorded benchmark, or one that is measured here and now."""
    if experiment.live:
        return measured(experiment)
    recorded = paths.recorded_dir()
    path = recorded / "bench" / "cost.json" if recorded else None
    if path is None or not path.is_file():
        raise DataError("no measurement is recorded here: set live=true to measure on this machine.")
    return json.loads(path.read_text("utf-8"))


def frame(content: dict[str, Any]) -> pd.DataFrame:
    """One row per paradigm, number of segments and way; milliseconds and megabytes as numbers."""
    rows = []
    for row in content["rows"]:
        milliseconds = {name: 1e3 * value for name, value in row["seconds"].items()}
        rows.append({name: value for name, value in row.items() if name != "seconds"} | milliseconds)
    return pd.DataFrame(rows)


def measured_table(content: dict[str, Any]) -> pd.DataFrame:
    """Milliseconds (least to greatest) and peak megabytes, a column per way."""
    shown = []
    for row in content["rows"]:
        low, median, high = (1e3 * row["seconds"][name] for name in ("low", "median", "high"))
        text = f"{median:,.1f} ({low:,.1f} to {high:,.1f}), {row['peak_mb']:,.1f}"
        shown.append((LABELS[row["paradigm"]], row["num_segments"], WAYS[row["way"]], text))
    named = pd.DataFrame(shown, columns=["paradigm", "m", "way", "ms, MB"])
    wide = named.pivot(index=["paradigm", "m"], columns="way", values="ms, MB")
    order = [(LABELS[paradigm], m) for paradigm in PARADIGMS for m in dict.fromkeys(named["m"])]
    return wide.reindex(index=[key for key in order if key in wide.index], columns=list(WAYS.values())).fillna("")


def growth_table(content: dict[str, Any]) -> pd.DataFrame:
    """What the largest m costs over m = 100, or the smallest above: time and memory of each way."""
    data = frame(content)
    rows = []
    for (paradigm, way), group in data.groupby(["paradigm", "way"], sort=False):
        group = group.sort_values("num_segments")
        large = group.iloc[-1]
        small = group[group["num_segments"] >= min(100, large["num_segments"])].iloc[0]
        rows.append(
            {
                "paradigm": LABELS[str(paradigm)],
                "way": WAYS[str(way)],
                "from m": int(small["num_segments"]),
                "to m": int(large["num_segments"]),
                "segments evaluated": f"{large['evaluated'] / small['evaluated']:.1f} times",
                "time": f"{large['median'] / small['median']:.1f} times",
                "memory": f"{large['peak_mb'] / small['peak_mb']:.1f} times",
            }
        )
    return pd.DataFrame(rows).set_index(["paradigm", "way"])


def counted_table(experiment: CostExperiment) -> pd.DataFrame:
    """Operations and peak memory of a step of 16 instances, exact; for the bank also the operations as derived.

    Columns: U distinct segments; millions of operations (MFLOP) derived, counted with the bank, in chunks and with
    every occurrence; megabytes at the peak of the same three.
    """
    rows = []
    for paradigm in PARADIGMS:
        for num_segments in experiment.counted_segments:
            model, data = problem(experiment, num_segments, batch_size=16)
            num_distinct = len(distinct(data.segments)[0])
            found = {way: counted(_step_of(way, model, data, paradigm)) for way in ("bank", "chunks", "every")}
            row: dict[str, Any] = {"paradigm": LABELS[paradigm], "m": num_segments, "U": num_distinct}
            derived = derived_operations(experiment, paradigm, num_distinct, len(data))
            row["MFLOP derived"] = f"{derived / 1e6:.3f}"
            row |= {f"MFLOP {way}": f"{flops / 1e6:.3f}" for way, (flops, _) in found.items()}
            rows.append(row | {f"MB {way}": f"{peak / 1e6:.2f}" for way, (_, peak) in found.items()})
    return pd.DataFrame(rows).set_index(["paradigm", "m"])


def derived_operations(experiment: CostExperiment, paradigm: str, num_distinct: int, batch_size: int) -> int:
    """Operations of a forward and backward pass with the bank, derived from the sizes of the layers.

    A layer does the forward product, one for its weights and one for its input. A network's first layer saves the last
    where its input needs no gradient: always, but for soft attention's classifier, whose sums depend on the attention.
    """
    model, _ = problem(experiment, 2)
    focus, classifier = forward_operations(model.focus_model), forward_operations(model.classification_model)
    total = num_distinct * (3 * sum(focus) - focus[0])
    if paradigm == "soft":
        return total + batch_size * 3 * sum(classifier)
    return total + num_distinct * (3 * sum(classifier) - classifier[0])


def forward_operations(network: nn.Module) -> list[int]:
    """Operations of each layer with weights on one segment: two for every multiplication with an addition."""
    operations, hidden = [], torch.zeros(1, *SHAPE)
    with torch.no_grad():
        for layer in network.children():
            hidden = layer(hidden)
            if isinstance(layer, nn.Conv2d | nn.Linear):
                operations.append(2 * hidden.numel() * layer.weight[0].numel())
    return operations


def _step_of(way: str, model: FCAM, data: SDCData, paradigm: str) -> Callable[[], None]:
    return lambda: step(way, model, data, paradigm, SMALL_CHUNKS)


def agreement_table(experiment: CostExperiment) -> pd.DataFrame:
    """Whether gradients in chunks are those of one piece: the largest difference relative to the largest entry."""
    rows = []
    for paradigm in (*PARADIGMS, "logit_mixture"):
        num_segments = max(experiment.counted_segments)
        model, data = problem(experiment, num_segments, batch_size=4, dtype=torch.float64)
        gradients = []
        for way in ("bank", "chunks"):
            loss = output(way, model, data, paradigm, SMALL_CHUNKS).loss(paradigm, data.label)
            flat = [part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))]
            gradients.append(torch.cat(flat))
        worst = (gradients[0] - gradients[1]).abs().max() / gradients[0].abs().max()
        rows.append({"loss": LABELS[paradigm], "numbers": len(gradients[0]), "below 1e-10": bool(worst < 1e-10)})
    return pd.DataFrame(rows).set_index("loss")


def bias_table(experiment: CostExperiment) -> pd.DataFrame:
    """Focus gradient of one instance by the sampled losses, in standard errors from that of hard attention.

    `largest z` is the greatest distance of a mean over `draws` estimates from the exact gradient, over its standard
    error, among the D numbers of a linear focus model; `variance` is the sum of the estimates' variances.
    """
    segments, focus, classifier = toy_problem(experiment.seed)
    exact_loss, exact = _focus_gradient(segments, focus, classifier, "hard")
    log_likelihood = (segments @ classifier).log_softmax(dim=1)[:, 1]
    draws = experiment.draws
    rows = []
    for name in ("REINFORCE, 1 sample", "REINFORCE, 4 samples", "straight-through, 1.0", "straight-through, 0.3"):
        generator = torch.Generator().manual_seed(experiment.seed + 1)
        logits = (segments @ focus).expand(draws, M).clone().requires_grad_()
        log_alpha = logits.log_softmax(dim=1)
        if name.startswith("REINFORCE"):
            drawn = sample_segments(log_alpha, int(name.split()[1]), generator)
            losses = reinforce_loss(log_alpha, drawn, log_likelihood[drawn], "none")
        else:
            weights = straight_through(log_alpha, float(name.split()[1]), generator)
            losses = -((weights @ segments) @ classifier).log_softmax(dim=1)[:, 1]
        (gradient,) = torch.autograd.grad(losses.sum(), logits)
        estimates = gradient @ segments  # (draws, D)
        distances = {"loss": _z(losses.detach()[:, None], exact_loss), "gradient": _z(estimates, exact)}
        row = {f"largest z of the {what}": f"{value:.1f}" for what, value in distances.items()}
        bias = (estimates.mean(dim=0) - exact).norm() / exact.norm()
        rows.append({"estimator": name, **row, "bias of the gradient": f"{100 * bias:.1f} %",
                     "variance": f"{estimates.var(dim=0).sum():.2f}"})  # fmt: skip
    return pd.DataFrame(rows).set_index("estimator")


def topk_table(experiment: CostExperiment) -> pd.DataFrame:
    """LVML of one instance from its k largest weights: gap to the exact loss, bound, the gradient's distance."""
    segments, focus, classifier = toy_problem(experiment.seed)
    exact_loss, exact = _focus_gradient(segments, focus, classifier, "lvml")
    rows = []
    for num_kept in (1, 2, 4, M):
        free = focus.clone().requires_grad_()
        kept = TopK.of((segments @ free).log_softmax(dim=0)[None], num_kept)
        chosen = (segments @ classifier).log_softmax(dim=1)[:, 1][kept.index]
        loss = topk_lvml_loss(kept, chosen)
        (gradient,) = torch.autograd.grad(loss, free)
        row = {"k": num_kept, "weight left out": f"{kept.log_rest.exp().item():.4f}"}
        row |= {
            "gap (nats)": f"{round(loss.item() - exact_loss, 4) + 0.0:.4f}",
            "bound": f"{round(topk_gap_bound(kept, chosen).item(), 4) + 0.0:.4f}",
        }
        rows.append(row | {"bias of the gradient": f"{100 * (gradient - exact).norm() / exact.norm():.1f} %"})
    return pd.DataFrame(rows).set_index("k")


def toy_problem(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Segments (M, D) of one instance, a linear focus model (D,) and a linear classifier (D, K), float64."""
    generator = torch.Generator().manual_seed(seed)
    segments = torch.randn(M, D, generator=generator, dtype=torch.float64)
    focus = torch.randn(D, generator=generator, dtype=torch.float64)
    return segments, focus, 1.5 * torch.randn(D, K, generator=generator, dtype=torch.float64)


def _focus_gradient(segments: Tensor, focus: Tensor, classifier: Tensor, paradigm: str) -> tuple[float, Tensor]:
    """The exact loss and its gradient with respect to the focus model."""
    free = focus.clone().requires_grad_()
    log_alpha = (segments @ free).log_softmax(dim=0)[None]
    log_likelihood = (segments @ classifier).log_softmax(dim=1)[None, :, 1]
    loss = (hard_attention_loss if paradigm == "hard" else lvml_loss)(log_alpha, log_likelihood)
    return loss.item(), torch.autograd.grad(loss, free)[0]


def _z(estimates: Tensor, truth: Tensor | float) -> float:
    """Largest distance of the mean of independent rows from the truth, in standard errors."""
    error = estimates.std(dim=0) / len(estimates) ** 0.5
    return float(((estimates.mean(dim=0) - truth) / error).abs().max())


def figure_provenance(content: dict[str, Any], experiment: CostExperiment) -> dict[str, object]:
    """What `plots.save` writes beside the figure."""
    source = content["provenance"]
    pictures = f"{content['experiment']['num_pictures']:,} random pictures"
    dated = {"commits": [source["commit"]], "dates": [source["date"]]}
    return {
        "notebook": "notebooks/11_cost_of_attention.ipynb",
        "data": [pictures],
        "computed": [{"data": pictures, "recorded": not experiment.live, **dated}],
        "parameters": experiment.model_dump(mode="json"),
        "measured": {name: source[name] for name in ("commit", "date", "device")} | {"how": content["how"]},
        "rerun": "fcam bench --measure cost --json results/recorded/bench/cost.json",
    }
