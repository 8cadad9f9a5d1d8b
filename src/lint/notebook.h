#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lint/lint.h"

namespace lowtide::lint {

// A Jupyter notebook (nbformat 4) as one Python source: its code cells one after the other, each ended by a
// newline, magics blanked, so that names of one cell are known in the next. Line numbers map back to cell and
// line.
class Notebook {
 public:
  // Throws Error when `json` is no notebook: broken JSON (with the byte), or without cells.
  explicit Notebook(std::string_view json);

  struct Place {
    int cell = 1;       // from 1, counting all cells as the user sees them
    uint32_t line = 1;  // from 1, within the cell
  };

  const std::string& source() const { return source_; }
  Place At(uint32_t source_line) const;

  // The notebook's JSON with `edits` of source() carried out: outside the strings of the edited lines every
  // byte stays. nullopt when an edit lies across two cells or in a blanked line.
  std::optional<std::string> Apply(std::string_view json, const std::vector<Edit>& edits) const;

 private:
  struct Line {        // one string of a cell's "source", or one line of it when "source" is a single string
    size_t raw_start;  // in the JSON, with the quotes
    size_t raw_end;
    std::string text;  // decoded, before magics were blanked
    uint32_t at;       // in source_
  };
  struct Cell {
    int number;           // from 1
    uint32_t first_line;  // in source_, from 1
    uint32_t start, end;  // bytes in source_
    std::vector<Line> pieces;
  };
  class Sax;

  void AddCell(int number, std::vector<Line> pieces);
  void BlankMagics(Cell& cell);

  std::string source_;
  std::vector<Cell> cells_;
  std::vector<bool> blanked_;  // per source line
  uint32_t lines_ = 0;
};

}  // namespace lowtide::lint
