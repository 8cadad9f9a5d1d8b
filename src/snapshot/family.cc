#include "snapshot/family.h"

#include "snapshot/known.h"

namespace lowtide::snapshot {
namespace {

bool Has(uint64_t keys, uint32_t key) { return keys >> key & 1; }

// torch_npu asks for 32 bytes more than wanted: in its small pool, where no tail is ever left, a request of
// whole 512s takes 512 more.
bool HasNpuPadding(const Snapshot& snapshot) {
  size_t padded = 0, exact = 0;
  for (const Segment& segment : snapshot.segments) {
    if (segment.large) continue;
    for (const Block& block : snapshot.BlocksOf(segment)) {
      if (block.state == Block::kInactive || block.requested == 0 || block.requested % 512) continue;
      padded += block.size == block.requested + 512;
      exact += block.size == block.requested;
    }
  }
  return padded > 4 && exact == 0;
}

bool IsNpu(const Snapshot& snapshot) {
  for (const Event& event : snapshot.events) {
    if (event.action() == Action::kWorkspaceSnapshot) return true;
  }
  for (uint32_t i = 0; i < snapshot.names.string_count() && i < 20000; ++i) {
    if (snapshot.names.text(i).find("torch_npu") != std::string_view::npos) return true;
  }
  return HasNpuPadding(snapshot);
}

// From the newest key that is there; key dates: docs/snapshots.md.
const char* Name(const FamilyFacts& facts, const Snapshot& snapshot) {
  if (facts.list_form) return "list form (torch.cuda.memory_snapshot)";
  if (!Has(facts.top_keys, kAllocatorSettings) && IsNpu(snapshot)) return "torch_npu";
  const bool events = facts.event_keys != 0;
  if (Has(facts.top_keys, kHostSegments) || Has(facts.top_keys, kHostTraces)) return "2.13+";
  if (Has(facts.event_keys, kInternalMetadata)) return "2.13+";
  if (Has(facts.event_keys, kPoolId)) return "2.12";
  if (Has(facts.event_keys, kUserMetadata)) return "2.10-2.11";
  if (Has(facts.event_keys, kCompileContext)) return "2.8-2.9";
  if (Has(facts.top_keys, kExternalAnnotations)) {
    if (events) return "2.5-2.7";
    return snapshot.settings.other.count("graph_capture_record_stream_reuse") ? "2.10 or later"
                                                                              : "2.5 or later";
  }
  if (Has(facts.top_keys, kAllocatorSettings)) return "2.3-2.4";
  if (Has(facts.event_keys, kTimeUs)) return "2.2";
  if (Has(facts.block_keys, kHistory) || (facts.block_keys && !Has(facts.block_keys, kAddress))) return "2.0";
  return Has(facts.block_keys, kAddress) ? "2.1" : "unknown";
}

}  // namespace

void NameFamily(const FamilyFacts& facts, Snapshot& snapshot) {
  snapshot.family = Name(facts, snapshot);
  auto& missing = snapshot.missing;
  bool any_stack = snapshot.names.stack_count() > 1, events = false, many_events = false;
  for (const auto& trace : snapshot.traces) {
    events |= trace.count > 0;
    many_events |= trace.count > 1;
  }
  if (!events) {
    missing.push_back(
        "no event was recorded, so the peak, growth and replay are unknown: call "
        "torch.cuda.memory._record_memory_history() before the part of interest");
  } else if (!many_events) {
    missing.push_back(
        "at most one event per device was kept (recording with enabled='state' or max_entries=1), so the "
        "peak before the dump, growth and replay are unknown");
  }
  if (events && !Has(facts.event_keys, kTimeUs))
    missing.push_back("events carry no time; positions are event numbers");
  if (!any_stack)
    missing.push_back(
        "no stack was recorded, so memory cannot be given to source lines: record with context='all'");
  if (facts.block_keys && !Has(facts.block_keys, kRequestedSize)) {
    missing.push_back("blocks do not tell their requested size; the rounded size is used");
  }
  if (!snapshot.settings.present && !facts.list_form)
    missing.push_back("the allocator's settings were not written; defaults are assumed");
}

}  // namespace lowtide::snapshot
