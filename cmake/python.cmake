# Extension modules, one folder-named file each: _track (in the user's process), _walk (object walk), _core (the rest).
# None of them links libpython's or PyTorch's libraries; symbols of the interpreter come from the process.
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)

function(lowtide_extension name)
  Python_add_library(${name} MODULE WITH_SOABI ${ARGN})
  target_link_libraries(${name} PRIVATE lowtide_core)
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python)
  if(SKBUILD)
    install(TARGETS ${name} DESTINATION lowtide)
  endif()
endfunction()

foreach(name track walk guard)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/python/${name}*.cc ${CMAKE_SOURCE_DIR}/src/python/${name}*.c)
  if(sources)
    lowtide_extension(_${name} ${sources})
  endif()
endforeach()

if(TARGET _track)
  # Loaded before PyTorch: it must not bring a C++ runtime into the process that PyTorch's own would be bound to.
  target_link_options(_track PRIVATE -static-libstdc++ -static-libgcc -Wl,--as-needed -Wl,--exclude-libs,ALL)
endif()

# `cmake --build DIR --target dev` puts the modules and the binary into python/lowtide, so that
# PYTHONPATH=python runs the tree as it is.
add_custom_target(dev
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_SOURCE_DIR}/python/lowtide/bin
  COMMAND ${CMAKE_COMMAND} -E copy_if_different $<TARGET_FILE:lowtide> ${CMAKE_SOURCE_DIR}/python/lowtide/bin/lowtide)
add_dependencies(dev lowtide)
foreach(name _track _walk _guard)
  if(TARGET ${name})
    add_dependencies(dev ${name})
    add_custom_command(TARGET dev POST_BUILD COMMAND ${CMAKE_COMMAND} -E copy_if_different
                       $<TARGET_FILE:${name}> ${CMAKE_SOURCE_DIR}/python/lowtide/$<TARGET_FILE_NAME:${name}>)
  endif()
endforeach()
