"""A script of tlsfuzzer whose choices are those of a seed: seeded.py CHECKOUT SEED SCRIPT [arguments]"""

from __future__ import annotations

import random
import runpy
import sys

_, checkout, seed, script, *arguments = sys.argv
random.seed(int(seed))
sys.path.insert(0, checkout)
sys.argv = [script, *arguments]
runpy.run_module(f"tlsfuzzer._apps.{script}", run_name="__main__")
