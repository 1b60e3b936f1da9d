#include "service/admin/dead_letter_desk.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "base/coding.h"
#include "base/limits.h"
#include "base/log.h"
#include "codec/event/block.h"
#include "service/admin/error_json.h"
#include "service/admin/status.h"
#include "service/admin/text_table.h"

namespace ph::admin {
namespace {

namespace json = boost::json;

constexpr std::string_view kMarkPrefix = "l/";
constexpr std::string_view kCounterPrefix = "c/dead/";
constexpr size_t kListDefault = 100;

std::string mark_key(const std::string& route, const std::string& id) {
  return std::string(kMarkPrefix) + route + "/" + id;
}

DeadLetterCounters decode_counters(ByteView value) {
  Reader in(value);
  DeadLetterCounters c;
  for (uint64_t* n : {&c.retried, &c.retried_events, &c.dropped, &c.dropped_events}) *n = in.varint();
  return c;
}

std::string encode(const DeadLetterCounters& c) {
  std::string out;
  for (uint64_t n : {c.retried, c.retried_events, c.dropped, c.dropped_events}) put_varint(out, n);
  return out;
}

/// "k=v&..." behind the '?'. Routes and numbers need no escapes.
std::string query(std::string_view target, std::string_view key) {
  const size_t mark = target.find('?');
  std::string_view rest = mark == target.npos ? std::string_view() : target.substr(mark + 1);
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    if (item.starts_with(key) && item.size() > key.size() && item[key.size()] == '=')
      return std::string(item.substr(key.size() + 1));
  }
  return {};
}

std::optional<DeadLetterDesk::Choice> parse_choice(const std::string& body) {
  boost::system::error_code ec;
  const json::value parsed = json::parse(body, ec);
  if (ec || !parsed.is_object()) return std::nullopt;
  DeadLetterDesk::Choice out;
  for (const auto& item : parsed.get_object()) {
    if (item.key() == "route" && item.value().is_string()) {
      out.route = item.value().get_string();
    } else if (item.key() == "all" && item.value().is_bool()) {
      out.all = item.value().get_bool();
    } else if (item.key() == "ids" && item.value().is_array()) {
      for (const json::value& id : item.value().get_array()) {
        if (!id.is_string()) return std::nullopt;
        out.ids.emplace(id.get_string());
      }
    } else {
      return std::nullopt;
    }
  }
  if (out.all == !out.ids.empty()) return std::nullopt;
  return out;
}

bool chosen(const DeadLetterDesk::Choice& choice, const port::DeadLetter& letter) {
  return choice.all || choice.ids.contains(dead_letter::letter_id(letter));
}

Result<std::vector<std::string>> routes_of(port::Files& files, const std::string& directory, const std::string& route) {
  PH_ASSIGN(auto routes, dead_letter::routes_with_letters(files, directory));
  if (!route.empty()) std::erase_if(routes, [&](const std::string& r) { return r != route; });
  return routes;
}

}  // namespace

std::string retry_log_name(std::string_view route, std::string_view target) {
  uint64_t hash = 0xCBF29CE484222325;
  for (unsigned char c : target) hash = (hash ^ c) * 0x100000001B3;
  return fmt::format("{}~{:016x}", route, hash);
}

/// One operation: batches of letters until there are no more.
struct DeadLetterDesk::Work {
  Deed deed;
  Choice choice;
  std::function<void(const Result<Done>&)> done;
  Done sum;
  std::set<std::string> seen;  // ids that stay, or are done: not looked at again
  // this batch
  std::vector<port::DeadLetter> letters;
  Result<> outcome;
  std::vector<commit::Participant*> needs;
  std::map<std::string, std::set<std::string>> gone;  // by route: ids to be cleared away
  std::map<std::string, DeadLetterCounters> counted;
  bool more = false;
};

DeadLetterDesk::DeadLetterDesk(Parts parts) : parts_(std::move(parts)) {}

DeadLetterDesk::~DeadLetterDesk() {
  *alive_ = false;
}

