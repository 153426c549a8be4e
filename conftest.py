"""Test set-up for tests/ and for the notebooks, which pytest's conftest in tests/ alone would not reach."""

import os
import shutil
import tempfile
from typing import Any

import nbval.kernel
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# Read by torch when it is first imported, and inherited by workers and kernels: one thread, because several would share
# the cores with the other worker and split sums in another order.
os.environ["OMP_NUM_THREADS"] = "1"
# What kernels print must not depend on the order of a set.
os.environ.setdefault("PYTHONHASHSEED", "0")
# Checks every annotated shape at run time; has to come before the first import of fcamlib.
install_import_hook("fcamlib", "beartype.beartype")

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

_start_kernel = nbval.kernel.start_new_kernel


def start_kernel(*args: Any, **kwargs: Any) -> Any:
    """Start nbval's kernel, again where it dies at once: two that start together may be told to use one port."""
    try:
        return _start_kernel(*args, **kwargs)
    except RuntimeError:
        return _start_kernel(*args, **kwargs)


nbval.kernel.start_new_kernel = start_kernel


_scratch = pytest.StashKey[str]()


# Files that take longest, so that no worker is left with one of them alone; the first one's jobs mostly wait.
FIRST = ("test_pipeline.py", "test_site.py", "test_store.py", "test_train.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest."""
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))


def pytest_configure(config: pytest.Config) -> None:
    """Give the whole test run one store of its own, so that notebooks show what this state of the code computes.

    It is empty at first, or the one that FCAM_TEST_RESULTS names: `make test` has just filled that with the runs shown.
    The workers of pytest-xdist inherit the variables: what one notebook has computed, the next one finds.
    """
    if hasattr(config, "workerinput"):
        return
    folder = tempfile.mkdtemp(prefix="fcam-tests-")
    config.stash[_scratch] = folder
    os.environ["FCAM_FIGURES"] = os.path.join(folder, "figures")
    os.environ["FCAM_RESULTS"] = os.environ.get("FCAM_TEST_RESULTS", os.path.join(folder, "results"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the store of the test run."""
    if folder := config.stash.get(_scratch, None):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Leave stderr out of nbval's comparison: a guard test sees to it that committed notebooks hold none."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare = (*collector.skip_compare, "stderr")
