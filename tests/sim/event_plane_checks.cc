// What must hold (event_plane.h), looked up in the bytes on the nodes' disks and in their counters.
#include <algorithm>

#include "sim/event_plane.h"

namespace ph::sim {
namespace {

using Tokens = std::set<std::string, std::less<>>;

std::string_view token_of(std::string_view line) {
  const size_t end = line.find('|');
  return line.starts_with('<') && end != line.npos ? line.substr(0, end) : std::string_view();
}

void find_tokens(ByteView bytes, Tokens& into) {
  for (size_t at = bytes.find('<'); at != bytes.npos; at = bytes.find('<', at + 1)) {
    const std::string_view token = token_of(bytes.substr(at, 64));
    if (!token.empty() && !into.contains(token)) into.emplace(token);
  }
}

std::vector<std::string> lines_of(const std::string& bytes) {
  std::vector<std::string> out;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    out.push_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// All lines of a node's received files: category by category, chunk by chunk.
std::vector<std::string> received(Node& node) {
  std::vector<std::string> out;
  for (const std::string& path : node.files().paths()) {
    if (!path.starts_with("/events/") || node.files().inode(path)->kind != port::FileKind::regular) continue;
    for (auto& line : lines_of(node.files().content(path))) out.push_back(std::move(line));
  }
  return out;
}

}  // namespace

void EventPlane::check_acknowledged() {
  Tokens safe;  // durable behind the edges
  for (const auto& [name, node] : nodes_) {
    const bool edge = name.starts_with("e"), receiver = name.starts_with("d");
    for (const auto& [path, bytes] : node->files().durable_files()) {
      if (shape_.far && !receiver && !(edge && path.starts_with("/data/spool/"))) continue;
      if (edge && path.starts_with("/in/")) continue;
      find_tokens(bytes, safe);
    }
  }
  for (Node* edge : group("e")) {
    Tokens sources;
    for (const std::string& path : edge->files().paths())
      if (path.starts_with("/in/")) find_tokens(edge->files().content(path), sources);
    for (const auto& p : producers_) {
      if (&p->node() != edge) continue;
      for (const std::string& token : p->lines())
        if (!sources.contains(token) && !safe.contains(token))
          complain("released before it was safe: " + token + " at " +
                   std::to_string(std::chrono::duration<double>(world_.now() - Instant{}).count()) + " s");
    }
  }
  for (const std::string& token : acknowledged_)
    if (!safe.contains(token)) complain("acknowledged message is nowhere: " + token);
}

uint64_t EventPlane::maybe_duplicates(std::string_view prefix) const {
  uint64_t sum = 0;
  for (Node* node : group(prefix)) sum += node->maybe_duplicates();
  return sum;
}

/// Whether its edge did: Shape::edge_power_cuts.
bool EventPlane::lost_power(std::string_view token) const {
  return power_cut_edges_.contains(std::string(token.substr(1, token.find('.') - 1)));
}

void EventPlane::check_files() {
  std::map<std::string, std::vector<std::string>> by_receiver;
  std::map<std::string, uint64_t, std::less<>> everywhere;
  const uint64_t maybe = maybe_duplicates("");
  Tokens known;
  for (const auto& p : producers_) known.insert(p->lines().begin(), p->lines().end());
  known.insert(published_.begin(), published_.end());
  for (Node* node : group("d")) {
    std::map<std::string, uint64_t, std::less<>> here;
    for (const std::string& line : received(*node)) {
      const std::string token(token_of(line));
      if (!known.contains(token)) {
        complain("line that nobody wrote in " + node->name() + ": " + line.substr(0, 80));
        continue;
      }
      by_receiver[node->name()].push_back(token);
      ++everywhere[token];
      // Two relays make two ways into one receiver: what was rerouted between them may come by both.
      if (++here[token] > 1 && shape_.relays < 2 && !lost_power(token))
        complain("twice in the files of " + node->name() + ": " + token);
    }
  }
  for (const auto& p : producers_)
    for (const std::string& token : p->lines())
      if (!everywhere.contains(token)) complain("lost: " + token);
  for (const std::string& token : acknowledged_)
    if (!everywhere.contains(token)) complain("acknowledged message lost: " + token);
  for (const auto& [token, count] : everywhere) surplus_ += count - 1;
  if (shape_.patient && !shape_.forgets && power_cut_edges_.empty() && maybe > 0)
    complain(std::to_string(maybe) + " counted as maybe_duplicate, and nothing went elsewhere unasked");
  if (surplus_ > maybe)
    complain(std::to_string(surplus_) + " lines too many, " + std::to_string(maybe) + " counted as maybe_duplicate");
  if (shape_.relay_files) {
    Tokens at_relays;
    for (Node* node : group("r"))
      for (const std::string& line : received(*node)) at_relays.emplace(token_of(line));
    for (const auto& p : producers_)
      for (const std::string& token : p->lines())
        if (!at_relays.contains(token)) complain("lost for the relays' files: " + token);
  }
  if (one_way()) check_order(by_receiver);
}

/// Whether lines of one source file keep their order: one connection leads to the files, or they are one key of an
/// upstream that waits for receivers. Otherwise one that does not answer in time may be passed.
bool EventPlane::one_way() const {
  if (shape_.relays > 1) return false;
  return (shape_.receivers == 1 && shape_.connections == 1 && !shape_.two_names) ||
         (shape_.hash && (shape_.strict || shape_.patient));
}

void EventPlane::check_order(const std::map<std::string, std::vector<std::string>>& by_receiver) {
  for (const auto& [receiver, tokens] : by_receiver) {
    std::map<std::string, std::string> last;  // by source file
    Tokens seen;
    for (const std::string& token : tokens) {
      const std::string file = token.substr(0, token.rfind('.'));
      if (!seen.insert(token).second || file.ends_with(".m")) continue;
      std::string& before = last[file];
      if (token < before) complain("out of order in " + receiver + ": " + token + " behind " + before);
      before = token;
    }
  }
}

void EventPlane::check_accounts() {
  uint64_t sent_by_edges = 0, taken_by_nexts = 0;
  for (const auto& [name, node] : nodes_) {
    for (const auto& row : node->rows()) {
      const auto& c = row.counters;
      const std::string where = name + " " + row.route + " -> " + row.target + ": ";
      if (c.in != c.delivered + c.dropped + c.dead_lettered + c.queued)
        complain(where + "in " + std::to_string(c.in) + " is not delivered " + std::to_string(c.delivered) +
                 " + dropped " + std::to_string(c.dropped) + " + dead " + std::to_string(c.dead_lettered) +
                 " + queued " + std::to_string(c.queued));
      if (c.dropped + c.dead_lettered > 0) complain(where + "nothing was to be dropped");
      if (name.starts_with("e")) sent_by_edges += c.delivered;
    }
    if (name.starts_with("e")) check_edge(*node);
    if (name.starts_with("r")) {
      taken_by_nexts += node->intake().events;
      equal(name + ": in of its spool, and taken from peers", node->rows().front().counters.in, node->intake().events);
    }
    if (name.starts_with("d")) {
      if (shape_.relays == 0) taken_by_nexts += node->intake().events;
      equal(name + ": taken from peers, and lines in files", node->intake().events, received(*node).size());
      equal(name + ": taken from peers, and counted for the route", node->intake().events,
            node->direct()["all"].events);
    }
  }
  // What an edge delivered is there; more only as far as it counted possible copies.
  const uint64_t maybe = maybe_duplicates("e");
  if (taken_by_nexts < sent_by_edges || taken_by_nexts > sent_by_edges + maybe)
    complain("edges delivered " + std::to_string(sent_by_edges) + ", the next took " + std::to_string(taken_by_nexts) +
             ", counted as maybe_duplicate " + std::to_string(maybe));
}

void EventPlane::equal(const std::string& what, uint64_t a, uint64_t b) {
  if (a != b) complain(what + ": " + std::to_string(a) + " and " + std::to_string(b));
}

void EventPlane::check_edge(Node& edge) {
  uint64_t written = 0, by_agent = 0, by_tap = 0;
  for (const auto& p : producers_)
    if (&p->node() == &edge) written += p->lines().size();
  // The agent has a row for each route, the spool of messages another one for its own.
  for (const auto& row : edge.rows()) (row.route == "msgs" ? by_tap : by_agent) += row.counters.in;
  equal(edge.name() + ": written to files, and in", written, by_agent);
  const auto of_edge = [&](const std::string& token) { return token.starts_with("<" + edge.name() + "."); };
  const auto acknowledged = std::count_if(acknowledged_.begin(), acknowledged_.end(), of_edge);
  const auto published = std::count_if(published_.begin(), published_.end(), of_edge);
  if (by_tap < static_cast<uint64_t>(acknowledged) || by_tap > static_cast<uint64_t>(published))
    complain(edge.name() + ": " + std::to_string(acknowledged) + " messages acknowledged of " +
             std::to_string(published) + ", in " + std::to_string(by_tap));
}

void EventPlane::check_sources_gone() {
  auto left = [this] {
    std::string out;
    for (Node* edge : group("e"))
      for (const std::string& path : edge->files().paths())
        if (path.starts_with("/in/") && edge->files().inode(path)->kind == port::FileKind::regular)
          out += " " + edge->name() + ":" + path;
    return out;
  };
  if (!world_.run_until([&] { return left().empty(); }, std::chrono::minutes(3), 1s))
    complain("sources that are delivered are not deleted:" + left());
}

}  // namespace ph::sim
