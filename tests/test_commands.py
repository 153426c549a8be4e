"""`fcam check`, `fcam rerun`, and what the command does without torch and with a terminal."""

import json
import os
import pty
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from click.testing import CliRunner
from click.testing import Result as Answer

from fcamlib import __version__, checks, estimate, notebook, numerics, paths, provenance, store, tables
from fcamlib.cli import main
from fcamlib.config import SOURCES, Grid, Run, SweepGrid
from fcamlib.data import coco, posts
from fcamlib.errors import UserError
from fcamlib.terminal import as_line_of_json

SMALL = {"num_train": 64, "num_validation": 32, "num_test": 32, "num_segments": 3, "epochs": 2, "batch_size": 32}

pytestmark = pytest.mark.usefixtures("results")


def told() -> dict[str, str]:
    """The report's lines: what -> state. The states stand in one column."""
    result = CliRunner().invoke(main, ["check"])
    assert result.exit_code == 0 and result.stderr == "", result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("  ")]
    column = re.match(r"  fcamlib +", lines[0])
    assert column is not None
    assert all(line[column.end() - 2 : column.end()] == "  " and line[column.end()] != " " for line in lines)
    return {line[: column.end()].strip(): line[column.end() :] for line in lines}


def test_versions_devices_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("FCAM_FIGURES", "/dev/null/figures")
    lines = told()
    known = f" (commit {paths.commit()})" if paths.commit() else ""
    assert lines["fcamlib"] == __version__ + known and lines["python"] == sys.version.split()[0]
    assert re.match(r"\d+\.\d+", lines["torch"]) and f", {os.cpu_count()} threads, " in lines["CPU"]
    assert lines["data (FCAM_DATA)"] == f"writable: {tmp_path / 'data'}"
    assert lines["recorded runs"] == f"will be created when needed: {tmp_path / 'recorded'}"
    assert lines["figures (FCAM_FIGURES)"] == "NOT WRITABLE (Not a directory): /dev/null/figures"

    def refuse() -> list[str]:
        raise PermissionError(13, "Permission denied", "x")

    with monkeypatch.context() as denied:
        denied.setattr(store, "unfinished", refuse)
        lines = told()
    assert lines["stored"] == f"NOT READABLE (Permission denied): {paths.results_dir()}"
    assert lines["recorded"] == "0 verified" and "unfinished" not in lines
    monkeypatch.setattr(checks, "PACKAGES", ("no-such-package",))
    monkeypatch.setenv("FCAM_RESULTS", "/dev/null/x")
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)
    lines = told()
    assert lines["no-such-package"] == "not installed" and "recorded runs" not in lines
    assert lines["results (FCAM_RESULTS)"] == "NOT WRITABLE (Not a directory): /dev/null/x"


