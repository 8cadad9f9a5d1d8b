# The tree-sitter core and its Python grammar as one object library, from the source packages pinned by hash in
# third_party/python-syntax.txt. Neither package has a C build of its own, so their three translation units are
# compiled here. Where to take the packages from, in this order:
#   1. LOWTIDE_SOURCES_DIR (option or environment): a folder that holds both .tar.gz files, for builds without network;
#   2. a cache shared by all build folders ($XDG_CACHE_HOME/lowtide or ~/.cache/lowtide);
#   3. pip, which checks the hashes itself (they are checked again below, wherever a file came from).
set(LOWTIDE_SOURCES_DIR "$ENV{LOWTIDE_SOURCES_DIR}" CACHE PATH "Folder with the pinned source packages")

set(requirements ${CMAKE_SOURCE_DIR}/third_party/python-syntax.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${requirements})
if(DEFINED ENV{XDG_CACHE_HOME})
  set(cache_dir $ENV{XDG_CACHE_HOME}/lowtide)
else()
  set(cache_dir $ENV{HOME}/.cache/lowtide)
endif()
set(download_dir ${CMAKE_BINARY_DIR}/third_party)

# The file of a package in the first folder that has it whole; empty when none has.
function(find_archive out hash)
  set(${out} "" PARENT_SCOPE)
  foreach(dir ${LOWTIDE_SOURCES_DIR} ${download_dir} ${cache_dir})
    foreach(name ${ARGN})
      if(EXISTS ${dir}/${name}.tar.gz)
        file(SHA256 ${dir}/${name}.tar.gz found)
        if(found STREQUAL hash)
          set(${out} ${dir}/${name}.tar.gz PARENT_SCOPE)
          return()
        endif()
      endif()
    endforeach()
  endforeach()
endfunction()

# pip may be missing from the interpreter of an isolated build, and such a build hides the outer one's: try each.
function(download_archives)
  find_program(python3_program python3)
  file(MAKE_DIRECTORY ${download_dir})
  set(arguments -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes
                -r ${requirements} -d ${download_dir})
  foreach(interpreter ${Python_EXECUTABLE} ${PYTHON_EXECUTABLE} ${python3_program})
    execute_process(COMMAND ${interpreter} ${arguments} RESULT_VARIABLE failed ERROR_VARIABLE said OUTPUT_QUIET)
    if(failed)
      execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=PYTHONPATH --unset=PYTHONNOUSERSITE
                              ${interpreter} ${arguments}
                      RESULT_VARIABLE failed ERROR_VARIABLE said OUTPUT_QUIET)
    endif()
    if(NOT failed)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "pip could not download the source packages of ${requirements}. Without network, put them "
                      "into a folder and pass -DLOWTIDE_SOURCES_DIR=<folder>.\n${said}")
endfunction()

file(STRINGS ${requirements} lines REGEX "^[a-z]")
foreach(attempt 1 2)
  set(complete TRUE)
  foreach(line ${lines})
    string(REGEX MATCH "^([a-z-]+)==([0-9.]+) --hash=sha256:([0-9a-f]+)$" _ ${line})
    set(package ${CMAKE_MATCH_1})
    set(version ${CMAKE_MATCH_2})
    set(hash ${CMAKE_MATCH_3})
    string(REPLACE "-" "_" folded ${package})
    find_archive(archive ${hash} ${package}-${version} ${folded}-${version})
    set(archive_${folded} "${archive}")
    if(NOT archive)
      set(complete FALSE)
    endif()
  endforeach()
  if(complete)
    break()
  elseif(attempt EQUAL 2)
    message(FATAL_ERROR "the downloaded source packages do not match the hashes in ${requirements}")
  endif()
  download_archives()
endforeach()
foreach(archive ${archive_tree_sitter} ${archive_tree_sitter_python})
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${download_dir})
  get_filename_component(dir ${archive} DIRECTORY)
  if(NOT dir STREQUAL cache_dir)
    file(COPY ${archive} DESTINATION ${cache_dir})
  endif()
endforeach()

file(GLOB core ${download_dir}/tree*sitter-0*/tree_sitter/core/lib)
file(GLOB grammar ${download_dir}/tree*sitter*python-0*/src)
file(COPY ${core}/src/parser.h ${core}/src/array.h ${core}/src/alloc.h ${core}/src/ts_assert.h
     DESTINATION ${download_dir}/headers/tree_sitter)  # the grammar's package leaves out the core's headers
add_library(tree_sitter OBJECT ${core}/src/lib.c ${grammar}/parser.c ${grammar}/scanner.c)
target_include_directories(tree_sitter SYSTEM PUBLIC ${core}/include PRIVATE ${core}/src ${download_dir}/headers)
target_compile_options(tree_sitter PRIVATE -w -O3)
target_compile_definitions(tree_sitter PRIVATE _GNU_SOURCE NDEBUG)
set_target_properties(tree_sitter PROPERTIES C_STANDARD 11 C_EXTENSIONS ON POSITION_INDEPENDENT_CODE ON)
