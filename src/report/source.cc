#include "report/source.h"

#include <fstream>

namespace lowtide::report {

std::string SourceLine(const std::string& file, int line) {
  std::ifstream in(file);
  std::string text;
  for (int i = 0; i < line; ++i) {
    if (!std::getline(in, text)) return "";
  }
  size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  size_t end = text.find_last_not_of(" \t\r");
  return text.substr(begin, std::min<size_t>(end - begin + 1, 160));
}

}  // namespace lowtide::report
