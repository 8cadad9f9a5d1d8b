#pragma once

#include <string>
#include <vector>

#include "record/ring_file.h"
#include "record/ring_reader.h"

namespace lowtide::record {

// Sums the shards of a ring file into one table per pool.
class LedgerReader {
 public:
  explicit LedgerReader(const RingFile& file);
  std::vector<LedgerRow> Rows() const;
  std::vector<SizeRow> Sizes() const;
  std::vector<PoolTotals> Totals() const;

 private:
  struct Pool {
    std::string name;
    std::vector<LedgerShard> shards;
    bool device = false;
  };
  std::vector<Pool> pools_;
};

}  // namespace lowtide::record
