// Compiles Boost.JSON into this library: the one place that includes its implementation.
#include <boost/json/src.hpp>
