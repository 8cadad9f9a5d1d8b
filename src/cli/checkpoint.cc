#include "cli/checkpoint.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/store.h"
#include "cli/color.h"
#include "finding/finding.h"
#include "finding/json.h"
#include "finding/version.h"

namespace lowtide::cli {
namespace {

using checkpoint::Header;
using checkpoint::Stored;

JsonWriter Begin() {
  JsonWriter json(1);
  json.BeginObject().Field("lowtide", kVersion).Field("schema", 1);
  return json;
}

void WriteStored(JsonWriter& json, const Stored& stored) {
  json.Field("path", stored.path)
      .Field("step", stored.step)
      .Field("bytes", stored.bytes)
      .Field("written", stored.written)
      .Field("ranks", stored.ranks)
      .Field("committed", stored.committed);
}

std::string When(int64_t seconds) { return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(seconds))); }

int ListAll(const CheckpointOptions& options) {
  const auto all = checkpoint::List(options.path);
  if (options.format == "json") {
    JsonWriter json = Begin();
    json.Key("checkpoints").BeginArray();
    for (const Stored& stored : all) {
      json.BeginObject();
      WriteStored(json, stored);
      json.EndObject();
    }
    fmt::print("{}\n", json.EndArray().EndObject().text());
    return 0;
  }
  if (all.empty()) fmt::print("no checkpoints in {}\n", options.path);
  for (const Stored& stored : all) {
    fmt::print("{:>12}  {:>9}  {}  {}{}\n", stored.committed ? "step " + std::to_string(stored.step) : "left over",
               FormatBytes(static_cast<double>(stored.bytes)), When(stored.written), stored.path,
               stored.ranks > 1 ? fmt::format("  ({} ranks)", stored.ranks) : "");
  }
  return 0;
}

finding::Finding Damaged(const checkpoint::Verdict& verdict) {
  finding::Finding item;
  item.code = "LT702";
  item.severity = finding::Severity::kError;
  item.message = verdict.problem;
  item.message_zh = fmt::format("检查点损坏：{}", verdict.stored.path);
  finding::Where where;
  where.file = verdict.stored.path;
  item.where.push_back(where);
  item.help = "use another checkpoint of this run; look at the disk that this one lies on";
  item.fingerprint = finding::Fingerprint(item.code, {verdict.stored.path});
  return item;
}

int VerifyAll(const CheckpointOptions& options, const CommonOptions& common) {
  std::vector<checkpoint::Verdict> verdicts;
  for (const Stored& stored : checkpoint::List(options.path)) {
    if (stored.committed) verdicts.push_back(checkpoint::Verify(stored));
  }
  if (verdicts.empty()) throw Error("there are no checkpoints", "name a checkpoint file, or the folder that holds them", options.path);
  size_t damaged = 0;
  for (const auto& verdict : verdicts) damaged += !verdict.problem.empty();
  if (options.format == "json") {
    JsonWriter json = Begin();
    json.Key("checkpoints").BeginArray();
    for (const auto& verdict : verdicts) {
      json.BeginObject();
      WriteStored(json, verdict.stored);
      json.Field("whole", verdict.problem.empty());
      json.Field("problem", verdict.problem.empty() ? std::nullopt : std::optional(verdict.problem)).EndObject();
    }
    json.EndArray().Key("findings").BeginArray();
    for (const auto& verdict : verdicts) {
      if (!verdict.problem.empty()) finding::WriteFinding(json, Damaged(verdict));
    }
    fmt::print("{}\n", json.EndArray().EndObject().text());
    return damaged ? 1 : 0;
  }
  const Terminal terminal = TerminalFor(1, common);
  for (const auto& verdict : verdicts) {
    fmt::print("{}  step {}  {}  {}\n", verdict.problem.empty() ? "whole  " : terminal.Red("damaged"), verdict.stored.step,
               FormatBytes(static_cast<double>(verdict.stored.bytes)), verdict.stored.path);
    if (!verdict.problem.empty()) fmt::print("  LT702: {}\n", verdict.problem);
  }
  return damaged ? 1 : 0;
}

// "model.layers.0.weight" belongs to the part "model".
std::map<std::string, std::pair<uint64_t, uint64_t>> Parts(const std::vector<Header>& headers) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> parts;
  for (const Header& header : headers) {
    for (const checkpoint::Tensor& tensor : header.tensors) {
      auto& [count, bytes] = parts[tensor.name.substr(0, tensor.name.find('.'))];
      ++count;
      bytes += tensor.end - tensor.begin;
    }
  }
  return parts;
}

void ShowTensor(JsonWriter& json, const checkpoint::Tensor& tensor) {
  json.BeginObject().Field("name", tensor.name).Field("dtype", tensor.dtype).Key("shape").BeginArray();
  for (uint64_t size : tensor.shape) json.Value(size);
  json.EndArray().Field("bytes", tensor.end - tensor.begin).Field("crc32c", fmt::format("{:08x}", tensor.crc)).EndObject();
}

int Show(const CheckpointOptions& options) {
  auto all = checkpoint::List(options.path);
  std::erase_if(all, [](const Stored& stored) { return !stored.committed; });
  if (all.empty()) throw Error("there are no checkpoints", "name a checkpoint file, or the folder that holds them", options.path);
  const Stored& stored = all.back();  // the newest of a folder
  const auto headers = checkpoint::Headers(stored);
  if (options.format == "json") {
    JsonWriter json = Begin();
    WriteStored(json, stored);
    json.Key("parts").BeginObject();
    for (const auto& [name, sizes] : Parts(headers)) {
      json.Key(name).BeginObject().Field("tensors", sizes.first).Field("bytes", sizes.second).EndObject();
    }
    json.EndObject().Key("tensors").BeginArray();
    for (const Header& header : headers) {
      for (const auto& tensor : header.tensors) ShowTensor(json, tensor);
    }
    fmt::print("{}\n", json.EndArray().EndObject().text());
    return 0;
  }
  fmt::print("{}\n  step {}, {}, written {}\n", stored.path, stored.step, FormatBytes(static_cast<double>(stored.bytes)), When(stored.written));
  for (const auto& [name, sizes] : Parts(headers)) {
    fmt::print("  {:<12} {:>6} tensors  {:>9}\n", name, sizes.first, FormatBytes(static_cast<double>(sizes.second)));
  }
  for (const Header& header : headers) {
    for (const auto& tensor : header.tensors) {
      std::string shape;
      for (uint64_t size : tensor.shape) shape += fmt::format("{}{}", shape.empty() ? "" : " x ", size);
      fmt::print("    {:<8} {:<24} {}\n", tensor.dtype, shape, tensor.name);
    }
  }
  return 0;
}

}  // namespace

int Checkpoint(const CheckpointOptions& options, const CommonOptions& common) {
  if (options.action == "list") return ListAll(options);
  if (options.action == "show") return Show(options);
  return VerifyAll(options, common);
}

}  // namespace lowtide::cli
