#include "sim/event_plane.h"

#include <algorithm>

#include "base/result.h"

namespace ph::sim {
namespace {

constexpr char kPort[] = ":3706";
constexpr char kSecondName[] = "second";

std::string number(uint64_t n, size_t digits) {
  std::string text = std::to_string(n);
  return text.size() >= digits ? text : std::string(digits - text.size(), '0') + text;
}

std::string filler(Random& random) {
  const size_t size = random.chance(0.02) ? random.below(6000) : random.below(120);
  std::string out(size, 'a');
  for (char& c : out) c = static_cast<char>('a' + random.below(26));
  return out;
}

/// Of hosts of that kind; the last one under a second name as well.
std::string addresses(const std::string& kind, size_t count, bool two_names) {
  std::string out;
  for (size_t k = 0; k < count; ++k) out += (k ? ", \"" : "\"") + kind + std::to_string(k) + kPort + "\"";
  return two_names ? out + ", \"" + kSecondName + kPort + "\"" : out;
}

std::string link_settings(const Shape& shape) {
  std::string text = "connections = " + std::to_string(shape.connections) + "\nrequest_timeout = \"5s\"\n";
  text += "resume_timeout = \"" + std::string(shape.patient ? "1h" : "2s") + "\"\n";
  if (shape.strict) text += "dedup = \"strict\"\n";
  if (shape.hash) text += "balance = { hash = { regex = \"^<[a-z0-9_]*[.][a-z_]*[.]f[0-9]*\" } }\n";
  return text;
}

}  // namespace

std::string Shape::to_string() const {
  return std::to_string(edges) + " edges, " + std::to_string(relays) + " relays, " + std::to_string(receivers) +
         " receivers, ack " + (far ? "far" : "local") + (relay_files ? ", relays write files" : "") + ", " +
         std::to_string(categories) + " categories" + (publishes ? ", messages" : "") +
         (spool_max.empty() ? "" : ", spool " + spool_max) + (plain ? ", a plain log" : "") +
         (strict ? ", strict" : "") + (hash ? ", hash" : "") +
         (connections > 1 ? ", " + std::to_string(connections) + " connections" : "") + (flows ? ", flows" : "") +
         (two_names ? ", two names" : "") + (short_files ? ", short files" : "") +
         (tight_disks ? ", tight disks" : "") + (window ? ", window " + std::to_string(window) : "") +
         (receiver_memory < limits::kReceiverMemory ? ", memory " + std::to_string(receiver_memory) : "") +
         (staging_max ? ", staging " + std::to_string(staging_max) : "") + (forgets ? ", forgets" : "") +
         (patient ? ", patient" : "") + (reuse_inodes ? ", inodes reused" : "") +
         (edge_power_cuts ? ", power cuts at edges" : "");
}

Shape random_shape(Random& random) {
  Shape s;
  s.edges = 1 + random.below(3);
  s.relays = random.below(10) < 2 ? 0 : 1 + random.below(2);
  s.receivers = 1 + random.below(3);
  s.far = random.chance(0.3);
  s.relay_files = s.relays > 0 && random.chance(0.2);
  s.categories = 1 + random.below(3);
  s.publishes = random.chance(0.3);
  if (random.chance(0.2)) s.spool_max = "1MiB";
  s.load = std::chrono::seconds(10 + random.below(20));
  s.plain = random.chance(0.3);
  s.reuse_inodes = random.chance(0.3);
  s.edge_power_cuts = random.chance(0.3);
  s.strict = random.chance(0.3);
  if (random.chance(0.5)) s.connections = 2 + random.below(3);
  s.hash = random.chance(0.3);
  s.flows = random.chance(0.5);
  s.two_names = random.chance(0.15);
  s.short_files = random.chance(0.4);
  s.tight_disks = random.chance(0.25);
  if (random.chance(0.3)) s.window = 8'000 + random.below(60'000);
  if (random.chance(0.4)) s.receiver_memory = 24 * 1024;  // less than the windows of two senders
  if (random.chance(0.3)) s.staging_max = 20'000 + random.below(100'000);
  s.forgets = s.strict && random.chance(0.2);
  s.patient = random.chance(0.4);
  return s;
}

