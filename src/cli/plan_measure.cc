#include "cli/plan_measure.h"

#include "base/error.h"

namespace lowtide::cli {

plan::Measured Measure(const PlanOptions&, const CommonOptions&, plan::Request&, bool) {
  throw Error("not yet", "");
}

}  // namespace lowtide::cli
