"""Simulates more workers from the unit times of a batch: python scaling.py DIR [N_CHECKPOINTS]

Reads how long each unit took, draws that many checkpoints from those that were measured, shares them out as `attnscope batch` does,
and prints how long the last worker takes and what share of all workers' time is work.
"""

import json
import random
import sys
from collections import defaultdict
from pathlib import Path

# A start of the program on a cold node and the plan, in seconds.
START = 1.0


def main(batch, n_checkpoints=5000):
    of = defaultdict(float)
    units = 0
    for path in Path(batch, "parts").rglob("*.json"):
        record = json.loads(path.read_text())
        of[record["checkpoint"]] += record["seconds"]
        units += 1
    measured = list(of.values())
    print(f"measured: {units} units of {len(of)} checkpoints, {sum(measured):.1f} s; a checkpoint takes {min(measured):.2f} to {max(measured):.2f} s")
    numbers = random.Random(0)
    work = [numbers.choice(measured) for _ in range(n_checkpoints)]
    print(f"{n_checkpoints} checkpoints of these, {sum(work) / 3600:.2f} h of work")
    print(f"{'workers':>8} {'hours':>8} {'efficiency':>11}")
    for n in (1, 2, 10, 50, 100, 250, 500, 1000):
        shares = [sum(work[first::n]) + START for first in range(n)]
        last = max(shares)
        print(f"{n:>8} {last / 3600:>8.3f} {sum(work) / (n * last):>11.2f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