// --- Producer

Producer::Producer(World& world, Node& node, std::string category, double new_file_chance)
    : world_(world), node_(node), category_(std::move(category)), new_file_chance_(new_file_chance) {
  const std::string directory = node_.settings().agent->dir + "/" + category_;
  node_.files().make_directories(directory).value();
  node_.files().make_durable(directory + "/.");
}

void Producer::start(Duration how_long) {
  until_ = world_.now() + how_long;
  turn();
}

void Producer::reset() {
  release_ = nullptr;
  inode_.reset();
}

void Producer::finish() {
  until_ = world_.now();
  if (release_) release_();
  reset();
}

void Producer::next_file() {
  if (release_) {
    // The old descriptor stays open for a while.
    world_.after(world_.between(0s, 2s), nullptr, [release = std::move(release_), inode = inode_] {
      if (inode->foreign_handles > 0) release();
    });
  }
  const std::string directory = node_.settings().agent->dir + "/" + category_;
  const std::string name = "2026" + number(++files_, 6) + ".log";
  path_ = directory + "/" + name;
  node_.files().append(path_, "");
  release_ = node_.files().hold(path_);
  inode_ = node_.files().inode(path_);
  node_.files().make_durable(path_);
  node_.changed(directory, name);
}

void Producer::turn() {
  if (world_.now() >= until_) return;
  Random& random = world_.random();
  if (!inode_ || random.chance(new_file_chance_)) next_file();
  std::string bytes;
  for (uint64_t n = 1 + random.below(8); n > 0; --n) {
    const std::string token =
        "<" + node_.name() + "." + category_ + ".f" + number(files_, 3) + "." + number(lines_.size(), 6);
    lines_.push_back(token);
    bytes += token + "|" + filler(random) + "\n";
  }
  node_.files().append(inode_, bytes);
  inode_->durable = inode_->bytes;
  inode_->pending.clear();
  const std::string directory = path_.substr(0, path_.rfind('/'));
  node_.changed(directory, path_.substr(directory.size() + 1));
  const Duration pause = random.chance(0.05) ? world_.between(100ms, 3s) : world_.between(1ms, 150ms);
  world_.after(pause, nullptr, [this, alive = alive_] {
    if (*alive) turn();
  });
}

// --- EventPlane: building

EventPlane::EventPlane(uint64_t seed, Shape shape)
    : seed_(seed), shape_(std::move(shape)), world_(seed), fabric_(world_) {
  build();
}

EventPlane::~EventPlane() = default;

std::string EventPlane::edge_config(size_t i) const {
  const std::string name = "e" + std::to_string(i);
  const size_t nexts = shape_.relays ? shape_.relays : shape_.receivers;
  const std::string to = addresses(shape_.relays ? "r" : "d", nexts, shape_.two_names && shape_.relays == 0);
  std::string text =
      "[node]\nname = \"" + name + "\"\ndata_dir = \"/data\"\n[agent]\ndir = \"/in\"\nrotate_age = \"2s\"\n" +
      "rotate_size = \"64KiB\"\ndelete_grace = \"1s\"\nrescan_interval = \"2s\"\n" +
      "[[upstream]]\nname = \"next\"\naddresses = [" + to + "]\ninsecure_plain = true\nwindow = \"256KiB\"\n";
  text += link_settings(shape_);
  const std::string ack = shape_.far ? "ack = \"far\"\n" : "";
  text += "[[route]]\nname = \"all\"\nto = [\"next\"]\n" + ack;
  if (shape_.publishes) text += "[[route]]\nname = \"msgs\"\ntopics = [\"m/#\"]\nto = [\"next\"]\n" + ack;
  return text;
}

