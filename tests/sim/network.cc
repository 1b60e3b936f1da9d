#include "sim/network.h"

#include <algorithm>

namespace ph::sim {

class Connection;

/// One end of a connection: a kernel's socket. Outlives the program's Connection.
struct End : std::enable_shared_from_this<End> {
  enum class State : uint8_t { connecting, open, closed };

  Fabric& fabric;
  std::string host;
  std::string peer_host;
  ProcessPtr process;
  Loop* loop = nullptr;              // valid while process->alive
  Connection* connection = nullptr;  // null: not accepted yet, or given up by the program
  port::ConnectionHandler* handler = nullptr;
  std::shared_ptr<End> peer;  // until one of both is closed
  State state = State::connecting;
  bool vanished = false;  // its host lost power

  // out
  std::string unsent;
  uint64_t sent = 0;   // taken by the kernel
  uint64_t acked = 0;  // accepted by the peer's kernel, as far as known here
  bool finishing = false;
  bool fin_sent = false;
  bool flush_posted = false;
  bool notify = false;
  size_t low_mark = 0;
  Instant wire_free{};
  Instant last_arrival{};
  Duration own_delay{};

  // in
  std::deque<std::string> transit;  // at our host's door: waits for room, or for the cut to heal; empty string: FIN
  std::string arrived;
  uint64_t accepted = 0;
  bool fin = false;
  std::optional<Error> broken;
  Instant stalled_until{};
  bool read_posted = false;
  bool paused = false;
  size_t wanted = 0;

  End(Fabric& f, std::string h, std::string p) : fabric(f), host(std::move(h)), peer_host(std::move(p)) {}

  World& world() { return fabric.world(); }
  bool program_listens() const { return connection && process && process->alive; }

  /// The kernel takes what fits and sends it.
  void pump() {
    if (state != State::open || vanished) return;
    while (!unsent.empty() && sent - acked < Fabric::kSendBuffer) {
      const size_t piece = std::min<size_t>(unsent.size(), 1 + world().random().below(16 * 1024));
      send_segment(unsent.substr(0, piece));
      unsent.erase(0, piece);
      sent += piece;
    }
    if (finishing && !fin_sent && unsent.empty()) {
      fin_sent = true;
      send_segment({});
    }
    check_drained();
  }
  void send_segment(std::string bytes) {
    if (!peer) return;
    const Way& way = fabric.way(host, peer_host);
    const auto wire = Duration(static_cast<int64_t>(1e9 * static_cast<double>(bytes.size()) / way.bytes_per_second));
    wire_free = std::max(wire_free, world().now()) + wire;
    last_arrival = std::max(last_arrival, wire_free + way.latency + own_delay + world().between(0ns, way.jitter));
    world().after(last_arrival - world().now(), nullptr, [to = peer, bytes = std::move(bytes)]() mutable {
      to->transit.push_back(std::move(bytes));
      to->accept();
    });
  }
  /// Segments at the door go in, unless the way is cut or the buffer full.
  void accept() {
    if (broken) transit.clear();  // a kernel takes nothing behind a RST: no hole may appear in what is read
    while (!transit.empty()) {
      if (fabric.way(peer_host, host).cut) return;  // heal() comes back
      if (stalled_until > world().now()) return;    // as stall_one() does
      if (!fabric.is_on(host)) {                    // the peer's kernel repeats until somebody answers
        world().after(1s, nullptr, [self = shared_from_this()] { self->accept(); });
        return;
      }
      if (vanished || state == State::closed) {
        transit.clear();
        if (peer) peer->travel_reset(host);
        return;
      }
      // A program that waits for a long frame keeps what it has read in a buffer of its own.
      if (arrived.size() >= std::max(Fabric::kReceiveBuffer, wanted)) return;  // read() comes back
      if (transit.front().empty()) fin = true;
      accepted += transit.front().size();
      arrived += transit.front();
      transit.pop_front();
      acknowledge();
      post_read();
    }
  }
  void acknowledge() {
    if (!peer) return;
    world().after(fabric.travel(host, peer_host, 0), nullptr, [self = shared_from_this(), to = peer, n = accepted] {
      if (self->fabric.way(self->host, self->peer_host).cut) return;  // heal() acknowledges anew
      to->acked = std::max(to->acked, n);
      to->pump();
    });
  }
  /// RST from `from` on its way to this end.
  void travel_reset(const std::string& from) {
    world().after(fabric.travel(from, host, 0), nullptr, [self = shared_from_this()] {
      const bool lost = self->fabric.way(self->peer_host, self->host).cut || self->stalled_until > self->world().now();
      if (lost || !self->fabric.is_on(self->host)) {
        self->world().after(1s, nullptr, [self] { self->travel_reset(self->peer_host); });
        return;
      }
      self->breaks(port::net_errors::reset, "reset by peer");
    });
  }
  void breaks(ErrorCode code, std::string detail) {
    if (state == State::closed || broken) return;
    broken = Error{code, std::move(detail), 0};
    if (world().random().chance(0.5)) arrived.clear();
    if (!program_listens()) return shut();
    post_read();
  }
  /// This socket is gone; the peer learns it by itself, or was told.
  void shut() {
    state = State::closed;
    peer.reset();
    transit.clear();
  }
  /// The program is gone or let go of the connection.
  void abandon() {
    connection = nullptr;
    handler = nullptr;
    if (!fabric.is_on(host)) vanished = true;
    if (vanished && peer && peer->vanished) {  // nobody is left to answer the other, and each would keep it alive
      peer->peer.reset();
      peer.reset();
    }
    if (state == State::closed || vanished) return;
    unsent.clear();
    const bool reset = !arrived.empty() || !transit.empty() || state == State::connecting;
    if (!reset && !fin_sent) {
      fin_sent = true;
      send_segment({});
    }
    auto to = peer;
    shut();
    if (reset && to) to->travel_reset(host);
  }

