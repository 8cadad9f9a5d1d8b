#include "lint/scan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace lowtide::lint {
namespace {

enum Sign : uint16_t {
  kTrains = 1 << 0,    // the function that has it is wanted
  kTorch = 1 << 1,
  kCopies = 1 << 2,    // deepcopy ...
  kAverage = 1 << 3,   // ... of an average; parameters() averaged
  kParameters = 1 << 4,
  kCutsGraph = 1 << 5, // detach, item: wanted where something is called a loss
  kWith = 1 << 6,      // wanted in a file that knows torch
  kHolds = 1 << 7,     // a class header: all members are wanted (Dataset, Function)
  kMember = 1 << 8,    // a method's own name: wanted always (update, __setitem__)
  kInit = 1 << 9,      // __init__: wanted when any other member is
  kSwitch = 1 << 10,   // autograd switched off ...
  kRuns = 1 << 11,     // ... where something is evaluated
  kWraps = 1 << 12,    // the file wraps a model: every constructor is wanted
  kDiffers = 1 << 13,  // the file differentiates: what its models return is wanted
  kForward = 1 << 14,
};

struct Word {
  const char* text;
  uint16_t sign;
};

constexpr Word kWords[] = {
    {"backward", kTrains | kDiffers}, {"forward", kForward}, {"manual_backward", kTrains}, {"zero_grad", kTrains}, {"no_grad", kSwitch}, {"inference_mode", kSwitch},
    {"set_grad_enabled", kSwitch}, {"DataLoader", kTrains}, {"DistributedSampler", kTrains}, {"set_epoch", kTrains}, {"empty_cache", kTrains},
    {"save_for_backward", kTrains}, {"register_forward_hook", kTrains}, {"register_forward_pre_hook", kTrains}, {"register_hook", kTrains},
    {"register_backward_hook", kTrains}, {"register_full_backward_hook", kTrains}, {"DistributedDataParallel", kTrains | kWraps}, {"DDP", kTrains | kWraps},
    {"load_state_dict", kTrains}, {"set_device", kTrains}, {"training_step", kTrains}, {"validation_step", kTrains}, {"retain_graph", kTrains},
    {"init_process_group", kTrains}, {"is_main_process", kTrains}, {"local_rank", kTrains}, {"LOCAL_RANK", kTrains}, {"gpu_id", kTrains},
    {"save_checkpoint", kTrains}, {"persistent_workers", kTrains}, {"is_global_zero", kTrains}, {"grad", kWith}, {"eval", kWith | kRuns}, {"train", kRuns}, {"epoch", kRuns}, {"loader", kRuns}, {"dataloader", kRuns}, {"val_loader", kRuns}, {"test_loader", kRuns}, {"valid_loader", kRuns}, {"validate", kRuns}, {"evaluate", kRuns}, {"data_loader", kRuns}, {"criterion", kRuns}, {"save", kWith},
    {"optimizer", kWith}, {"get_rank", kTrains}, {"cycle", kWith}, {"create_graph", kTrains}, {"add_param_group", kTrains}, {"subplots", kWith}, {"torch", kTorch}, {"deepcopy", kCopies}, {"ema", kAverage}, {"EMA", kAverage}, {"ema_model", kAverage},
    {"shadow", kAverage}, {"decay", kAverage}, {"teacher", kAverage}, {"averaged", kAverage}, {"parameters", kParameters},
    {"named_parameters", kParameters}, {"detach", kCutsGraph}, {"item", kCutsGraph}, {"Dataset", kHolds}, {"IterableDataset", kHolds},
    {"Function", kHolds}, {"update", kMember}, {"__setitem__", kMember}, {"__init__", kInit}, {"sampler", kWith}, {"shuffle", kWith},
};

constexpr size_t kSlots = 512;

constexpr uint32_t Hash(const char* text, size_t size) {
  uint32_t hash = static_cast<uint32_t>(size) * 0x9e3779b1u;
  for (size_t i = 0; i < size && i < 16; ++i) hash = (hash ^ static_cast<uint8_t>(text[i])) * 0x01000193u;
  return hash ^ hash >> 15;
}

struct Table {
  std::array<uint8_t, kSlots> slots{};  // index into kWords + 1
  std::array<bool, 256> word{};
  constexpr Table() {
    for (size_t i = 0; i < std::size(kWords); ++i) {
      uint32_t slot = Hash(kWords[i].text, std::char_traits<char>::length(kWords[i].text)) % kSlots;
      while (slots[slot]) slot = (slot + 1) % kSlots;
      slots[slot] = static_cast<uint8_t>(i + 1);
    }
    for (int c = 0; c < 256; ++c) word[c] = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9') || c >= 128;
  }
};

constexpr Table kTable;

enum class Piece : uint8_t { kStatement, kFunction, kClass, kMember };

// A top-level statement, a function, a class up to its first member, or a member.
struct Chunk {
  Range range;
  Piece piece = Piece::kStatement;
  int owner = -1;         // chunk of the class, for members
  uint32_t name = 0;      // hash of a function's name
  bool loss_named = false;
  uint16_t signs = 0;      // of its whole text
  uint16_t head_signs = 0; // of its header line: name and bases
  bool wanted = false;
  size_t first_word = 0;   // its identifiers' hashes, in the outline's list, up to the next chunk's
};

bool HasLoss(const char* text, size_t size) {
  for (size_t i = 0; i + 4 <= size; ++i) {
    if ((text[i] | 32) == 'l' && text[i + 1] == 'o' && text[i + 2] == 's' && text[i + 3] == 's') return true;
  }
  return false;
}

// Cuts the text into chunks. Strings, comments and brackets are followed so that only real line starts count.
class Outline {
 public:
  explicit Outline(std::string_view text) : text_(text) {}

