"""Frames of the live channel: a JSON header, and bytes behind it. Knows no framework."""

from __future__ import annotations

import json
import os
import shutil
import struct
import threading

VERSION = 1
LONGEST_HEADER = 16 << 20
_LENGTHS = struct.Struct("<IQ")  # of the header, of the body


class Channel:
    """One end of a connected stream socket. Frames of several threads do not mix."""

    def __init__(self, connection):
        self.connection = connection
        self.reader, self.writer = connection.makefile("rb"), connection.makefile("wb")
        self.lock = threading.Lock()

    def send(self, header, body=None):
        """Sends a header, and the bytes or the file at the path `body` behind it."""
        text = json.dumps({"v": VERSION, **header}, ensure_ascii=False).encode()
        is_path = isinstance(body, (str, os.PathLike))
        size = os.path.getsize(body) if is_path else len(body or b"")
        with self.lock:
            self.writer.write(_LENGTHS.pack(len(text), size) + text)
            if is_path:
                with open(body, "rb") as file:
                    shutil.copyfileobj(file, self.writer, 1 << 20)
            elif body:
                self.writer.write(body)
            self.writer.flush()

    def receive(self):
        """The next header and its body; None when the other end is gone."""
        lengths = self.reader.read(_LENGTHS.size)
        if len(lengths) < _LENGTHS.size:
            return None
        n_header, n_body = _LENGTHS.unpack(lengths)
        if n_header > LONGEST_HEADER:
            raise ValueError(f"a header of {n_header} bytes, expected at most {LONGEST_HEADER}")
        text, body = self.reader.read(n_header), self.reader.read(n_body)
        if len(text) < n_header or len(body) < n_body:
            return None
        header = json.loads(text)
        if header.get("v") != VERSION:
            raise ValueError(f"version {header.get('v')} of the channel, expected {VERSION}")
        return header, body

    def close(self):
        for end in (self.writer, self.reader, self.connection):
            try:
                end.close()
            except OSError:
                pass