@pytest.mark.parametrize(("flags", "slow"), [("avx2 avx512f", True), ("avx512f avx512_bf16", False), ("", False)])
def test_what_bfloat16_costs_is_said_by_check_estimate_and_training(
    flags: str, slow: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(provenance, "cpuinfo", lambda field: flags if field == "flags" else "Some CPU")
    numerics._warn_once.cache_clear()
    (config,) = Grid.of({**TINY, "precision": "bfloat16", "device": "cpu"}).configs()
    numerics.Numerics.of(config.training)
    numerics.Numerics.of(config.training)
    said = [told()["bfloat16"], *list(estimate.listing([config], timed=False))[2:], *caplog.messages]
    sentence = f"precision=bfloat16 {provenance.BFLOAT16_COSTS}."
    assert said == ([sentence] * 3 if slow else ["as fast as float32"])
    numerics._warn_once.cache_clear()


def test_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    (data / "my pictures" / "train").mkdir(parents=True)
    for name in ("notes", "coco", "cifar-10-batches-bin"):
        (data / name).mkdir()
    lines = told()
    assert lines["digits"].startswith("8 x 8 digits") and lines["cifar100"] == "absent; downloaded when first used"
    assert lines["cifar10"] == "damaged: cifar-10-batches-bin/data_batch_1.bin"
    assert lines["folder:my pictures"] == "present"
    assert "folder:notes" not in lines and lines["bags:PATH"] == "none in the data folder"
    assert all(lines[kind].startswith("generated") for kind in ("keywords", "motifs", "clouds", "scenes"))
    assert {kind for kind in SOURCES if not any(line.split(":")[0] == kind for line in lines)} == set()
    assert lines["hatexplain"] == "absent; downloaded when first used"
    for path in (
        data / "bags" / "mine.npz",
        data / "hatexplain" / posts.POSTS,
        data / "hatexplain" / posts.DIVISIONS,
    ):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    lines = told()
    assert lines["bags:mine.npz"] == "present" and lines["hatexplain"] == f"not the official file: {posts.POSTS}"
    assert lines["coco"] == "NOT USABLE: there is no annotations/captions_train2014.json"
    monkeypatch.setattr(coco, "survey", Mock(side_effect=PermissionError(13, "Permission denied", str(data))))
    assert told()["coco"] == f"NOT USABLE: '{data}' cannot be read (Permission denied)"


def test_runs(tmp_path: Path) -> None:
    lines = told()
    assert (lines["recorded"], lines["stored"], lines["unfinished"]) == ("0 verified", "0 verified", "0")
    soft, hard = (store.get(config) for config in Grid.of({**SMALL, "paradigms": "soft,hard"}).configs())
    store.record(hard)
    (soft.folder / "history.csv").write_bytes(b"")
    checkpoint = tmp_path / "results" / ".partial" / "some-run" / store.CHECKPOINT
    checkpoint.parent.mkdir()
    checkpoint.touch()
    lines = told()
    assert (lines["recorded"], lines["stored"], lines["unfinished"]) == ("1 verified", "1 verified", "1: some-run")
    assert lines["DAMAGED"] == f"{soft.folder}: history.csv does not match its checksum"


TINY = {"num_train": 40, "num_validation": 20, "num_test": 20, "epochs": 2, "paradigms": "soft"}
TINY_SWEEP = {"num_classes": 3, "num_segments": 3, "num_train": 20, "epochs": 2, "alphas": "0.2,1", "batch_size": 10}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The empty folder of recorded results."""
    (tmp_path / "recorded").mkdir()
    return tmp_path / "recorded"


def answer(*names: str) -> Answer:
    return CliRunner().invoke(main, ["rerun", *names])


def tiny_run(**changes: Any) -> store.Result[Any]:
    return store.get(Grid.of({**TINY, **changes}).configs()[0])


def keep(result: store.Result[Any], loss: float = 0.0, **summary: Any) -> None:
    """Record a result, its first training loss or its summary changed, and take it from the results folder."""
    history = result.history
    if loss:
        history["train_loss"] = history["train_loss"] + [loss, *[0.0] * (len(history) - 1)]
    shown = result.folder / "examples.npz"
    files = {"examples.npz": shown.read_bytes()} if shown.exists() else {}
    store.record(store.write(result.config, history, {**result.summary, **summary}, files))
    os.rename(result.folder, result.folder.with_name(f".{result.folder.name}"))


def test_a_rerun_gives_the_recorded_numbers_and_is_stored(recorded: Path) -> None:
    kept, swept = tiny_run(), store.get(SweepGrid.of(TINY_SWEEP).config())
    last = swept.history[swept.history["epoch"] == 2]
    assert [row["loss"] for row in json.loads(as_line_of_json(swept))["last"]] == last["loss"].tolist(), "rounded"
    keep(kept)
    keep(swept)
    found = answer("digits-*", swept.folder.name)
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    assert [line.split(":")[0] for line in lines] == [kept.folder.name, swept.folder.name]
    assert all("largest difference 0; in" in line for line in lines)
    assert (paths.results_dir() / kept.folder.name / store.SUMS).is_file()


def test_a_changed_number_or_text_is_found_and_is_status_1(recorded: Path) -> None:
    splits = tiny_run(seeds=1).summary["splits"]
    splits["test"]["accuracy"] += 0.25
    keep(tiny_run(), loss=0.125)
    keep(tiny_run(seeds=1), splits=splits)
    keep(tiny_run(seeds=2), class_names=["another name"], title="a title, which is not compared")
    keep(tiny_run(seeds=3), class_names=[])
    found = answer("digits-*")
    assert found.exit_code == 1 and found.output.count("NOT REPRODUCED") == 3
    for said in ("0.125 (train_loss)", "0.25 (summary/splits/test/accuracy)", "inf (summary/class_names/0)"):
        assert f"largest difference {said}; NOT REPRODUCED" in found.output
    blank = np.array([1.0, np.nan])
    for factor, apart in ((1 + 2e-9, 0), (1 + 2e-8, 2e-3)):  # records have nine digits
        assert checks._apart(np.array([1e5]), np.array([1e5 * factor])) == pytest.approx(apart)
    for other, apart in ((blank, 0), (np.array([1.0, 2.0]), np.inf), (blank[:1], np.inf), (None, np.inf)):
        assert checks._apart(blank, other) == apart


def test_a_record_of_another_instruction_set_is_computed_with_it_where_the_processor_has_it(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = tiny_run()
    record, own = store.record(result), result.summary["provenance"]["cpu_capability"]
    wider = [own, "WIDER"]
    for sets, by_hand, expected in ((wider, "WIDER", own), (wider, own.lower(), ""), ([], "", ""), ([own], own, "")):
        monkeypatch.setattr(checks, "instruction_sets", lambda sets=sets: sets)
        monkeypatch.setenv(checks.CAPABILITY, by_hand)
        assert checks.capability(record) == expected
    other = {**result.summary, "provenance": {"cpu_capability": "WIDER"}}
    store.write(result.config, result.history.assign(train_loss=0.0), other, {})  # stored, but of another set
    assert "largest difference 0; in" in answer("digits-*").output
    store.write(result.config, result.history.assign(train_loss=0.0), result.summary, {})  # stored, but wrong
    assert "largest difference 0; in" in answer("digits-*").output


def test_without_the_records_instruction_set_it_says_so_and_judges_by_the_spread_over_seeds(recorded: Path) -> None:
    for seed, (shift, reproduced) in enumerate([(1e-4, True), (0.5, False)]):
        result = tiny_run(seeds=seed, epochs=2 + seed)
        splits = result.summary["splits"]
        splits["test"]["loss"] += shift
        keep(result, splits=splits, provenance={**result.summary["provenance"], "cpu_capability": "VSX"})
        found = answer(result.config.name)
        assert "the record with VSX, which this machine lacks" in found.output
        assert (found.exit_code == 0) == reproduced == ("NOT REPRODUCED" not in found.output)


def test_what_cannot_be_rerun_ends_with_one_sentence(recorded: Path) -> None:
    assert "no results are recorded here" in answer("digits-*").output
    keep(tiny_run())
    (folder,) = recorded.glob("digits-*")
    (folder / "history.csv").write_text("loss\n1\n")
    for name, sentence in (
        ("x" * 300, f"no recorded result matches '{'x' * 197}...': `fcam list` shows"),
        ("nothing-*", "no recorded result matches 'nothing-*': `fcam list` shows the names of all 1."),
        ("digits-*", "is damaged (history.csv does not match its checksum): restore it with git."),
    ):
        found = answer(name)
        assert found.exit_code == 2 and sentence in found.output and "Traceback" not in found.output


def test_of_a_recorded_seed_but_0_no_example_is_kept_and_the_gallery_says_so(recorded: Path) -> None:
    first, second = store.record(tiny_run()), store.record(tiny_run(seeds=1))
    assert notebook.gallery([first, second])["alpha"]["soft"].shape == (3, 5) and second.arrays() == {}
    with pytest.raises(UserError, match=r"^no example of '.*' is kept: recorded runs keep at most those of seed 0"):
        notebook.gallery([second])


def test_recorded_runs_of_the_same_task_or_of_the_largest(recorded: Path) -> None:
    mine, other = tiny_run(), store.record(tiny_run(num_train=60))
    assert tables.recorded([mine], same=True)[1] == [mine] and tables.recorded([mine])[1] == [other]
    store.record(mine)
    (found,) = tables.recorded([mine], same=True)[1]
    assert found.is_recorded and found.config == mine.config


OPTIONS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]
# The help, a stored run, and what notebooks import to show stored results.
READERS = """
import sys
import fcamlib.notebook, fcamlib.theory.tables
import fcamlib.store, fcamlib.provenance, fcamlib.checks
from fcamlib import claims, notebook, plots, store, tables
from fcamlib.cli import main
main(["--help"], standalone_mode=False)
main({}, standalone_mode=False)
assert "torch" not in sys.modules
"""


def test_help_and_stored_results_are_shown_without_torch() -> None:
    stored, options = tiny_run(**SMALL), ["run", "--json", "--paradigm", "soft", *OPTIONS]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    command = [sys.executable, "-c", READERS.format(options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["splits"] == stored.summary["splits"]


def drawn_on(terminal: int) -> str:
    """What is drawn on a terminal until its other end is closed, without control sequences."""
    content = b""
    while True:
        try:
            content += os.read(terminal, 4096)
        except OSError:  # it is closed
            return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", content.decode())


def test_a_bar_is_drawn_on_a_terminal_and_the_result_goes_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    ours, theirs = pty.openpty()
    with ThreadPoolExecutor() as pool:
        drawn = pool.submit(drawn_on, ours)
        with open(theirs, "w") as terminal, redirect_stderr(terminal):
            main(["run", "--paradigm", "soft", *OPTIONS], standalone_mode=False)
        shown = drawn.result()
    os.close(ours)
    (stored,) = store.every(Run)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{stored.folder.name}: test accuracy ") and printed.count("\n") == 1
    assert stored.folder.name in shown
    accuracy = stored.history["validation_accuracy"].iloc[-1]
    assert re.search(rf"training +\[#+\] +2/2 +soft 0.05 accuracy {accuracy:.3f}", shown)
