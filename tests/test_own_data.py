"""The examples of "Your own data" in book/running.md, run as a user does: each prints what the page says."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from fcamlib.cli import main

PAGE = (Path(__file__).resolve().parent.parent / "book" / "running.md").read_text("utf-8")
EXAMPLE = re.compile(r"```python\n(.+?)```\n\n```bash\nfcam (.+?)```\n\n```text\n(.+?)\n```", re.S)
EXAMPLES = EXAMPLE.findall(PAGE)


@pytest.mark.parametrize(("data", "command", "printed"), EXAMPLES, ids=["pictures", "text", "series", "bags"])
def test_an_example_prints_what_the_page_says(
    data: str, command: str, printed: str, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "make.py").write_text(data)
    runpy.run_path("make.py")
    done = CliRunner().invoke(main, shlex.split(command.replace("\\\n", "")))
    assert done.exit_code == 0, done.output
    said = done.stdout.splitlines()[-1].rpartition(", in ")[0]
    words = [re.sub(r"\d\.\d+", "", line.partition(": ")[2]) for line in (said, printed)]
    assert words[0] == words[1]
    numbers = [[float(number) for number in re.findall(r"\d\.\d+", line)] for line in (said, printed)]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.02), "another result than the page shows"
