#include "service/admin/owner_desk.h"

#include <boost/json.hpp>

#include "service/admin/status.h"

namespace ph::admin {
namespace {

namespace json = boost::json;

Result<json::object> object_of(std::string_view document) {
  boost::system::error_code ec;
  json::value parsed = json::parse(document, ec);
  if (ec || !parsed.is_object()) return fail(errors::malformed, "not a JSON object");
  return std::move(parsed.get_object());
}

Result<std::string> text_of(const json::object& from, std::string_view key) {
  const json::value* v = from.if_contains(key);
  if (!v || !v->is_string() || v->get_string().empty())
    return fail(errors::malformed, "\"" + std::string(key) + "\" is missing, or no text");
  return std::string(v->get_string());
}

}  // namespace

std::string to_json(const ForgetOwner& r) {
  return json::serialize(json::object{{"upstream", r.upstream}, {"receiver", r.receiver}, {"dry_run", r.dry_run}});
}

Result<ForgetOwner> parse_forget_owner(std::string_view document) {
  PH_ASSIGN(const json::object from, object_of(document));
  ForgetOwner r;
  PH_ASSIGN(r.upstream, text_of(from, "upstream"));
  PH_ASSIGN(r.receiver, text_of(from, "receiver"));
  if (const json::value* dry = from.if_contains("dry_run")) {
    if (!dry->is_bool()) return fail(errors::malformed, "\"dry_run\" is neither true nor false");
    r.dry_run = dry->get_bool();
  }
  return r;
}

std::string to_json(const OwnerForgotten& a) {
  return json::serialize(
      json::object{{"upstream", a.upstream}, {"receiver", a.receiver}, {"batches", a.batches}, {"done", a.done}});
}

Result<std::string> owner_forgotten_text(std::string_view document) {
  PH_ASSIGN(const json::object from, object_of(document));
  PH_ASSIGN(const std::string upstream, text_of(from, "upstream"));
  PH_ASSIGN(const std::string receiver, text_of(from, "receiver"));
  const json::value* batches = from.if_contains("batches");
  const json::value* done = from.if_contains("done");
  if (!batches || !batches->is_number() || !done || !done->is_bool())
    return fail(errors::malformed, "the daemon's answer lacks a field");
  boost::system::error_code ec;
  const std::string count = std::to_string(batches->to_number<uint64_t>(ec)) + " batches";
  if (done->get_bool())
    return count + " of upstream " + upstream + " do not wait for " + receiver +
           " any more: they go to others, and are counted as maybe_duplicate\n";
  return "Upstream " + upstream + " holds " + count + " back, since " + receiver +
         " may have published them and has not said so.\n"
         "If it comes back by itself, wait: nothing is lost, and nothing comes twice.\n"
         "If it never will (its disk is gone, its address is in no configuration any more), give it up:\n"
         "they go to other receivers then, and what it had published comes twice. Say --yes to do so.\n";
}

}  // namespace ph::admin
