# One object library per folder of src/: a folder is a module. `lowtide_core` is all of them, and the only
# thing that the binary, the Python extensions, the tests and the fuzzers link.
include_directories(${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
add_compile_definitions(LOWTIDE_VERSION="${PROJECT_VERSION}")

add_library(lowtide_core STATIC)
target_link_libraries(lowtide_core PUBLIC Threads::Threads ZLIB::ZLIB ${CMAKE_DL_LIBS})

foreach(module base finding record series verdict snapshot heap lint plan bisect checkpoint report)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${module}/*.cc ${CMAKE_SOURCE_DIR}/src/${module}/*/*.cc)
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")
  if(sources)
    add_library(lowtide_${module} OBJECT ${sources})
    target_link_libraries(lowtide_${module} PUBLIC Threads::Threads ZLIB::ZLIB)
    target_sources(lowtide_core PRIVATE $<TARGET_OBJECTS:lowtide_${module}>)
    if(EXISTS ${CMAKE_SOURCE_DIR}/cmake/module_${module}.cmake)
      include(${CMAKE_SOURCE_DIR}/cmake/module_${module}.cmake)  # a module's extra sources and libraries
    endif()
  endif()
endforeach()

# Pages of docs/findings, embedded so that `lowtide explain` needs no file beside the binary.
file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/findings/*.md)
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/generated/pages.cc
  COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_BINARY_DIR}/generated/pages.cc
          -DDIR=${CMAKE_SOURCE_DIR}/docs/findings -P ${CMAKE_SOURCE_DIR}/cmake/embed_pages.cmake
  DEPENDS ${pages} ${CMAKE_SOURCE_DIR}/cmake/embed_pages.cmake
  VERBATIM)
target_sources(lowtide_core PRIVATE ${CMAKE_BINARY_DIR}/generated/pages.cc)

file(GLOB verbs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.cc)
list(FILTER verbs EXCLUDE REGEX "(_test|/main)\\.cc$")
add_library(lowtide_cli STATIC ${verbs})
target_link_libraries(lowtide_cli PUBLIC lowtide_core)
include(${CMAKE_SOURCE_DIR}/cmake/verb_export.cmake)
add_executable(lowtide ${CMAKE_SOURCE_DIR}/src/cli/main.cc)
target_link_libraries(lowtide PRIVATE lowtide_cli)
if(SKBUILD)
  install(TARGETS lowtide DESTINATION ${SKBUILD_SCRIPTS_DIR})  # beside python: no interpreter start in between
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/lowtide DESTINATION lowtide/include)
endif()
