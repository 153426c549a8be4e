"""The pipeline by Snakemake on this machine and on a Slurm cluster of one node: a killed job resumes, numbers agree.

The cluster's daemons run in a folder of their own; nothing outside it is changed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
import yaml

from fcamlib import checkpoint, paths, store
from fcamlib.config import Grid, Run, grids

ROOT = Path(__file__).resolve().parent.parent
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
SECONDS = 600  # a call of Snakemake takes at most this long
MARK = 4321.0  # seconds of an epoch that no run takes
SMALL = {"num_segments": 3, "num_train": 96, "num_validation": 48, "num_test": 48, "batch_size": 24}
GRIDS = [
    {**SMALL, "epochs": 2, "paradigms": "soft", "seeds": [0, 1]},
    {**SMALL, "epochs": 150, "paradigms": "soft", "momentum": 0.8},  # the one whose job is killed
    {**SMALL, "epochs": 2, "paradigms": ["hard", "lvml", "hybrid"]},
]
SLURM_CONF = """ClusterName=fcam
SlurmctldHost={name}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
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


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def slurm() -> Iterator[dict[str, str]]:
    """A Slurm cluster in a folder of its own; the variables with which its programs find it."""
    if missing := [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}; on Debian, they come with slurm-wlm and munge")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    for name in ("spool", "state", "bin"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    conf = SLURM_CONF.format(name=socket.gethostname(), ports=free_ports(2), folder=folder)
    (folder / "slurm.conf").write_text(conf)
    (folder / "gres.conf").write_text("".join(f"Name=gpu File=/dev/{name}\n" for name in ("null", "zero", "full")))
    # Within a job the executor plugin takes away what tells srun of another cluster than /etc/slurm's.
    (folder / "bin" / "srun").write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"')
    (folder / "bin" / "srun").chmod(0o755)
    variables = {"PATH": f"{folder / 'bin'}:{PATH}", "SLURM_CONF": str(folder / "slurm.conf")}
    environment = {**os.environ, **variables}
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
    daemons = {  # command, and what shows that it answers
        "munged": (["--foreground", "--force", f"--socket={folder}/munge.socket", *munge],
                   ["test", "-S", f"{folder}/munge.socket"], ""),
        "slurmctld": (["-D", "-f", f"{folder}/slurm.conf"], ["sinfo", "--noheader", "--format=%D"], "1"),
        "slurmd": (["-D", "-f", f"{folder}/slurm.conf"], ["sinfo", "--noheader", "--format=%t"], "idle"),
    }  # fmt: skip
    running = []
    try:
        for name, (arguments, question, answer) in daemons.items():
            with (folder / f"{name}.out").open("w") as output:
                running.append(subprocess.Popen([name, *arguments], env=environment, stdout=output, stderr=output))
            for _ in range(600):
                found = subprocess.run(question, env=environment, capture_output=True, text=True)
                if found.returncode == 0 and found.stdout.strip() == answer:
                    break
                time.sleep(0.1)
            else:
                pytest.fail(f"{name} does not answer: {(folder / f'{name}.out').read_text()}{found.stderr}")
        yield variables
        subprocess.run(["scancel", "--full", "--user", "root"], env=environment, timeout=60)
    finally:
        for daemon in reversed(running):
            daemon.terminate()
            daemon.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


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


def wait_for(done: Callable[[], bool], what: str, process: subprocess.Popen[str]) -> None:
    """Look until something has happened, as long as Snakemake runs."""
    end = time.monotonic() + SECONDS
    while not done():
        assert process.poll() is None, f"Snakemake ended before {what}:\n{process.communicate()[0]}"
        assert time.monotonic() < end, f"no sign of {what}"
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds the process to kill in /proc")
@pytest.mark.parametrize("place", ["local", "slurm"])
def test_a_killed_job_is_tried_again_and_all_numbers_are_those_of_this_process(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    variables = request.getfixturevalue("slurm") if place == "slurm" else {}
    folder, results = tmp_path / "work", tmp_path / "work" / "results"
    folder.mkdir()
    for name in ("Snakefile", "CHANGELOG.md", "book", "notebooks", "profiles"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "environment").symlink_to(sys.prefix)  # the executor does not quote a path of Python with a space in it
    (folder / "grids.yaml").write_text(yaml.safe_dump_all(GRIDS))
    configs: list[Run] = [run for grid in grids(folder / "grids.yaml") for run in Grid.of(grid).configs()]
    first, long = configs[0], configs[2]
    environment = {**os.environ, **variables, "FCAM_RESULTS": str(results), "FCAM_CHECKPOINT_SECONDS": "0",
                   "PYTHONPATH": str(ROOT)}  # fmt: skip
    waits = ("--slurm-status-command=squeue", "--slurm-init-seconds-before-status-checks=2", "--slurm-no-account",
             "--seconds-between-status-checks=2", "--latency-wait=10") if place == "slurm" else ()  # fmt: skip
    command = [folder / "environment" / "bin" / "python", "-m", "snakemake", "--profile", f"profiles/{place}", *waits,
               "--config", "profile=grids.yaml", "runs_per_job=3", "--", "runs"]  # fmt: skip
    state = results / ".partial" / long.name / store.CHECKPOINT
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:  # fmt: skip
        try:
            wait_for(state.exists, "a checkpoint", process)
            if place == "slurm":
                jobs = ["squeue", "--noheader", "--states=R", "--format=%i %k"]
                listed = subprocess.run(jobs, env=environment, capture_output=True, text=True, check=True).stdout
                (job,) = [line.split()[0] for line in listed.splitlines() if line.endswith("rule_runs_0")]
                subprocess.run(["scancel", "--signal=KILL", job], env=environment, check=True)
                ask = ["scontrol", "show", "job", job]
                wait_for(lambda: b"CANCELLED" in subprocess.check_output(ask, env=environment), "the kill", process)
            for pid in processes(folder, "fcamlib run") if place == "local" else ():
                os.kill(pid, signal.SIGKILL)
            checkpointed = checkpoint.load(state)  # its epochs are marked, to tell them from epochs trained anew
            (candidate,) = checkpointed["candidates"]
            candidate["history"] = [{**row, "seconds": MARK} for row in candidate["history"]]
            checkpoint.save(state, checkpointed)
            finished = (results / first.name / "summary.json").stat().st_mtime_ns
            output, _ = process.communicate(timeout=SECONDS)
        finally:
            process.terminate()  # nothing where it has ended
            for pid in processes(folder, "snakemake"):  # of jobs that were killed
                os.kill(pid, signal.SIGKILL)
    assert process.returncode == 0, output
    assert (results / first.name / "summary.json").stat().st_mtime_ns == finished, "trained twice"
    assert sorted(path.name for path in results.glob("[!.]*")) == sorted(config.name for config in configs)
    marked = list(store.Result[Run](results / long.name).history["seconds"] == MARK)
    assert marked == [number < len(candidate["history"]) for number in range(150)], "it did not resume"

    monkeypatch.setenv("FCAM_RESULTS", str(tmp_path / "here"))
    monkeypatch.setattr(paths, "recorded_dir", lambda: None)
    for config in configs:
        there, here = store.Result[Run](results / config.name), store.get(config)
        assert there.damage == "" and there.summary["splits"] == here.summary["splits"]
        for file in ("config.json", "scores.npz", "examples.npz", "model.safetensors"):
            assert (there.folder / file).read_bytes() == (here.folder / file).read_bytes(), file
        one, other = (found.history.drop(columns="seconds") for found in (there, here))
        pd.testing.assert_frame_equal(one, other, check_exact=True)
