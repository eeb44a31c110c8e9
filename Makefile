# Everything runs in .venv, which is made from requirements.txt. torch==2.13.0, asked for by its
# exact version, is the small CPU build.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
EXTRAS := gpu hub plots rdf search serve tables

.PHONY: demo explore test lint types format docs notebooks torture fuzz fuzz-folders audit clean \
    pins wheel lowest dist release-check

demo: $(READY)  ## train on the embedded graph and answer three queries
	@rm -rf runs/demo
	@$(BIN)/allneg train countries --recipe countries/complex --out runs/demo
	@$(BIN)/allneg predict runs/demo --head France --relation borders --top 8
	@$(BIN)/allneg predict runs/demo --head Kenya --relation speaks --top 5
	@$(BIN)/allneg predict runs/demo --tail Spanish --relation official_language --top 8

explore: $(READY)  ## open the explorer page on that model
	@test -f runs/demo/report.json || { rm -rf runs/demo; \
	    $(BIN)/allneg train countries --recipe countries/complex --out runs/demo; }
	@$(BIN)/allneg explore runs/demo

# Three workers keep two cores busy: some tests wait for other processes.
test: $(READY)  ## all fast CPU tests
	$(BIN)/pytest -n 3

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/python scripts/prose.py

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the site in build/site; fails on warnings and dead links
	$(BIN)/python scripts/build_site.py

notebooks: $(READY)  ## execute the notebooks and keep their outputs; minutes
	$(BIN)/python scripts/notebooks.py

torture: $(READY)  ## kill 100 trainings and 100 saves
	$(BIN)/python tests/torture/kills.py 100 100

fuzz: fuzz-triples fuzz-recipe fuzz-manifest fuzz-folders  ## ten minutes per target; -j4 for all at once

fuzz-%: .venv/.atheris
	$(BIN)/python tests/fuzz/fuzz.py $* -max_total_time=600

fuzz-folders: $(READY)  ## 100,000 changed run folders; a file system in memory is faster
	TMPDIR=$(firstword $(wildcard /dev/shm) /tmp) $(BIN)/python tests/fuzz/folders.py 100000

.venv/.atheris: $(READY)  # only for fuzzing
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check atheris==3.0.0
	touch $@

audit: $(READY)  ## known vulnerabilities of the pinned versions; asks PyPI
	test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && \
	    .venv-audit/bin/python -m pip install --quiet --quiet --disable-pip-version-check pip-audit; }
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement requirements.txt

pins: .venv-release/bin/uv  ## the newest versions of what the package and its tests need
	.venv-release/bin/uv pip compile --quiet --upgrade --no-annotate --python-version 3.11 \
	    --custom-compile-command "make pins" $(EXTRAS:%=--extra %) --group dev \
	    --output-file requirements.txt pyproject.toml

wheel: .venv-release/bin/uv  ## build, install into empty environments, try README, explorer, first notebook
	.venv-release/bin/python scripts/check_wheel.py

lowest: .venv-release/bin/uv  ## the same with the lowest versions that pyproject.toml allows
	.venv-release/bin/python scripts/check_wheel.py --lowest 3.11

dist: .venv-release/bin/uv  ## what a release uploads
	rm -rf dist
	.venv-release/bin/uv build --out-dir dist

release-check: lint types test wheel lowest docs  ## all that a release needs
	git diff --exit-code
	@echo "ready for a release"

.venv-release/bin/uv:
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --quiet --disable-pip-version-check uv

clean:
	rm -rf .venv .venv-audit .venv-release dist runs/demo

$(READY): requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@
