"""What notebooks show: the report of a checkpoint, in a frame of its own."""

import html
import os

from . import _program


class Page:
    """The report of a checkpoint as HTML. A notebook shows it where it is the last value of a cell.

    html      the page; it loads nothing and runs nothing
    height    of the frame, in pixels
    """

    def __init__(self, page, title, height):
        self.html, self.title, self.height = page, title, height

    def _repr_html_(self):
        # The page is untrusted text: it goes in as an attribute, and the frame allows neither scripts nor forms.
        return (f'<iframe sandbox="allow-popups" srcdoc="{html.escape(self.html, quote=True)}" '
                f'title="{html.escape(self.title, quote=True)}" '
                f'style="width: 100%; height: {self.height}px; border: 0"></iframe>')

    def save(self, path):
        """Writes the page to a file, for a browser."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def __repr__(self):
        return f"<{self.title}, {len(self.html) / 1000:.0f} kB of HTML: a notebook shows it, .save(path) writes it>"


def show(checkpoint, text=None, *, height=720, **options):
    """Runs `attnscope report CHECKPOINT --text TEXT --format html`, and gives the page for a notebook to show.

        attnscope.show("gpt2", "the king took a quiet story")
        attnscope.show("runs/step-500", tokens=[5, 9, 2], what_if=["scale=none@L1"], device="cuda")

    checkpoint   a directory, a weight file, or a name of the Hugging Face hub
    text         what the model reads; or tokens=[…], text_file=…, inputs=…
    height       of the frame, in pixels
    options      further flags of `attnscope report`: what_if=… is --what-if, quiet=True is --quiet

    Raises attnscope.CommandError with the message of the program where it cannot do so.
    """
    if isinstance(height, bool) or not isinstance(height, int) or height < 1:
        raise ValueError(f"height is {height!r}, expected a whole number of pixels")
    for name in ("format", "output"):
        if name in options:
            raise TypeError(f"show() sets {name} itself: attnscope report --{name} writes other formats and files")
    tokens = options.pop("tokens", None)
    if tokens is not None and not isinstance(tokens, str):
        tokens = ",".join(str(int(token)) for token in tokens)
    options = {"quiet": True, **options, "text": text, "tokens": tokens}
    checkpoint = os.fspath(checkpoint)
    written = _program.run(["report", "--format=html", *_program.flags(options), "--", checkpoint])
    return Page(written.decode("utf-8"), f"attnscope report of {checkpoint}", height)
