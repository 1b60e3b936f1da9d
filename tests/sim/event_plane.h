// One simulated installation of the event plane and what must hold in it: edges with producers, relays, receivers.
//
// Checked all the time (once a simulated second):
//   every line a producer wrote is in a file of its edge, or durably on a node that it was acknowledged by: the next
//   one (ack = "local"), a receiver (ack = "far")
// Checked at rest, when every fault is over and everything has run dry:
//   every line is in the receivers' files; within one receiver once; over all receivers as often more as some sender
//   counted maybe_duplicate; in the order of its file where there is one way only
//   in = delivered + dropped + dead_lettered + queued for every route and target, and the sums of neighbours agree
//   the sources are gone, and all of this within a bound of time and of steps: nothing spins
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sim/network.h"
#include "sim/node.h"
#include "sim/world.h"

namespace ph::sim {

struct Shape {
  size_t edges = 1;
  size_t relays = 1;  // 0: edges send to the receivers themselves
  size_t receivers = 1;
  bool far = false;
  bool relay_files = false;  // relays write files as well: a second target of every route
  size_t categories = 2;
  bool publishes = false;    // MQTT messages at the edges, besides lines
  std::string spool_max;     // of relays' routes; empty: none
  Duration load = 20s;       // how long producers write
  bool strict = false;       // nothing twice, whatever is lost
  size_t connections = 1;    // to each address
  bool flows = false;        // connections between two hosts differ, and are reset and stalled one by one
  bool two_names = false;    // the last receiver is listed under two addresses
  bool short_files = false;  // of producers: streams end all the time
  bool tight_disks = false;  // behind the edges: full, and not, and full again
  size_t window = 0;         // of upstreams, 0: large ones
  uint64_t receiver_memory = limits::kReceiverMemory;
  uint64_t staging_max = 0;  // 0: large
  /// Nothing goes elsewhere while who may hold it cannot be asked: then nothing may come twice, nor be counted so.
  bool patient = false;
  bool forgets = false;       // strict: an operator gives up receivers that are away
  bool hash = false;          // the lines of one source file are one key: their order holds over all connections
  bool plain = false;         // receivers write "orders" to one plain log
  bool reuse_inodes = false;  // file systems give a new file the last freed inode's number
  bool faults = true;
  /// Edges may lose power as well. Lines in flight at that moment may then come twice, also to one receiver, and are
  /// counted: the agent goes on under new stream ids, because what a file holds at those positions now cannot be known
  /// to be what was sent.
  bool edge_power_cuts = false;
  /// Relays' and receivers' disks confirm what they did not write: for the test of the checks themselves.
  bool lying_disks = false;
  std::string to_string() const;
};
Shape random_shape(Random& random);

/// Writes numbered lines to files of one category, in place, durably, as LSD's writers do; goes on to a new file now
/// and then, and keeps an old one open for a while.
class Producer {
 public:
  Producer(World& world, Node& node, std::string category, double new_file_chance);
  void start(Duration how_long);
  /// Its host lost power: its descriptors are gone.
  void reset();
  void finish();
  const std::vector<std::string>& lines() const { return lines_; }
  const std::string& category() const { return category_; }
  Node& node() { return node_; }

 private:
  void turn();
  void next_file();
  World& world_;
  Node& node_;
  std::string category_;
  double new_file_chance_;
  std::string path_;
  test::MemoryFiles::InodePtr inode_;
  std::function<void()> release_;
  std::vector<std::string> lines_;
  Instant until_{};
  uint64_t files_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class EventPlane {
 public:
  EventPlane(uint64_t seed, Shape shape);
  ~EventPlane();

  /// Runs load and faults, then lets everything come to rest. Complaints are what did not hold; empty: all did.
  std::vector<std::string> run();
  World& world() { return world_; }
  const std::map<std::string, std::unique_ptr<Node>>& nodes() const { return nodes_; }
  uint64_t lines() const;
  uint64_t crashes() const { return crashes_; }
  uint64_t surplus() const { return surplus_; }
  std::string describe() const;

 private:
  void build();
  std::string edge_config(size_t i) const;
  std::string relay_config(size_t i) const;
  std::string receiver_config(size_t i) const;
  Node& add(std::string name, std::string config);
  std::vector<Node*> group(std::string_view prefix) const;
  Node& any_node();
  std::pair<std::string, std::string> any_link();

  void fault();
  void fault_of_node(Node& node);
  void fault_of_link();
  void full_disk(Node& node);
  void tight_disk();
  void give_up();
  void end_faults();
  void publish();

  void check_acknowledged();
  void check_files();
  bool one_way() const;
  void check_order(const std::map<std::string, std::vector<std::string>>& by_receiver);
  bool lost_power(std::string_view token) const;
  uint64_t maybe_duplicates(std::string_view prefix) const;
  void check_accounts();
  void check_edge(Node& edge);
  void equal(const std::string& what, uint64_t a, uint64_t b);
  void check_sources_gone();
  bool at_rest() const;
  void complain(std::string what);

  uint64_t seed_;
  Shape shape_;
  World world_;
  Fabric fabric_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Producer>> producers_;
  std::vector<std::pair<std::string, std::string>> links_;
  std::set<std::string> published_;     // every message, by its token
  std::set<std::string> acknowledged_;  // of those, the ones with a PUBACK
  std::vector<std::string> complaints_;
  std::set<std::string> power_cut_edges_;
  bool faults_on_ = false;
  uint64_t crashes_ = 0;
  uint64_t surplus_ = 0;
};

}  // namespace ph::sim
