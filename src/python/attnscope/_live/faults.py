"""What went wrong in a person's code, in one line, with the last line of theirs."""

from __future__ import annotations

import linecache
import os
import sys

_OWN = ("_attnscope.", "attnscope.")
_LIBRARIES = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


class Unusable(Exception):
    """What was asked for cannot be done; the message says all there is to say."""


def told(error):
    """{"message", "frame"} of an exception; the frame is null where nothing of the person's code was running."""
    if isinstance(error, Unusable):
        return {"message": str(error), "frame": None}
    lines = str(error).strip().splitlines()
    message = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        message += f"; {sys.executable} does not have it, --python names another"
    return {"message": message, "frame": _last_frame(error)}


def _last_frame(error):
    """The innermost frame that is neither ours nor a library's; the innermost of a library where there is no other."""
    if isinstance(error, SyntaxError) and error.filename:
        return {"file": error.filename, "line": error.lineno or 0, "function": "<module>", "text": (error.text or "").strip()}
    own, any_frame = None, None
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        name, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        if not name.startswith(_OWN) and name != "attnscope" and file != "<string>":
            found = {"file": file, "line": trace.tb_lineno, "function": frame.f_code.co_name,
                     "text": linecache.getline(file, trace.tb_lineno).strip()}
            any_frame = found
            is_library = file.startswith("<frozen") or any(part in file for part in _LIBRARIES) \
                or file.startswith(os.path.dirname(os.__file__) + os.sep)
            own = own if is_library else found
        trace = trace.tb_next
    return own or any_frame
