#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lowtide::report {

// Columns that `text` takes on a terminal: two for East Asian wide characters (Unicode Annex 11), none for combining
// marks. `text` has no escape sequences.
int DisplayWidth(std::string_view text);

// `text` cut or filled with spaces to exactly `columns`; control characters and invalid UTF-8 become '?'.
std::string FitLeft(std::string_view text, int columns);
std::string FitRight(std::string_view text, int columns);

// `text` cut to at most `columns`, not filled.
std::string CutTo(std::string_view text, int columns);

// `text` as lines of at most `columns`, broken at spaces where there are any.
std::vector<std::string> WrapTo(std::string_view text, int columns);

}  // namespace lowtide::report
