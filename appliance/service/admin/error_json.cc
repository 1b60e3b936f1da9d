#include "service/admin/error_json.h"

#include <boost/json.hpp>

namespace ph::admin {

std::string error_json(std::string_view code, std::string_view message) {
  constexpr size_t kMessageMax = 500;
  return boost::json::serialize(boost::json::object{{"code", code}, {"message", message.substr(0, kMessageMax)}});
}

}  // namespace ph::admin
