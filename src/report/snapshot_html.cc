#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/json.h"
#include "base/units.h"
#include "finding/version.h"
#include "report/html_page.h"
#include "report/snapshot_assets.h"
#include "report/snapshot_levels.h"
#include "report/snapshot_page_data.h"
#include "report/snapshot_places.h"
#include "report/snapshot_report.h"

namespace lowtide::report {
namespace {

using snapshot::DeviceReport;
using snapshot::Explanation;
using snapshot::Share;

constexpr size_t kMostRows = 200;  // of a table on the page

std::string Bytes(uint64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

class PageWriter {
 public:
  PageWriter(const SnapshotView& view, const SnapshotOptions& options)
      : view_(view), places_(options.hide_sources), zh_(options.lang == "zh"), data_(places_) {}

  std::string Write() {
    Header();
    html_.Open("main");
    Findings();
    if (view_.ranks) Ranks();
    if (view_.diff) Diff();
    for (const Explanation& file : view_.files) {
      for (const DeviceReport& device : file.devices) Device(file, device);
    }
    html_.Close();
    html_.Open("footer")
        .Leaf("p", {},
              fmt::format("lowtide {}. {}", kVersion,
                          Say("Bytes are powers of 1000. Nothing on this page is loaded from elsewhere.",
                              "字节以 1000 为进位. 本页不加载任何外部内容.")))
        .Close();
    Page page;
    page.title = "lowtide snapshot " + places_.Path(view_.files.front().snapshot->file);
    page.lang = zh_ ? "zh" : "en";
    page.body = html_.Take();
    page.data_json = data_.Json(zh_);
    page.extra_style = &kSnapshotStyle;
    page.script = &kSnapshotScript;
    return RenderPage(page);
  }

 private:
  const char* Say(const char* english, const char* chinese) const { return zh_ ? chinese : english; }

  void Header() {
    html_.Open("header").Leaf("p", {{"class", "brand"}}, "lowtide");
    html_.Leaf("h1", {}, Say("CUDA memory snapshot", "CUDA 显存快照"));
    for (const Explanation& file : view_.files) {
      const auto& snapshot = *file.snapshot;
      html_.Leaf("p", {{"class", "folder"}},
                 fmt::format("{} ({}, {}, torch {})", places_.Path(snapshot.file), snapshot.container,
                             Bytes(snapshot.file_bytes), snapshot.family));
      for (const auto& sentence : snapshot.missing) html_.Leaf("p", {{"class", "folder"}}, sentence);
    }
    html_.Close();
  }

  void Findings() {
    for (const auto& original : view_.findings) {
      const auto finding = places_.Of(original);
      html_.Open("section", {{"class", std::string("card ") + finding::SeverityName(finding.severity)}});
      html_.Leaf("span", {{"class", std::string("badge ") + finding::SeverityName(finding.severity)}},
                 finding.code);
      html_.Leaf("p", {{"class", "message"}},
                 zh_ && !finding.message_zh.empty() ? finding.message_zh : finding.message);
      for (const auto& where : finding.where)
        html_.Leaf("p", {{"class", "place"}}, fmt::format("{}:{}", places_.Path(where.file), where.line));
      if (!finding.help.empty()) html_.Leaf("p", {{"class", "message"}}, finding.help);
      html_.Close();
    }
  }

  void Head(std::initializer_list<std::pair<const char*, bool>> columns) {
    html_.Open("table").Open("thead").Open("tr");
    for (const auto& [name, number] : columns) html_.Leaf("th", {{"class", number ? "number" : ""}}, name);
    html_.Close().Close().Open("tbody");
  }
  void Cell(const std::string& text, bool number = false) {
    html_.Leaf("td", {{"class", number ? "number" : ""}}, text);
  }

  void Ranks() {
    html_.Open("section", {{"class", "panel"}}).Leaf("h3", {}, Say("Ranks", "各 rank"));
    Head({{"rank", true},
          {"device", false},
          {Say("peak", "峰值"), true},
          {Say("reserved", "保留"), true},
          {Say("growth", "增长"), false},
          {"", false}});
    const auto& ranks = *view_.ranks;
    for (size_t i = 0; i < ranks.rows.size(); ++i) {
      const auto& row = ranks.rows[i];
      html_.Open("tr");
      Cell(std::to_string(row.rank), true);
      Cell(fmt::format("cuda:{}", row.device));
      Cell(Bytes(row.peak), true);
      Cell(Bytes(row.reserved), true);
      Cell(row.growth);
      Cell(row.died ? (static_cast<int>(i) == ranks.first_dead ? Say("died first", "最先显存不足")
                                                               : Say("out of memory", "显存不足"))
                    : "");
      html_.Close();
    }
    html_.Close().Close().Close();
  }

  void Diff() {
    for (const auto& diff : *view_.diff) {
      html_.Open("section", {{"class", "panel"}})
          .Leaf("h3", {},
                fmt::format("{} cuda:{}: {} -> {}", Say("Difference at the peak,", "峰值差别"), diff.device,
                            Bytes(diff.peak_before), Bytes(diff.peak_after)));
      Head({{Say("change", "变化"), true},
            {Say("before", "之前"), true},
            {Say("after", "之后"), true},
            {Say("line", "代码行"), false}});
      for (size_t i = 0; i < diff.by_line.size() && i < kMostRows; ++i) {
        const auto& change = diff.by_line[i];
        if (change.delta() == 0) break;
        html_.Open("tr");
        Cell(FormatBytes(static_cast<double>(change.delta())), true);
        Cell(Bytes(change.before), true);
        Cell(Bytes(change.after), true);
        Cell(places_.Label(change.label));
        html_.Close();
      }
      html_.Close().Close().Close();
    }
  }

  void Canvas(const char* kind, size_t index, const char* title, const std::string& hint) {
    html_.Open("section", {{"class", "panel"}}).Leaf("h3", {}, title).Leaf("p", {{"class", "hint"}}, hint);
    html_.Open("div", {{"class", std::strcmp(kind, "segments") == 0 ? "scroll" : ""}});
    html_.Leaf(
        "canvas",
        {{"data-kind", kind}, {"data-device", std::to_string(index)}, {"role", "img"}, {"aria-label", title}},
        "");
    html_.Close().Close();
  }

  void Shares(const char* title, const std::vector<Share>& shares, uint64_t total, bool how) {
    html_.Open("section", {{"class", "panel"}}).Leaf("h3", {}, title).Open("div", {{"class", "scroll"}});
    Head({{Say("bytes", "字节"), true},
          {"%", true},
          {how ? Say("category", "类别") : Say("line", "代码行"), false},
          {how ? Say("how it was decided", "判断依据") : Say("blocks", "块"), !how}});
    for (size_t i = 0; i < shares.size() && i < kMostRows; ++i) {
      const Share& share = shares[i];
      html_.Open("tr");
      Cell(Bytes(share.bytes), true);
      Cell(fmt::format("{:.1f}",
                       total ? 100.0 * static_cast<double>(share.bytes) / static_cast<double>(total) : 0),
           true);
      Cell(places_.Label(share.label));
      Cell(how ? share.how : FormatCount(share.blocks), !how);
      html_.Close();
    }
    html_.Close().Close().Close().Close();
  }

  void Device(const Explanation& file, const DeviceReport& device) {
    const size_t index = data_.Add(file, device);
    html_.Leaf("h2", {},
               fmt::format("cuda:{}{}", device.device,
                           view_.files.size() > 1 ? fmt::format(", rank {}", file.rank) : ""));
    html_.Open("dl", {{"class", "tiles"}});
    for (const auto& [name, value] :
         {std::pair(Say("peak (requested)", "峰值 (请求)"), device.peak.bytes),
          std::pair(Say("reserved", "保留"), device.reserved),
          std::pair(Say("allocated", "已分配"), device.allocated),
          std::pair(Say("free, pinned between blocks", "空闲但被夹住"), device.fragmentation.pinned_free)}) {
      html_.Open("div").Leaf("dt", {}, name).Leaf("dd", {}, Bytes(value)).Close();
    }
    html_.Open("div").Leaf("dt", {}, Say("growth", "增长")).Leaf("dd", {}, device.growth.verdict).Close();
    html_.Close();
    if (device.events > 1) {
      Canvas("timeline", index, Say("Live memory over the trace", "显存随事件变化"),
             Say("Colours: lines of code by what they hold; black: exact level; dashed: reserved. Wheel "
                 "zooms, dragging moves, double click shows all.",
                 "颜色: 各代码行持有量; 黑线: 精确值; 虚线: 保留量. 滚轮缩放, 拖动平移, 双击复位."));
    }
    html_.Open("div", {{"class", "two"}});
    Shares(Say("At the peak, by category", "峰值, 按类别"), device.peak.by_category, device.peak.bytes, true);
    Shares(Say("At the peak, by line of code", "峰值, 按代码行"), device.peak.by_line, device.peak.bytes,
           false);
    html_.Close();
    if (device.peak.bytes)
      Canvas("flame", index, Say("Flame graph of the peak", "峰值火焰图"),
             Say("Outermost call on top; a click on a frame makes it the whole width.",
                 "最外层调用在上; 点击帧可展开."));
    if (device.segments) {
      Canvas(
          "segments", index, Say("Segments when the snapshot was taken", "快照时的段"),
          data_.ShownSegments(device) < device.segments
              ? fmt::format("{} of {} segments, largest first", data_.ShownSegments(device), device.segments)
              : std::string(Say("Grey is free. Wheel zooms.", "灰色为空闲. 滚轮缩放.")));
    }
  }

  const SnapshotView& view_;
  SnapshotPlaces places_;
  bool zh_;
  SnapshotPageData data_;
  HtmlWriter html_;
};

}  // namespace

std::string SnapshotToHtml(const SnapshotView& view, const SnapshotOptions& options) {
  return PageWriter(view, options).Write();
}

}  // namespace lowtide::report