std::string EventPlane::relay_config(size_t i) const {
  const std::string to = addresses("d", shape_.receivers, shape_.two_names);
  return "[node]\nname = \"r" + std::to_string(i) + "\"\nsite = \"relays\"\ndata_dir = \"/data\"\n" +
         "[receiver]\nlink = \"0.0.0.0:3706\"\ninsecure_plain = true\n" +
         (shape_.relay_files ? "dir = \"/events\"\n" : "") + "[[upstream]]\nname = \"far\"\naddresses = [" + to +
         "]\ninsecure_plain = true\nwindow = \"512KiB\"\n" + link_settings(shape_) +
         "[[route]]\nname = \"all\"\nto = [\"far\"" + (shape_.relay_files ? ", \"files\"" : "") + "]\n" +
         (shape_.spool_max.empty() ? "" : "spool = { max = \"" + shape_.spool_max + "\" }\n");
}

std::string EventPlane::receiver_config(size_t i) const {
  return "[node]\nname = \"d" + std::to_string(i) + "\"\nsite = \"far\"\ndata_dir = \"/data\"\n" +
         "[receiver]\nlink = \"0.0.0.0:3706\"\ninsecure_plain = true\ndir = \"/events\"\n" +
         (shape_.plain ? "[[receiver.category]]\nmatch = [\"orders\"]\nmode = \"plain\"\n" : "") +
         "[[receiver.category]]\nmatch = [\"*\"]\nchunk_max = \"16KiB\"\nchunk_interval = \"2s\"\n" +
         "[[route]]\nname = \"all\"\nto = [\"files\"]\n";
}

Node& EventPlane::add(std::string name, std::string config) {
  NodeOptions options;
  options.name = name;
  options.config = std::move(config);
  options.segment_bytes = 16 * 1024;
  options.receiver_memory = shape_.receiver_memory;
  options.window = shape_.window;
  options.staging_max = shape_.staging_max;
  options.restart_after = [this]() -> std::optional<Duration> {
    return faults_on_ ? world_.between(50ms, 6s) : world_.between(50ms, 500ms);
  };
  options.on_crash = [this, name](Crash kind) {
    ++crashes_;
    if (kind != Crash::power_cut) return;
    if (name.starts_with("e")) power_cut_edges_.insert(name);
    for (auto& p : producers_)
      if (p->node().name() == name) p->reset();
  };
  auto& node = nodes_[name];
  node = std::make_unique<Node>(world_, fabric_, std::move(options));
  node->files().reuse_inodes = shape_.reuse_inodes;
  node->files().sync_lies = shape_.lying_disks && !node->has_agent();
  return *node;
}

void EventPlane::build() {
  static const char* const kCategories[] = {"clicks", "orders", "local_log"};
  for (size_t i = 0; i < shape_.receivers; ++i) add("d" + std::to_string(i), receiver_config(i));
  for (size_t i = 0; i < shape_.relays; ++i) add("r" + std::to_string(i), relay_config(i));
  for (size_t i = 0; i < shape_.edges; ++i) {
    Node& edge = add("e" + std::to_string(i), edge_config(i));
    for (size_t c = 0; c < shape_.categories; ++c)
      producers_.push_back(std::make_unique<Producer>(world_, edge, kCategories[c], shape_.short_files ? 0.3 : 0.03));
  }
  auto connect = [&](std::string_view from, std::string_view to) {
    for (Node* a : group(from))
      for (Node* b : group(to)) {
        links_.emplace_back(a->name(), b->name());
        for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)})
          fabric_.way(x->name(), y->name()) = {world_.between(100us, 30ms), world_.between(0us, 5ms), 20e6, false};
      }
  };
  fabric_.alias(kSecondName, "d" + std::to_string(shape_.receivers - 1));
  if (shape_.flows) fabric_.own_delay_max = 200ms;
  if (shape_.relays == 0) connect("e", "d");
  connect("e", "r");
  connect("r", "d");
}

