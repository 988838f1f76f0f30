"""Tries targets, inputs and outputs in an object store: python s3.py ATTNSCOPE

ATTNSCOPE is a build with --features s3. Needs `pip install 'moto[server,s3]'`, whose server this starts and stops on this machine. The
merged table must be that of local files, byte for byte; refusals must say what to do; nothing may stay in scratch.
"""
import json
import logging
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import boto3
from moto.server import ThreadedMotoServer

program = os.path.realpath(sys.argv[1])
here = Path(__file__).resolve().parent
work = Path(tempfile.mkdtemp(prefix="attnscope-s3-trial-"))
scratch = work / "scratch"
scratch.mkdir()
requests = []  # what the server was asked for, a line each


class Seen(logging.Handler):
    def emit(self, record):
        requests.append(record.getMessage())


log = logging.getLogger("werkzeug")
log.setLevel(logging.INFO)
log.propagate = False
log.handlers = [Seen()]
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
host, port = server.get_host_and_port()
url = f"http://127.0.0.1:{port}"
KEYS = {"AWS_ACCESS_KEY_ID": "trial", "AWS_SECRET_ACCESS_KEY": "trial", "AWS_REGION": "us-east-1"}
BARE = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
BARE |= {"AWS_ENDPOINT_URL": url, "HOME": str(work)}
s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="trial", aws_secret_access_key="trial")


