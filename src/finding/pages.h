#pragma once

namespace lowtide::finding {

// docs/findings/*.md, embedded at build time; ends with a null code.
struct Page {
  const char* code;
  const char* markdown;
};
extern const Page kPages[];

// The page of `code`, or nullptr.
const char* FindPage(const char* code);

}  // namespace lowtide::finding