  // --- towards the program
  void post_read() {
    if (!program_listens() || read_posted) return;
    read_posted = true;
    loop->post_ready([self = shared_from_this()] {
      self->read_posted = false;
      self->read();
    });
  }
  void read();
  void post_flush() {
    if (!program_listens() || flush_posted) return;
    flush_posted = true;
    loop->post([self = shared_from_this()] {
      self->flush_posted = false;
      self->pump();
      self->finish_close();
    });
  }
  void check_drained();
  void finish_close();
  void close_program(Error why);
};

class Connection final : public port::Connection {
 public:
  Connection(std::shared_ptr<End> end, std::string peer_address) : end_(std::move(end)) {
    end_->connection = this;
    peer_.address = std::move(peer_address);
  }
  ~Connection() override {
    if (end_->connection == this) end_->abandon();
  }
  void send(Slice bytes) override { send_copy(bytes.view()); }
  void send_copy(ByteView bytes) override {
    if (end_->state == End::State::closed || end_->finishing) return;
    end_->unsent.append(bytes);
    end_->post_flush();
  }
  size_t unsent_bytes() const override { return end_->unsent.size(); }
  void notify_below(size_t mark) override {
    end_->low_mark = mark;
    end_->notify = true;
    end_->post_flush();
  }
  void pause_reading(bool paused) override {
    end_->paused = paused;
    if (!paused) end_->post_read();
  }
  void close(Duration linger) override {
    if (end_->finishing) return;
    end_->finishing = true;
    end_->post_flush();
    end_->world().after(linger, end_->process, [end = end_] {
      if (!end->connection) return;
      end->unsent.clear();
      end->pump();
      end->finish_close();
    });
  }
  const port::Peer& peer() const override { return peer_; }
  uint64_t bytes_acked() const override { return end_->acked; }

