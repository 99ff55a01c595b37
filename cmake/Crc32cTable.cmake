# crc32c_table.h: constants of CRC-32C, polynomial 0x1edc6f41, bits reflected.  The unit test derives
# each constant again, bit by bit.
set(QS_LANE_WORDS_MAX 256)

# value times x, modulo the polynomial
macro(qs_crc32c_times_x value)
  math(EXPR ${value} "(${${value}} >> 1) ^ ((${${value}} & 1) * 0x82f63b78)")
endmacro()

# The numbers of a list, eight a line, as C has them.
function(qs_crc32c_lines numbers lines_out)
  set(lines "")
  set(at 0)
  foreach(number IN LISTS ${numbers})
    math(EXPR number "${number}" OUTPUT_FORMAT HEXADECIMAL)
    math(EXPR at "(${at} + 1) % 8")
    string(APPEND lines "${number}u,")
    if(at EQUAL 0)
      string(APPEND lines "\n")
    endif()
  endforeach()
  set(${lines_out} "${lines}" PARENT_SCOPE)
endfunction()

# Row k has for each byte the checksum register after that byte and k zero bytes.
function(qs_crc32c_bytes text_out)
  set(text "")
  foreach(byte RANGE 255)
    set(crc ${byte})
    foreach(bit RANGE 7)
      qs_crc32c_times_x(crc)
    endforeach()
    list(APPEND first ${crc})
  endforeach()
  set(row ${first})
  foreach(zeros RANGE 7)
    qs_crc32c_lines(row lines)
    string(APPEND text "{\n${lines}},\n")
    set(next "")
    foreach(crc IN LISTS row)
      math(EXPR low "${crc} & 0xff")
      list(GET first ${low} folded)
      math(EXPR crc "(${crc} >> 8) ^ ${folded}")
      list(APPEND next ${crc})
    endforeach()
    set(row ${next})
  endforeach()
  set(${text_out} "${text}" PARENT_SCOPE)
endfunction()

# x^(64 n - 33) for n from 1 on; in place 0 stands 0.
function(qs_crc32c_shifts text_out)
  set(power 1) # x^31
  set(shifts 0 ${power})
  math(EXPR last "2 * ${QS_LANE_WORDS_MAX}")
  foreach(words RANGE 2 ${last})
    foreach(bit RANGE 63)
      qs_crc32c_times_x(power)
    endforeach()
    list(APPEND shifts ${power})
  endforeach()
  qs_crc32c_lines(shifts lines)
  set(${text_out} "${lines}" PARENT_SCOPE)
endfunction()

# Writes the header, if it is not there or not the same.
function(qs_crc32c_table header)
  qs_crc32c_bytes(bytes)
  qs_crc32c_shifts(shifts)
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/crc32c_table.h.in ${header} @ONLY)
endfunction()

# Without a build: cmake -DQS_CRC32C_TABLE=PATH -P Crc32cTable.cmake
if(DEFINED QS_CRC32C_TABLE)
  qs_crc32c_table(${QS_CRC32C_TABLE})
endif()
