"""Dice for tests that choose at random, with what is needed to throw them alike once more."""

from __future__ import annotations

import random
import sys


def chance() -> random.Random:
    """Return dice whose seed is among the output of the test, which pytest shows when it fails."""
    seed = random.randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    return random.Random(seed)
