"""What notebooks show: the report of a checkpoint, in a frame of its own."""

import html
import operator
import os

from . import _program


class Page:
    """The report of a checkpoint as HTML. A notebook shows it where it is the last value of a cell.

    html      the page; it loads nothing, and runs only its own script
    height    of the frame, in pixels
    """

    def __init__(self, page, title, height):
        self.html, self.title, self.height = page, title, height

    def _repr_html_(self):
        # Names and texts in the page are untrusted: it goes in as an attribute, its policy allows no script but its own, and the frame
        # has an origin of its own, so that nothing in it reaches the notebook.
        return (f'<iframe sandbox="allow-scripts allow-popups" srcdoc="{html.escape(self.html, quote=True)}" '
                f'title="{html.escape(self.title, quote=True)}" '
                f'style="width: 100%; height: {self.height}px; border: 0"></iframe>')

    def save(self, path):
        """Writes the page to a file, for a browser."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def __repr__(self):
        return f"<{self.title}, {len(self.html) / 1000:.0f} kB of HTML: a notebook shows it, .save(path) writes it>"


def _kind(value):
    """What a value is, in a word or two: its class, and the shape where it has one."""
    of = type(value)
    name = of.__name__ if of.__module__ == "builtins" else f"{of.__module__.partition('.')[0]}.{of.__name__}"
    shape = getattr(value, "shape", None)
    return f"{name} of shape {tuple(shape)}" if shape is not None else name


def _path(checkpoint):
    try:
        return os.fspath(checkpoint)
    except TypeError:
        raise TypeError("show() takes what a checkpoint is saved as: a directory, a weight file, or a name of the Hugging Face hub; found "
                        f"{_kind(checkpoint)}. Save a model with save_pretrained() or torch.save(), or log its attention with "
                        "attnscope.Monitor while it trains") from None


def _ids(tokens):
    """Ids as the flag takes them: of a list, of a tensor or an array, also of a batch of one."""
    if tokens is None or isinstance(tokens, str):
        return tokens
    expected = "show(tokens=…) takes the ids of one text: a list of integers, or a tensor or array of integers of shape (n) or (1, n)"
    ids = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    try:
        ids = list(ids)
        # As a tokenizer gives them: a batch of one text.
        if len(ids) == 1:
            only = ids[0].tolist() if hasattr(ids[0], "tolist") else ids[0]
            ids = list(only) if isinstance(only, (list, tuple)) else [only]
        if any(isinstance(one, (bool, str)) for one in ids):
            raise TypeError
        return ",".join(str(operator.index(one)) for one in ids)
    except TypeError:
        raise TypeError(f"{expected}; found {_kind(tokens)}") from None


def show(checkpoint, text=None, *, height=720, **options):
    """Runs `attnscope report CHECKPOINT --text TEXT --format html`, and gives the page for a notebook to show.

        attnscope.show("gpt2", "the king took a quiet story")
        attnscope.show("runs/step-500", tokens=[5, 9, 2], what_if=["scale=none@L1"], device="cuda")

    checkpoint   a directory, a weight file, or a name of the Hugging Face hub
    text         what the model reads; or text_file=…, inputs=…, or tokens=…: a list, tensor or array of ids, also of a batch of one
    height       of the frame, in pixels
    options      further flags of `attnscope report`: what_if=… is --what-if, quiet=True is --quiet

    Raises attnscope.CommandError with the message of the program where it cannot do so.
    """
    if isinstance(height, bool) or not isinstance(height, int) or height < 1:
        raise ValueError(f"height is {height!r}, expected a whole number of pixels")
    for name in ("format", "output"):
        if name in options:
            raise TypeError(f"show() sets {name} itself: attnscope report --{name} writes other formats and files")
    if text is not None and not isinstance(text, str):
        raise TypeError(f"show() takes a text as its second argument, found {_kind(text)}; ids go to tokens=[5, 9, 2]")
    tokens = _ids(options.pop("tokens", None))
    options = {"quiet": True, **options, "text": text, "tokens": tokens}
    checkpoint = _path(checkpoint)
    written = _program.run(["report", "--format=html", *_program.flags(options), "--", checkpoint])
    return Page(written.decode("utf-8"), f"attnscope report of {checkpoint}", height)