std::vector<Node*> EventPlane::group(std::string_view prefix) const {
  std::vector<Node*> out;
  for (const auto& [name, node] : nodes_)
    if (name.starts_with(prefix)) out.push_back(node.get());
  return out;
}

Node& EventPlane::any_node() {
  auto it = nodes_.begin();
  std::advance(it, static_cast<ptrdiff_t>(world_.random().below(nodes_.size())));
  return *it->second;
}

std::pair<std::string, std::string> EventPlane::any_link() {
  auto link = links_[world_.random().below(links_.size())];
  if (world_.random().chance(0.5)) std::swap(link.first, link.second);
  return link;
}

// --- faults

void EventPlane::fault() {
  if (!faults_on_) return;
  if (world_.random().chance(0.55))
    fault_of_node(any_node());
  else
    fault_of_link();
  world_.after(world_.between(100ms, 3s), nullptr, [this] { fault(); });
}

void EventPlane::fault_of_node(Node& node) {
  Random& random = world_.random();
  Crash kind = random.chance(0.5) ? Crash::kill : Crash::power_cut;
  if (!shape_.edge_power_cuts && node.has_agent()) kind = Crash::kill;
  switch (random.below(7)) {
    case 0:
    case 1:
      if (!node.up()) return;
      node.crash(kind);
      world_.after(world_.between(50ms, 8s), nullptr, [&node] { node.start(); });
      break;
    case 2:
    case 3:
      node.arm(kind, random.below(60));
      break;
    case 4:
      node.freeze(random.chance(0.2) ? world_.between(5s, 25s) : world_.between(10ms, 8s));
      break;
    case 5:
      node.stop();
      break;
    default:
      full_disk(node);
  }
}

void EventPlane::full_disk(Node& node) {
  node.files().capacity = node.files().used() + world_.random().below(20'000);
  world_.after(world_.between(100ms, 8s), nullptr, [&node] { node.files().capacity = UINT64_MAX; });
}

/// What is behind the edges, so that HOLD and RELEASE never end.
void EventPlane::tight_disk() {
  if (!faults_on_) return;
  Random& random = world_.random();
  Node& node = any_node();
  if (!node.has_agent()) {
    node.files().capacity = node.files().used() + random.below(4'000);
    world_.after(world_.between(50ms, 2500ms), nullptr, [&node] { node.files().capacity = UINT64_MAX; });
  }
  world_.after(world_.between(50ms, 1s), nullptr, [this] { tight_disk(); });
}

void EventPlane::give_up() {
  if (!faults_on_) return;
  Node& node = any_node();
  const std::string kind = node.has_agent() && shape_.relays ? "r" : "d";
  const size_t count = kind == "r" ? shape_.relays : shape_.receivers;
  node.give_up(kind + std::to_string(world_.random().below(count)) + kPort);
  world_.after(world_.between(1s, 10s), nullptr, [this] { give_up(); });
}

void EventPlane::fault_of_link() {
  Random& random = world_.random();
  const auto [a, b] = any_link();
  if (shape_.flows && random.chance(0.6)) {
    if (random.chance(0.3)) return fabric_.reset_one(a, b);
    const Duration time = random.chance(0.3) ? world_.between(5s, 20s) : world_.between(50ms, 5s);
    if (random.chance(0.5)) fabric_.lose_connects(a, b, time);
    return fabric_.stall_one(a, b, time);
  }
  switch (random.below(4)) {
    case 0:
      fabric_.cut(a, b);
      if (random.chance(0.6)) fabric_.cut(b, a);
      world_.after(world_.between(100ms, 15s), nullptr, [this, a, b] {
        fabric_.heal(a, b);
        fabric_.heal(b, a);
      });
      break;
    case 1:
      fabric_.reset_between(a, b);
      break;
    case 2: {
      const Way slow{world_.between(1ms, 300ms), world_.between(0ms, 50ms), 20e3 + 1e6 * random.chance(0.7), false};
      for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        const bool cut = fabric_.way(from, to).cut;
        fabric_.way(from, to) = slow;
        fabric_.way(from, to).cut = cut;
      }
      break;
    }
    default: {
      static constexpr Duration kJumps[] = {0s, -24h * 365, 1h, -1h, 24h * 3};
      any_node().set_wall_offset(kJumps[random.below(5)]);
    }
  }
}

void EventPlane::end_faults() {
  faults_on_ = false;
  fabric_.heal_all();
  for (const auto& [a, b] : links_)
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)})
      fabric_.way(from, to) = {1ms, 1ms, 20e6, fabric_.way(from, to).cut};
  for (auto& p : producers_) p->finish();
  for (auto& [name, node] : nodes_) {
    node->disarm();
    node->files().capacity = UINT64_MAX;
    node->start();
  }
}

