"""Answers the requests of a channel with an adapter, one after another. Knows no framework."""

from __future__ import annotations

import os
import queue
import threading
import time

from .faults import told
from .channel import VERSION


class Cancelled(BaseException):
    """The person does not want the answer any more. Not an Exception: the person's own code must not catch it."""


class Request:
    """What an adapter is asked, with the wish to stop."""

    def __init__(self, header, channel, cancelled):
        self.header, self.channel, self.cancelled = header, channel, cancelled

    def get(self, key, default=None):
        value = self.header.get(key)
        return default if value is None else value

    def tell(self, what, n_done, n):
        """Progress of the answer: `n_done` of `n` parts; n is 0 where nobody knows."""
        self.stop_if_cancelled()
        self.channel.send({"kind": "part", "id": self.header.get("id"), "what": what, "done": n_done, "of": n})

    def stop_if_cancelled(self):
        if self.header.get("id") in self.cancelled:
            raise Cancelled


def serve(channel, make_adapter, when_gone=None):
    """Answers requests until the other end is gone. `make_adapter()` gives the adapter, and anew for each reload;
    `when_gone()` is called, on a thread of its own, when the channel ends.

    An adapter has
        about()           what `ready` says: a dictionary
        tokens(request)   {"ids": […], "labels": […]} of the request's "text" or "ids"
        run(request)      (header, path): what `done` says, and a trace or a probe as a safetensors file, which is removed afterwards
        close()           lets go of the model
    """
    requests, cancelled, owner = queue.Queue(), set(), os.getpid()

    def listen():
        try:
            while (frame := channel.receive()) is not None:
                if frame[0].get("kind") == "cancel":
                    cancelled.add(frame[0].get("id"))
                else:
                    requests.put(frame[0])
        except (OSError, ValueError):
            pass
        requests.put(None)
        if when_gone is not None:
            when_gone()

    threading.Thread(target=listen, name="attnscope", daemon=True).start()
    adapter = None
    while (header := requests.get()) is not None and header.get("kind") != "bye":
        request = Request(header, channel, cancelled)
        try:
            if header["kind"] in ("hello", "reload") or adapter is None:
                if header["kind"] == "reload" and adapter is not None:
                    adapter.close()
                adapter = make_adapter()
            answer, path = _answer(adapter, request)
        except BaseException as error:
            if os.getpid() != owner:
                os._exit(1)  # a child that the person's code forked came back to here
            answer, path = {"kind": "failed", **told(error)}, None
            if isinstance(error, Cancelled):
                answer["cancelled"] = True
        if os.getpid() != owner:
            os._exit(0)
        left = _left(header.get("directory"), path)
        if left is not None:
            answer["file"], path = left, None
        try:
            channel.send({"id": header.get("id"), **answer}, path)
        except OSError:
            break
        finally:
            if path is not None:
                os.remove(path)
    if adapter is not None:
        adapter.close()


def _left(directory, path):
    """Moves a file into a directory of the other end, which lasts as long as its session. The name there; None where that is not possible."""
    if path is None or not isinstance(directory, str) or not os.path.isdir(directory):
        return None
    name = os.path.basename(path)
    try:
        os.replace(path, os.path.join(directory, name))
    except OSError:  # on another file system, or of another user
        return None
    return name


def _answer(adapter, request):
    kind = request.header["kind"]
    if kind in ("hello", "reload"):
        return {"kind": "ready", "protocol": VERSION, **adapter.about()}, None
    if kind == "tokens":
        return {"kind": "done", **adapter.tokens(request)}, None
    if kind == "run":
        begun = time.perf_counter()
        header, path = adapter.run(request)
        return {"kind": "done", "took": time.perf_counter() - begun, **header}, path
    raise ValueError(f"{kind!r} is no request of version {VERSION}: expected hello, tokens, run, cancel, reload or bye")
