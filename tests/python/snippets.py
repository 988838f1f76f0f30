"""Runs the Python of the manual: python snippets.py < {"names": [...], "blocks": [{"page", "line", "code"}, ...]}

The test `manual` of the program cuts the pages into blocks and calls this. What is printed, one line each:

    failed PAGE:LINE: WHY
    lacks PAGE:LINE: PACKAGE      compiled and its names resolved, and not run, since a package is not installed
    ran PAGE:LINE

Blocks of a page run in one namespace, in an empty directory of the page's own, with stand-ins for what pages take for granted: a
model, tokens, files. Without torch nothing is run: each block is compiled, and every name in it must be one that is known.
"""

import ast
import builtins
import contextlib
import functools
import importlib.util
import inspect
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from types import SimpleNamespace

from places import ROOT, SOURCE, program

STAND_INS = ("model", "ids", "tokenizer", "batches", "optimizer", "attnscope", "pandas", "polars", "duckdb")
PACKAGES = ("pandas", "polars", "duckdb", "safetensors", "vllm", "onnx", "onnxruntime")


def is_installed(package):
    return importlib.util.find_spec(package) is not None


# Names.

def problem_of_name(dotted):
    """Why a name below attnscope leads nowhere, asked of a Python that has imported nothing else; None where it leads somewhere."""
    code = f"import sys; sys.path.insert(0, {SOURCE!r})\nimport attnscope\n{dotted}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode == 0:
        return None
    # What a package that is not installed hides is looked for in the source.
    return problem_in_source(dotted) if last.startswith("ImportError: ") and "not installed" in last else last


def problem_in_source(dotted):
    sys.path.insert(0, SOURCE)
    import attnscope

    parts = dotted.split(".")[1:]
    place = os.path.join(SOURCE, "attnscope")
    if parts[0] in attnscope._HOMES:
        parts[:0] = attnscope._HOMES[parts[0]][0].split(".")
    while parts and os.path.isdir(os.path.join(place, parts[0])):
        place = os.path.join(place, parts.pop(0))
    file = os.path.join(place, "__init__.py")
    if parts and os.path.exists(os.path.join(place, parts[0] + ".py")):
        file = os.path.join(place, parts.pop(0) + ".py")
    with open(file, encoding="utf-8") as text:
        known = defined(ast.parse(text.read()))
    return None if not parts or parts[0] in known else f"{os.path.relpath(file, ROOT)} has no {parts[0]}"