bool DeadLetterDesk::handle(const std::string& method, std::string_view target, const std::string& body,
                            const Answer& answer) {
  std::string_view path = target.substr(0, target.find('?'));
  if (!path.starts_with(kDeadLettersPath)) return false;
  path.remove_prefix(kDeadLettersPath.size());
  if (path.empty() && method == "GET") {
    size_t limit = kListDefault;
    const std::string asked = query(target, "limit");
    std::from_chars(asked.data(), asked.data() + asked.size(), limit);
    list(query(target, "route"), std::clamp<size_t>(limit, 1, kBatchLetters), answer);
    return true;
  }
  if (path != "/retry" && path != "/drop") return false;
  if (method != "POST") {
    answer(405, error_json("METHOD_NOT_ALLOWED", "POST"));
    return true;
  }
  auto choice = parse_choice(body);
  if (!choice) {
    answer(400, error_json("BAD_REQUEST", R"({"route": R, "ids": [...]} or {"route": R, "all": true} is expected)"));
    return true;
  }
  if (busy_) {
    answer(409, error_json("BUSY", "dead letters are being retried or dropped already"));
    return true;
  }
  perform(path == "/retry" ? Deed::retry : Deed::drop, std::move(*choice), [answer](const Result<Done>& done) {
    if (done)
      answer(200, done_json(*done));
    else
      answer(500, error_json("FAILED", done.error().to_string()));
  });
  return true;
}

void DeadLetterDesk::list(const std::string& route, size_t limit, const Answer& answer) {
  struct Listed {
    std::vector<dead_letter::Found> letters;
    uint64_t stray = 0;
    bool more = false;
    Result<> outcome;
  };
  auto listed = std::make_shared<Listed>();
  auto job = [listed, route, limit, &files = parts_.files, directory = parts_.directory]() -> Result<> {
    PH_ASSIGN(auto routes, routes_of(files, directory, route));
    size_t bytes = 0;
    for (const std::string& r : routes) {
      if (listed->more) break;
      PH_ASSIGN(uint64_t stray, dead_letter::for_each_letter(files, directory, r, [&](const dead_letter::Found& found) {
                  listed->more = listed->letters.size() == limit || bytes >= kBatchBytes;
                  if (listed->more) return false;
                  bytes += found.letter.block.size();
                  listed->letters.push_back(found);
                  return true;
                }));
      listed->stray += stray;
    }
    return {};
  };
  parts_.disk.run([listed, job] { listed->outcome = job(); },
                  [listed, answer] {
                    if (listed->outcome)
                      answer(200, letters_json(listed->letters, listed->more, listed->stray));
                    else
                      answer(500, error_json("FAILED", listed->outcome.error().to_string()));
                  });
}

void DeadLetterDesk::perform(Deed deed, Choice choice, std::function<void(const Result<Done>&)> done) {
  PH_ASSERT(!busy_, "one operation at a time");
  busy_ = true;
  auto work = std::make_shared<Work>();
  work->deed = deed;
  work->choice = std::move(choice);
  work->done = std::move(done);
  gather(work);
}

void DeadLetterDesk::gather(const std::shared_ptr<Work>& work) {
  work->letters.clear();
  work->needs.clear();
  work->gone.clear();
  work->counted.clear();
  work->more = false;
  auto job = [work, &files = parts_.files, directory = parts_.directory]() -> Result<> {
    PH_ASSIGN(auto routes, routes_of(files, directory, work->choice.route));
    size_t bytes = 0;
    for (const std::string& r : routes) {
      if (work->more) break;
      PH_TRY(dead_letter::for_each_letter(files, directory, r, [&](const dead_letter::Found& found) {
        if (found.newer_version || !chosen(work->choice, found.letter)) return true;
        if (work->seen.contains(dead_letter::letter_id(found.letter))) return true;
        work->more = work->letters.size() == kBatchLetters || bytes >= kBatchBytes;
        if (work->more) return false;
        port::DeadLetter letter = found.letter;
        letter.block = Slice(std::string(letter.block.view()));  // not the whole file's bytes
        bytes += letter.block.size();
        work->letters.push_back(std::move(letter));
        return true;
      }));
    }
    return {};
  };
  parts_.disk.run([work, job] { work->outcome = job(); },
                  [this, alive = alive_, work] {
                    if (!*alive) return;
                    if (!work->outcome) return finish(work, work->outcome);
                    commit(work);
                  });
}

