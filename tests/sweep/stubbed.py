"""`python -m zoo` with the stand-in for `fit`, and without the comparison."""

import sys
from pathlib import Path

import zoo.reports.compare
from zoo import cli
from zoo.sweep import pool

STUB = Path(__file__).with_name("fit_stub.py")

pool.with_this_python = lambda command: [sys.executable, str(STUB), *command[3:]]
zoo.reports.compare.compare = lambda paths, out: print("compared", *paths)
sys.exit(cli.main())