 private:
  std::shared_ptr<End> end_;
  port::Peer peer_;
};

void End::read() {
  auto self = shared_from_this();
  while (program_listens() && state == State::open && !finishing && !paused && !arrived.empty()) {
    if (arrived.size() < wanted) break;
    const size_t show = std::max(wanted, std::min(arrived.size(), size_t{1} + world().random().below(64 * 1024)));
    const std::string bytes = arrived.substr(0, show);
    const port::Consumed c = handler->on_data(*connection, bytes);
    arrived.erase(0, c.bytes);
    wanted = paused ? 0 : c.wanted;  // what the program left when it paused is shown again without waiting for more
    if (!paused && c.bytes == 0 && wanted <= show) wanted = show + 1;
  }
  if (!program_listens()) return;
  if (finishing) arrived.clear();
  if (!transit.empty()) accept();
  if (broken) return close_program(*broken);
  if (fin && transit.empty() && !paused && (arrived.empty() || arrived.size() < wanted))
    close_program({port::net_errors::closed, "closed by peer", 0});
}

void End::check_drained() {
  if (!notify || unsent.size() > low_mark || !program_listens()) return;
  notify = false;
  loop->post([self = shared_from_this()] {
    if (self->program_listens()) self->handler->on_drained(*self->connection);
  });
}

/// close() was called: everything is with the kernel, so the program is done with it.
void End::finish_close() {
  if (!finishing || !program_listens() || (!unsent.empty() && state == State::open)) return;
  close_program({port::net_errors::closed_here, "closed here", 0});
}

void End::close_program(Error why) {
  Connection* c = connection;
  port::ConnectionHandler* h = handler;
  abandon();
  h->on_close(*c, why);
}

// --- Fabric

Duration Fabric::travel(const std::string& from, const std::string& to, size_t bytes) {
  const Way& w = way(from, to);
  return w.latency + world_.between(0ns, w.jitter) +
         Duration(static_cast<int64_t>(1e9 * static_cast<double>(bytes) / w.bytes_per_second));
}

void Fabric::cut(const std::string& from, const std::string& to) {
  way(from, to).cut = true;
}

void Fabric::heal(const std::string& from, const std::string& to) {
  way(from, to).cut = false;
  // TCP tries again at longer and longer intervals.
  world_.after(world_.between(10ms, 1500ms), nullptr, [this, from, to] {
    sweep();
    for (size_t i = 0; i < ends_.size(); ++i) {
      auto end = ends_[i];
      if (end->host == to && end->peer_host == from) end->accept();
      if (end->host == from && end->peer_host == to) end->acknowledge();
    }
  });
}

void Fabric::heal_all() {
  std::vector<std::pair<std::string, std::string>> cut;
  for (const auto& [key, w] : ways_)
    if (w.cut) cut.push_back(key);
  for (const auto& [from, to] : cut) heal(from, to);
}

void Fabric::reset_between(const std::string& a, const std::string& b) {
  sweep();
  for (const auto& end : std::vector(ends_))
    if ((end->host == a && end->peer_host == b) || (end->host == b && end->peer_host == a))
      end->breaks(port::net_errors::reset, "reset on the way");
}

std::shared_ptr<End> Fabric::any_end(const std::string& at, const std::string& peer) {
  sweep();
  std::vector<std::shared_ptr<End>> all;
  std::ranges::copy_if(ends_, std::back_inserter(all), [&](const auto& end) {
    return end->host == at && end->peer_host == peer && end->state == End::State::open;
  });
  return all.empty() ? nullptr : all[world_.random().below(all.size())];
}

void Fabric::reset_one(const std::string& a, const std::string& b) {
  auto end = any_end(a, b);
  if (!end) return;
  for (const auto& side : {end, end->peer})
    if (side) side->breaks(port::net_errors::reset, "reset on the way");
}

void Fabric::stall_one(const std::string& from, const std::string& to, Duration how_long) {
  auto end = any_end(to, from);
  if (!end) return;
  end->stalled_until = world_.now() + how_long;
  world_.after(how_long, nullptr, [end] { end->accept(); });
}

void Fabric::keep(const std::shared_ptr<End>& end) {
  if (ends_.size() % 64 == 63) sweep();
  ends_.push_back(end);
}

void Fabric::bury(const ProcessPtr& process) {
  for (const auto& end : std::vector(ends_))
    if (end->process == process && end->state != End::State::closed) end->abandon();
  sweep();
}

size_t Fabric::open_connections() const {
  return static_cast<size_t>(std::count_if(
      ends_.begin(), ends_.end(), [](const auto& end) { return end->state == End::State::open && end->connection; }));
}

void Fabric::sweep() {
  std::erase_if(ends_, [](const auto& end) { return end->state == End::State::closed || end->vanished; });
}

// --- Network

namespace {

class Listener final : public port::Listener {
 public:
  Listener(Fabric& fabric, port::Endpoint at, std::shared_ptr<Accepting> accepting)
      : fabric_(fabric), at_(std::move(at)), accepting_(std::move(accepting)) {}
  ~Listener() override {
    auto it = fabric_.listeners().find(at_);
    if (it != fabric_.listeners().end() && it->second == accepting_) fabric_.listeners().erase(it);
  }
  port::Endpoint local() const override { return at_; }