/// False: it stays.
bool DeadLetterDesk::take(Work& work, const port::DeadLetter& letter, port::WriteBatch& entries) {
  const std::string id = dead_letter::letter_id(letter);
  work.seen.insert(id);
  const std::string key = mark_key(letter.route, id);
  auto mark = parts_.store.get(key);
  if (mark && *mark) {  // done before a crash: only the file still has it
    work.gone[letter.route].insert(id);
    return true;
  }
  const WallTime now = parts_.loop.wall_now();
  if (letter.at <= now && now - letter.at < std::chrono::duration_cast<std::chrono::milliseconds>(kFresh)) {
    ++work.sum.fresh;
    return false;
  }
  auto block = event::decode(letter.block);
  const uint64_t events = block ? block->events : 0;
  if (work.deed == Deed::retry) {
    spool::SegmentLog* log = parts_.log_of(letter.route, letter.target);
    if (!log || !block || letter.block.size() > limits::kRecordMax) {
      ++(log ? work.sum.failed : work.sum.no_target);
      return false;
    }
    log->append(letter.block, events, now);
    if (std::find(work.needs.begin(), work.needs.end(), log) == work.needs.end()) work.needs.push_back(log);
  }
  entries.put(key, std::string{'\x01', static_cast<char>(work.deed)});
  work.gone[letter.route].insert(id);
  DeadLetterCounters& c = work.counted[letter.route];
  ++(work.deed == Deed::retry ? c.retried : c.dropped);
  (work.deed == Deed::retry ? c.retried_events : c.dropped_events) += events;
  ++work.sum.letters;
  work.sum.events += events;
  return true;
}

void DeadLetterDesk::commit(const std::shared_ptr<Work>& work) {
  port::WriteBatch entries;
  for (const port::DeadLetter& letter : work->letters) take(*work, letter, entries);
  for (const auto& [route, more] : work->counted) {
    const std::string key = std::string(kCounterPrefix) + route;
    auto stored = parts_.store.get(key);
    if (!stored) return finish(work, std::unexpected(stored.error()));
    DeadLetterCounters sum = *stored ? decode_counters(**stored) : DeadLetterCounters{};
    sum.retried += more.retried;
    sum.retried_events += more.retried_events;
    sum.dropped += more.dropped;
    sum.dropped_events += more.dropped_events;
    entries.put(key, encode(sum));
  }
  if (work->gone.empty()) return work->more ? gather(work) : finish(work, {});
  parts_.committer.request(work->needs, std::move(entries), [this, alive = alive_, work](const Result<>& outcome) {
    if (!*alive) return;
    if (!outcome) return finish(work, outcome);
    clear_away(work);
  });
}

void DeadLetterDesk::clear_away(const std::shared_ptr<Work>& work) {
  parts_.disk.run(
      [work, &letters = parts_.letters, &store = parts_.store] {
        port::WriteBatch marks;
        for (const auto& [route, ids] : work->gone) {
          work->outcome = letters.forget(route, ids);
          if (!work->outcome) return;  // the marks stay: the next operation clears these away
          for (const std::string& id : ids) marks.remove(mark_key(route, id));
        }
        work->outcome = store.write(marks, false);
      },
      [this, alive = alive_, work] {
        if (!*alive) return;
        if (!work->outcome || !work->more) return finish(work, work->outcome);
        gather(work);
      });
}

void DeadLetterDesk::finish(const std::shared_ptr<Work>& work, Result<> outcome) {
  busy_ = false;
  if (work->sum.letters > 0)
    log_warn(work->deed == Deed::retry ? "dead_letters_retried" : "dead_letters_dropped_by_hand",
             {{"letters", work->sum.letters}, {"events", work->sum.events}});
  if (outcome)
    work->done(work->sum);
  else
    work->done(std::unexpected(outcome.error()));
}

std::map<std::string, DeadLetterCounters> DeadLetterDesk::counters() const {
  std::map<std::string, DeadLetterCounters> out;
  auto scanned = parts_.store.scan(kCounterPrefix, [&](ByteView key, ByteView value) {
    out[std::string(key.substr(kCounterPrefix.size()))] = decode_counters(value);
    return true;
  });
  if (!scanned) log_error("dead_letter_counters_unreadable", {{"error", scanned.error().to_string()}});
  return out;
}

