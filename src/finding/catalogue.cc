#include "finding/catalogue.h"

#include <cstring>

#include "finding/pages.h"

namespace lowtide::finding {

const Code kCodes[] = {
#include "finding/codes/source.inc"     // LT1xx
#include "finding/codes/memory.inc"     // LT2xx
#include "finding/codes/snapshot.inc"   // LT3xx
#include "finding/codes/holder.inc"     // LT4xx
#include "finding/codes/gradient.inc"   // LT5xx
#include "finding/codes/ranks.inc"      // LT6xx
#include "finding/codes/checkpoint.inc" // LT7xx
#include "finding/codes/tool.inc"       // LT9xx
    {nullptr, nullptr, Severity::kNote, nullptr, nullptr},
};

const Code* FindCode(std::string_view code) {
  for (const Code* entry = kCodes; entry->code; ++entry) {
    if (code == entry->code) return entry;
  }
  return nullptr;
}

const char* FindPage(const char* code) {
  for (const Page* page = kPages; page->code; ++page) {
    if (std::strcmp(page->code, code) == 0) return page->markdown;
  }
  return nullptr;
}

}  // namespace lowtide::finding
