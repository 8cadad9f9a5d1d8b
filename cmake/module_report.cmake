# Style and script of the HTML report, embedded so that the binary needs no file beside it.
set(assets ${CMAKE_SOURCE_DIR}/src/report/assets)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/generated/assets.cc
  COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_BINARY_DIR}/generated/assets.cc -DDIR=${assets}
          -P ${CMAKE_SOURCE_DIR}/cmake/embed_assets.cmake
  DEPENDS ${assets}/report.css ${assets}/chart.js ${assets}/report.js ${CMAKE_SOURCE_DIR}/cmake/embed_assets.cmake
  VERBATIM)
target_sources(lowtide_report PRIVATE ${CMAKE_BINARY_DIR}/generated/assets.cc)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/generated/snapshot_assets.cc
  COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_BINARY_DIR}/generated/snapshot_assets.cc -DDIR=${assets}
          -P ${CMAKE_SOURCE_DIR}/cmake/embed_snapshot_assets.cmake
  DEPENDS ${assets}/snapshot.css ${assets}/snapshot.js ${CMAKE_SOURCE_DIR}/cmake/embed_snapshot_assets.cmake
  VERBATIM)
target_sources(lowtide_report PRIVATE ${CMAKE_BINARY_DIR}/generated/snapshot_assets.cc)
