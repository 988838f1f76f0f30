"""Makes a batch of many small units, to measure a merge: python parts.py ATTNSCOPE DIR [N_UNITS]

One checkpoint runs on 1 000 prompts, one prompt a unit. Its files are linked again under other ids and names of checkpoints, without
the plan. The rows go on naming the one checkpoint: a merge takes as long and as much memory all the same.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import checkpoints

PROMPTS = 1000


def main(program, directory, n_units=100_000):
    at = Path(directory)
    checkpoints.make(at, 1, PROMPTS)
    words = [program, "batch", str(at / "steps" / "step-0"), "--inputs", str(at / "prompts.jsonl"), "--chunk", "1"]
    subprocess.run([*words, "--output", str(at / "one"), "--quiet"], check=True)
    parts = at / "many" / "parts"
    parts.mkdir(parents=True)
    units = [json.loads(path.read_text()) for path in sorted((at / "one" / "parts").glob("*.json"))]
    for step in range(n_units // PROMPTS):
        for unit in units:
            name = f"{step:04}{unit['id'][4:]}"
            os.link(at / "one" / "parts" / f"{unit['id']}.parquet", parts / f"{name}.parquet")
            (parts / f"{name}.json").write_text(json.dumps({**unit, "id": name, "checkpoint": f"step-{step}"}))
    print(f"{n_units} units in {at / 'many'}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
