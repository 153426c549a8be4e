"""The pipeline by Snakemake on this machine and on a Slurm cluster of one node: killed jobs go on, numbers agree.

The cluster's daemons run in a folder of their own; nothing outside it is changed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
import yaml

from fcamlib import checkpoint, paths, store
from fcamlib.cli import grids
from fcamlib.config import Grid, Run

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
SECONDS = 600  # a call of Snakemake takes at most this long
MARK = 4321.0  # seconds of an epoch that no run takes
SMALL = {"num_segments": 3, "num_train": 96, "num_validation": 48, "num_test": 48, "batch_size": 24}
SHORT = {**SMALL, "epochs": 2}
LONG = {**SMALL, "paradigms": "soft", "epochs": 150, "momentum": 0.8}  # begins like none of the short ones


class Pipeline:
    """The checkout's Snakefile in a folder of its own, with a store of its own."""

    def __init__(self, folder: Path, documents: list[dict[str, object]], variables: dict[str, str]) -> None:
        self.folder, self.results, self.profile = folder, folder / "results", folder / "grids.yaml"
        for name in ("Snakefile", "CHANGELOG.md", "book", "notebooks", "profiles"):
            (folder / name).symlink_to(ROOT / name)
        self.profile.write_text(yaml.safe_dump_all(documents))
        # Snakemake's executor does not quote the path of Python, which holds a space where the checkout's does.
        (folder / "environment").symlink_to(sys.prefix)
        self.environment = {
            **os.environ,
            **variables,
            "FCAM_RESULTS": str(self.results),
            "FCAM_CHECKPOINT_SECONDS": "0",
            "PYTHONPATH": str(ROOT),
        }

    @contextmanager
    def started(self, profile: str, *options: str) -> Iterator[subprocess.Popen[str]]:
        """Begin to train the runs, three a job; whatever Snakemake still runs in the end is stopped."""
        grid = ("--config", f"profile={self.profile.name}", "runs_per_job=3")
        python = self.folder / "environment" / "bin" / "python"
        with subprocess.Popen(
            [
                python,
                "-m",
                "snakemake",
                "--profile",
                f"profiles/{profile}",
                *options,
                *grid,
                "--",
                "runs",
            ],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()  # nothing where it has ended
                for pid in processes(self.folder, "snakemake"):  # of jobs that were killed
                    os.kill(pid, signal.SIGKILL)

    def configs(self) -> list[Run]:
        """The runs of all grids, in order."""
        return [config for grid in grids(self.profile) for config in Grid.of(grid).configs()]

    def checkpoint(self, config: Run) -> Path:
        """Where the pipeline keeps the state of an unfinished run."""
        return self.results / ".partial" / config.name / store.CHECKPOINT

    def marked(self, config: Run) -> int:
        """Mark the epochs in a run's checkpoint, so that they can be told from epochs trained anew; how many."""
        path = self.checkpoint(config)
        state = checkpoint.load(path)
        (candidate,) = state["candidates"]
        candidate["history"] = [{**row, "seconds": MARK} for row in candidate["history"]]
        checkpoint.save(path, state)
        return len(candidate["history"])


def wait_for(done: Callable[[], bool], what: str, process: subprocess.Popen[str]) -> None:
    """Look until something has happened, as long as Snakemake runs."""
    end = time.monotonic() + SECONDS
    while not done():
        assert process.poll() is None, f"Snakemake ended before {what}:\n{process.communicate()[0]}"
        assert time.monotonic() < end, f"no sign of {what}"
        time.sleep(0.05)


def ended(process: subprocess.Popen[str]) -> None:
    """Wait for Snakemake's success."""
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output


def assert_equals_local(results: Path, config: Run) -> None:
    """Equal to the last bit to the run computed in this process, in all but what the clock says."""
    own, local = store.Result[Run](results / config.name), store.get(config)
    assert own.damage == ""
    for file in ("config.json", "scores.npz", "examples.npz", "model.safetensors"):
        assert (own.folder / file).read_bytes() == (local.folder / file).read_bytes(), file
    first, second = (found.history.drop(columns="seconds") for found in (own, local))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    assert own.summary["splits"] == local.summary["splits"]


def assert_went_on(pipeline: Pipeline, config: Run, num_marked: int) -> None:
    """The marked epochs came from the checkpoint, the others were trained after it."""
    history = store.Result(pipeline.results / config.name).history
    assert list(history["seconds"] == MARK) == [number < num_marked for number in range(len(history))]


@pytest.fixture
def local_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store for the runs that are computed in this process."""
    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "local"))
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)


def processes(folder: Path, words: str) -> list[int]:
    """Processes whose working folder is `folder` and whose command holds `words`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if words in command and (process / "cwd").resolve() == folder.resolve():
                found.append(int(process.name))
        except OSError:  # it has ended
            pass
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds the process to kill in /proc")
def test_on_this_machine_a_killed_job_is_tried_again_and_keeps_what_it_has_done(
    tmp_path: Path, local_store: None
) -> None:
    (tmp_path / "work").mkdir()
    pipeline = Pipeline(tmp_path / "work", [{**SHORT, "paradigms": "lvml"}, LONG], {})
    short, long = pipeline.configs()
    with pipeline.started("local") as process:
        wait_for(pipeline.checkpoint(long).exists, "a checkpoint", process)
        for pid in processes(tmp_path / "work", "fcamlib run"):
            os.kill(pid, signal.SIGKILL)
        num_marked = pipeline.marked(long)
        finished = (pipeline.results / short.name / "summary.json").stat().st_mtime_ns
        ended(process)
    assert (pipeline.results / short.name / "summary.json").stat().st_mtime_ns == finished, "trained twice"
    assert_went_on(pipeline, long, num_marked)
    for config in (short, long):
        assert_equals_local(pipeline.results, config)


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nothing listens on."""
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def slurm_conf(folder: Path) -> str:
    """Settings of a cluster of one node that claims four processors, memory, and three GPUs that are none."""
    name, (controller, node) = socket.gethostname(), free_ports(2)
    return f"""ClusterName=fcam
SlurmctldHost={name}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MinJobAge=600
SchedulerParameters=batch_sched_delay=0
SlurmdParameters=config_overrides
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={name} NodeAddr=127.0.0.1 CPUs=4 RealMemory=64000 Gres=gpu:3
PartitionName=all Nodes={name} Default=YES MaxTime=INFINITE
"""


@pytest.fixture
def cluster() -> Iterator[dict[str, str]]:
    """A Slurm cluster in a folder of its own; the variables with which its programs find it."""
    if missing := [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}; on Debian, they come with slurm-wlm and munge")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    for name in ("spool", "state", "bin"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    (folder / "slurm.conf").write_text(slurm_conf(folder))
    (folder / "gres.conf").write_text("".join(f"Name=gpu File=/dev/{name}\n" for name in ("null", "zero", "full")))
    variables = {"PATH": f"{folder / 'bin'}:{_path()}", "SLURM_CONF": str(folder / "slurm.conf")}
    # Within a job the executor plugin takes away what tells srun of another cluster than /etc/slurm's.
    srun = f'SLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"'
    (folder / "bin" / "srun").write_text(f"#!/bin/sh\n{srun}\n")
    (folder / "bin" / "srun").chmod(0o755)
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
    commands = (
        ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files],
        ["slurmctld", "-D", "-f", f"{folder}/slurm.conf"],
        ["slurmd", "-D", "-f", f"{folder}/slurm.conf"],
    )
    daemons = []
    try:
        for command in commands:
            with (folder / f"{command[0]}.out").open("w") as output:
                environment = {**os.environ, **variables}
                daemons.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))
            _wait_until_up(command[0], folder, variables)
        yield variables
        subprocess.run(["scancel", "--full", "--user", "root"], env={**os.environ, **variables}, timeout=60)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _wait_until_up(daemon: str, folder: Path, variables: dict[str, str]) -> None:
    """Look until a daemon answers."""
    answers = {
        "munged": (["test", "-S", f"{folder}/munge.socket"], ""),
        "slurmctld": (["sinfo", "--noheader", "--format=%D"], "1"),
        "slurmd": (["sinfo", "--noheader", "--format=%t"], "idle"),
    }
    command, expected = answers[daemon]
    for _ in range(600):
        found = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
        if found.returncode == 0 and found.stdout.strip() == expected:
            return
        time.sleep(0.1)
    logs = "\n".join(path.read_text() for path in folder.glob(f"{daemon}.*") if path.suffix in (".out", ".log"))
    pytest.fail(f"{daemon} does not answer ({found.stdout}{found.stderr}):\n{logs}")


def test_on_a_slurm_cluster_a_killed_job_is_submitted_again_and_all_numbers_are_the_local_ones(
    cluster: dict[str, str], tmp_path: Path, local_store: None
) -> None:
    (tmp_path / "work").mkdir()
    documents = [{**SHORT, "paradigms": "soft", "seeds": [0, 1]}, LONG]
    documents.append({**SHORT, "paradigms": ["hard", "lvml", "hybrid"], "seeds": [0, 1]})
    pipeline = Pipeline(tmp_path / "work", documents, cluster)
    configs = pipeline.configs()
    assert len(configs) == 9
    environment = pipeline.environment

    def jobs(*fields: str) -> list[tuple[str | None, ...]]:
        command = ["scontrol", "--oneliner", "show", "job"]
        lines = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
        described = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in lines]
        return [tuple(job.get(field) for field in fields) for job in described]

    quick = ("--slurm-status-command=squeue", "--slurm-init-seconds-before-status-checks=2", "--slurm-no-account")
    long = configs[2]
    waits = ("--seconds-between-status-checks=2", "--latency-wait=10")
    with pipeline.started("slurm", *quick, *waits) as process:
        wait_for(pipeline.checkpoint(long).exists, "a checkpoint", process)
        (job,) = [number for number, comment in jobs("JobId", "Comment") if comment == "rule_runs_0"]
        assert job is not None
        subprocess.run(["scancel", "--signal=KILL", job], env=environment, check=True)
        wait_for(lambda: ("CANCELLED",) in jobs("JobState"), "the kill", process)
        num_marked = pipeline.marked(long)
        finished = [pipeline.results / config.name / "summary.json" for config in configs[:2]]
        times = [path.stat().st_mtime_ns for path in finished]
        ended(process)

    assert sorted(jobs("Comment", "JobState", "TresPerJob")) == [
        ("rule_runs_0", "CANCELLED", "gres:gpu:1"),
        ("rule_runs_0", "COMPLETED", "gres:gpu:1"),
        ("rule_runs_1", "COMPLETED", "gres:gpu:1"),
        ("rule_runs_2", "COMPLETED", "gres:gpu:1"),
    ]
    assert [path.stat().st_mtime_ns for path in finished] == times, "trained twice"
    assert_went_on(pipeline, long, num_marked)
    for config in configs:
        assert_equals_local(pipeline.results, config)
    assert sorted(path.name for path in pipeline.results.glob("[!.]*")) == sorted(config.name for config in configs)
