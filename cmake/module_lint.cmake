# Python's syntax comes from tree-sitter.
include(${CMAKE_SOURCE_DIR}/cmake/tree_sitter.cmake)
target_include_directories(lowtide_lint SYSTEM PRIVATE $<TARGET_PROPERTY:tree_sitter,INTERFACE_INCLUDE_DIRECTORIES>)
target_sources(lowtide_core PRIVATE $<TARGET_OBJECTS:tree_sitter>)

# What a cache holds is worth something only to the rules that wrote it.
file(GLOB_RECURSE lint_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/lint/*.cc ${CMAKE_SOURCE_DIR}/src/lint/*.h
     ${CMAKE_SOURCE_DIR}/src/lint/*.inc)
list(FILTER lint_sources EXCLUDE REGEX "_test\\.cc$")
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/generated/lint_sources.h
  COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_BINARY_DIR}/generated/lint_sources.h -DDIR=${CMAKE_SOURCE_DIR}/src/lint
          -P ${CMAKE_SOURCE_DIR}/cmake/hash_sources.cmake
  DEPENDS ${lint_sources} ${CMAKE_SOURCE_DIR}/cmake/hash_sources.cmake
  COMMENT "Hashing the lint rules' sources")
target_sources(lowtide_lint PRIVATE ${CMAKE_BINARY_DIR}/generated/lint_sources.h)
target_include_directories(lowtide_lint PRIVATE ${CMAKE_BINARY_DIR}/generated)
