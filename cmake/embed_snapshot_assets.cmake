# The page of `lowtide snapshot --format html`, embedded as embed_assets.cmake does for the run's report.
function(literal text out)
  string(LENGTH "${text}" length)
  set(all "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 4000 piece)
    string(APPEND all "R\"~asset~(${piece})~asset~\"\n")
    math(EXPR at "${at} + 4000")
  endwhile()
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

file(READ ${DIR}/snapshot.css style)
file(READ ${DIR}/snapshot.js script)
string(SHA256 style_hash "${style}")
string(SHA256 script_hash "${script}")
literal("${style}" style_literal)
literal("${script}" script_literal)
file(WRITE ${OUT} "// Generated from src/report/assets. Do not edit.
#include \"report/snapshot_assets.h\"
namespace lowtide::report {
const Asset kSnapshotStyle = {${style_literal}, \"${style_hash}\"};
const Asset kSnapshotScript = {${script_literal}, \"${script_hash}\"};
}  // namespace lowtide::report
")
