# A floor is one folder of csrc/, or those named after FOLDERS, built as one static library.  It
# sees the public headers, its own folders and the floors named after USES; anything else does not
# compile or does not link.
set(QS_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
    -Wold-style-definition -Wundef -Wvla -Wwrite-strings -Werror=implicit-function-declaration
    -Werror=incompatible-pointer-types -Werror=int-conversion -Werror=return-type)
if(CMAKE_C_COMPILER_ID MATCHES Clang)
  # What GCC does not say of the same code: fields that an initializer leaves out are 0, the text in
  # QS_ASSERT(!"text") is a reason, and a type of functions may name a lock for the reader.
  list(APPEND QS_WARNINGS -Wno-missing-field-initializers -Wno-string-conversion
       -Wno-ignored-attributes)
endif()
if(QS_WERROR)
  # An optimiser may well be unsure of what the code is sure of.
  list(APPEND QS_WARNINGS -Werror $<$<C_COMPILER_ID:GNU>:-Wno-error=maybe-uninitialized>)
endif()

# Two hundred executables are linked with the engine: gold takes a third of the time.
set(QS_QUICK_LINKER)
if(QS_TESTS AND CMAKE_C_COMPILER_ID STREQUAL GNU)
  include(CheckLinkerFlag)
  check_linker_flag(C -fuse-ld=gold QS_GOLD)
  if(QS_GOLD)
    set(QS_QUICK_LINKER -fuse-ld=gold)
  endif()
endif()
if(QS_TESTS)
  foreach(label unit crash thread fuzz threads)
    add_custom_target(tests_${label}) # all tests with this label
  endforeach()
  add_dependencies(tests_threads tests_thread)
  # The main of those that have none of their own.
  set(support ${PROJECT_SOURCE_DIR}/tests/native/support)
  add_library(qs_test_main STATIC ${support}/qs_test_main.c)
  target_include_directories(qs_test_main PRIVATE ${PROJECT_SOURCE_DIR}/csrc/include ${support})
endif()

