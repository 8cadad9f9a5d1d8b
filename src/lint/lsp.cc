// The only file that reads the editor's JSON.
#include "lint/lsp.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "finding/version.h"
#include "lint/lsp_text.h"
#include "lint/lsp_transport.h"
#include "lint/lsp_workspace.h"
#include "lint/suppress.h"

namespace lowtide::lint {
namespace {

using Json = nlohmann::json;

enum ErrorCode {
  kParseError = -32700,
  kInvalidRequest = -32600,
  kMethodNotFound = -32601,
  kNotInitialized = -32002
};

// The member at `keys`, or null: the editor's messages are taken apart without trusting their shape.
const Json& At(const Json& json, std::initializer_list<const char*> keys) {
  static const Json none;
  const Json* at = &json;
  for (const char* key : keys) {
    auto found = at->is_object() ? at->find(key) : at->end();
    if (!at->is_object() || found == at->end()) return none;
    at = &*found;
  }
  return *at;
}

std::string StringAt(const Json& json, std::initializer_list<const char*> keys) {
  const Json& found = At(json, keys);
  return found.is_string() ? found.get<std::string>() : "";
}

uint32_t NumberAt(const Json& json, std::initializer_list<const char*> keys) {
  const Json& found = At(json, keys);
  if (found.is_number_unsigned())
    return static_cast<uint32_t>(std::min<uint64_t>(found.get<uint64_t>(), INT32_MAX));
  return 0;
}

LspPosition PositionAt(const Json& json) { return {NumberAt(json, {"line"}), NumberAt(json, {"character"})}; }

struct Document {
  std::string path;  // empty: not a file
  LspText text;
  Json version;
  std::vector<Diagnostic> diagnostics;  // of this text, unless the document is among the dirty ones
};

class Server {
 public:
  Server(const DriverOptions& options, int in, int out) : stream_(in, out), workspace_(options) {}

  int Serve() {
    std::string body;
    for (;;) {
      if (!dirty_.empty() && !stream_.HasMore()) PublishDirty();
      switch (stream_.Read(body)) {
        case LspStream::Event::kEnd:
          return is_shut_down_ ? 0 : 1;
        case LspStream::Event::kBroken:
          Fail(nullptr, kParseError, "no message: a header without a usable Content-Length");
          continue;
        case LspStream::Event::kMessage:
          break;
      }
      Json message = Json::parse(body, nullptr, false);
      if (message.is_discarded() || !message.is_object()) {
        Fail(nullptr, kParseError, "the message is no JSON object");
        continue;
      }
      if (StringAt(message, {"method"}) == "exit") return is_shut_down_ ? 0 : 1;
      Handle(message);
    }
  }

