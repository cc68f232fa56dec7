# make book   the book, in _build/html          make test   every check, the chapters included
# make lab    the chapters in JupyterLab        make pin    run all chapters and store outputs
# make bench  how fast the servers are here     make clean  remove what the above made

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
QUIET := --quiet --disable-pip-version-check

.PHONY: book test lab pin bench clean
.DELETE_ON_ERROR:

book: $(INSTALLED)
	@rm -rf _build/html _build/.doctrees
	@said=$$($(BIN)/jupyter-book build . -W -n --keep-going -q 2>&1) || { echo "$$said"; exit 1; }
	@$(BIN)/python book/_tools/check_build.py
	@echo "The book is ready. Open it: file://$(CURDIR)/_build/html/index.html"

test: book
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest tests
	IPYTHONDIR=_build/ipython $(BIN)/pytest --nbval --nbval-current-env -n 2 --dist loadfile book

# JUPYTER_CONFIG_PATH adds a folder to what JupyterLab reads; the reader's own settings stay.
# LAB is for more of JupyterLab's options: make lab LAB=--allow-root
lab: $(INSTALLED)
	@JUPYTER_CONFIG_PATH=book/_tools JUPYTER_PREFER_ENV_PATH=1 $(BIN)/jupyter lab book $(LAB)

pin: $(INSTALLED)
	@$(BIN)/python book/_tools/rerun.py

# MOST is for fewer chats: make bench MOST=40000
bench: $(INSTALLED)
	@$(BIN)/python book/_tools/bench.py $(if $(MOST),--most $(MOST))

clean:
	rm -rf _build $(VENV)

# Runs once, and again when the requirements change.
$(INSTALLED): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
	sys.exit(None if (3, 11) <= v <= (3, 14) else \
	f"This book needs Python 3.11 to 3.14, and $(PYTHON) is {v[0]}.{v[1]}. Name another: make PYTHON=python3.12 ...")'
	@echo "Installing what the book needs into $(VENV), once; it takes a minute or two."
	@$(PYTHON) -m venv $(VENV) || { echo "No virtual environment: on Debian or Ubuntu, apt install python3-venv"; exit 1; }
	@$(BIN)/pip install $(QUIET) -r requirements.txt
	@$(BIN)/pip install $(QUIET) --no-deps --editable .
	@touch $@
