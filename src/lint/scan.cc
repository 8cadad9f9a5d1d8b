#include "lint/scan.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace lowtide::lint {
namespace {

enum Sign : uint8_t {
  kAlone = 1,     // enough by itself
  kTorch = 2,     // a torch file ...
  kWithTorch = 4, // ... that has one of these
  kMeterA = 8,    // a meter: update() ...
  kMeterB = 16,   // ... with an average, in a file that need not know torch
  kCollectA = 32, // a collector: __setitem__ ...
  kCollectB = 64, // ... that appends
};

struct Word {
  const char* text;
  uint8_t sign;
};

constexpr Word kWords[] = {
    {"backward", kAlone}, {"manual_backward", kAlone}, {"zero_grad", kAlone}, {"no_grad", kAlone}, {"inference_mode", kAlone},
    {"set_grad_enabled", kAlone}, {"DataLoader", kAlone}, {"DistributedSampler", kAlone}, {"set_epoch", kAlone}, {"empty_cache", kAlone},
    {"save_for_backward", kAlone}, {"register_forward_hook", kAlone}, {"register_forward_pre_hook", kAlone}, {"register_backward_hook", kAlone},
    {"register_full_backward_hook", kAlone}, {"DistributedDataParallel", kAlone}, {"DDP", kAlone}, {"load_state_dict", kAlone}, {"set_device", kAlone},
    {"training_step", kAlone}, {"validation_step", kAlone}, {"optimizer", kAlone}, {"init_process_group", kAlone},
    {"torch", kTorch}, {"eval", kWithTorch}, {"detach", kWithTorch}, {"item", kWithTorch}, {"Dataset", kWithTorch}, {"deepcopy", kWithTorch},
    {"save", kWithTorch}, {"load", kWithTorch}, {"compute_loss", kWithTorch}, {"criterion", kWithTorch}, {"model", kMeterB},
    {"update", kMeterA}, {"avg", kMeterB}, {"average", kMeterB}, {"total", kMeterB}, {"count", kMeterB},
    {"__setitem__", kCollectA}, {"append", kCollectB},
};

constexpr size_t kSlots = 1024;

constexpr uint32_t Hash(const char* text, size_t size) {
  uint32_t hash = static_cast<uint32_t>(size) * 0x9e3779b1u;
  for (size_t i = 0; i < size && i < 8; ++i) hash = (hash ^ static_cast<uint8_t>(text[i])) * 0x01000193u;
  return hash ^ hash >> 15;
}

struct Table {
  std::array<uint8_t, kSlots> slots{};  // index into kWords + 1
  std::array<bool, 256> word{};
  constexpr Table() {
    for (size_t i = 0; i < std::size(kWords); ++i) {
      size_t size = std::char_traits<char>::length(kWords[i].text);
      uint32_t slot = Hash(kWords[i].text, size) % kSlots;
      while (slots[slot]) slot = (slot + 1) % kSlots;
      slots[slot] = static_cast<uint8_t>(i + 1);
    }
    for (int c = 0; c < 256; ++c) word[c] = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9') || c >= 128;
  }
};

constexpr Table kTable;

}  // namespace

bool WorthParsing(std::string_view text) {
  uint8_t signs = 0;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    while (at < end && !kTable.word[static_cast<uint8_t>(*at)]) ++at;
    const char* begin = at;
    while (at < end && kTable.word[static_cast<uint8_t>(*at)]) ++at;
    size_t size = static_cast<size_t>(at - begin);
    if (size < 3 || size > 32) continue;
    for (uint32_t slot = Hash(begin, size) % kSlots; kTable.slots[slot]; slot = (slot + 1) % kSlots) {
      const Word& word = kWords[kTable.slots[slot] - 1];
      if (std::strncmp(word.text, begin, size) == 0 && word.text[size] == '\0') {
        signs |= word.sign;
        if (signs & kAlone) return true;
        break;
      }
    }
    if ((signs & kTorch) && (signs & kWithTorch)) return true;
    if ((signs & kMeterA) && (signs & kMeterB)) return true;
    if ((signs & kCollectA) && (signs & kCollectB)) return true;
  }
  return false;
}

}  // namespace lowtide::lint