 private:
  void Send(const Json& message) {
    stream_.Write(message.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  void Reply(const Json& id, Json result) {
    Send({{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}});
  }
  void Fail(const Json& id, int code, const std::string& text) {
    Send({{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", code}, {"message", text}}}});
  }
  void Notify(const char* method, Json params) {
    Send({{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}});
  }

  void Handle(const Json& message) {
    std::string method = StringAt(message, {"method"});
    if (method.empty()) return;  // an answer to something; we ask nothing
    const Json& raw_id = At(message, {"id"});
    bool is_request = raw_id.is_number() || raw_id.is_string();
    const Json& params = At(message, {"params"});
    if (is_request) return Request(raw_id, method, params);
    if (!is_initialized_) return;
    if (method == "initialized")
      Load();
    else if (method == "textDocument/didOpen")
      Open(params);
    else if (method == "textDocument/didChange")
      Change(params);
    else if (method == "textDocument/didSave")
      Save(params);
    else if (method == "textDocument/didClose")
      Close(params);
    else if (method == "workspace/didChangeWatchedFiles")
      FilesChanged(params);
  }

  void Request(const Json& id, const std::string& method, const Json& params) {
    if (method == "initialize") {
      if (is_initialized_) return Fail(id, kInvalidRequest, "already initialized");
      return Initialize(id, params);
    }
    if (!is_initialized_) return Fail(id, kNotInitialized, "initialize first");
    if (is_shut_down_) return Fail(id, kInvalidRequest, "already shut down");
    if (method == "shutdown") {
      is_shut_down_ = true;
      Reply(id, nullptr);
    } else if (method == "textDocument/codeAction") {
      Reply(id, CodeActions(params));
    } else {
      Fail(id, kMethodNotFound, "no such method: " + method);
    }
  }

  void Initialize(const Json& id, const Json& params) {
    is_initialized_ = true;
    const Json& folders = At(params, {"workspaceFolders"});
    if (folders.is_array()) {
      for (const Json& folder : folders) folders_.push_back(PathOfUri(StringAt(folder, {"uri"})));
    }
    if (folders_.empty()) folders_.push_back(PathOfUri(StringAt(params, {"rootUri"})));
    std::erase_if(folders_, [](const std::string& folder) { return folder.empty() || folder == "/"; });
    Json capabilities = {
        {"positionEncoding", "utf-16"},
        {"textDocumentSync", {{"openClose", true}, {"change", 2}, {"save", {{"includeText", false}}}}},
        {"codeActionProvider", {{"codeActionKinds", {"quickfix", "source.fixAll.lowtide"}}}},
    };
    Reply(id, {{"capabilities", std::move(capabilities)},
               {"serverInfo", {{"name", "lowtide"}, {"version", kVersion}}}});
  }

  void Load() {
    for (const std::string& problem : workspace_.Load(folders_)) {
      Notify("window/logMessage", {{"type", 2}, {"message", problem}});
    }
    AllDirty();
  }

  void AllDirty() {
    for (const auto& [uri, document] : documents_) dirty_.insert(uri);
  }

  void Open(const Json& params) {
    std::string uri = StringAt(params, {"textDocument", "uri"});
    if (uri.empty()) return;
    Document document{PathOfUri(uri),
                      LspText(StringAt(params, {"textDocument", "text"})),
                      At(params, {"textDocument", "version"}),
                      {}};
    if (!document.path.empty()) workspace_.Update(document.path, document.text.text());
    documents_.insert_or_assign(uri, std::move(document));
    dirty_.insert(uri);
  }

  void Change(const Json& params) {
    std::string uri = StringAt(params, {"textDocument", "uri"});
    auto document = documents_.find(uri);
    const Json& changes = At(params, {"contentChanges"});
    if (document == documents_.end() || !changes.is_array()) return;
    for (const Json& change : changes) {
      std::string text = StringAt(change, {"text"});
      const Json& range = At(change, {"range"});
      if (range.is_object()) {
        document->second.text.Replace(PositionAt(At(range, {"start"})), PositionAt(At(range, {"end"})), text);
      } else {
        document->second.text = LspText(std::move(text));
      }
    }
    document->second.version = At(params, {"textDocument", "version"});
    dirty_.insert(uri);
  }

  // What other open files are told may depend on this one: all are looked at again.
  void Save(const Json& params) {
    auto document = documents_.find(StringAt(params, {"textDocument", "uri"}));
    if (document == documents_.end() || document->second.path.empty()) return;
    workspace_.Update(document->second.path, document->second.text.text());
    AllDirty();
  }

  void Close(const Json& params) {
    std::string uri = StringAt(params, {"textDocument", "uri"});
    if (documents_.erase(uri) == 0) return;
    dirty_.erase(uri);
    Notify("textDocument/publishDiagnostics", {{"uri", uri}, {"diagnostics", Json::array()}});
  }

  void FilesChanged(const Json& params) {
    const Json& changes = At(params, {"changes"});
    if (!changes.is_array()) return;
    for (const Json& change : changes) {
      std::string uri = StringAt(change, {"uri"}), path = PathOfUri(uri);
      if (path.ends_with("/pyproject.toml")) workspace_.ForgetConfiguration();
      if (!path.ends_with(".py") || documents_.count(uri)) continue;
      try {
        workspace_.Update(path, ReadFile(path));
      } catch (const Error&) {
        workspace_.Forget(path);  // deleted
      }
    }
    AllDirty();
  }

  static Json RangeOf(const LspText& text, uint32_t start, uint32_t end) {
    LspPosition from = text.At(start), to = text.At(end);
    return {{"start", {{"line", from.line}, {"character", from.character}}},
            {"end", {{"line", to.line}, {"character", to.character}}}};
  }

  static Json DiagnosticJson(const LspText& text, const Diagnostic& one) {
    int severity = one.severity == finding::Severity::kError     ? 1
                   : one.severity == finding::Severity::kWarning ? 2
                                                                 : 3;
    Json json = {{"range", RangeOf(text, one.start, one.end)},
                 {"severity", severity},
                 {"code", one.code},
                 {"source", "lowtide"},
                 {"message", one.help.empty() ? one.message : one.message + "\n" + one.help}};
    if (one.code == kUnusedSuppression) json["tags"] = {1};  // unnecessary
    return json;
  }

  void Refresh(const std::string& uri, Document& document) {
    dirty_.erase(uri);
    document.diagnostics.clear();
    if (!document.path.ends_with(".ipynb"))
      document.diagnostics = workspace_.Check(document.path, document.text.text());
    Json list = Json::array();
    for (const Diagnostic& one : document.diagnostics) list.push_back(DiagnosticJson(document.text, one));
    Json params = {{"uri", uri}, {"diagnostics", std::move(list)}};
    if (document.version.is_number_integer()) params["version"] = document.version;
    Notify("textDocument/publishDiagnostics", std::move(params));
  }

  void PublishDirty() {
    for (const std::string& uri : std::set<std::string>(dirty_)) Refresh(uri, documents_.at(uri));
  }

  static bool Wants(const Json& params, const std::string& kind) {
    const Json& only = At(params, {"context", "only"});
    if (!only.is_array()) return true;
    return std::any_of(only.begin(), only.end(), [&](const Json& wanted) {
      return wanted.is_string() &&
             (kind == wanted.get<std::string>() || kind.starts_with(wanted.get<std::string>() + "."));
    });
  }

  static Json Action(const std::string& title, const char* kind, const std::string& uri, Json edits,
                     Json diagnostics, bool preferred) {
    Json action = {{"title", title}, {"kind", kind}, {"edit", {{"changes", {{uri, std::move(edits)}}}}}};
    if (!diagnostics.empty()) action["diagnostics"] = std::move(diagnostics);
    if (preferred) action["isPreferred"] = true;
    return action;
  }

  Json CodeActions(const Json& params) {
    Json actions = Json::array();
    std::string uri = StringAt(params, {"textDocument", "uri"});
    auto found = documents_.find(uri);
    if (found == documents_.end()) return actions;
    Document& document = found->second;
    if (dirty_.count(uri)) Refresh(uri, document);
    uint32_t from = document.text.ByteOf(PositionAt(At(params, {"range", "start"})));
    uint32_t to = document.text.ByteOf(PositionAt(At(params, {"range", "end"})));
    bool any_safe = false;
    for (const Diagnostic& one : document.diagnostics) {
      any_safe |= one.fix && one.fix->safe;
      if (one.start <= to && from <= one.end && Wants(params, "quickfix"))
        AddQuickFixes(actions, uri, document, one);
    }
    if (any_safe && Wants(params, "source.fixAll.lowtide")) {
      std::string fixed = workspace_.FixedText(document.path, document.text.text());
      Json edit = {{"range", RangeOf(document.text, 0, static_cast<uint32_t>(document.text.text().size()))},
                   {"newText", fixed}};
      actions.push_back(Action("lowtide: carry out all safe fixes", "source.fixAll.lowtide", uri,
                               Json::array({edit}), Json::array(), false));
    }
    return actions;
  }

  void AddQuickFixes(Json& actions, const std::string& uri, const Document& document, const Diagnostic& one) {
    Json diagnostics = Json::array({DiagnosticJson(document.text, one)});
    auto edit_json = [&](const Edit& edit) -> Json {
      return {{"range", RangeOf(document.text, edit.start, edit.end)}, {"newText", edit.replacement}};
    };
    if (one.fix) {
      Json edits = Json::array();
      for (const Edit& edit : one.fix->edits) edits.push_back(edit_json(edit));
      std::string title =
          fmt::format("lowtide: {}{}", one.fix->title, one.fix->safe ? "" : " (may change results)");
      actions.push_back(Action(title, "quickfix", uri, std::move(edits), diagnostics, one.fix->safe));
    }
    if (one.code == kUnusedSuppression) return;
    Edit suppression = AddSuppression(document.text.text(), one.line, one.code);
    actions.push_back(Action(fmt::format("lowtide: suppress {} on this line", one.code), "quickfix", uri,
                             Json::array({edit_json(suppression)}), diagnostics, false));
  }

  LspStream stream_;
  LspWorkspace workspace_;
  std::vector<std::string> folders_;
  std::map<std::string, Document> documents_;  // by URI
  std::set<std::string> dirty_;
  bool is_initialized_ = false, is_shut_down_ = false;
};

}  // namespace

int ServeLanguage(const DriverOptions& options, int in, int out) {
  std::signal(SIGPIPE, SIG_IGN);  // an editor that went away is seen as the end of the input
  return Server(options, in, out).Serve();
}

}  // namespace lowtide::lint
