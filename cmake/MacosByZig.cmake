# Compile for macOS on another system, by the clang of PyPI's package ziglang, which has macOS's
# headers of C and the names in its libSystem.  QS_MACOS_PROCESSOR: aarch64 or x86_64.
# Nothing that is built so was ever run: it shows that the sources compile and link.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR ${QS_MACOS_PROCESSOR})
find_program(QS_ZIG zig HINTS ENV QS_ZIG_DIR REQUIRED)
set(CMAKE_C_COMPILER ${QS_ZIG} cc)
set(CMAKE_C_COMPILER_TARGET ${QS_MACOS_PROCESSOR}-macos.13.0)
# Without Zig's checks of undefined behaviour and its run-time library, which it would build first.
set(CMAKE_C_FLAGS_INIT -fno-sanitize=undefined)
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-nostdlib -lSystem")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES QS_MACOS_PROCESSOR)
set(CMAKE_INSTALL_NAME_TOOL ${CMAKE_COMMAND}) # CMake asks for it; nothing is installed
