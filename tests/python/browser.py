"""A headless Chromium for tests of pages, driven over pipes by the DevTools protocol; needs no package."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
import unittest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def program():
    """The browser: the one that CHROMIUM names, or one on the path."""
    return os.environ.get("CHROMIUM") or next((found for name in NAMES if (found := shutil.which(name))), None)


def needs_browser():
    """Skips a test class where there is no Chromium."""
    return unittest.skipIf(program() is None, "there is no Chromium; CHROMIUM names one")


class Browser:
    """One tab. `errors` are the exceptions of scripts and what the security policy refused."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (to_read, self.to), (self.back, to_write) = os.pipe(), os.pipe()
        # The protocol's pipes are file descriptors 3 and 4.
        words = [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--hide-scrollbars", f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe", "about:blank"]
        shell = ["sh", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "sh", *words]
        self.process = subprocess.Popen(shell, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.n, self.session, self.errors, self.requests = b"", 0, None, [], []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.profile.cleanup()

    def _message(self, seconds):
        while b"\0" not in self.buffer:
            if not select.select([self.back], [], [], seconds)[0]:
                raise TimeoutError("the browser does not answer")
            read = os.read(self.back, 1 << 20)
            if not read:
                raise EOFError("the browser ended")
            self.buffer += read
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        sent = json.dumps(message).encode() + b"\0"
        while sent:
            sent = sent[os.write(self.to, sent):]
        while True:
            message = self._message(60)
            if message.get("id") == self.n:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._happened(message)

    def _happened(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description") or str(params))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, path, width=1400, height=900, dark=False, scripts=True, hash=""):
        """Opens a file, and waits until its scripts ran."""
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="about:blank")
        self.errors, self.requests = [], []
        self.call("Page.navigate", url=f"file://{os.path.abspath(path)}{hash}")
        self.until("document.readyState === 'complete' && location.protocol === 'file:'")

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def until(self, expression, seconds=20):
        end = time.monotonic() + seconds
        while not self.value(expression):
            if time.monotonic() > end:
                raise TimeoutError(expression)
            time.sleep(0.02)

    def key(self, key, text=""):
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Escape": 27, "Tab": 9}
        text = text or ("\r" if key == "Enter" else key if len(key) == 1 else "")
        code = codes.get(key, ord(key[0]))
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text):
        for letter in text:
            self.key(letter)

    def place(self, selector, x=0.5, y=0.5):
        """A point of an element, after scrolling to it."""
        return self.value(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{ block: 'center' }}); const b = e.getBoundingClientRect();
            return [b.left + {x} * b.width, b.top + {y} * b.height]; }})()""")

    def move(self, selector, x=0.5, y=0.5):
        x, y = self.place(selector, x, y)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, selector, x=0.5, y=0.5):
        x, y = self.move(selector, x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
