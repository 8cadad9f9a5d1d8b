#include "snapshot/lifetimes.h"

#include "snapshot/address_map.h"

namespace lowtide::snapshot {
namespace {

// Blocks in use when the snapshot was taken and not born in the trace.
void AddSurvivors(const Snapshot& snapshot, int device, const AddressMap& live, Lifetimes& out) {
  for (const Segment& segment : snapshot.segments) {
    if (segment.device != device) continue;
    for (const Block& block : snapshot.BlocksOf(segment)) {
      if (block.state == Block::kInactive || live.Find(block.address) != AddressMap::kNone) continue;
      LiveBlock older;
      older.address = block.address;
      older.bytes = block.requested;
      older.stack = block.stack;
      out.older.push_back(older);
      out.older_bytes += block.requested;
    }
  }
}

}  // namespace

Lifetimes FollowLifetimes(const Snapshot& snapshot, int device) {
  Lifetimes out;
  out.device = device;
  out.stacks.resize(snapshot.names.stack_count());
  AddressMap live;
  uint64_t level = 0, peak = 0;  // relative to the start, so two's complement
  if (const DeviceTrace* trace = snapshot.TraceOf(device)) {
    out.events = snapshot.EventsOf(*trace);
    out.partner.resize(out.events.size());
    for (uint32_t i = 0; i < out.events.size(); ++i) {
      const Event& event = out.events[i];
      out.partner[i] = Lifetimes::kNever;
      out.stacks[event.stack] = true;
      if (event.action() == Action::kAlloc) {
        live.Put(event.address, i);
        level += event.size;
        if (static_cast<int64_t>(level) > static_cast<int64_t>(peak)) {
          peak = level;
          out.peak_event = i;
        }
      } else if (event.action() == Action::kFreeCompleted) {
        const uint32_t alloc = live.Take(event.address);
        if (alloc != AddressMap::kNone) {
          out.partner[alloc] = i;
          out.partner[i] = alloc;
          level -= out.events[alloc].size;
        } else {
          LiveBlock older;
          older.address = event.address;
          older.bytes = event.size;
          older.free_event = i;
          out.older.push_back(older);
          out.older_bytes += event.size;
          out.ring_wrapped = true;
          level -= event.size;
        }
      } else if (event.action() == Action::kOom) {
        out.has_oom = true;
      }
    }
  }
  AddSurvivors(snapshot, device, live, out);
  out.peak_bytes = out.older_bytes + peak;
  return out;
}

std::vector<LiveBlock> Lifetimes::AliveAfter(int64_t index) const {
  std::vector<LiveBlock> alive;
  for (const LiveBlock& block : older) {
    if (block.free_event < 0 || block.free_event > index) alive.push_back(block);
  }
  for (int64_t i = 0; i <= index && i < static_cast<int64_t>(events.size()); ++i) {
    const Event& event = events[static_cast<size_t>(i)];
    if (event.action() != Action::kAlloc) continue;
    const uint32_t freed = partner[static_cast<size_t>(i)];
    if (freed != kNever && freed <= index) continue;
    LiveBlock block;
    block.address = event.address;
    block.bytes = event.size;
    block.stack = event.stack;
    block.alloc_event = i;
    block.free_event = freed == kNever ? -1 : static_cast<int64_t>(freed);
    alive.push_back(block);
  }
  return alive;
}

}  // namespace lowtide::snapshot
