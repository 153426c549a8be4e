"""The command line as a user meets it: help, runs, mistakes, interruptions, and the examples of book/running.md."""

import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from toys import RINGS

from fcamlib import cli, evaluation, store
from fcamlib.cli import main
from fcamlib.config import Grid, Run
from fcamlib.errors import DivergenceError

ROOT = Path(__file__).resolve().parent.parent
# Arguments of a run that takes a second.
SMALL = {"num_train": 64, "num_validation": 32, "num_test": 32, "num_segments": 3, "batch_size": 32, "epochs": 2}
SMALL_OPTIONS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(autouse=True)
def folder(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fcam(*arguments: str) -> Result:
    """The command line in this process; an error that it does not handle is raised."""
    result = CliRunner().invoke(main, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def fcam_process(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own; `code` runs in place of `python -m fcamlib`."""
    command = [sys.executable, *(["-c", code] if code else ["-m", "fcamlib"]), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)


def refused(result: Result, status: int = 2) -> str:
    """The one sentence of a refusal."""
    assert result.exit_code == status and result.stdout == "", result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("fcam: ") and line.endswith(".") and "Traceback" not in line
    return line.removeprefix("fcam: ")


def test_help_names_every_option_of_every_command() -> None:
    overview = fcam("--help").stdout
    assert "FCAM_DATA" in overview and "FCAM_RESULTS" in overview and "FCAM_FIGURES" in overview
    assert "..." not in overview.split("Commands:")[1], "a command's line is cut short"
    context = click.Context(main)
    commands = "run grid caption list check record crossval sweep rerun study"
    assert set(main.list_commands(context)) == set(commands.split())
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert re.search(rf"^  {name} +\S+", overview, re.MULTILINE)
        text = fcam(name, "--help").stdout
        assert fcam(name, "-h").stdout == text and command.help
        for parameter in command.params:
            assert not [option for option in parameter.opts if option.startswith("-") and option not in text]


def test_help_of_run_has_every_parameter_with_its_meaning_and_default() -> None:
    text = " ".join(fcam("run", "--help").stdout.split())
    assert "--seed N" in text and "--seeds" not in text and "--paradigm NAME" in text
    assert text.index("--num-segments") < text.index("--epochs"), "first the data"
    for kind, source in Grid.sources().items():
        names = Grid.known(f"{kind}:x" if source.path else kind).keys() - {"paradigms", "seeds"}
        assert all(f"--{name.replace('_', '-')} " in text for name in names)
    for part in (
        "--num-train N training mosaics [default: 2000 for digits]",
        "--foreground A,B,... classes that decide the label, comma-separated [default: 0,1,2 for digits]",
        "--num-segments N segments of a mosaic, one of them foreground [default: 5 for digits]",
        "--num-channels N channels of a series [default: 2]",
        "--paper-split true|false draw test mosaics from training pictures, as the public scripts do [default: false]",
    ):
        assert part in text
    assert "hybrid's second phase [default: 0.05 for digits" in text and "[default: float64 for digits]" in text
    assert "--seeds, --seed A,B,..." in fcam("grid", "--help").stdout
    assert max(map(len, fcam("run", "--help").stdout.splitlines())) <= 80


def test_a_run_is_printed_in_words_or_as_json_from_the_store_unless_fresh(tmp_path: Path) -> None:
    arguments = ["run", "--paradigm", "soft", *SMALL_OPTIONS]
    first = fcam(*arguments)
    (stored,) = store.every(Run)
    test = stored.summary["splits"]["test"]
    assert first.exit_code == 0 and first.stderr == "", first.output
    assert first.stdout == (
        f"{stored.folder.name}: test accuracy {test['accuracy']:.3f}, focus accuracy {test['focus_accuracy']:.3f}, "
        f"SAIF {test['saif']:.3f} (n = 32), in {tmp_path / 'results' / stored.folder.name}\n"
    )
    written = (stored.folder / "summary.json").stat().st_mtime_ns
    answer = json.loads(fcam(*arguments, "--json").stdout)
    assert answer.pop("name") == stored.folder.name and answer.pop("folder") == str(stored.folder)
    assert answer == stored.summary and (stored.folder / "summary.json").stat().st_mtime_ns == written
    assert fcam(*arguments, "--fresh").stdout == first.stdout
    assert (stored.folder / "summary.json").stat().st_mtime_ns != written


def test_a_config_file_in_place_of_options_computes_that_run(tmp_path: Path) -> None:
    config = Grid.of({**SMALL, "paradigms": "lvml", "seeds": 4}).configs()[0]
    (tmp_path / "one.json").write_text(config.model_dump_json())
    assert fcam("run", "--config", "one.json").stdout.startswith(f"{config.name}: test accuracy ")
    other = config.model_copy(update={"seed": 5})
    (tmp_path / "other.json").write_text(other.model_dump_json())
    both = fcam("run", "--config", "one.json", "--config", "other.json").stdout.splitlines()
    assert [line.split(":")[0] for line in both] == [config.name, other.name]
    assert {r.folder.name for r in store.every(Run)} == {config.name, other.name}
    unread = "the config 'two.json' cannot be read (No such file or directory): give the config.json of a result."
    assert refused(fcam("run", "--config", "two.json")) == unread
    excluded = refused(fcam("run", "--config", "one.json", "--seed", "1"))
    assert excluded == "--config and --seed exclude each other: give one."


MISTAKES = {
    ("run", "--num-segments", "many"): "num_segments='many' is not allowed: give a whole number (segments of a mosaic, "
    "one of them foreground).",
    ("grid", "none.yaml"): "the profile 'none.yaml' does not exist: give the path of a YAML file, "
    "or one of paper, paper_exact, quick.",
    ("--foo", "1"): "No such option '--foo'. See `fcam --help`.",
    ("grid", "--foo", "1"): "No such option '--foo'. Did you mean '--fold'? See `fcam grid --help`.",
    ("record",): "Missing argument 'NAMES...'. See `fcam record --help`.",
    ("grid", ""): "the profile '' does not exist: give the path of a YAML file, or one of paper, paper_exact, quick.",
    ("run", "--seed", "1,2"): "`fcam run` trains one model: give one paradigm and one seed, or use `fcam grid`.",
    ("caption", "--encoder", "features"): "encoder=features does not belong to dataset='scenes': choose smallcnn.",
    ("record", "nothing"): "'nothing' is not a stored result: `fcam list` shows all names.",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_sentence_with_status_2(arguments: tuple[str, ...]) -> None:
    assert refused(fcam(*arguments)) == MISTAKES[arguments]
    assert store.every(Run) == []


def test_profiles_are_read_and_faults_in_them_named(tmp_path: Path) -> None:
    parts = (
        "paradigms: [soft, lvml]\nseeds: [0, 1]\nnum_segments: 4",
        "{command: sweep}",
        "{command: study, name: rates}",
    )
    (tmp_path / "p.yaml").write_text("\n---\n".join(parts))
    listed = fcam("grid", "p.yaml", "--seeds", "2", "--list").stdout.splitlines()
    names = [line.split()[0].rsplit("-", 1)[0] for line in listed]
    assert names[:2] == ["digits-m4-n2000-soft-s2", "digits-m4-n2000-lvml-s2"]
    assert names[2:4] == ["fixed-focus-orthogonal-m20-c20-n5000", "study-digits-m5-n1000-15x1"]
    unread = "the profile 'p.yaml' cannot be read as YAML ("
    for content, fault in {
        "num_segmets: 4\n": "'num_segmets' is not a parameter: did you mean 'num_segments'? ",
        "- 4\n": "the profile 'p.yaml' is not a list of 'name: value' lines.",
        "command: swep": "command='swep' is unknown: choose one of grid, study, sweep, crossval.",
        "{command: study, name: x}": "name='x' is not a study: choose one of scale, capacities, ",
        "{command: study, name: [rates]}": "name='['rates']' is not a study: choose one of scale, ",
        "4: 5\n": "'4' is not a parameter: known are dataset, ",
        "seeds: 1\nseeds: 2\n": f"{unread}it names seeds twice: give it once).",
        "a: &a [1]\nb: *a\n": f"{unread}aliases (*name) are not read).",
        "seeds: " + "[" * 5_000: f"{unread}it is nested too deep).",
        "a: [\n": unread,
    }.items():
        (tmp_path / "p.yaml").write_text(content)
        assert refused(fcam("grid", "p.yaml")).startswith(fault)
    (tmp_path / "notebooks" / "profiles").mkdir(parents=True)
    (tmp_path / "notebooks" / "profiles" / "quick.yaml").write_text("paradigms: soft\n")
    assert fcam("grid", "quick", "--list").stdout.startswith("digits-m5-n2000-soft-s0-29031f07  to do")


def test_exhausted_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "lower num_train, num_test, num_segments or batch_size."
    for error, sentence in (
        (MemoryError(), f"memory ran out: {told}"),
        (MemoryError("Unable to allocate 9 TiB"), f"memory ran out (Unable to allocate 9 TiB): {told}"),
        (RuntimeError("CUDA out of memory. Tried"), f"memory ran out (CUDA out of memory. Tried): {told}"),
        (PermissionError(13, "Permission denied", "/x"), "'/x' cannot be used (Permission denied)."),
        (FileNotFoundError(2, "No temporary directory"), "the system refuses an operation (No temporary directory)."),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("fcamlib.data.mosaics.mosaic_task", Mock(side_effect=error))
            assert refused(fcam("run", *SMALL_OPTIONS)) == sentence
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="a fault of ours"):
        patch.setattr("fcamlib.data.mosaics.mosaic_task", Mock(side_effect=RuntimeError("a fault of ours")))
        fcam("run", *SMALL_OPTIONS)


def test_a_loss_that_is_infinite_after_training_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def infinite(*arguments: Any) -> Any:
        scores = evaluation.evaluate(*arguments)
        return {name: replace(each, loss=each.loss / 0.0) for name, each in scores.items()}

    monkeypatch.setattr("fcamlib.running.evaluate", infinite)
    with np.errstate(divide="ignore"):
        said = refused(fcam("run", "--paradigm", "soft", *SMALL_OPTIONS))
    assert said == "after training the soft loss is NaN or infinite on train data: choose a smaller learning rate."


def test_a_log_has_a_line_about_a_long_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcamlib.terminal.BETWEEN_LINES", 0.0)
    said = fcam("run", "--paradigm", "soft", *SMALL_OPTIONS).stderr.splitlines()
    name = store.every(Run)[0].folder.name
    assert [line.rpartition(" ")[0] for line in said] == [f"{name}: {n} soft 0.05 accuracy" for n in (1, 2)]


def test_ctrl_c_says_how_to_go_on_and_the_same_command_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FCAM_CHECKPOINT_SECONDS", "-1")
    arguments = ["run", "--paradigm", "soft", *SMALL_OPTIONS, "--epochs", "5"]
    epochs: list[int] = []

    @contextmanager
    def bar(_: Any) -> Iterator[Any]:
        def on_epoch(row: dict[str, Any]) -> None:
            epochs.append(row["epoch"])
            if len(epochs) == 3:
                signal.raise_signal(signal.SIGINT)

        yield on_epoch

    monkeypatch.setattr(cli, "bar", bar)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore the signal
    try:
        sentence = refused(fcam(*arguments), status=130)
    finally:
        signal.signal(signal.SIGINT, before)
    assert sentence == "interrupted; stored results are kept, and the same command resumes from the last checkpoint."
    (name,) = store.unfinished()
    listed = fcam("grid", "--list", "--paradigms", "soft", *SMALL_OPTIONS, "--epochs", "5").stdout
    assert listed.startswith(f"{name}  begun\n1 run(s) cannot be timed: no similar run is stored for this hardware (")
    assert fcam(*arguments).stdout.startswith(f"{name}: test accuracy ")
    assert epochs == [1, 2, 3, 3, 4, 5], "trained again what the checkpoint had"
    assert store.unfinished() == []


def test_an_interruption_during_imports_is_one_sentence() -> None:
    code = "import sys, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "class Finder:\n    def find_spec(self, name, *rest):\n"
    code += "        if name == 'fcamlib.config': signal.raise_signal(2)\n"
    code += "sys.meta_path.insert(0, Finder())\nfrom fcamlib.__main__ import main\nmain()"
    done = fcam_process("run", code=code)
    assert (done.returncode, done.stderr) == (130, "fcam: interrupted before anything was computed.\n")


def test_too_small_a_limit_of_addresses_is_one_sentence() -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (3_000_000 * 1024,) * 2)\n"
    done = fcam_process("run", *SMALL_OPTIONS, code=f"{limit}from fcamlib.__main__ import main\nmain()")
    said = "fcam: virtual memory is limited to 2.9 GiB (ulimit -v), but PyTorch needs 4: raise the limit, or "
    assert (done.returncode, done.stderr) == (2, f"{said}remove it.\n")
    in_notebook = fcam_process(code=f"{limit}from fcamlib import notebook").stderr.splitlines()[-1]
    assert in_notebook == f"fcamlib.errors.UserError: {said.removeprefix('fcam: ')}remove it."


def test_output_replaces_what_the_terminal_cannot_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    done = fcam_process("run", "--dataset", "漢")
    assert done.returncode == 2 and done.stderr.startswith("fcam: dataset='\\u6f22' is unknown: choose digits")


def test_a_grid_trains_what_is_missing_and_goes_on_where_a_run_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["grid", "--paradigms", "soft,hard,lvml", *SMALL_OPTIONS]
    names = [config.name for config in Grid.of({**SMALL, "paradigms": "soft,hard,lvml"}).configs()]
    listed = fcam(*arguments, "--list").stdout
    assert listed.startswith("".join(f"{name}  to do\n" for name in names) + "3 run(s) cannot be timed: no similar ")

    get = store.get

    def diverging(config: Any, *rest: Any, **named: Any) -> store.Result:
        if config.paradigm == "hard":
            raise DivergenceError("the hard loss became NaN.")
        return get(config, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", diverging)
        result = fcam(*arguments)
        assert refused(fcam("run", "--paradigm", "hard", *SMALL_OPTIONS)) == "the hard loss became NaN."
    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [names[0], names[2]]
    assert result.stderr.splitlines() == [
        f"fcam: {names[1]}: the hard loss became NaN.",
        "fcam: 1 of 3 runs diverged; the others are stored.",
    ]
    store.record(store.every(Run)[0])
    for flags, expected in (
        ((), ["stored", "to do", "recorded"]),
        (("--live",), ["stored", "to do", "stored"]),
        (("--fresh",), ["to do"] * 3),
    ):
        states = dict(line.split("  ")[:2] for line in fcam(*arguments, "--list", *flags).stdout.splitlines()[:3])
        assert [states[name] for name in names] == expected
    answers = [json.loads(line) for line in fcam(*arguments, "--json").stdout.splitlines()]
    assert [answer["name"] for answer in answers] == names


def test_a_plugin_adds_its_options_and_a_fault_of_it_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FCAM_PLUGINS", "rings")
    (tmp_path / "rings.py").write_text(RINGS)
    assert re.search(r"--radius X +radius of a ring", fcam_process("run", "--help").stdout)
    (tmp_path / "rings.py").write_text("x = (")
    done = fcam_process("run")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("fcam: FCAM_PLUGINS names 'rings', which cannot be imported (SyntaxError: ")


def test_runs_are_listed_once_with_their_measures_and_damaged_ones_named(tmp_path: Path) -> None:
    assert fcam("list").stdout == "No results are stored yet: `fcam run` trains a model.\n"
    assert json.loads(fcam("list", "--json").stdout) == []
    for paradigm in ("soft", "hard"):
        fcam("run", "--paradigm", paradigm, *SMALL_OPTIONS)
    hard, soft = store.every(Run)
    assert fcam("record", hard.folder.name).stdout == f"{tmp_path / 'recorded' / hard.folder.name}\n"
    group, header, *rows = fcam("list").stdout.splitlines()
    assert group == "runs"
    assert {"run", "kept", "accuracy", "saif"} <= set(header.split())
    shown = [(name, kept, float(accuracy)) for name, kept, accuracy, *_ in (row.split() for row in rows)]
    assert shown == [
        (run.folder.name, kept, pytest.approx(run.summary["splits"]["test"]["accuracy"], abs=6e-4))
        for run, kept in ((hard, "recorded"), (soft, "stored"))
    ]
    listed = json.loads(fcam("list", "--json").stdout)
    assert [(entry["name"], entry["splits"]) for entry in listed] == [
        (run.folder.name, run.summary["splits"]) for run in (store.find(hard.config), soft) if run
    ]
    assert fcam("list", "*-hard-*", "none").stdout.splitlines() == [group, header, rows[0]]
    assert fcam("list", "*-lvml-*").stdout == "No result matches.\n"
    assert refused(fcam("run", "--list", "--json")).startswith("--json prints results, of which --list and --estimate ")
    (soft.folder / "scores.npz").write_bytes(b"")
    assert [entry["name"] for entry in json.loads(fcam("list", "--json").stdout)] == [hard.folder.name]
    sentence = refused(fcam("record", hard.folder.name, soft.folder.name))
    assert sentence.startswith(f"'{soft.folder.name}' is not a stored result: ")


EXAMPLE = re.compile(r"```python\n(.+?)```\n\n```bash\nfcam (.+?)```\n\n```text\n(.+?)\n```", re.S)
EXAMPLES = EXAMPLE.findall((ROOT / "book" / "running.md").read_text("utf-8"))  # of "Your own data"


@pytest.mark.parametrize(("data", "command", "printed"), EXAMPLES, ids=["pictures", "text", "series", "bags"])
def test_an_example_prints_what_the_page_says(data: str, command: str, printed: str) -> None:
    Path("make.py").write_text(data)
    runpy.run_path("make.py")
    done = fcam(*shlex.split(command.replace("\\\n", "")))
    assert done.exit_code == 0, done.output
    said = done.stdout.splitlines()[-1].rpartition(", in ")[0]
    words = [re.sub(r"\d\.\d+", "", line.partition(": ")[2]) for line in (said, printed)]
    assert words[0] == words[1]
    numbers = [[float(number) for number in re.findall(r"\d\.\d+", line)] for line in (said, printed)]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.02), "another result than the page shows"
