"""pyproject.toml, constraints.txt, environment.yml and the imports in the code say the same."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OPTIONAL = {"captions", "mil"}  # extras that the book and its environment do without
DECLARED = [
    Requirement(line) for line in (*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra))
]
# Folder -> what its code may import beside the standard library and fcamlib.
OF_JUPYTER_BOOK = ["sphinx", "docutils", "jupyter-client", "jupyter-core", "jinja2"]
IMPORTERS = {
    "fcamlib": [*PROJECT["dependencies"], *(line for extra in OPTIONAL for line in EXTRAS[extra])],
    "book/_ext": [*PROJECT["dependencies"], *EXTRAS["book"], *OF_JUPYTER_BOOK],
    "tests": [*PROJECT["dependencies"], *EXTRAS["book"], *EXTRAS["test"]],
}


def pins() -> dict[NormalizedName, str]:
    """Canonical name -> version of each line of constraints.txt."""
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    split = [line.split("==") for line in lines if line]  # each one exact pin
    return {canonicalize_name(name): version for name, version in split}


def optional() -> set[NormalizedName]:
    """Packages that only an optional extra asks for."""
    return {canonicalize_name(Requirement(line).name) for extra in OPTIONAL for line in EXTRAS[extra]}


def test_every_declared_package_has_an_exact_pin_that_its_bounds_allow() -> None:
    for requirement in DECLARED:
        version = pins()[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(Version(version)), f"{requirement} excludes the pinned {version}"


def test_this_environment_holds_the_pinned_versions() -> None:
    installed = {canonicalize_name(d.name): Version(d.version).public for d in metadata.distributions()}
    asked = {name: pin for name, pin in pins().items() if name in installed or name not in optional()}
    differing = {name: (pin, installed.get(name)) for name, pin in asked.items() if installed.get(name) != pin}
    assert not differing, f"(pinned, installed) differ: {differing}; recreate the environment with constraints.txt"


@pytest.mark.parametrize("folder", IMPORTERS)
def test_every_import_is_a_declared_dependency(folder: str) -> None:
    allowed = {canonicalize_name(Requirement(line).name) for line in IMPORTERS[folder]}
    files, providers = sorted((ROOT / folder).rglob("*.py")), metadata.packages_distributions()
    own = {path.stem for path in (*files, *(ROOT / "book/_ext").glob("*.py"))} | {"benchmarks", "fcamlib"}
    for file in files:
        nodes = list(ast.walk(ast.parse(file.read_text())))
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0}
        for module in {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - own - optional():
            provided = {canonicalize_name(name) for name in providers.get(module, [])}
            assert allowed & provided, f"{file} imports {module}, which pyproject.toml does not declare"


def test_the_axes_of_every_annotated_array_are_text() -> None:
    """An annotation that jaxtyping cannot read, such as Int[Tensor, ...], switches off the checks of its function."""
    for file in (ROOT / "fcamlib").rglob("*.py"):
        nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Subscript)]
        for node in nodes:
            if isinstance(node.value, ast.Name) and node.value.id in vars(jaxtyping):
                axes = node.slice.elts[-1] if isinstance(node.slice, ast.Tuple) else node.slice
                assert isinstance(axes, ast.Constant) and isinstance(axes.value, str), f"{file}:{node.lineno}"


def test_version_and_command_are_the_same_everywhere() -> None:
    (command,) = metadata.entry_points(group="console_scripts", name="fcam")
    assert command.value == PROJECT["scripts"]["fcam"] and callable(command.load())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert metadata.version("fcamlib") == PROJECT["version"] == str(citation["version"])
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text().replace("[", "").replace("]", "")


def test_conda_installs_the_same_package_with_the_same_pins() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["name"] == "fcam"
    conda = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    (python,) = [entry.split("=")[1] for entry in conda if entry.startswith("python=")]
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python)
    assert pip == ["-c constraints.txt", f"-e .[{','.join(sorted(set(EXTRAS) - OPTIONAL))}]"]
    # Whatever conda itself installs must not be a package that constraints.txt pins to another version.
    assert not {canonicalize_name(entry.split("=")[0]) for entry in conda} & set(pins())


def test_an_installed_copy_works_in_an_empty_folder_without_the_repository(tmp_path: Path) -> None:
    """The package as its wheel installs it, with a home of its own; its dependencies are those of this environment."""
    source, installed, folder = (tmp_path / name for name in ("source", "installed", "empty"))
    folder.mkdir()
    shutil.copytree(ROOT / "fcamlib", source / "fcamlib", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):  # a copy: a build leaves files beside its sources
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--no-compile"]
    subprocess.run([*pip, *offline, "--target", installed, source], check=True)
    shipped = {str(path.relative_to(ROOT)) for path in (ROOT / "fcamlib").rglob("*") if path.suffix in (".py", ".yaml")}
    assert not [name for name in {*shipped, "fcamlib/py.typed"} if not (installed / name).is_file()]

    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FCAM_", "XDG_"))}
    environment |= {"PYTHONPATH": str(installed), "HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}

    def fcam(*arguments: str) -> str:
        command = [sys.executable, "-m", "fcamlib", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    small = ("--num-train", "40", "--num-validation", "20", "--num-test", "20", "--epochs", "2", "--switch-epoch", "1")
    result = Path(fcam("run", "--dataset", "digits", *small).strip().rsplit(", in ", 1)[1])
    assert result.is_relative_to(folder / "home") and result.parent.parent.name == "fcam"
    assert (result / "SHA256SUMS").is_file()
    check = fcam("check")
    for what, state in (("fcamlib", PROJECT["version"]), ("stored", "1 verified")):
        assert re.search(rf"^  {what} +{state}$", check, re.MULTILINE), check
    assert str(ROOT) not in check, "the installed copy reaches into the repository"
    assert {path.name for path in folder.iterdir()} == {"home"}, "something is left where the command was run"