# One executable per tests/native/.../test_<module>.c, run by ctest under the label of its kind.
function(qs_test source)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT;NAME" "LINK" ${ARGN})
  get_filename_component(target ${source} NAME_WE)
  set(limit ${ARG_TIMEOUT})
  if(QS_SANITIZE) # a busy machine, and code that takes several times as long
    math(EXPR limit "4 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${target} ${source})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/native/support)
  # What tests compute is little: not optimised they compile four times as fast.
  target_compile_options(${target} PRIVATE -O0 -Wall -Wextra -Wstrict-prototypes)
  if(QS_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  target_link_libraries(${target} PRIVATE ${ARG_LINK} qs_test_main)
  target_link_options(${target} PRIVATE ${QS_QUICK_LINKER})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_dependencies(tests_${ARG_LABEL} ${target})
  add_test(NAME ${ARG_NAME}/${target} COMMAND ${QS_TEST_WRAPPER} $<TARGET_FILE:${target}>)
  set_tests_properties(${ARG_NAME}/${target} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${limit}
                       COST ${ARG_TIMEOUT})
endfunction()

function(qs_floor path)
  cmake_parse_arguments(ARG "" "" "FOLDERS;USES;LIBRARIES" ${ARGN})
  if(NOT ARG_FOLDERS)
    set(ARG_FOLDERS ${path})
  endif()
  string(REPLACE / _ name ${path})
  string(REPLACE / _ ARG_USES "${ARG_USES}")
  list(TRANSFORM ARG_FOLDERS APPEND /*.c OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  list(TRANSFORM ARG_USES PREPEND qs_)
  add_library(qs_${name} STATIC ${sources})
  target_include_directories(qs_${name} PUBLIC include ${ARG_FOLDERS})
  # GCC's -O2 leaves loops of unknown length unvectorised otherwise: offsets, bitmaps, copies.
  target_compile_options(qs_${name} PRIVATE ${QS_WARNINGS} $<$<C_COMPILER_ID:GNU>:-fvect-cost-model=dynamic>)
  target_link_libraries(qs_${name} PUBLIC ${ARG_USES} ${ARG_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY QS_FLOORS qs_${name})
  if(QS_TESTS)
    # It links with the floors that it names alone: nothing in it calls one above.
    set(alone ${PROJECT_BINARY_DIR}/floors/alone.c)
    file(CONFIGURE OUTPUT ${alone} CONTENT "int main(void)\n{\n    return 0;\n}\n")
    add_executable(floor_${name} ${alone} $<TARGET_OBJECTS:qs_${name}>)
    target_link_libraries(floor_${name} PRIVATE ${ARG_USES} ${ARG_LIBRARIES})
    set_target_properties(floor_${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/floors)
    file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/native/unit/${path}/test_*.c)
    set(environments qs_sim)
    # These do not see io, on which the environments stand.
    if(name MATCHES "^(base|codec|selector|route)$")
      set(environments)
    endif()
    foreach(source IN LISTS tests)
      qs_test(${source} NAME ${name} LABEL unit TIMEOUT 400 LINK qs_${name} ${environments})
    endforeach()
  endif()
endfunction()

# tests/native/<kind>/test_*.c, linked with the whole engine.
function(qs_engine_tests kind)
  cmake_parse_arguments(ARG "" "TIMEOUT" "" ${ARGN})
  if(QS_TESTS)
    file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/native/${kind}/test_*.c)
    foreach(source IN LISTS tests)
      qs_test(${source} NAME ${kind} LABEL ${kind} TIMEOUT ${ARG_TIMEOUT} LINK qs_crash qs_net)
    endforeach()
  endif()
endfunction()

# tests/native/fuzz/test_fuzz_<name>.c as a target of clang's libFuzzer, and what was kept of its
# inputs, tests/native/fuzz/<name>/*, as a test.
function(qs_fuzzer name)
  if(QS_TESTS)
    set(source ${PROJECT_SOURCE_DIR}/tests/native/fuzz/test_fuzz_${name}.c)
    file(GLOB inputs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/native/fuzz/${name}/*)
    if(inputs)
      add_test(NAME fuzz/test_fuzz_${name}_kept
               COMMAND ${QS_TEST_WRAPPER} $<TARGET_FILE:test_fuzz_${name}> ${inputs})
      set_tests_properties(fuzz/test_fuzz_${name}_kept PROPERTIES LABELS fuzz TIMEOUT 1200)
    endif()
  endif()
  if(QS_TESTS AND QS_SANITIZE MATCHES fuzzer)
    add_executable(fuzz_${name} ${source})
    target_compile_definitions(fuzz_${name} PRIVATE QS_LIBFUZZER)
    target_link_libraries(fuzz_${name} PRIVATE qs_crash qs_net)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  endif()
endfunction()

# benchmarks/native/bench_*.c and what tools/instructions.py runs, linked with the whole engine.
function(qs_benchmarks)
  if(QS_BENCH)
    file(GLOB benchmarks CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/benchmarks/native/bench_*.c)
    foreach(source IN LISTS benchmarks ITEMS ${PROJECT_SOURCE_DIR}/benchmarks/native/instructions.c)
      get_filename_component(target ${source} NAME_WE)
      add_executable(${target} ${source})
      target_link_libraries(${target} PRIVATE qs_engine qs_sim m)
      set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/benchmarks)
    endforeach()
    # What the Python benchmarks compare with.
    add_library(bench_raw SHARED ${PROJECT_SOURCE_DIR}/benchmarks/native/raw.c)
    set_target_properties(bench_raw PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/benchmarks)
  endif()
endfunction()

# All floors in one shared library for C users; only what is marked QS_API is visible in it.
function(qs_shared_library name)
  get_property(floors GLOBAL PROPERTY QS_FLOORS)
  set(objects)
  foreach(floor IN LISTS floors)
    list(APPEND objects $<TARGET_OBJECTS:${floor}>)
  endforeach()
  add_library(${name} SHARED ${objects})
  target_link_libraries(${name} PRIVATE Threads::Threads m)
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  if(QS_PYTHON)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  install(TARGETS ${name} COMPONENT dev)
  install(DIRECTORY include/qstore DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
endfunction()
