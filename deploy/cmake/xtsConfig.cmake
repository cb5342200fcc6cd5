# find_package(xts): the target xts::xts, libxts with its header. Found below lib/cmake/xts of an environment, or below
# lib/<architecture>/cmake/xts of Debian: the library is two folders above, the header in an include folder further up.
get_filename_component(_xts_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
set(_xts_library "${_xts_lib}/libxts.so.1")
find_path(_xts_include NAMES xts.h PATHS "${_xts_lib}/../include" "${_xts_lib}/../../include" NO_DEFAULT_PATH NO_CACHE)
if(NOT EXISTS "${_xts_library}" OR NOT _xts_include)
  set(xts_FOUND FALSE)
  set(xts_NOT_FOUND_MESSAGE "${_xts_library} or xts.h above it is missing: is the package installed as a whole?")
  return()
endif()
get_filename_component(_xts_include "${_xts_include}" ABSOLUTE)
if(NOT TARGET xts::xts)
  add_library(xts::xts SHARED IMPORTED)
  set_target_properties(xts::xts PROPERTIES IMPORTED_LOCATION "${_xts_library}" IMPORTED_SONAME libxts.so.1
    INTERFACE_INCLUDE_DIRECTORIES "${_xts_include}")
endif()
