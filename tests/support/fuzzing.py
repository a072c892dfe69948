"""The number of fuzzed cases, and their seed: a new one each day.

The environment variable ZOO_FUZZ multiplies the counts; ZOO_FUZZ_SEED repeats the cases of another day.
"""

import os
from datetime import date

SEED = int(os.environ.get("ZOO_FUZZ_SEED", date.today().strftime("%Y%m%d")))
FACTOR = int(os.environ.get("ZOO_FUZZ", "1"))