std::string done_json(const DeadLetterDesk::Done& d) {
  return json::serialize(json::object{{"letters", d.letters},
                                      {"events", d.events},
                                      {"fresh", d.fresh},
                                      {"no_target", d.no_target},
                                      {"failed", d.failed}});
}

Result<DeadLetterDesk::Done> parse_done(std::string_view document) {
  boost::system::error_code ec;
  const json::value parsed = json::parse(document, ec);
  if (ec || !parsed.is_object()) return fail(errors::malformed, "the daemon's answer is not a JSON object");
  DeadLetterDesk::Done d;
  const std::pair<const char*, uint64_t*> parts[] = {{"letters", &d.letters},
                                                     {"events", &d.events},
                                                     {"fresh", &d.fresh},
                                                     {"no_target", &d.no_target},
                                                     {"failed", &d.failed}};
  for (const auto& [name, number] : parts) {
    const json::value* v = parsed.get_object().if_contains(name);
    if (!v || !v->is_number()) return fail(errors::malformed, std::string("the daemon's answer has no ") + name);
    *number = v->to_number<uint64_t>(ec);
  }
  return d;
}

std::string choice_json(const DeadLetterDesk::Choice& c) {
  json::object out{{"route", c.route}};
  if (c.all)
    out["all"] = true;
  else
    out["ids"] = json::value_from(std::vector<std::string>(c.ids.begin(), c.ids.end()));
  return json::serialize(out);
}

std::string letters_json(const std::vector<dead_letter::Found>& letters, bool more, uint64_t stray_bytes) {
  json::array data;
  for (const dead_letter::Found& found : letters) {
    if (found.newer_version) {
      data.push_back(json::object{{"file", found.file}, {"offset", found.offset}, {"newer_version", true}});
      continue;
    }
    const port::DeadLetter& l = found.letter;
    auto block = event::decode(l.block);
    data.push_back(json::object{{"id", dead_letter::letter_id(l)},
                                {"at_ms", to_unix_ms(l.at)},
                                {"route", l.route},
                                {"target", l.target},
                                {"category", l.category},
                                {"topic", block ? block->topic : std::string()},
                                {"reason", l.reason},
                                {"events", block ? block->events : 0},
                                {"bytes", l.block.size()},
                                {"stream", fmt::format("{:016x}", l.stream.value)},
                                {"first", l.first},
                                {"last", l.last}});
  }
  const size_t count = data.size();
  return json::serialize(
      json::object{{"data", std::move(data)},
                   {"meta", json::object{{"count", count}, {"more", more}, {"stray_bytes", stray_bytes}}}});
}

Result<std::string> letters_text(std::string_view document) {
  boost::system::error_code ec;
  const json::value parsed = json::parse(document, ec);
  const json::value* data = !ec && parsed.is_object() ? parsed.get_object().if_contains("data") : nullptr;
  if (!data || !data->is_array()) return fail(errors::malformed, "the daemon's answer is no list of dead letters");
  auto text = [](const json::object& from, std::string_view key) {
    const json::value* v = from.if_contains(key);
    if (!v) return std::string();
    return v->is_string() ? std::string(v->get_string()) : json::serialize(*v);
  };
  TextTable table({"id", "route", "target", "category", "reason", "events", "bytes"});
  for (const json::value& v : data->get_array()) {
    if (!v.is_object()) continue;
    const json::object& l = v.get_object();
    if (l.if_contains("newer_version"))
      table.add({"-", "-", "-", "-", "written by a newer version, in " + text(l, "file"), "", ""});
    else
      table.add({text(l, "id"), text(l, "route"), text(l, "target"), text(l, "category"), text(l, "reason"),
                 text(l, "events"), text(l, "bytes")});
  }
  std::string out;
  if (table.empty()) return std::string("no dead letters\n");
  table.print(out, 5);
  const json::value* meta = parsed.get_object().if_contains("meta");
  if (!meta || !meta->is_object()) return out;
  if (text(meta->get_object(), "more") == "true") out += "there are more: --limit N, or --route\n";
  if (const std::string stray = text(meta->get_object(), "stray_bytes"); stray != "0" && !stray.empty())
    out += stray + " damaged bytes were skipped\n";
  return out;
}

}  // namespace ph::admin
