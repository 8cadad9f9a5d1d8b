#include "report/snapshot_report.h"
namespace lowtide::report {
std::string SnapshotToHtml(const SnapshotView&, const SnapshotOptions&) { return {}; }
}  // namespace lowtide::report
