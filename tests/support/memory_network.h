// MemoryNetwork: port::Network between ManualLoops, without sockets. Deterministic: bytes move when loops run, in
// order.
//
// One MemoryFabric is the wire; each loop has a MemoryNetwork on it. Listeners with reuse_port share an endpoint and
// get connections in turn. What an end sends during a turn is offered to the other end as one piece; at most `window`
// bytes wait there unread, the rest counts as the sender's unsent_bytes().
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "port/network.h"
#include "support/manual_loop.h"

namespace ph::test {

class MemoryNetwork;
class MemoryConnection;

namespace memory_errors {
inline constexpr ErrorCode closed{"net.closed"};
inline constexpr ErrorCode refused{"net.refused"};
inline constexpr ErrorCode in_use{"net.in_use"};
}  // namespace memory_errors

/// State shared by the two ends of a connection.
struct MemoryEnd {
  ManualLoop* loop = nullptr;
  MemoryConnection* connection = nullptr;  // null once destroyed
  port::ConnectionHandler* handler = nullptr;
  std::string unsent;
  std::string arrived;  // at this end, not consumed
  size_t wanted = 0;
  size_t low_mark = 0;
  bool notify = false;
  bool paused = false;
  bool flush_posted = false;
  bool read_posted = false;
  bool closing = false;  // close() was called here
  bool closed = false;   // on_close was called or is not due
  uint64_t taken = 0;    // by the other end's "kernel"
  std::unique_ptr<port::Timer> linger;
  std::weak_ptr<MemoryEnd> other;
  std::weak_ptr<MemoryEnd> self;
};

class MemoryFabric {
 public:
  size_t window = 64 * 1024;
  size_t chunk_max = SIZE_MAX;  // bytes shown to on_data at once, unless it wants more
  std::string client_address = "127.0.0.1";

 private:
  friend class MemoryNetwork;
  friend class MemoryConnection;
  friend class MemoryListener;
  struct Accepting {
    MemoryNetwork* network;
    port::AcceptFn accept;
    bool reuse;
  };
  std::map<port::Endpoint, std::vector<std::shared_ptr<Accepting>>> listeners_;
  std::map<port::Endpoint, size_t> turn_;
  uint16_t next_port_ = 20000;
};

class MemoryConnection final : public port::Connection {
 public:
  MemoryConnection(MemoryFabric& fabric, std::shared_ptr<MemoryEnd> end, std::string peer_address)
      : fabric_(fabric), end_(std::move(end)) {
    end_->connection = this;
    peer_.address = std::move(peer_address);
  }
  ~MemoryConnection() override {
    end_->connection = nullptr;
    end_->closed = true;
    end_->linger.reset();
    tell_closed(end_->other.lock());
  }

  void send(Slice bytes) override { send_copy(bytes.view()); }
  void send_copy(ByteView bytes) override {
    if (end_->closed || end_->closing) return;
    end_->unsent.append(bytes);
    post_flush(end_);
  }
  size_t unsent_bytes() const override { return end_->unsent.size(); }
  void notify_below(size_t mark) override {
    end_->low_mark = mark;
    end_->notify = true;
    post_flush(end_);
  }
  void pause_reading(bool paused) override {
    end_->paused = paused;
    if (!paused) post_read(end_);
  }
  void close(Duration linger) override {
    if (end_->closing || end_->closed) return;
    end_->closing = true;
    post_flush(end_);
    end_->linger = end_->loop->make_timer();
    end_->linger->start(linger, [fabric = &fabric_, end = end_.get()] {
      if (auto self = end->self.lock()) {
        self->unsent.clear();
        flush(*fabric, self);
      }
    });
  }
  const port::Peer& peer() const override { return peer_; }
  uint64_t bytes_acked() const override { return end_->taken; }

  void start() { post_read(end_); }

 private:
  friend class MemoryNetwork;

  void post_flush(const std::shared_ptr<MemoryEnd>& end) { post_flush(fabric_, end); }
  void post_read(const std::shared_ptr<MemoryEnd>& end) { post_read(fabric_, end); }

  static void post_flush(MemoryFabric& fabric, const std::shared_ptr<MemoryEnd>& end) {
    if (std::exchange(end->flush_posted, true)) return;
    end->loop->post([&fabric, end] {
      end->flush_posted = false;
      flush(fabric, end);
    });
  }
  static void post_read(MemoryFabric& fabric, const std::shared_ptr<MemoryEnd>& end) {
    if (std::exchange(end->read_posted, true)) return;
    end->loop->post([&fabric, end] {
      end->read_posted = false;
      read(fabric, end);
    });
  }

  static void flush(MemoryFabric& fabric, const std::shared_ptr<MemoryEnd>& end) {
    auto other = end->other.lock();
    if (end->connection == nullptr) return;
    if (other && !other->closed) {
      const size_t room = fabric.window - std::min(fabric.window, other->arrived.size());
      const size_t n = std::min(room, end->unsent.size());
      other->arrived.append(end->unsent, 0, n);
      end->unsent.erase(0, n);
      end->taken += n;
      if (n > 0) post_read(fabric, other);
    }
    if (end->notify && end->unsent.size() <= end->low_mark) {
      end->notify = false;
      end->handler->on_drained(*end->connection);
    }
    if (end->connection && end->closing && (end->unsent.empty() || !other || other->closed) && !end->closed) {
      end->closed = true;
      tell_closed(other);
      end->handler->on_close(*end->connection, Error{memory_errors::closed, "closed here", 0});
    }
  }