def defined(tree):
    """The names that a piece of code binds."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    return names


def problems_of_block(code, known):
    """What is wrong with a block that is not run; adds the names that it binds to `known`."""
    tree = ast.parse(code)
    known |= defined(tree)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    problems = [f"{name} is no name that is known here" for name in sorted(used - known - set(dir(builtins)))]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnscope"):
            for alias in node.names:
                of = node.module.replace("attnscope_capture", "attnscope")
                problems.append(problem_of_name(f"{of}.{alias.name}"))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "attnscope":
            problems.append(problem_of_name(f"attnscope.{node.attr}"))
    return [problem for problem in problems if problem]


# Stand-ins.

def stand_ins():
    """What pages take for granted: a model whose modules are called as theirs, in training mode, and what goes into it."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self, width=16, n_heads=2):
            super().__init__()
            self.n_heads = n_heads
            self.q, self.k, self.v, self.wo = (nn.Linear(width, width) for _ in range(4))
            self.drop = nn.Dropout(0.1)

        def forward(self, x):
            q, k, v = (of(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for of in (self.q, self.k, self.v))
            scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).tril().logical_not()
            pattern = self.drop(scores.masked_fill(hidden, float("-inf")).softmax(-1))
            return self.wo((pattern @ v).transpose(1, 2).flatten(2))

    class Layer(nn.Module):
        def __init__(self, width=16):
            super().__init__()
            self.norm, self.attn = nn.LayerNorm(width), Attention(width)

        def forward(self, x):
            return x + self.attn(self.norm(x))

    class Model(nn.Module):
        def __init__(self, width=16, vocabulary=32):
            super().__init__()
            self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(32, width)
            self.layers = nn.ModuleList(Layer(width) for _ in range(2))
            self.head = nn.Linear(width, vocabulary)

        def forward(self, input_ids, labels=None):
            x = self.embed(input_ids) + self.place(torch.arange(input_ids.shape[1]))
            for layer in self.layers:
                x = layer(x)
            logits = self.head(x)
            if labels is None:
                return logits
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
            return SimpleNamespace(loss=loss, logits=logits)

    torch.manual_seed(0)
    model, ids = Model(), torch.tensor([[5, 9, 2, 20, 7]])
    return {"model": model, "ids": ids, "tokenizer": [f"word{n}" for n in range(32)],
            "batches": [{"input_ids": ids, "labels": ids}] * 3, "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3)}


def write_files(given):
    """Files that pages take for granted, in the directory that is the current one."""
    with open("attnscope_capture.py", "w") as file:
        if program() is not None:
            subprocess.run([program(), "capture-script"], stdout=file, check=True)
        else:
            file.write("from attnscope._capture import *  # noqa\nfrom attnscope._capture import capture, probe, record  # noqa\n")
    os.symlink(os.path.join(ROOT, "fixtures"), "fixtures")
    from attnscope_capture import record

    given["model"].eval()
    names = {"layers.{i}.attn.q": "blocks.{i}.attn.q", "layers.{i}.attn": "blocks.{i}.attn_out"}
    with record(given["model"], "reference.safetensors", names=names, quiet=True):
        given["model"](given["ids"])
    given["model"].train()
    if is_installed("safetensors"):
        import torch
        from safetensors.torch import save_file

        save_file({"hidden_states": torch.zeros(5, 4, 16), "token_ids": torch.arange(5)}, "REQUEST.safetensors")
    if program() is not None:
        report = [program(), "report", "fixtures/healthy", "--tokens", "1,2,3", "--format", "parquet", "--output"]
        os.makedirs("out/parts")
        for file in ("report.parquet", "table.parquet", "out/parts/one.parquet"):
            subprocess.run([*report, file], check=True, capture_output=True)
        plot = [program(), "plot", "fixtures/healthy", "--tokens", "1,2,3", "--panel", "head", "--output", "head.svg"]
        subprocess.run(plot, check=True, capture_output=True)


# Running.

def plain(code):
    """Code, and the errors that it shows: [(code, the last line of its error or None)]."""
    if ">>>" not in code:
        return [(code, None)]
    pieces = []
    for line in code.splitlines():
        if line.startswith(">>> "):
            pieces.append([line[4:], None])
        elif line.strip() and pieces:
            pieces[-1][1] = line
    return [tuple(piece) for piece in pieces]


def lacking(code):
    """The package that a block needs and that is not installed."""
    needed = [package for package in PACKAGES if package in code]
    needed += ["pandas", "pyarrow"] if "attnscope.read(" in code else []
    return next((package for package in needed if not is_installed(package)), None)


def run_block(code, names):
    for piece, shown in plain(code):
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(piece, "<manual>", "exec"), names)
        except Exception as error:
            said = traceback.format_exception_only(type(error), error)[-1].strip()
            begins = (shown or "").partition("…")[0]
            if not shown or not (said + "\n").startswith(begins):
                return said
        else:
            if shown is not None:
                return f"no error, expected {shown}"
    return None


def page_runs(blocks, has_torch):
    """What became of the blocks of one page."""
    known, names = set(STAND_INS), {}
    if has_torch:
        names = stand_ins()
        write_files(names)
        import attnscope

        names["attnscope"] = attnscope
        # It serves until a terminal on this machine has opened the screen and left it.
        attnscope.open = functools.partial(inspect.signature(attnscope.open).bind)
        names.update({package: importlib.import_module(package) for package in PACKAGES if is_installed(package)})
    for block in blocks:
        place, code = f"{block['page']}:{block['line']}", block["code"]
        problems = [why for piece, _ in plain(code) for why in problems_of_block(piece, known)]
        lacks = "torch" if not has_torch else lacking(code)
        if not problems and lacks is None:
            why = run_block(code, names)
            problems = [why] if why else []
        if problems:
            yield f"failed {place}: {'; '.join(problems)}"
        else:
            yield f"lacks {place}: {lacks}" if lacks else f"ran {place}"


def main():
    given = json.load(sys.stdin)
    for entry in given["names"]:
        why = problem_of_name(entry["name"])
        print(f"failed {entry['page']}: {entry['name']}: {why}" if why else f"ran {entry['page']}: {entry['name']}")
    has_torch = is_installed("torch")
    sys.path[:0] = ["", SOURCE]
    if program() is not None:
        os.environ["PATH"] = os.path.dirname(program()) + os.pathsep + os.environ.get("PATH", "")
    pages = {}
    for block in given["blocks"]:
        pages.setdefault(block["page"], []).append(block)
    for blocks in pages.values():
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            sys.modules.pop("attnscope_capture", None)
            for line in page_runs(blocks, has_torch):
                print(line, flush=True)
            os.chdir(ROOT)


if __name__ == "__main__":
    main()
