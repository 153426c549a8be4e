"""Provenance of numbers (versions, hardware, commit and date) and of figures (the results they show)."""

from __future__ import annotations

import datetime
import platform
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcamlib import __version__
from fcamlib.paths import commit

if TYPE_CHECKING:
    from fcamlib.config import Computing
    from fcamlib.store import Result

PACKAGES = ("torch", "torchvision", "numpy", "scikit-learn")
# Processor flags that PyTorch requires for each of its instruction sets, as named in /proc/cpuinfo.
INSTRUCTION_SETS = {"AVX2": {"avx2", "fma"}, "AVX512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"}}
BFLOAT16_COSTS = "takes about three times as long as float32 here: the processor lacks avx512_bf16 and amx_bf16"


def cpuinfo(field: str) -> str:
    """A field of the first processor in /proc/cpuinfo; empty if the system has no such file."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((" ".join(line.split(":", 1)[1].split()) for line in lines if line.startswith(field)), "")


def cpu_name() -> str:
    """The processor's name, as far as the system reports it."""
    return cpuinfo("model name") or platform.processor() or platform.machine()


def instruction_sets() -> list[str]:
    """Vector instruction sets of this processor that PyTorch can use, the widest last."""
    flags = set(cpuinfo("flags").split())
    return [name for name, needed in INSTRUCTION_SETS.items() if needed <= flags]


def device_name(config: Computing) -> str:
    """The processor or GPU that a run of this config would use here; torch is imported only if there is a GPU."""
    wants_gpu = config.device == "cuda" or (config.device == "auto" and config.precision != "float64")
    if wants_gpu and any(Path("/dev").glob("nvidia[0-9]*")):
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name()
    return cpu_name()


def slow_bfloat16(config: Computing) -> str:
    """A warning about the cost of bfloat16 on a processor without instructions for it; empty if it is fast."""
    flags = cpuinfo("flags").split()
    if config.precision != "bfloat16" or device_name(config) != cpu_name() or not flags:
        return ""
    return "" if {"avx512_bf16", "amx_bf16"} & set(flags) else f"precision=bfloat16 {BFLOAT16_COSTS}."


def provenance(numerics: Any) -> dict[str, Any]:
    """Versions, hardware, commit and date of a computation."""
    import torch

    return {
        "fcamlib": __version__,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(numerics.device) if numerics.device.type == "cuda" else cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def figure_record(
    notebook: str, results: Mapping[str, Sequence[Result[Any]]], parameters: Mapping[str, Any] | None = None
) -> dict[str, object]:
    """The provenance of a figure, saved as JSON beside it.

    `results` maps titles to the results that the figure shows; `parameters` are those that differ from the notebook's.
    """
    texts = {n: ",".join(map(str, v)) if isinstance(v, list | tuple) else str(v) for n, v in (parameters or {}).items()}
    given = "".join(f" -p {name} {shlex.quote(text)}" for name, text in texts.items())
    computed: list[dict[str, object]] = []
    for title, group in results.items():
        for recorded in (True, False):
            sources = [result.summary["provenance"] for result in group if result.is_recorded == recorded]
            if sources:
                places = {f"{name}s": sorted({source[name] for source in sources}) for name in ("commit", "date")}
                computed.append({"data": title, "recorded": recorded, **places})
    shown = [result for group in results.values() for result in group]
    return {
        "notebook": f"notebooks/{notebook}.ipynb",
        "runs": sorted({result.folder.name for result in shown}),
        "commits": sorted({result.summary["provenance"]["commit"] for result in shown}),
        "data": list(results),
        "computed": computed,
        "rerun": f"papermill notebooks/{notebook}.ipynb out.ipynb{given}",
    }


def how_made(record: Mapping[str, Any], name: str = "", dated: bool = False) -> str:
    """The folded note under a figure as HTML: its notebook, its results, and the command that draws it again.

    Commit and date of results computed here, which differ between executions, are included only if `dated`.
    """
    origins: dict[str, list[str]] = {}
    for entry in record.get("computed", ()):
        origin = "recorded" if entry["recorded"] else "computed"
        if entry["recorded"] or dated:
            days = sorted(entry["dates"])
            short = (c[:7] + "+" * c.endswith("+") if c else "none" for c in entry["commits"])  # +: with changes
            commits = ", ".join(f"<code>{commit}</code>" for commit in short)
            origin += f" {' to '.join(dict.fromkeys((days[0], days[-1])))}, commit {commits}"
        origins.setdefault(origin, []).append(escape(entry["data"]))
    made = [f"<code>{escape(record['notebook'])}</code>"] if record.get("notebook") else []
    made += [f"{'; '.join(data)}: {origin}" for origin, data in origins.items()]
    command = f"<pre>{escape(record['rerun'], quote=False)}</pre>" if record.get("rerun") else ""
    opened = f'<details class="figure-note" data-figure="{name}"><summary>how it was made</summary>'
    return f"{opened}<p>{'. '.join(made)}.</p>{command}</details>"
