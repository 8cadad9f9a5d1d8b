"""`lowtide lint --lsp` against a language client of its own make (pygls), and against messages that are no messages."""
import asyncio
import json
import subprocess

import pytest
from linting import CLEAN, TRAIN, lint, write  # noqa: F401 (a fixture)

pytest.importorskip("pygls", reason="pygls is not installed: the language server was not tested with a client")
from lsprotocol import types  # noqa: E402
from pygls.lsp.client import LanguageClient  # noqa: E402

LINE = TRAIN.splitlines().index("        total += loss")


class Editor(LanguageClient):
    """A client that collects what is published, and lets a test wait for it."""

    def __init__(self):
        super().__init__("test-editor", "1")
        self.published = {}
        self.news = asyncio.Event()

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params):
            self.published.setdefault(params.uri, []).append(params)
            self.news.set()

    async def until(self, condition):
        while not condition():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 60)

    async def diagnostics(self, uri, version):
        await self.until(lambda: any(p.version == version for p in self.published.get(uri, [])))
        return next(p.diagnostics for p in reversed(self.published[uri]) if p.version == version)

    def open(self, uri, text):
        self.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 1, text)))

    def change(self, uri, version, *changes):
        self.text_document_did_change(
            types.DidChangeTextDocumentParams(types.VersionedTextDocumentIdentifier(version, uri), list(changes)))


def session(binary, folder, script, *options):
    """Starts the server, shakes hands, runs `script(editor)`, shuts down; the server must leave with 0."""

    async def run():
        editor = Editor()
        await editor.start_io(binary, "lint", "--lsp", *options)
        result = await editor.initialize_async(types.InitializeParams(
            capabilities=types.ClientCapabilities(), root_uri=folder.as_uri(),
            workspace_folders=[types.WorkspaceFolder(folder.as_uri(), "project")]))
        assert result.server_info.name == "lowtide"
        editor.initialized(types.InitializedParams())
        await script(editor)
        await editor.shutdown_async(None)
        editor.exit(None)
        await asyncio.wait_for(editor._server.wait(), 30)
        assert editor._server.returncode == 0
        await editor.stop()

    asyncio.run(run())


def span(text, range_):
    """The text of a range, counted as the protocol counts: UTF-16 units."""
    line = text.splitlines()[range_.start.line].encode("utf-16-le")
    return line[2 * range_.start.character:2 * range_.end.character].decode("utf-16-le")


def applied(text, edits):
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda e: (e.range.start.line, e.range.start.character), reverse=True):
        first, last = edit.range.start, edit.range.end
        head = lines[first.line].encode("utf-16-le")[:2 * first.character].decode("utf-16-le")
        tail = lines[last.line].encode("utf-16-le")[2 * last.character:].decode("utf-16-le") if last.line < len(lines) else ""
        lines[first.line:last.line + 1] = (head + edit.new_text + tail).split("\n")
    return "\n".join(lines)


def test_diagnostics_follow_the_text(lowtide_binary, lint):
    uri = (lint.folder / "a.py").as_uri()

    async def script(editor):
        editor.open(uri, TRAIN)
        found = await editor.diagnostics(uri, 1)
        assert {d.code for d in found} == {"LT101", "LT111"} and {d.source for d in found} == {"lowtide"}
        accumulated = next(d for d in found if d.code == "LT101")
        assert accumulated.range.start == types.Position(LINE, 8)
        # One incremental change cures it, another brings it back three lines further down.
        end = types.Position(LINE, len("        total += loss"))
        editor.change(uri, 2, types.TextDocumentContentChangePartial(types.Range(end, end), ".item()"))
        assert {d.code for d in await editor.diagnostics(uri, 2)} == {"LT111"}
        start = types.Position(0, 0)
        editor.change(uri, 3, types.TextDocumentContentChangePartial(types.Range(start, start), "# a\n# b\n# c\n"),
                      types.TextDocumentContentChangePartial(
                          types.Range(types.Position(LINE + 3, end.character), types.Position(LINE + 3, end.character + 7)), ""))
        found = await editor.diagnostics(uri, 3)
        assert next(d for d in found if d.code == "LT101").range.start.line == LINE + 3
        editor.change(uri, 4, types.TextDocumentContentChangeWholeDocument(CLEAN))
        assert list(await editor.diagnostics(uri, 4)) == []

    session(lowtide_binary, lint.folder, script)