 private:
  Fabric& fabric_;
  port::Endpoint at_;
  std::shared_ptr<Accepting> accepting_;
};

/// SYN has come through: the listening kernel makes its end at once, the program takes it when it gets to it.
void syn_arrived(Fabric& fabric, const std::shared_ptr<End>& near, const port::Endpoint& to, uint16_t port) {
  if (near->state != End::State::connecting || !near->connection) return;
  auto it = fabric.listeners().find(to);
  if (it == fabric.listeners().end() || !it->second->process->alive) {
    fabric.world().after(fabric.travel(to.host, near->host, 0), nullptr,
                         [near] { near->breaks(port::net_errors::refused, "nobody listens"); });
    return;
  }
  auto accepting = it->second;
  auto far = std::make_shared<End>(fabric, to.host, near->host);
  far->process = accepting->process;
  far->loop = accepting->loop;
  far->peer = near;
  far->state = End::State::open;
  far->own_delay = near->own_delay;
  near->peer = far;
  fabric.keep(far);
  accepting->loop->post([far, accepting, port] {
    if (far->state == End::State::closed) return;
    const std::string from = far->peer_host + ":" + std::to_string(port);
    auto connection = std::make_unique<Connection>(far, from);
    Connection* raw = connection.get();
    port::ConnectionHandler* handler = accepting->accept(std::move(connection));
    if (!handler) return;
    far->handler = handler;
    handler->on_open(*raw);
    far->post_read();
  });
  fabric.world().after(fabric.travel(to.host, near->host, 0), nullptr, [near] {
    if (near->state != End::State::connecting || !near->program_listens()) return;
    near->state = End::State::open;
    near->loop->post([near] {
      if (!near->program_listens() || near->broken) return;
      near->handler->on_open(*near->connection);
      near->post_flush();
      near->post_read();
    });
  });
}

}  // namespace

std::unique_ptr<port::Connection> Network::connect(const port::Endpoint& to, port::ConnectOptions options,
                                                   port::ConnectionHandler& handler) {
  const port::Endpoint there{fabric_.host_of(to.host), to.port};
  auto near = std::make_shared<End>(fabric_, host_, there.host);
  World& world = fabric_.world();
  if (fabric_.own_delay_max > 0ns) near->own_delay = world.between(0ns, fabric_.own_delay_max);
  near->process = loop_.process();
  near->loop = &loop_;
  near->handler = &handler;
  auto connection = std::make_unique<Connection>(near, to.to_string());
  fabric_.keep(near);
  world.after(fabric_.travel(host_, there.host, 0), nullptr,
              [this_fabric = &fabric_, near, to = there, port = fabric_.next_port()] {
                const bool lost = this_fabric->loses_connects(near->host, to.host) ||
                                  this_fabric->way(near->host, to.host).cut ||
                                  this_fabric->way(to.host, near->host).cut || !this_fabric->is_on(to.host);
                if (!lost) syn_arrived(*this_fabric, near, to, port);
              });
  world.after(options.connect_timeout, near->process, [near] {
    if (near->state == End::State::connecting) near->breaks(port::net_errors::timeout, "not connected in time");
  });
  return connection;
}

Result<std::unique_ptr<port::Listener>> Network::listen(const port::Endpoint& at, port::ListenOptions,
                                                        port::AcceptFn accept) {
  port::Endpoint bound{host_, at.port ? at.port : fabric_.next_port()};
  auto accepting = std::make_shared<Accepting>(Accepting{&loop_, loop_.process(), std::move(accept)});
  if (!fabric_.listeners().try_emplace(bound, accepting).second)
    return fail(port::net_errors::in_use, bound.to_string());
  return std::make_unique<Listener>(fabric_, bound, accepting);
}

}  // namespace ph::sim
