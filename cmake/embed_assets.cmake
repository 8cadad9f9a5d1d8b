# Writes a .cc with the style and the script of the HTML report as raw strings, split below the length that compilers
# must accept, and their SHA-256 for the page's Content-Security-Policy. Scripts are joined in the order given.
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

file(READ ${DIR}/report.css style)
set(script "")
foreach(name chart.js report.js)
  file(READ ${DIR}/${name} part)
  string(APPEND script "${part}")
endforeach()
string(SHA256 style_hash "${style}")
string(SHA256 script_hash "${script}")
literal("${style}" style_literal)
literal("${script}" script_literal)
file(WRITE ${OUT} "// Generated from src/report/assets. Do not edit.
#include \"report/assets.h\"
namespace lowtide::report {
const Asset kStyle = {${style_literal}, \"${style_hash}\"};
const Asset kScript = {${script_literal}, \"${script_hash}\"};
}  // namespace lowtide::report
")