  bool Run() {
    size_t at = text_.substr(0, 3) == "\xef\xbb\xbf" ? 3 : 0;
    chunks_.emplace_back();
    chunks_.back().range.start = 0;
    bool line_start = true;
    while (at < text_.size()) {
      if (line_start && depth_ == 0) {
        size_t indent = at;
        while (indent < text_.size() && (text_[indent] == ' ' || text_[indent] == '\t')) ++indent;
        if (indent < text_.size() && text_[indent] != '\n' && text_[indent] != '#' && text_[indent] != '\r') StartLine(at, indent);
        at = indent;
        line_start = false;
        continue;
      }
      line_start = false;
      char c = text_[at];
      if (kTable.word[static_cast<uint8_t>(c)]) {
        at = ReadWord(at);
        continue;
      }
      switch (c) {
        case '\n':
          ++line_;
          line_start = true;
          in_head_ = in_head_ && depth_ > 0;
          break;
        case '#':
          while (at + 1 < text_.size() && text_[at + 1] != '\n') ++at;
          break;
        case '\\':
          if (at + 1 < text_.size() && text_[at + 1] == '\r') ++at;
          if (at + 1 < text_.size() && text_[at + 1] == '\n') ++at, ++line_;
          break;
        case '(':
        case '[':
        case '{': ++depth_; break;
        case ')':
        case ']':
        case '}':
          if (--depth_ < 0) return false;
          break;
        case '"':
        case '\'':
          at = SkipString(at);
          if (at == std::string_view::npos) return false;
          continue;
        default: break;
      }
      ++at;
    }
    chunks_.back().range.end = static_cast<uint32_t>(text_.size());
    chunks_.back().range.last_line = line_;
    return depth_ == 0;
  }

  std::vector<Chunk>& chunks() { return chunks_; }
  const std::vector<uint32_t>& words() const { return words_; }
  uint16_t all_signs() const { return all_; }

 private:
  size_t ReadWord(size_t at) {
    size_t begin = at;
    while (at < text_.size() && kTable.word[static_cast<uint8_t>(text_[at])]) ++at;
    size_t size = at - begin;
    const char* text = text_.data() + begin;
    uint32_t hash = Hash(text, size);
    Chunk& chunk = chunks_.back();
    words_.push_back(hash);
    for (uint32_t slot = hash % kSlots; kTable.slots[slot]; slot = (slot + 1) % kSlots) {
      const Word& word = kWords[kTable.slots[slot] - 1];
      if (std::strncmp(word.text, text, size) == 0 && word.text[size] == '\0') {
        chunk.signs |= word.sign;
        if (in_head_) chunk.head_signs |= word.sign;
        all_ |= word.sign;
        break;
      }
    }
    if (in_head_ && size > 7 && std::memcmp(text + size - 7, "Dataset", 7) == 0) chunk.head_signs |= kHolds;
    return at;
  }

