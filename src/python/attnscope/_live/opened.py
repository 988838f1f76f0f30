"""attnscope.open: the screen on a model of this very process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile

from .. import _program
from .channel import Channel
from .faults import Unusable
from .pytorch import Subject
from .serving import serve


def open(model, tokenizer=None, prompt=None, *, inputs=None, **options):
    """Shows what the attention of a model does, as it runs: attnscope.open(model, tokenizer, "some text").

    model        a torch.nn.Module on any device, compiled or not
    tokenizer    anything with encode(text), a function from a text to ids, a dict or list of the texts of tokens, or a pair
                 (encode, decode); without one the model runs on ids
    prompt       a text, or ids as a list or tensor; without one a short text or a few drawn ids
    inputs       the arguments of one forward call, as a tensor, a tuple or a dict, for a model that takes more than ids
    options      further flags of the program: mask="causal", theme="light"

    In a terminal the screen opens at once, and the call returns when it is closed. Elsewhere, in a notebook for instance, the call
    prints a command for a terminal on the same machine, and serves it until it is closed or the call is interrupted.
    """
    try:
        subject = Subject(model, tokenizer, inputs, name=type(model).__name__, can_reload=False)
    except Unusable as error:
        raise TypeError(f"attnscope.open: {error}") from None
    with tempfile.TemporaryDirectory(prefix="attnscope-") as directory, contextlib.ExitStack() as undo:
        path = os.path.join(directory, "live")
        listening = undo.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(path)
        listening.listen(1)
        words = [f"live:{path}", *_prompt(prompt), *_program.flags(options)]
        if not (os.isatty(0) and os.isatty(1)):
            print(f"attnscope: run this in a terminal on this machine: attnscope {' '.join(words)}", flush=True)
            _serve_one(listening, subject, None)
            return
        screen = subprocess.Popen([_program.find_program(), *words])
        with _output_aside():
            _serve_one(listening, subject, screen)
        screen.wait()


def _serve_one(listening, subject, screen):
    """Answers one connection, unless the screen ends without one."""
    listening.settimeout(0.1)
    while screen is None or screen.poll() is None:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        connection.settimeout(None)
        channel = Channel(connection)
        try:
            serve(channel, lambda: subject)
        finally:
            channel.close()
        return


def _prompt(prompt):
    if prompt is None:
        return []
    if isinstance(prompt, str):
        return [f"--text={prompt}"]
    ids = prompt.tolist() if hasattr(prompt, "tolist") else list(prompt)
    ids = ids[0] if ids and isinstance(ids[0], list) else ids
    return ["--tokens=" + ",".join(str(int(token)) for token in ids)]


@contextlib.contextmanager
def _output_aside():
    """What the model prints goes to a file while the screen has the terminal, and is printed afterwards."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 1)
        os.dup2(aside.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, saved in zip((1, 2), kept):
                os.dup2(saved, number)
                os.close(saved)
            aside.seek(0)
            os.write(2, aside.read()[-20_000:])
