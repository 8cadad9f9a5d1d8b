"""A headless Chromium driven over its DevTools pipe (file descriptors 3 and 4), with nothing but the standard library.

https://chromedevtools.github.io/devtools-protocol/; messages are JSON, each ended by a NUL byte.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """Path of a Chromium or Chrome, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"):
        if path := shutil.which(name):
            return path
    return None


class Browser:
    """One page of a fresh Chromium. Use as a context manager.

    `messages`: what the page wrote to the console, exceptions and policy violations included.
    """

    def __init__(self, binary, timeout=60):
        self.timeout = timeout
        self.messages, self.requests = [], []
        self._profile = tempfile.TemporaryDirectory(prefix="lowtide-chromium-")
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        arguments = [binary, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
                     "--disable-extensions", "--hide-scrollbars", f"--user-data-dir={self._profile.name}", "about:blank"]
        # A shell moves the pipes to the two descriptors that Chromium expects.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "-", *arguments], pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._next_id = 0
        self._session = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)
        shutil.rmtree(self._profile.name, ignore_errors=True)

    def call(self, method, **params):
        """The result of one DevTools command."""
        self._next_id += 1
        message = {"id": self._next_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _receive(self):
        deadline = time.monotonic() + self.timeout
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium did not answer")
            piece = os.read(self._read, 1 << 16)
            if not piece:
                raise RuntimeError("Chromium ended")
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Log.entryAdded":
            self.messages.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(a.get("value")) for a in params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, url, width=1200, height=1600, dark=False):
        """Loads a page and waits until it is complete."""
        self.messages, self.requests = [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + self.timeout
        while self.js("document.readyState") != "complete" or self.js("location.href").split("#")[0] != url.split("#")[0]:
            if time.monotonic() > deadline:
                raise TimeoutError(url)
            time.sleep(0.02)
        self.frame()

    def frame(self):
        """Waits until the page has been laid out and drawn once more."""
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def js(self, expression):
        """The value of a JavaScript expression (JSON types); promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", expression))
        return answer["result"].get("value")

    def mouse(self, kind, x, y, **more):
        """kind: mouseMoved, mousePressed, mouseReleased."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key):
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, path):
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(path, "wb") as out:
            out.write(base64.b64decode(picture["data"]))