  size_t SkipString(size_t at) {
    char quote = text_[at];
    // Raw strings keep backslashes, but a backslash still hides the quote after it.
    if (text_.substr(at, 3) == std::string_view(quote == '"' ? "\"\"\"" : "'''")) {
      for (at += 3; at < text_.size(); ++at) {
        if (text_[at] == '\\') {
          ++at;
          if (at < text_.size() && text_[at] == '\n') ++line_;
        } else if (text_[at] == '\n') {
          ++line_;
        } else if (text_[at] == quote && text_.substr(at, 3) == std::string_view(quote == '"' ? "\"\"\"" : "'''")) {
          return at + 3;
        }
      }
      return std::string_view::npos;
    }
    for (++at; at < text_.size(); ++at) {
      if (text_[at] == '\\') {
        ++at;
        if (at < text_.size() && text_[at] == '\n') ++line_;
      } else if (text_[at] == quote) {
        return at + 1;
      } else if (text_[at] == '\n') {
        return std::string_view::npos;  // no such string; the outline is unclear
      }
    }
    return std::string_view::npos;
  }

  bool Starts(size_t at, std::string_view word) const {
    if (text_.substr(at, word.size()) != word) return false;
    size_t after = at + word.size();
    return after >= text_.size() || !kTable.word[static_cast<uint8_t>(text_[after])];
  }

  void StartLine(size_t line_begin, size_t at) {
    size_t indent = at - line_begin;
    if (continues_ && indent == decorated_indent_) {  // the line under a decorator
      Classify(at, indent);
      return;
    }
    bool continuation = Starts(at, "else") || Starts(at, "elif") || Starts(at, "except") || Starts(at, "finally") || Starts(at, "case");
    if (indent == 0) {
      if (continuation) return;
      Open(line_begin);
      class_indent_ = 0;
      in_class_ = -1;
      Classify(at, indent);
      return;
    }
    if (in_class_ < 0) return;
    if (class_indent_ == 0) class_indent_ = indent;  // the class's first body line
    if (indent != class_indent_ || continuation) return;
    bool member = Starts(at, "def") || Starts(at, "async") || text_[at] == '@';
    bool was_member = chunks_.back().piece == Piece::kMember;
    if (!member && !was_member) return;  // attributes stay with the header
    Open(line_begin);
    chunks_.back().owner = in_class_;
    if (member) {
      Classify(at, indent);
    } else {
      chunks_.back().piece = Piece::kStatement;  // an attribute between members
    }
  }

  void Open(size_t line_begin) {
    chunks_.back().range.end = static_cast<uint32_t>(line_begin);
    chunks_.back().range.last_line = line_;
    chunks_.emplace_back();
    chunks_.back().range.start = static_cast<uint32_t>(line_begin);
    chunks_.back().range.first_line = line_;
    chunks_.back().first_word = words_.size();
  }

  void Classify(size_t at, size_t indent) {
    Chunk& chunk = chunks_.back();
    continues_ = false;
    if (text_[at] == '@') {
      continues_ = true;
      decorated_indent_ = indent;
      in_head_ = true;
      if (indent > 0) chunk.piece = Piece::kMember;
      return;
    }
    if (Starts(at, "def") || Starts(at, "async")) {
      chunk.piece = indent == 0 ? Piece::kFunction : Piece::kMember;
      if (Starts(at, "async") && !Starts(at + 6, "def")) chunk.piece = Piece::kStatement;
      in_head_ = true;
      skip_def_ = Starts(at, "async") ? 2 : 1;
    } else if (Starts(at, "class") && indent == 0) {
      chunk.piece = Piece::kClass;
      in_class_ = static_cast<int>(chunks_.size()) - 1;
      in_head_ = true;
      skip_def_ = 1;
    } else {
      return;
    }
    // The name comes after the keyword(s).
    size_t name = at;
    for (int i = 0; i < skip_def_; ++i) {
      while (name < text_.size() && kTable.word[static_cast<uint8_t>(text_[name])]) ++name;
      while (name < text_.size() && (text_[name] == ' ' || text_[name] == '\t')) ++name;
    }
    size_t end = name;
    while (end < text_.size() && kTable.word[static_cast<uint8_t>(text_[end])]) ++end;
    chunk.name = Hash(text_.data() + name, end - name);
    chunk.loss_named = HasLoss(text_.data() + name, end - name);
  }

