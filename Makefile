# The commands of the house. Everything runs in .venv, made from requirements.txt, which pins
# the set-up: torch==2.13.0 by its exact version is the small CPU build.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint types format clean

demo: $(READY)  ## train on the embedded knowledge base and ask it three questions
	@rm -rf runs/demo
	@$(BIN)/allneg train countries --recipe recipes/countries/complex.toml --out runs/demo
	@$(BIN)/allneg predict runs/demo --head France --relation borders --top 8
	@$(BIN)/allneg predict runs/demo --head Kenya --relation speaks --top 5
	@$(BIN)/allneg predict runs/demo --tail Spanish --relation official_language --top 8

test: $(READY)  ## every test that needs no GPU, browser or patience
	$(BIN)/pytest -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv runs/demo

$(READY): requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@
