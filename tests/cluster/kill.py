"""Kills workers of a batch at random moments, and checks that nothing is lost and nothing is there twice.

    python kill.py ATTNSCOPE [N_CHECKPOINTS N_PROMPTS N_KILLS N_WORKERS]

Workers share a directory: some do a shard each, one does everything. Each is killed (SIGKILL) at a random moment and started again,
until the work is done, and in further rounds until there were N_KILLS kills. The merged table must be that of one process, byte for
byte, in every round.
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
    kills, rounds = 0, 0
    begun = time.time()
    # A round ends when all its work is done; another begins while there are kills to come.
    while kills < n_kills:
        rounds += 1
        many = at / f"many-{rounds}"
        start = lambda share: subprocess.Popen([*common, "--output", str(many), *share], **QUIET)
        workers = [start(share) for share in shares]
        while any(worker.poll() is None for worker in workers):
            # Half of the kills in about the time that one process takes.
            time.sleep(moments.expovariate(2 * n_kills / one_process))
            nth = moments.randrange(n_workers)
            if kills < n_kills and workers[nth].poll() is None:
                workers[nth].kill()
                workers[nth].wait()
                kills += 1
                workers[nth] = start(shares[nth])
        ends = [worker.wait() for worker in workers]
        assert ends == [0] * n_workers, ends
        check(program, at, common, many, n_checkpoints, n_prompts)
    print(f"{n_workers} workers, {kills} killed in {rounds} rounds: {time.time() - begun:.1f} s")


def check(program, at, common, many, n_checkpoints, n_prompts):
    left = sum(1 for _ in (many / "parts").glob(".tmp*"))
    print(f"{many.name}: {left} temporary files left behind")
    last = subprocess.run([*common, "--output", str(many)], check=True, capture_output=True, text=True)
    print("another run says:", last.stdout.strip().splitlines()[-1])
    assert "0 units done" in last.stdout
    assert not list((many / "parts").glob(".tmp*")), "the last run left what killed workers had left"
    n_units = n_checkpoints * -(-n_prompts // 10)
    records = [json.loads(path.read_text()) for path in (many / "parts").glob("*.json")]
    seen = {(record["checkpoint"], tuple(record["prompts"])) for record in records}
    assert len(records) == len(seen) == n_units, (len(records), len(seen), n_units)
    assert all(record["status"] == "done" for record in records)
    assert all(digest(many / "parts" / (record["id"] + ".parquet")) == record["digest"] for record in records)
    for batch in ("one", many.name):
        for ending in ("parquet", "csv"):
            (at / f"{batch}.{ending}").unlink(missing_ok=True)
            to = ["--output", str(at / f"{batch}.{ending}"), "--quiet"]
            subprocess.run([program, "merge", str(at / batch), *to], check=True, **QUIET)
    if not (at / "report.parquet").exists():
        report_all(program, at)
    same = {digest(at / name) for name in ("one.parquet", f"{many.name}.parquet", "report.parquet")}
    assert len(same) == 1, "tables differ"
    assert digest(at / "one.csv") == digest(at / f"{many.name}.csv")
    print(f"{n_units} units, each there once; tables of one process, of the workers and of report are the same bytes")


def report_all(program, at):
    steps = sorted((at / "steps").iterdir(), key=lambda path: int(path.name.split("-")[1]))
    report = [program, "report", *map(str, steps), "--inputs", str(at / "prompts.jsonl"), "--format", "parquet"]
    subprocess.run([*report, "--output", str(at / "report.parquet")], check=True, **QUIET)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
