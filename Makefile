# make book [PROFILE=quick|paper]   the site, from nothing, in book/_build/html
# make pdf                          the whole book as book/_build/attention-dynamics.pdf; needs Chromium
# make offline                      the site as a zip that opens without a server, in book/_build
# make test                         every check
# make notebooks                    stores the text outputs that `make test` compares, after a change that is meant
# make clean                        removes what was built; runs in results/ and the environment stay
#
# Everything is installed into .venv in this folder.

PYTHON ?= python3
PROFILE ?= quick
JOBS ?= all

VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/installed
# An environment that does not start, or is of another checkout (which was moved, or Python upgraded), is made anew.
HERE := import fcamlib, os; assert os.path.samefile(os.path.dirname(fcamlib.__file__), "fcamlib")
STALE := $(shell test ! -e $(INSTALLED) || $(PY) -I -c '$(HERE)' 2>/dev/null || rm -rf $(VENV))
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
SNAKEMAKE = $(PY) book/_ext/build.py --cores $(JOBS) --config profile=$(PROFILE)
# The build executes every notebook, and a test compares what it shows with what is stored; on the notebooks that the
# build gives a profile's parameters, nbval runs too, with their own.
RUN_AGAIN := $(wildcard notebooks/0[123]_*.ipynb)
# `make test` has a store of its own: numbers of an earlier state of the code are never taken for this one's. Runs that
# `make book` computed from this very commit are copied into it; else the book is built from it, from nothing. Either way
# pytest finds the runs that the book shows.
STORE := $(CURDIR)/.tests/results
PYTEST := $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --nbval --nbval-current-env \
	--nbval-cell-timeout=300 --nbval-sanitize-with nbval.cfg --durations=15

.PHONY: help env book pdf offline test types pages notebooks clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

env: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11: name a newer one, as in 'make PYTHON=python3.12 $(MAKECMDGOALS)'."; exit 1; }
	"$(PYTHON)" -m venv $(VENV) || \
		{ echo "No virtual environment could be made: on Debian and Ubuntu, install the package python3-venv."; exit 1; }
	$(PY) -m pip install --disable-pip-version-check -c constraints.txt -e '.[book,test]'
	@touch $@

# Snakemake rebuilds only what is missing or older than its sources.
book: $(INSTALLED)
	$(SNAKEMAKE)
	@echo "The book is ready: open $(CURDIR)/book/_build/html/index.html in a browser."

pdf: book
	@test -n "$(CHROMIUM)" || \
		{ echo "No Chromium was found on PATH: install the package chromium (Debian, Ubuntu) or Google Chrome."; exit 1; }
	$(VENV)/bin/jupyter-book build --quiet --builder singlehtml book
	rm -f book/_build/attention-dynamics.pdf
	"$(CHROMIUM)" --headless --disable-gpu --no-sandbox --no-pdf-header-footer --generate-pdf-document-outline \
		--virtual-time-budget=60000 --print-to-pdf="$(CURDIR)/book/_build/attention-dynamics.pdf" \
		"$(CURDIR)/book/_build/singlehtml/intro.html" 2> /dev/null
	@test -s book/_build/attention-dynamics.pdf || { echo "$(CHROMIUM) wrote no PDF."; exit 1; }
	@echo "The PDF is ready: $(CURDIR)/book/_build/attention-dynamics.pdf"

offline: book
	cd book/_build && "$(CURDIR)/$(PY)" -m zipfile -c attention-dynamics-offline.zip html
	@echo "The zip is ready: $(CURDIR)/book/_build/attention-dynamics-offline.zip"

test: $(INSTALLED)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	rm -rf "$(STORE)"
	$(PY) tests/tools/reuse_runs.py "$(STORE)" || export PYTHONHASHSEED=0 FCAM_RESULTS="$(STORE)"; $(MAKE) -j 2 types pages
	FCAM_TEST_RESULTS="$(STORE)" PYTHONHASHSEED=0 $(PYTEST) tests $(RUN_AGAIN)

# Types are checked while the pages are made, when that leaves a core idle.
types: $(INSTALLED)
	nice -n 19 $(PY) -m mypy

pages: $(INSTALLED)
	$(SNAKEMAKE)

notebooks: $(INSTALLED)
	PYTHONHASHSEED=0 $(PY) book/_ext/execute_notebook.py --refresh notebooks/[0-9][0-9]_*.ipynb
	$(PY) -m ruff format notebooks

clean:
	rm -rf book/_build book/notebooks .tests .snakemake .mypy_cache .pytest_cache .ruff_cache .benchmarks
	find fcamlib tests book -name __pycache__ -type d -prune -exec rm -rf {} +
