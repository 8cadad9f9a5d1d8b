# tests/fuzz/<door>_fuzz.cc: one libFuzzer program per door (needs clang).
file(GLOB doors CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
foreach(door ${doors})
  get_filename_component(name ${door} NAME_WE)
  add_executable(${name} ${door})
  target_link_libraries(${name} PRIVATE lowtide_core)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer,address,undefined)
endforeach()
