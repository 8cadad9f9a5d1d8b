# foo_bench.cc stands beside foo.cc; one google-benchmark binary per module.
find_package(benchmark REQUIRED)
foreach(module base record series verdict snapshot heap lint checkpoint)
  file(GLOB benches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${module}/*_bench.cc)
  if(benches)
    add_executable(bench_${module} ${benches})
    target_link_libraries(bench_${module} PRIVATE lowtide_core benchmark::benchmark benchmark::benchmark_main)
  endif()
endforeach()
