#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lowtide::snapshot {

enum class Container { kPickle, kGzip, kZip, kHtml, kJson };
const char* ContainerName(Container container);

// By the first bytes, not by the name. Throws Error for an empty file and for what is none of them.
Container DetectContainer(std::span<const uint8_t> bytes, const std::string& file);

// The bytes inside a gzip, zip or HTML container. Stops with an Error at sizes that only a bomb has.
std::vector<uint8_t> Unpack(Container container, std::span<const uint8_t> bytes, const std::string& file);

}  // namespace lowtide::snapshot
