"""Kills workers of a batch at random moments, and checks that nothing is lost and nothing is there twice.

    python kill.py ATTNSCOPE [N_CHECKPOINTS N_PROMPTS N_KILLS N_WORKERS]

Workers share a directory: some do a shard each, one does everything. Each is killed (SIGKILL) at a random moment and started again,
until there were N_KILLS kills; then all run to their end. The merged table must be that of one process, byte for byte.
"""

import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checkpoints

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def main(program, n_checkpoints=200, n_prompts=50, n_kills=100, n_workers=4):
    at = Path(tempfile.mkdtemp(prefix="attnscope-kill-"))
    checkpoints.make(at, n_checkpoints, n_prompts)
    common = [program, "batch", str(at / "steps"), "--inputs", str(at / "prompts.jsonl"), "--chunk", "10", "--threads", "1"]
    begun = time.time()
    subprocess.run([*common, "--output", str(at / "one")], check=True, **QUIET)
    one_process = time.time() - begun
    print(f"one process: {n_checkpoints} checkpoints, {n_prompts} prompts, {one_process:.1f} s")

    moments = random.Random(7)
    shares = [["--shard", f"{nth}/{n_workers - 1}"] for nth in range(n_workers - 1)] + [[]]
    start = lambda share: subprocess.Popen([*common, "--output", str(at / "many"), *share], **QUIET)
    workers = [start(share) for share in shares]
    kills = 0
    begun = time.time()
    while kills < n_kills:
        # As many kills as there are to be, spread over about the time that one process takes.
        time.sleep(moments.expovariate(n_kills / one_process))
        nth = moments.randrange(n_workers)
        if workers[nth].poll() is None:
            workers[nth].kill()
            kills += 1
        workers[nth].wait()
        workers[nth] = start(shares[nth])
    ends = [worker.wait() for worker in workers]
    assert ends == [0] * n_workers, ends
    left = sum(1 for _ in (at / "many" / "parts").glob(".tmp*"))
    print(f"{n_workers} workers, {kills} killed: {time.time() - begun:.1f} s, {left} temporary files left behind")

    last = subprocess.run([*common, "--output", str(at / "many")], check=True, capture_output=True, text=True)
    print("another run says:", last.stderr.strip().splitlines()[-1])
    assert "0 units done" in last.stderr
    n_units = n_checkpoints * -(-n_prompts // 10)
    records = [json.loads(path.read_text()) for path in (at / "many" / "parts").glob("*.json")]
    seen = {(record["checkpoint"], tuple(record["prompts"])) for record in records}
    assert len(records) == len(seen) == n_units, (len(records), len(seen), n_units)
    assert all(record["status"] == "done" for record in records)
    assert all(digest(at / "many" / "parts" / (record["id"] + ".parquet")) == record["digest"] for record in records)
    for batch in ("one", "many"):
        for ending in ("parquet", "csv"):
            to = ["--output", str(at / f"{batch}.{ending}"), "--quiet"]
            subprocess.run([program, "merge", str(at / batch), *to], check=True, **QUIET)
    steps = sorted((at / "steps").iterdir(), key=lambda path: int(path.name.split("-")[1]))
    report = [program, "report", *map(str, steps), "--inputs", str(at / "prompts.jsonl"), "--format", "parquet"]
    subprocess.run([*report, "--output", str(at / "report.parquet")], check=True, **QUIET)
    same = {digest(at / name) for name in ("one.parquet", "many.parquet", "report.parquet")}
    assert len(same) == 1, "tables differ"
    assert digest(at / "one.csv") == digest(at / "many.csv")
    print(f"{n_units} units, each there once; tables of one process, of {n_workers} workers and of report are the same bytes")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
