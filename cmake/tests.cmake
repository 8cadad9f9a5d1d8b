# foo_test.cc stands beside foo.cc; one binary per module, so that work on one folder builds only that folder's tests.
enable_testing()
find_package(GTest REQUIRED)
include(GoogleTest)
foreach(module base finding record series verdict snapshot heap lint plan bisect checkpoint report cli)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${module}/*_test.cc ${CMAKE_SOURCE_DIR}/src/${module}/*/*_test.cc)
  if(tests)
    add_executable(test_${module} ${tests})
    target_link_libraries(test_${module} PRIVATE $<$<STREQUAL:${module},cli>:lowtide_cli> lowtide_core GTest::gtest GTest::gtest_main)
    target_compile_definitions(test_${module} PRIVATE LOWTIDE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    add_test(NAME ${module} COMMAND test_${module})
  endif()
endforeach()

# Writes rings as many ranks would: tests and benchmarks of what reads them start it.
add_executable(ring_fleet ${CMAKE_SOURCE_DIR}/tests/fleet/ring_fleet.cc $<TARGET_OBJECTS:lowtide_base> $<TARGET_OBJECTS:lowtide_record>)
target_link_libraries(ring_fleet PRIVATE Threads::Threads ZLIB::ZLIB ${CMAKE_DL_LIBS})
