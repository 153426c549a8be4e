"""Print the book: every page in one PDF, or the site as a zip that opens without a server.

Usage: print_book.py pdf | offline

Both go to book/_build. The PDF needs Chromium, which prints the page that jupyter-book's singlehtml builder makes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

BOOK = Path(__file__).resolve().parent.parent
BUILT = BOOK / "_build"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LOADING = 60_000  # milliseconds of the browser's own clock for formulas and fonts


def browser() -> str:
    """Chromium's or Chrome's command."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    sys.exit("No Chromium was found on PATH: install the package chromium (Debian, Ubuntu) or Google Chrome.")


def make_pdf() -> Path:
    """The whole book as one PDF."""
    command = browser()
    jupyter_book = Path(sys.executable).with_name("jupyter-book")
    subprocess.run([jupyter_book, "build", "--quiet", "--builder", "singlehtml", BOOK], check=True)
    (page,) = (file for file in (BUILT / "singlehtml").glob("*.html") if file.stem != "index")
    target = BUILT / "attention-dynamics.pdf"
    target.unlink(missing_ok=True)
    options = ["--headless", "--disable-gpu", "--no-sandbox", "--no-pdf-header-footer"]
    options += ["--generate-pdf-document-outline", f"--virtual-time-budget={LOADING}", f"--print-to-pdf={target}"]
    subprocess.run([command, *options, page.as_uri()], check=True, stderr=subprocess.DEVNULL)
    if not target.is_file():
        sys.exit(f"{command} wrote no PDF: run `{command} --headless --print-to-pdf {page}` to see why.")
    return target


def make_offline() -> Path:
    """The built site as a zip of one folder."""
    if not (BUILT / "html" / "index.html").is_file():
        sys.exit("book/_build/html/index.html is missing: run `make book` first.")
    return Path(shutil.make_archive(str(BUILT / "attention-dynamics-offline"), "zip", BUILT, "html"))


if __name__ == "__main__":
    makers = {"pdf": make_pdf, "offline": make_offline}
    if len(sys.argv) != 2 or sys.argv[1] not in makers:
        sys.exit(__doc__)
    made = makers[sys.argv[1]]()
    print(f"{made}: {made.stat().st_size / 1e6:.1f} MB")
