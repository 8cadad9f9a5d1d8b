#pragma once

#include <optional>
#include <vector>

#include "series/table.h"
#include "verdict/engine.h"
#include "verdict/judgement.h"

namespace lowtide::verdict {

// Judges every series of a table: one judgement per pool and rank, in the table's order.
struct TableOptions {
  std::optional<double> capacity;  // of the device, or of the host where only host figures are given
};
std::vector<Judgement> JudgeTable(const series::Table& table, const TableOptions& options);

// Where some ranks leak in a pool and others do not: names them in every judgement that leaks.
void NameRanks(std::vector<Judgement>& judgements);

}  // namespace lowtide::verdict
