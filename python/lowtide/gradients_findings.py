"""Findings of the in-process half: the same fields as in findings.json, one JSON line each.

Under ``lowtide run`` they go to ``$LOWTIDE_RUN_DIR/findings-rank<N>.jsonl``; a later line with the same fingerprint
replaces an earlier one. Without that variable they stay in memory (``Sink.findings``).
"""
import atexit
import json
import os

_SEVERITIES = ("note", "warning", "error")


def fingerprint(code, *parts):
    """16 hex digits of FNV-1a over code and parts, as the reports make them."""
    value = 0xCBF29CE484222325
    for part in (code, *parts):
        for byte in str(part).encode("utf-8", "replace") + b"\0":
            value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def place(file=None, line=None, *, path=None, first_step=None, last_step=None):
    where = {"file": file, "line": line, "column": None}
    if path:
        where["object_path"] = path
    if first_step is not None:
        where["first_step"] = first_step
    if last_step is not None:
        where["last_step"] = last_step
    return where


def evidence(name, value, unit=""):
    return {"name": name, "value": value if value == value and abs(value) != float("inf") else None, "unit": unit}


def finding(code, severity, message, *, zh="", where=(), evidence=(), help="", help_zh="", parts=()):
    assert severity in _SEVERITIES
    return {"code": code, "severity": severity, "message": message, "message_zh": zh, "where": list(where),
            "evidence": list(evidence), "help": help, "help_zh": help_zh, "fix": None,
            "fingerprint": fingerprint(code, *parts)}


def rank():
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


class Sink:
    """Keeps findings and, given a run folder, appends each to its file. Never raises."""

    def __init__(self, folder=None):
        folder = os.environ.get("LOWTIDE_RUN_DIR") if folder is None else folder
        self.path = os.path.join(folder, f"findings-rank{rank()}.jsonl") if folder else None
        self.findings = {}
        self.lost = 0
        self._said = {}   # fingerprint -> times it was said anew
        self._late = {}   # fingerprints whose newest form is not in the file yet
        if self.path:
            atexit.register(self.flush)

    def add(self, item):
        """True when the finding is new or says something else than before."""
        known = self.findings.get(item["fingerprint"])
        if known == item:
            return False
        key = item["fingerprint"]
        self.findings[key] = item
        if self.path:
            # A finding that grows with every step is written at its 1st, 2nd, 4th, 8th ... form, and when the process ends.
            times = self._said[key] = self._said.get(key, 0) + 1
            if times & (times - 1) == 0 or known["severity"] != item["severity"]:
                self._late.pop(key, None)
                self._append(json.dumps(item, ensure_ascii=False) + "\n")
            else:
                self._late[key] = True
        return True

    def flush(self):
        """Writes the newest form of what was held back."""
        late, self._late = self._late, {}
        for key in late:
            self._append(json.dumps(self.findings[key], ensure_ascii=False) + "\n")

    def _append(self, line):
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                os.write(fd, line.encode("utf-8", "replace"))
            finally:
                os.close(fd)
        except OSError:
            self.lost += 1