void EventPlane::publish() {
  if (!faults_on_ && shape_.faults) return;
  Node& edge = *group("e")[world_.random().below(shape_.edges)];
  if (edge.up()) {
    const std::string token = "<" + edge.name() + ".m." + number(published_.size(), 6);
    published_.insert(token);
    edge.publish("m/x", token + "|" + filler(world_.random()), [this, token](Result<> taken) {
      if (taken) acknowledged_.insert(token);
    });
  }
  world_.after(world_.between(5ms, 300ms), nullptr, [this] { publish(); });
}

// --- the run

std::vector<std::string> EventPlane::run() {
  for (auto& [name, node] : nodes_) world_.after(world_.between(0s, 2s), nullptr, [n = node.get()] { n->start(); });
  for (auto& p : producers_) p->start(shape_.load);
  faults_on_ = shape_.faults;
  if (shape_.publishes) world_.after(1s, nullptr, [this] { publish(); });
  if (shape_.faults) world_.after(1s, nullptr, [this] { fault(); });
  if (shape_.tight_disks) world_.after(1s, nullptr, [this] { tight_disk(); });
  if (shape_.forgets) world_.after(1s, nullptr, [this] { give_up(); });
  for (const Instant end = world_.now() + shape_.load + 5s; world_.now() < end && complaints_.empty();) {
    world_.run_for(1s);
    check_acknowledged();
    if (world_.spins()) complain("spins");
  }
  end_faults();
  const auto frozen = [this] { return std::ranges::any_of(nodes_, [](const auto& n) { return n.second->frozen(); }); };
  for (int calm = 0; calm < 10 && complaints_.empty(); calm = frozen() ? 0 : calm + 1) {
    world_.run_for(1s);
    check_acknowledged();
    if (world_.spins()) complain("spins");
  }
  if (!complaints_.empty()) return complaints_;
  if (!world_.run_until([this] { return at_rest(); }, std::chrono::minutes(10), 1s))
    complain(world_.spins() ? "spins" : "does not come to rest within 10 minutes");
  world_.run_for(5s);
  if (complaints_.empty() && !at_rest()) complain("was at rest, and is no more");
  check_acknowledged();
  check_files();
  if (complaints_.empty()) check_accounts();
  if (complaints_.empty()) check_sources_gone();
  return complaints_;
}

bool EventPlane::at_rest() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n.second->up() && n.second->idle(); });
}

uint64_t EventPlane::lines() const {
  uint64_t sum = 0;
  for (const auto& p : producers_) sum += p->lines().size();
  return sum;
}

void EventPlane::complain(std::string what) {
  if (complaints_.size() < 10) complaints_.push_back(std::move(what));
}

std::string EventPlane::describe() const {
  std::string out = "seed " + std::to_string(seed_) + ": " + shape_.to_string() + ", " + std::to_string(lines()) +
                    " lines, " + std::to_string(crashes_) + " crashes, at " +
                    std::to_string(std::chrono::duration<double>(world_.now() - Instant{}).count()) + " s\n";
  for (const auto& [name, node] : nodes_) out += node->describe();
  return out;
}

}  // namespace ph::sim