  std::string_view text_;
  std::vector<Chunk> chunks_;
  std::vector<uint32_t> words_;
  uint32_t line_ = 0;
  int depth_ = 0;
  int in_class_ = -1;
  int skip_def_ = 0;
  size_t class_indent_ = 0, decorated_indent_ = 0;
  bool continues_ = false, in_head_ = false;
  uint16_t all_ = 0;
};

bool Interesting(const Chunk& chunk, uint16_t file) {
  uint16_t signs = chunk.signs;
  bool torch = file & (kTorch | kTrains);
  constexpr uint32_t kShortLoss = 60;    // what it returns is asked for by those who call it
  constexpr uint32_t kShortSwitch = 30;  // a decorator or context manager of the project's own
  bool small = chunk.range.last_line - chunk.range.first_line <= kShortSwitch;
  return (signs & kTrains) || (signs & kSwitch && (small || signs & kRuns)) || (torch && (signs & kWith)) || (signs & kCopies && file & kAverage) || (signs & kParameters && signs & kAverage) ||
         (chunk.head_signs & kMember) || (file & kWraps && chunk.head_signs & kInit) || (file & kDiffers && chunk.head_signs & kForward) || (torch && chunk.loss_named && (signs & kCutsGraph || chunk.range.last_line - chunk.range.first_line <= kShortLoss));
}

// Longer functions are pulled in by what they contain, not by being called.
constexpr uint32_t kLongestHelper = 100;

// Which chunks are wanted; false when none is.
bool Choose(std::vector<Chunk>& chunks, const std::vector<uint32_t>& words, uint16_t file) {
  bool any = false;
  for (Chunk& chunk : chunks) {
    if (chunk.piece == Piece::kStatement && chunk.owner < 0) {
      any |= Interesting(chunk, file);
      continue;
    }
    const Chunk* owner = chunk.owner >= 0 ? &chunks[chunk.owner] : nullptr;
    bool held = owner && owner->head_signs & kHolds;
    bool loss_class = owner && owner->loss_named && file & kTorch && (chunk.signs & kCutsGraph || chunk.range.last_line - chunk.range.first_line <= 60);
    chunk.wanted = chunk.piece != Piece::kStatement && (Interesting(chunk, file) || held || loss_class);
    any |= chunk.wanted;
  }
  if (!any) return false;
  // What wanted code may call, and the constructors of classes with wanted members.
  constexpr uint32_t kMentions = 1 << 16;
  std::vector<bool> mentioned(kMentions), seen(chunks.size());
  for (int round = 0; round < 3; ++round) {
    bool grew = false;
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (seen[i] || !(chunks[i].wanted || (round == 0 && chunks[i].piece == Piece::kStatement && chunks[i].owner < 0))) continue;
      seen[i] = true;
      size_t last = i + 1 < chunks.size() ? chunks[i + 1].first_word : words.size();
      for (size_t at = chunks[i].first_word; at < last; ++at) mentioned[words[at] % kMentions] = true;
    }
    for (Chunk& chunk : chunks) {
      bool callable = chunk.piece == Piece::kFunction || chunk.piece == Piece::kMember;
      if (chunk.wanted || !callable || chunk.signs & kInit || !mentioned[chunk.name % kMentions]) continue;
      if (chunk.range.last_line - chunk.range.first_line > kLongestHelper) continue;
      chunk.wanted = grew = true;
    }
    if (!grew) break;
  }
  std::vector<bool> has_member(chunks.size());
  for (const Chunk& chunk : chunks) {
    if (chunk.wanted && chunk.owner >= 0) has_member[chunk.owner] = true;
  }
  for (Chunk& chunk : chunks) {
    if (chunk.owner < 0) {
      if (chunk.piece == Piece::kStatement || chunk.piece == Piece::kClass) chunk.wanted = true;
    } else if (has_member[chunk.owner] && (chunk.piece == Piece::kStatement || chunk.head_signs & kInit)) {
      chunk.wanted = true;
    }
  }
  return true;
}

}  // namespace

std::vector<Range> RelevantRanges(std::string_view text) {
  Outline outline(text);
  bool clear = outline.Run();
  std::vector<Chunk>& chunks = outline.chunks();
  if (!clear) {
    bool trains = text.find("torch") != std::string_view::npos || text.find("backward") != std::string_view::npos;
    if (!trains) return {};
    return {Range{0, static_cast<uint32_t>(text.size()), 0, UINT32_MAX}};
  }
  if (!Choose(chunks, outline.words(), outline.all_signs())) return {};
  std::vector<Range> ranges;
  for (const Chunk& chunk : chunks) {
    if (!chunk.wanted || chunk.range.start == chunk.range.end) continue;
    if (!ranges.empty() && ranges.back().end == chunk.range.start) {
      ranges.back().end = chunk.range.end;
      ranges.back().last_line = chunk.range.last_line;
    } else {
      ranges.push_back(chunk.range);
    }
  }
  return ranges;
}

}  // namespace lowtide::lint
