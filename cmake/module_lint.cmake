# Python's syntax comes from tree-sitter.
include(${CMAKE_SOURCE_DIR}/cmake/tree_sitter.cmake)
target_include_directories(lowtide_lint SYSTEM PRIVATE $<TARGET_PROPERTY:tree_sitter,INTERFACE_INCLUDE_DIRECTORIES>)
target_sources(lowtide_core PRIVATE $<TARGET_OBJECTS:tree_sitter>)