def test_positions_count_utf16_units(lowtide_binary, lint):
    text = TRAIN.replace("        total += loss", "        '😀é損'; total += loss")
    uri = (lint.folder / "wide 名.py").as_uri()

    async def script(editor):
        editor.open(uri, text)
        found = next(d for d in await editor.diagnostics(uri, 1) if d.code == "LT101")
        assert span(text, found.range).startswith("total")
        # Typed behind the emoji: the server must find the same place.
        at = types.Position(LINE, len("        '😀".encode("utf-16-le")) // 2)
        editor.change(uri, 2, types.TextDocumentContentChangePartial(types.Range(at, at), "😀"))
        moved = next(d for d in await editor.diagnostics(uri, 2) if d.code == "LT101")
        assert moved.range.start.character == found.range.start.character + 2

    session(lowtide_binary, lint.folder, script)


def test_code_actions(lowtide_binary, lint):
    uri = (lint.folder / "a.py").as_uri()

    async def script(editor):
        editor.open(uri, TRAIN)
        found = next(d for d in await editor.diagnostics(uri, 1) if d.code == "LT101")

        async def actions(*only):
            context = types.CodeActionContext([found], only=list(only) or None)
            return await editor.text_document_code_action_async(
                types.CodeActionParams(types.TextDocumentIdentifier(uri), found.range, context)) or []

        async def codes_after(version, action):
            editor.change(uri, version, types.TextDocumentContentChangeWholeDocument(applied(TRAIN, action.edit.changes[uri])))
            return {d.code for d in await editor.diagnostics(uri, version)}

        quick = await actions("quickfix")
        assert {a.kind for a in quick} == {"quickfix"}
        fix = next(a for a in quick if a.is_preferred)
        suppress = next(a for a in quick if "suppress" in a.title)
        everything = (await actions("source.fixAll"))[0]
        assert everything.kind == "source.fixAll.lowtide"
        assert len(await actions()) == len(quick) + 1
        assert await codes_after(2, fix) == {"LT111"}
        assert await codes_after(3, suppress) == {"LT111"}
        assert "LT101" not in await codes_after(4, everything)

    session(lowtide_binary, lint.folder, script)


def test_other_files_of_the_workspace_count(lowtide_binary, lint):
    from test_lint_cli_cache import METER, USES_METER
    write(lint.folder, {"train.py": USES_METER, "meter.py": METER.format(value="value")})
    use, meter = ((lint.folder / name).as_uri() for name in ("train.py", "meter.py"))

    async def script(editor):
        editor.open(use, USES_METER)
        editor.open(meter, METER.format(value="value"))
        loud = len(await editor.diagnostics(use, 1)) + len(await editor.diagnostics(meter, 1))
        cured = METER.format(value="float(value)")
        editor.change(meter, 2, types.TextDocumentContentChangeWholeDocument(cured))
        await editor.diagnostics(meter, 2)
        before = len(editor.published[use])
        editor.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(meter)))
        await editor.until(lambda: len(editor.published[use]) > before)
        quiet = len(editor.published[use][-1].diagnostics) + len(editor.published[meter][-1].diagnostics)
        assert quiet < loud

    session(lowtide_binary, lint.folder, script, "--select", "LT101,LT102,LT103")


def test_configuration_and_closing(lowtide_binary, lint):
    write(lint.folder, {"pyproject.toml": "[tool.lowtide.lint]\nselect = ['LT111']\nextend-exclude = ['old']\n"})
    uri, old = (lint.folder / "a.py").as_uri(), (lint.folder / "old" / "b.py").as_uri()

    async def script(editor):
        editor.open(uri, TRAIN)
        editor.open(old, TRAIN)
        assert {d.code for d in await editor.diagnostics(uri, 1)} == {"LT111"}
        assert list(await editor.diagnostics(old, 1)) == []
        editor.text_document_did_close(types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri)))
        assert list(await editor.diagnostics(uri, None)) == []

    session(lowtide_binary, lint.folder, script)


def frame(message):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}
SHUTDOWN = {"jsonrpc": "2.0", "id": "last", "method": "shutdown"}


def replies(output):
    found = []
    while output:
        head, _, rest = output.partition(b"\r\n\r\n")
        length = int(head.split(b":")[1])
        found.append(json.loads(rest[:length]))
        output = rest[length:]
    return found


def talk(binary, *parts):
    done = subprocess.run([binary, "lint", "--lsp"], input=b"".join(parts), capture_output=True, timeout=60)
    return done.returncode, replies(done.stdout)


@pytest.mark.parametrize("rubbish", [
    frame(b"{"), frame(b"\xff\xfe"), frame(b"[]"), frame(b"[" * 100_000), frame(b"null"), frame(b'"x"'), b"Content-Length: -5\r\n\r\n",
    b"Content-Length: 99999999999999999999\r\n\r\n", b"Content-Length: x\r\n\r\n", b"Nothing: here\r\n\r\n", b"\r\n\r\n", b"a" * 50_000,
    frame({"method": 5}), frame({"id": {"a": 1}, "method": "shutdown"}), frame({"id": 7, "method": "textDocument/codeAction", "params": []}),
    frame({"method": "textDocument/didOpen", "params": {"textDocument": {"uri": 5, "text": None}}}),
    frame({"method": "textDocument/didOpen", "params": {"textDocument": {"uri": "untitled:1", "version": "x", "text": TRAIN}}}),
    frame({"method": "textDocument/didChange", "params": {"textDocument": {"uri": "untitled:1"}, "contentChanges": [
        {"text": "x", "range": {"start": {"line": 4_000_000_000, "character": -1}, "end": {"line": -5, "character": 1e300}}}]}}),
    frame({"method": "workspace/didChangeWatchedFiles", "params": {"changes": [{"uri": "file:///nowhere/%zz%"}, 3]}}),
    frame({"id": 8, "method": "no/such"}),
])
def test_broken_messages_are_passed_over(lowtide_binary, rubbish):
    code, answers = talk(lowtide_binary, frame(INITIALIZE), rubbish, frame(SHUTDOWN), frame({"method": "exit"}))
    assert code == 0
    assert answers[0]["id"] == 1 and answers[-1] == {"jsonrpc": "2.0", "id": "last", "result": None}


def test_order_of_life(lowtide_binary):
    code, answers = talk(lowtide_binary, frame(SHUTDOWN), frame(INITIALIZE), frame(SHUTDOWN), frame(SHUTDOWN), frame({"method": "exit"}))
    assert code == 0
    assert [a.get("error", {}).get("code") for a in answers] == [-32002, None, None, -32600]
    assert talk(lowtide_binary, frame(INITIALIZE), frame({"method": "exit"}))[0] == 1
    for cut in (b"", frame(INITIALIZE)[:-10], frame(INITIALIZE) + b"Content-Le", frame(INITIALIZE) + b"Content-Length: 100\r\n\r\n{"):
        assert talk(lowtide_binary, cut)[0] == 1
