#include "snapshot/reader.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "snapshot/builder.h"
#include "snapshot/container.h"
#include "snapshot/json_reader.h"
#include "snapshot/unpickler.h"

namespace lowtide::snapshot {
namespace {

// With what the process and the mapping take, below four times the file.
uint64_t Budget(uint64_t bytes) { return 3 * bytes + (8 << 20); }

unsigned Threads(const ReadOptions& options) {
  if (options.threads) return options.threads;
  return std::clamp(std::thread::hardware_concurrency(), 1u, 2u);
}

void ReadPlain(Source source, bool json, const ReadOptions& options, Snapshot& snapshot) {
  snapshot.file_bytes = source.bytes.size();
  Builder builder(snapshot, Budget(source.bytes.size()));
  if (json) {
    builder.Finish(LoadJson(source.bytes, builder));
    return;
  }
  Value top;
  {
    Unpickler unpickler(source, builder, Threads(options));
    top = unpickler.Load();
  }
  builder.Finish(top);
}

Snapshot Read(Source source, const std::string& name, const ReadOptions& options) {
  Snapshot snapshot;
  snapshot.file = name;
  const Container container = DetectContainer(source.bytes, name);
  snapshot.container = ContainerName(container);
  if (container == Container::kPickle || container == Container::kJson) {
    ReadPlain(source, container == Container::kJson, options, snapshot);
    return snapshot;
  }
  const std::vector<uint8_t> unpacked = Unpack(container, source.bytes, name);
  const Container inner = DetectContainer(unpacked, name);
  if (inner != Container::kPickle && inner != Container::kJson) {
    throw Error("the file holds another archive where a snapshot was expected",
                "unpack it once and give what is inside", name);
  }
  ReadPlain({unpacked, false}, inner == Container::kJson, options, snapshot);
  return snapshot;
}

}  // namespace

Snapshot ReadSnapshotBytes(std::span<const uint8_t> bytes, const std::string& name,
                           const ReadOptions& options) {
  return Read({bytes, false}, name, options);
}

Snapshot ReadSnapshot(const std::string& path, const ReadOptions& options) {
  if (path == "-") {
    const std::string text = ReadFile(path);
    return Read({{reinterpret_cast<const uint8_t*>(text.data()), text.size()}, false}, "<stdin>", options);
  }
  const MappedFile file(path);
  return Read({file.bytes(), true}, path, options);
}

}  // namespace lowtide::snapshot