  static void read(MemoryFabric& fabric, const std::shared_ptr<MemoryEnd>& end) {
    while (end->connection && !end->closed && !end->closing && !end->paused && !end->arrived.empty()) {
      if (end->arrived.size() < end->wanted) break;
      const size_t show = std::max(std::min(end->arrived.size(), fabric.chunk_max), end->wanted);
      const std::string bytes = end->arrived.substr(0, show);
      const port::Consumed c = end->handler->on_data(*end->connection, bytes);
      end->arrived.erase(0, c.bytes);
      end->wanted = c.wanted;
      if (c.bytes == 0 && show == end->arrived.size()) break;
      if (c.bytes == 0 && end->wanted <= show) end->wanted = show + 1;
    }
    if (end->closing) end->arrived.clear();
    if (auto other = end->other.lock()) post_flush(fabric, other);
  }

  /// The other end sees the end of the stream once it has read what came before.
  static void tell_closed(const std::shared_ptr<MemoryEnd>& other) {
    if (!other || other->closed) return;
    other->loop->post([other] {
      if (other->closed || other->connection == nullptr) return;
      other->closed = true;
      other->handler->on_close(*other->connection, Error{memory_errors::closed, "closed by peer", 0});
    });
  }

  MemoryFabric& fabric_;
  std::shared_ptr<MemoryEnd> end_;
  port::Peer peer_;
};

class MemoryListener final : public port::Listener {
 public:
  MemoryListener(MemoryFabric& fabric, port::Endpoint at, std::shared_ptr<MemoryFabric::Accepting> accepting)
      : fabric_(fabric), at_(std::move(at)), accepting_(std::move(accepting)) {}
  ~MemoryListener() override { std::erase(fabric_.listeners_[at_], accepting_); }
  port::Endpoint local() const override { return at_; }

 private:
  MemoryFabric& fabric_;
  port::Endpoint at_;
  std::shared_ptr<MemoryFabric::Accepting> accepting_;
};

class MemoryNetwork final : public port::Network {
 public:
  MemoryNetwork(MemoryFabric& fabric, ManualLoop& loop) : fabric_(fabric), loop_(loop) {}

  std::unique_ptr<port::Connection> connect(const port::Endpoint& to, port::ConnectOptions,
                                            port::ConnectionHandler& handler) override {
    auto near = std::make_shared<MemoryEnd>();
    auto far = std::make_shared<MemoryEnd>();
    near->self = near;
    far->self = far;
    near->loop = &loop_;
    near->handler = &handler;
    near->other = far;
    far->other = near;
    auto connection = std::make_unique<MemoryConnection>(fabric_, near, to.to_string());
    auto& listeners = fabric_.listeners_[to];
    if (listeners.empty()) {
      loop_.post([near] {
        if (!near->connection) return;
        near->closed = true;
        near->handler->on_close(*near->connection, Error{memory_errors::refused, "nobody listens", 0});
      });
      return connection;
    }
    auto accepting = listeners[fabric_.turn_[to]++ % listeners.size()];
    far->loop = &accepting->network->loop_;
    keep_.push_back(far);
    const std::string from = fabric_.client_address + ":" + std::to_string(fabric_.next_port_++);
    far->loop->post([&fabric = fabric_, near, far, accepting, from] {
      auto accepted = std::make_unique<MemoryConnection>(fabric, far, from);
      MemoryConnection* raw = accepted.get();
      far->handler = accepting->accept(std::move(accepted));
      if (!far->handler) return;  // refused: destroying it has closed the other end
      far->handler->on_open(*raw);
      raw->start();
      near->loop->post([&fabric, near] {
        if (!near->connection || near->closed) return;
        near->handler->on_open(*near->connection);
        MemoryConnection::post_read(fabric, near);
      });
    });
    return connection;
  }

  Result<std::unique_ptr<port::Listener>> listen(const port::Endpoint& at, port::ListenOptions options,
                                                 port::AcceptFn accept) override {
    port::Endpoint bound = at;
    if (bound.port == 0) bound.port = fabric_.next_port_++;
    auto& listeners = fabric_.listeners_[bound];
    if (!listeners.empty() && !(options.reuse_port && listeners.front()->reuse))
      return fail(memory_errors::in_use, bound.to_string());
    auto accepting =
        std::make_shared<MemoryFabric::Accepting>(MemoryFabric::Accepting{this, std::move(accept), options.reuse_port});
    listeners.push_back(accepting);
    return std::make_unique<MemoryListener>(fabric_, bound, accepting);
  }

 private:
  MemoryFabric& fabric_;
  ManualLoop& loop_;
  std::vector<std::shared_ptr<MemoryEnd>> keep_;  // ends refer to each other weakly
};

/// Runs all loops, in turn, until none has anything left to do now.
inline void run_all(const std::vector<ManualLoop*>& loops) {
  size_t ran = 1;
  while (ran > 0) {
    ran = 0;
    for (ManualLoop* loop : loops) ran += loop->run_posted();
  }
}

/// Moves all clocks in steps, so that timers of several loops fire in order.
inline void advance_all(const std::vector<ManualLoop*>& loops, Duration by, Duration step = 100ms) {
  for (Duration done{}; done < by; done += step) {
    for (ManualLoop* loop : loops) loop->advance(std::min(step, by - done));
    run_all(loops);
  }
}

}  // namespace ph::test
