"""Reads what the program writes as a pandas DataFrame: reports, histories, monitor logs, batches, verdicts, head types."""

import io
import json
import os
import tempfile
import warnings

import pandas

from . import _program

_TEXTS = ("checkpoint", "prompt", "stack", "target", "check", "severity", "unit", "evidence", "advice", "type", "type_seen_on")
_INTEGERS = ("step", "n_tokens", "layer", "head", "query", "key")
# What a spreadsheet would compute; CSV has a mark before it.
_COMPUTED = ("=", "+", "-", "@", "\t", "\r")
_EXPECTED = ("expected CSV, Parquet or JSON of attnscope report, history, merge, check or heads, "
             "a monitor log (.jsonl), or the directory of a batch")


def read(path):
    """The table at `path` as a DataFrame.

        frame = attnscope.read("report.parquet")
        frame[frame["head"].notna()].groupby("layer")["entropy_relative"].mean()

    path   CSV, Parquet or JSON that attnscope report, history or merge wrote; a monitor's log; the directory of a batch; or the
           JSON of attnscope check (one row for each finding) or attnscope heads (one row for each head)

    Tables have the columns checkpoint, step, prompt, n_tokens, loss, stack, layer, head, and one for each statistic. `head` is
    missing in rows of whole layers, and `stack` in models that have one stack. Logs and batches are read by the attnscope
    program, which knows what restarts and later units replace.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        if not os.path.isdir(os.path.join(path, "parts")):
            raise ValueError(f"{path}: {_EXPECTED}; found another directory")
        return _of_batch(path)
    with open(path, "rb") as file:
        first = file.read(1 << 16)
    if first.startswith(b"PAR1"):
        return _of_parquet(path)
    start = first.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"{"):
        return _of_log(path) if _is_log(first) else _of_json(path)
    if b"," in start.split(b"\n", 1)[0]:
        return _of_csv(path)
    raise ValueError(f"{path}: {_EXPECTED}")


def _of_csv(source):
    """Texts stay texts, whatever they look like: a prompt may be called 007 or NA."""
    header = pandas.read_csv(source, nrows=0).columns
    if hasattr(source, "seek"):
        source.seek(0)
    texts = [name for name in header if name in _TEXTS]
    if "layer" not in header:
        raise ValueError(f"{source}: {_EXPECTED}; found a table without a column layer")
    frame = pandas.read_csv(source, dtype=dict.fromkeys(texts, str), keep_default_na=False,
                            na_values={name: [""] if name in texts else ["", "NaN"] for name in header})
    for name in texts:
        frame[name] = frame[name].map(_without_mark, na_action="ignore")
    return _typed(frame)


def _without_mark(text):
    return text[1:] if text.startswith("'") and text.lstrip("'").startswith(_COMPUTED) else text


def _of_parquet(path):
    try:
        return _typed(pandas.read_parquet(path))
    except ImportError as error:
        raise ImportError("attnscope.read needs pyarrow for Parquet, which is not installed: pip install pyarrow") from error


def _of_json(path):
    with open(path, encoding="utf-8-sig") as file:
        try:
            document = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path}: {_EXPECTED}; found text that is no JSON ({error})") from None
    for key, rows_of in (("rows", lambda d: d["rows"]), ("steps", _rows_of_history), ("checkpoints", _rows_of_several),
                         ("targets", _rows_of_verdict), ("prompts", _rows_of_prompts)):
        if isinstance(document.get(key), list):
            rows = list(rows_of(document))
            return _typed(pandas.DataFrame(rows)) if rows else pandas.DataFrame()
    raise ValueError(f"{path}: {_EXPECTED}; found JSON with the keys {', '.join(document)}")


def _rows_of_several(document):
    for of_checkpoint in document["checkpoints"]:
        yield from _rows_of_prompts(of_checkpoint)


def _by_bytes(prompt):
    """The order of prompts in tables: by the bytes of their ids."""
    return (prompt.get("id") or "").encode("utf-8", "surrogatepass")


def _rows_of_prompts(document):
    """One checkpoint of a report, or of head types. Prompts come in the order of a table, not in that of the inputs."""
    checkpoint = document.get("checkpoint", document.get("model", {}).get("name"))
    for prompt in sorted(document["prompts"], key=_by_bytes):
        about = {"checkpoint": checkpoint, "step": document.get("step"), "prompt": prompt.get("id")}
        if "layers" not in prompt:
            for head in prompt["heads"]:
                yield {**about, **_flat(head)}
            continue
        about |= {"n_tokens": len(prompt["tokens"]) + len(prompt.get("decoder_tokens", ())), "loss": prompt["loss"]}
        for layer in prompt["layers"]:
            place = {"stack": layer["stack"], "layer": layer["layer"]}
            yield {**about, **place, "head": None, **layer["stats"]}
            for head in layer["heads"]:
                yield {**about, **place, "head": head["head"], **head["stats"]}


def _rows_of_history(document):
    layers = document["layers"]
    for step in document["steps"]:
        about = {"checkpoint": step["checkpoint"], "step": step["step"], "loss": step["loss"]}
        for nth, layer in enumerate(layers):
            for head in range(layer["n_heads"]):
                values = {name: grid[nth][head] for name, grid in step["values"].items()}
                yield {**about, "stack": layer["stack"], "layer": layer["layer"], "head": head, **values}


def _rows_of_verdict(document):
    for target in document["targets"]:
        for finding in target.get("findings", ()):
            place = {key: finding["place"].get(key) for key in ("stack", "layer", "head", "query", "key")}
            rest = {key: value for key, value in finding.items() if key not in ("place", "check", "severity")}
            yield {"target": target["target"], "check": finding["check"], "severity": finding["severity"], **place, **rest}


def _flat(values):
    """{"random": {"a": 1}} as random_a: 1."""
    flat = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat.update({f"{key}_{inner}": of_inner for inner, of_inner in value.items()})
        else:
            flat[key] = value
    return flat


def _is_log(start):
    """Whether a file begins with the first line of a monitor's log."""
    line = start.split(b"\n", 1)[0]
    return b"\n" in start and b'"attnscope"' in line and b'"monitor"' in line


def _of_log(path):
    return _of_csv(io.BytesIO(_program.run(["history", "--format=csv", "--no-cache", "--quiet", "--", path])))


def _of_batch(path):
    """The table of attnscope merge. A batch that is not whole gives the rows that are there, with a warning."""
    with tempfile.TemporaryDirectory(prefix="attnscope-") as scratch:
        merged = os.path.join(scratch, "merged.csv")
        arguments = ["merge", "--format=csv", f"--output={merged}", "--fail-on=never", "--", path]
        try:
            _program.run(arguments)
        except _program.CommandError as error:
            if not os.path.isfile(merged):
                raise
            said = error.stdout.strip().splitlines()
            warnings.warn(f"{path} is not a whole batch, attnscope merge says: {'; '.join(said[:5])}", stacklevel=3)
        return _of_csv(merged)


def _typed(frame):
    """Columns that hold the same kind whatever the file was: text, integers that may be missing, or floats."""
    for name in frame.columns:
        if name in _TEXTS:
            frame[name] = frame[name].astype("string")
        elif name in _INTEGERS:
            frame[name] = frame[name].astype("Int64")
        elif not pandas.api.types.is_float_dtype(frame[name]):
            frame[name] = _numbers(frame[name])
    return frame


def _numbers(column):
    """Floats, where every value is a number or one of the words NaN, Infinity and -Infinity; else the column as it is."""
    try:
        return column.map(lambda value: float("nan") if value is None else float(value)).astype("float64")
    except (TypeError, ValueError):
        return column