def run(*args, env=None, expect=0):
    env = {**BARE, **(KEYS if env is None else env), "TMPDIR": str(scratch)}
    done = subprocess.run([program, *map(str, args)], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == expect, (args, done.returncode, done.stdout[-500:], done.stderr[-1500:])
    assert not list(scratch.iterdir()), f"left in scratch: {list(scratch.iterdir())}"
    return done


class Cut(socketserver.BaseRequestHandler):
    """Passes one request on to the store, and one answer back: every third answer stops after 20 bytes."""

    def handle(self):
        asked = b""
        while b"\r\n\r\n" not in asked and (piece := self.request.recv(1 << 16)):
            asked += piece
        head, _, body = asked.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        length = next((int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")), 0)
        while len(body) < length and (piece := self.request.recv(1 << 16)):
            body += piece
        self.server.n_asked += 1
        is_cut = self.server.n_asked % 3 == 0
        self.server.n_cut += is_cut
        with socket.create_connection((host, port)) as store:
            store.sendall(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
            answer = b""
            while piece := store.recv(1 << 16):
                answer += piece
        self.request.sendall(answer[:20] if is_cut else answer)


class Cutting(socketserver.ThreadingTCPServer):
    n_asked = n_cut = 0
    daemon_threads = True


def asked_for(name):
    return [line for line in requests if "GET" in line and name in line]


def keys(prefix):
    found = s3.get_paginator("list_objects_v2").paginate(Bucket="runs", Prefix=prefix)
    return {one["Key"]: one["ETag"] for page in found for one in page.get("Contents", [])}


def upload(directory, prefix):
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        s3.upload_file(str(path), "runs", f"{prefix}/{path.relative_to(directory)}")


def refused(said, *args, env=None):
    got = run(*args, env=env, expect=2).stderr
    assert said in got, (said, got)
    print("refused:", got.strip().splitlines()[-1][:160])


try:
    subprocess.run([sys.executable, here / "checkpoints.py", work, "3", "10"], check=True)
    s3.create_bucket(Bucket="runs")
    upload(work / "steps", "steps")
    # What no reading needs is not fetched.
    step = sorted(path.name for path in (work / "steps").iterdir())[0]
    s3.put_object(Bucket="runs", Key=f"steps/{step}/optimizer.pt", Body=b"not needed")
    s3.upload_file(str(work / "prompts.jsonl"), "runs", "in/prompts.jsonl")

    local = ["batch", work / "steps", "--inputs", work / "prompts.jsonl", "--output", work / "one", "--chunk", "4", "--quiet"]
    run(*local)
    run("merge", work / "one", "--output", work / "one.parquet", "--quiet")

    far = ["batch", "s3://runs/steps/", "--inputs", "s3://runs/in/prompts.jsonl", "--output", "s3://runs/out", "--chunk", "4"]
    said = run(*far).stdout
    print(said.strip().splitlines()[-1])
    assert "9 units done, 0 already there" in said, said
    assert asked_for("model.safetensors") and not asked_for("optimizer.pt"), requests
    requests.clear()
    first = keys("out/parts/")
    assert len(first) == 18, first
    said = run(*far).stdout
    assert "0 units done, 9 already there" in said, said
    assert not asked_for("model.safetensors"), "weights were fetched although no unit is missing"
    assert keys("out/parts/") == first

    gone = sorted(key for key in first if key.endswith(".parquet"))[0]
    s3.delete_object(Bucket="runs", Key=gone)
    said = run(*far).stdout
    assert "1 unit done, 8 already there" in said, said
    print("a part that is gone is done again; the others stay")

    run("merge", "s3://runs/out", "--output", "s3://runs/table.parquet", "--quiet")
    s3.download_file("runs", "table.parquet", str(work / "far.parquet"))
    assert (work / "far.parquet").read_bytes() == (work / "one.parquet").read_bytes(), "the tables differ"
    print("the merged table is that of local files, byte for byte")
    refused("--force", "merge", "s3://runs/out", "--output", "s3://runs/table.parquet")
    run("merge", "s3://runs/out", "--output", "s3://runs/table.parquet", "--quiet", "--force")

    loose = work / "loose"
    loose.mkdir()
    for path in (work / "steps").iterdir():
        shutil.copy(path / "model.safetensors", loose / f"{path.name}.safetensors")
        shutil.copy(path / "config.json", loose)
    upload(loose, "loose")
    for steps, out in ((loose, work / "two"), ("s3://runs/loose", "s3://runs/two")):
        run("batch", steps, "--inputs", work / "prompts.jsonl", "--output", out, "--quiet")
        run("merge", out, "--output", work / f"{Path(str(steps)).parent.name}.loose.parquet", "--quiet")
    tables = [path.read_bytes() for path in work.glob("*.loose.parquet")]
    assert len(tables) == 2 and tables[0] == tables[1], "loose steps differ"
    print("steps that lie loose beside one configuration give the same table too")

    text = ["--tokens", "1,2,3,4,5,6"]
    run("report", f"s3://runs/steps/{step}", *text, "--format", "json", "--output", "s3://runs/report.json")
    report = json.loads(s3.get_object(Bucket="runs", Key="report.json")["Body"].read())
    own = json.loads(run("report", work / "steps" / step, *text, "--format", "json").stdout)
    assert report == own, "the reports differ"
    done = subprocess.run([program, "check", f"s3://runs/steps/{step}", *text, "--format", "json"], env={**BARE, **KEYS, "TMPDIR": str(scratch)},
        capture_output=True, text=True)
    assert done.returncode in (0, 1) and json.loads(done.stdout)["targets"], done.stderr
    print("report and check read and write it")

    refused("there is no bucket nowhere", "report", "s3://nowhere/a", *text)
    refused("404", "report", "s3://runs/none", *text)
    refused("there is no bucket nowhere", "batch", work / "steps", "--tokens", "1,2,3", "--output", "s3://nowhere/out")
    refused("there are no credentials", "report", f"s3://runs/steps/{step}", *text, env={})
    refused("cannot be reached", "report", f"s3://runs/steps/{step}", *text, env={**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    broken = Cutting(("127.0.0.1", 0), Cut)
    threading.Thread(target=broken.serve_forever, daemon=True).start()
    through = {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{broken.server_address[1]}"}
    run("batch", "s3://runs/steps", "--inputs", "s3://runs/in/prompts.jsonl", "--output", "s3://runs/out3", "--chunk", "4", env=through)
    run("merge", "s3://runs/out3", "--output", work / "cut.parquet", "--quiet", env=through)
    broken.shutdown()
    assert broken.n_cut > 5 and (work / "cut.parquet").read_bytes() == (work / "one.parquet").read_bytes()
    print(f"the same table where {broken.n_cut} of {broken.n_asked} answers were cut off")

    s3.put_bucket_policy(Bucket="runs", Policy=json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*",
        "Action": "s3:*", "Resource": ["arn:aws:s3:::runs", "arn:aws:s3:::runs/*"]}]}))
    run("report", f"s3://runs/steps/{step}", *text, "--output", work / "anonymous.txt", env={"AWS_SKIP_SIGNATURE": "true"})
    (work / ".aws").mkdir()
    (work / ".aws/credentials").write_text("[default]\naws_access_key_id = trial\naws_secret_access_key = trial\n")
    run("report", f"s3://runs/steps/{step}", *text, "--output", work / "profile.txt", env={"AWS_REGION": "us-east-1"})
    print("anonymous access and the file of credentials work")

    worker = subprocess.Popen([program, *map(str, far[:5]), "s3://runs/out2", "--chunk", "1"], env={**BARE, **KEYS, "TMPDIR": str(scratch)},
        stderr=subprocess.DEVNULL)
    while not any(key.endswith(".json") for key in keys("out2/parts/")):
        time.sleep(0.01)
    worker.send_signal(signal.SIGTERM)
    code = worker.wait()
    left = keys("out2/parts/")
    records = {key[:-5] for key in left if key.endswith(".json")}
    assert code == 143 and records <= {key[:-8] for key in left if key.endswith(".parquet")}, (code, left)
    assert not list(scratch.iterdir()), list(scratch.iterdir())
    print(f"SIGTERM after {len(records)} units: exit code {code}, every record has its rows, scratch is empty")
finally:
    server.stop()
