"""Makes a batch of many small units, to measure a merge: python parts.py ATTNSCOPE DIR [N_UNITS] [files | packed]

One checkpoint runs on 1 000 prompts, one prompt a unit. Its units are written again for as many checkpoints of other names as it takes,
with a plan that names all of them and with the ids that this plan gives. Files of rows are linked, and packed rows copied: the rows go
on naming the one checkpoint. A merge takes as long and as much memory all the same.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import checkpoints

PROMPTS = 1000
MAGIC = b"attnscope-units 1 "


def digest(data):
    return hashlib.sha256(data).hexdigest()


def of_parts(*parts):
    """Digest of texts, each after its length."""
    return digest(b"".join(len(part).to_bytes(8, "little") + part for part in (text.encode() for text in parts)))


def blocks(path):
    """Records and rows of each block of a packed part."""
    with open(path, "rb") as file:
        while head := file.readline():
            n_records, n_rows, _ = head[len(MAGIC) :].split()
            yield json.loads(file.read(int(n_records))), file.read(int(n_rows))


def block(records, rows):
    records = json.dumps(records).encode() + b"\n"
    lengths = b"%016d %016d " % (len(records), len(rows))
    return MAGIC + lengths + digest(lengths + records).encode() + b"\n" + records + rows


def main(program, directory, n_units=100_000, layout="files"):
    at = Path(directory)
    checkpoints.make(at, 1, PROMPTS)
    words = [program, "batch", str(at / "steps" / "step-0"), "--inputs", str(at / "prompts.jsonl"), "--chunk", "1"]
    words += ["--output", str(at / "one"), "--quiet"]
    subprocess.run([*words, *(["--layout", layout] if layout == "packed" else [])], check=True)
    many = at / "many"
    for name in ("parts", "plans", "weights"):
        (many / name).mkdir(parents=True)
    plan = json.loads(next((at / "one" / "plans").iterdir()).read_text())
    weights = json.loads(next((at / "one" / "weights").iterdir()).read_text())
    chunk_of = {chunk["prompts"][0]: chunk["digest"] for chunk in plan["chunks"]}
    names = [f"step-{step}" for step in range(n_units // PROMPTS)]
    plan["targets"] = [{"target": f"/runs/{name}", "checkpoint": name} for name in names]
    (many / "plans" / "plan.json").write_text(json.dumps(plan))
    for name in names:
        weights["target"] = f"/runs/{name}"
        (many / "weights" / f"{digest(weights['target'].encode())[:32]}.json").write_text(json.dumps(weights))

    def renamed(unit, name):
        id = of_parts(plan["request"], weights["digest"], name, chunk_of[unit["prompts"][0]])[:32]
        return {**unit, "id": id, "checkpoint": name}

    if layout == "packed":
        (pack,) = (at / "one" / "parts").rglob("*.units")
        one = list(blocks(pack))
        for name in names:
            place = many / "parts" / digest(name.encode())[:32]
            place.mkdir()
            content = b"".join(block([renamed(unit, name) for unit in units], rows) for units, rows in one)
            (place / pack.name).write_bytes(content)
    else:
        units = [json.loads(path.read_text()) for path in (at / "one" / "parts").glob("*.json")]
        for name in names:
            for unit in units:
                of = renamed(unit, name)
                os.link(at / "one" / "parts" / f"{unit['id']}.parquet", many / "parts" / f"{of['id']}.parquet")
                (many / "parts" / f"{of['id']}.json").write_text(json.dumps(of))
    print(f"{len(names) * PROMPTS} units in {many}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4]), *sys.argv[4:])
