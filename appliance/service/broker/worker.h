// Worker: one thread's part of the broker: its connections, the sessions on them, and its copies of routes and retained
// messages. Everything here runs on the worker's own loop; other workers reach it by mailbox only.
//
// A PUBLISH: on_publish() -> tap, if a route wants it -> route(): walk the filter index once, deliver to own sessions,
// add a letter to the batch of each worker that has a matching filter -> the end of the turn pushes the batches ->
// there receive(), which walks that worker's index and delivers. Docs: docs/sessions_move.md for connect and takeover,
// docs/routes.md for what workers know of each other's filters.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/routing/filter_index.h"
#include "core/session/session.h"
#include "port/loop.h"
#include "port/message_sink.h"
#include "port/network.h"
#include "service/broker/authenticator.h"
#include "service/broker/client_connection.h"
#include "service/broker/directory.h"
#include "service/broker/mailbox.h"
#include "service/broker/options.h"
#include "service/broker/retained.h"
#include "service/broker/throttle.h"

namespace ph::broker {

/// A message for a session that is on its way here (docs/sessions_move.md).
struct Shadow {
  uint32_t source = 0;
  uint64_t sequence = 0;
  session::MessagePtr message;
  session::Copy copy;
  std::vector<uint32_t> subscription_ids;
};

/// The tap's answer to a PUBLISH.
struct Taken {
  uint64_t uid = 0;  // of the publisher's session
  uint16_t packet_id = 0;
  uint8_t qos = 0;
  bool accepted = false;
};

/// A message of the event plane that waits for room in a client's queue (worker_sink.cc).
struct ParkedMessage {
  session::MessagePtr message;
  uint8_t qos = 0;
  bool retain = false;
  std::vector<uint32_t> subscription_ids;
  std::shared_ptr<SinkTicket> ticket;
};
struct Parked {
  std::deque<ParkedMessage> messages;
  Instant moved{};     // when the client last made progress,
  uint64_t acked = 0;  // and what its socket had acknowledged then
};

using SubscriptionMap = std::map<std::string, session::Subscription, std::less<>>;

/// A session on this worker.
struct Client {
  std::unique_ptr<session::Session> session;
  uint64_t uid = 0;                        // the session's, wherever it goes
  ClientConnection* connection = nullptr;  // null: offline
  std::optional<Instant> due;              // will or end of an offline session; its key in Worker::due_
  std::optional<Instant> will_due;
  bool arriving = false;  // messages go to `shadow` until the session is here
  std::vector<Shadow> shadow;
  std::vector<Taken> taken;  // answers that came before the session did
  std::unique_ptr<Parked> parked;
  bool stalled = false;  // nothing is parked for it until its queue is below half again
  uint64_t mark = 0;     // fan-out: number of the last one that reached this session,
  uint32_t slot = 0;     // and its receiver there
};

class Worker {
 public:
  Worker(uint32_t index, const BrokerOptions& options, std::vector<ListenerRates>& rates, port::Loop& loop,
         port::Network& network, port::MessageTap* tap);
  ~Worker();

  // --- from the broker; before the loops run
  void set_peers(std::vector<Worker*> workers) { workers_ = std::move(workers); }
  /// Returns where it listens, in the order of options.listeners.
  Result<std::vector<port::Endpoint>> listen(const std::vector<port::Endpoint>& at);
  void start_ticking();

  // --- from any thread
  const session::Counters& counters() const { return context_.counters; }
  port::Loop& loop() { return loop_; }
  bool overloaded() const { return mailbox_.weight() > options_.mailbox_bytes_max; }
  void deliver_mail(std::unique_ptr<Batch> batch);

  // --- on the loop, from the broker
  /// `done` runs on any thread, when every session has the message (worker_sink.cc).
  void publish_from_sink(session::MessagePtr message, port::Task done);
  void set_policy(const security::PolicyPtr& policy);
  void stop();

  // --- from connections
  void on_connect(ClientConnection& connection, const mqtt::Connect& connect);
  std::optional<mqtt::ReasonCode> on_publish(ClientConnection& connection, const mqtt::Publish& publish);
  void on_subscribe(ClientConnection& connection, const mqtt::Subscribe& subscribe);
  void on_unsubscribe(ClientConnection& connection, const mqtt::Unsubscribe& unsubscribe);
  void on_auth(ClientConnection& connection, const mqtt::Auth& auth);
  void on_end(ClientConnection& connection, const session::ChannelEnd& end);
  void on_congested(ClientConnection& connection);
  void on_uncongested(ClientConnection& connection);
  void on_received(ClientConnection& connection, uint64_t messages, uint64_t bytes);
  void remove(ClientConnection& connection);
  void unpark(Client& client, bool all = false);
  const BrokerOptions& options() const { return options_; }
  session::SessionContext& context() { return context_; }

 private:
  struct Subscriber {
    Client* client = nullptr;
    session::Subscription* subscription = nullptr;
  };
  /// What hangs on a filter: own subscriptions, and which other workers have any.
  struct RouteNode {
    std::vector<Subscriber> local;
    uint64_t remote = 0;
    bool empty() const { return local.empty() && remote == 0; }
  };
  /// One session's share in a fan-out: the best of its matching subscriptions.
  struct Receiver {
    Client* client = nullptr;
    uint8_t qos = 0;
    bool retain_as_published = false;
    std::vector<uint32_t> ids;
  };
  /// A CONNECT on its way to a session.
  struct Opening {
    std::string client_id;
    bool assigned = false;
    bool clean_start = true;
    uint32_t expiry = 0;
    std::optional<uint32_t> expiry_told;
    std::optional<session::SessionWill> will;
    std::string auth_data;  // last word of an enhanced authentication
  };
  struct SyncRound {
    size_t missing = 0;
    uint64_t announced = 0;
    std::vector<port::Task> then;
  };
  struct Congestion {
    Instant since{};
    uint64_t acked = 0;
  };

  // worker.cc: connections, mail, time
  port::ConnectionHandler* accept(std::unique_ptr<port::Connection>&& socket, size_t listener);
  void tick();
  void check_congested(Instant now);
  void schedule_check(ClientConnection& connection, Instant at);
  Batch& outbox(uint32_t worker);
  bool pressed(uint32_t worker) const;
  void send_task(uint32_t worker, WorkerTask task);
  void schedule_flush();
  void flush();
  void push_outboxes();
  void read_mail();
  void settle(port::Task then, bool messages = false);
  void on_sync(uint32_t from, uint64_t round);
  void synced(uint64_t round);
  void hold_back(ClientConnection& connection);
  void release_held_back();
  uint32_t home_of(const std::string& client_id) const;

  // worker_sessions.cc: connect, takeover, move, end
  void enter(uint64_t ticket, Opening opening);
  void on_granted(const std::string& client_id, uint64_t ticket, uint32_t holder);
  void claim(const std::string& client_id, Claim claim);
  void settle_claim(const std::string& client_id, uint32_t holder);
  void forward_grant(const std::string& client_id, const Granted& granted);
  void open_session(uint64_t ticket);
  void give_up(const std::string& client_id, uint32_t to, uint64_t ticket, bool clean_start);
  void hand_over(const std::string& client_id, uint32_t to, uint64_t ticket);
  void prepare_arrival(uint64_t ticket, uint32_t from, SubscriptionMap subscriptions);
  void on_arrival(uint64_t ticket, std::unique_ptr<session::Session> session, uint64_t uid,
                  const std::vector<uint64_t>& seen);
  uint64_t new_uid();
  Client& add_client(std::unique_ptr<session::Session> session, uint64_t uid);
  Client* find_client(const std::string& client_id);
  /// The client's session if it is still worth something: kicks its connection, ends it when it is due.
  Client* find_offline(const std::string& client_id);
  std::unique_ptr<session::Session> extract(Client& client);
  void end_session(Client& client);
  void publish_will(Client& client);
  void schedule_due(Client& client);
  void unschedule_due(Client& client);
  void on_due(Instant now);

  // worker_sink.cc: from the event plane
  void deliver_from_sink(Client& client, session::Outgoing& message, const session::Copy& copy);
  void check_parked(Instant now);

  // worker_security.cc: who comes in, and what it may do there
  void authenticate(ClientConnection& connection, const mqtt::Connect& connect, Opening opening);
  void admit(uint64_t ticket, Opening opening, Login login, Verdict verdict);
  const security::Ban* ban_of(const security::Identity& who, std::optional<ByteView> claimed) const;
  /// nullopt: it may. Else how to answer the PUBLISH; the connection may be closed by then.
  std::optional<mqtt::ReasonCode> denied(ClientConnection& connection, ByteView topic);
  bool may_subscribe(const ClientConnection& connection, ByteView filter);
  bool still_welcome(ClientConnection& connection) const;
  void begin_scram(ClientConnection& connection, const mqtt::Properties& properties, Opening opening, Login login);
  void finish_scram(ClientConnection& connection, ByteView message);
  void refuse_scram(ClientConnection& connection);
  void note_end(const std::string& client_id);
  bool put_out_expired(ClientConnection& connection, Instant now);
  void release_throttled();
  void probe_load();
  void drop_denied_subscriptions(Client& client, const security::Access& access);

  // worker_routing.cc: publish, subscribe, routes
  void take(ClientConnection& connection, uint16_t packet_id, const session::MessageView& view);
  void on_taken(const std::string& client_id, const Taken& taken, bool asked_all);
  void publish_unacknowledged(const session::MessagePtr& message);
  bool route(session::Outgoing& message, const Client* publisher);
  void receive(const Batch& batch, const Letter& letter);
  size_t collect(ByteView topic, const Client* publisher, uint64_t& remote);
  void deliver_collected(session::Outgoing& message, size_t receivers, uint32_t source, uint64_t sequence);
  void send_message(uint32_t worker, session::Outgoing& message, uint64_t retained_version);
  void add_route(Client& client, const std::string& filter, session::Subscription& subscription);
  void remove_route(session::Subscription& subscription);
  void announce(const std::string& filter, bool present);
  void on_announced(uint32_t worker, const std::string& filter, bool present);
  mqtt::ReasonCode subscribe(Client& client, const mqtt::Filter& filter, uint32_t id, bool& fresh);
  void send_retained(Client& client, const std::string& filter, const session::Subscription& subscription);

  const uint32_t index_;
  const BrokerOptions& options_;
  port::Loop& loop_;
  port::Network& network_;
  port::MessageTap* tap_;
  std::vector<Worker*> workers_;  // all, this one too
  session::SessionContext context_;
  security::PolicyPtr policy_;  // null: everybody may do everything
  Authenticator authenticator_;
  std::vector<std::unique_ptr<port::Listener>> listeners_;
  bool stopping_ = false;

  std::unordered_map<uint64_t, std::unique_ptr<ClientConnection>> connections_;
  uint64_t last_connection_ = 0;
  std::unordered_map<std::string, std::unique_ptr<Client>> clients_;
  uint64_t last_uid_ = 0;
  std::unordered_map<uint64_t, Opening> openings_;                          // by connection id
  std::unordered_map<uint64_t, std::pair<Opening, Login>> authenticating_;  // likewise, while AUTH goes to and fro
  Directory directory_;                                                     // of the client ids whose home is here
  std::set<std::pair<Instant, Client*>> due_;

  routing::FilterIndex<RouteNode> index_of_filters_;
  RetainedStore retained_;
  uint64_t retained_version_ = 0;
  session::Outgoing outgoing_;
  std::vector<Receiver> receivers_;  // of the fan-out at work; kept for their memory
  uint64_t mark_ = 0;
  std::string scratch_;
  std::shared_ptr<SinkTicket> ticket_;  // of the fan-out at work, if it came from the event plane
  std::set<Client*> parked_;            // clients with parked messages

  Mailbox mailbox_;
  std::vector<std::unique_ptr<Batch>> outboxes_;
  bool flush_posted_ = false;
  bool pressed_ = false;        // the last message went to a worker that does not keep up
  uint64_t announced_ = 0;      // filters that others were told of,
  uint64_t settled_ = 0;        // and how many of them all others have seen
  uint64_t sequence_ = 0;       // of messages routed here
  std::vector<uint64_t> seen_;  // per worker: its last message that was delivered here
  std::vector<port::Task> settling_;
  std::map<uint64_t, SyncRound> rounds_;
  uint64_t last_round_ = 0;
  std::vector<ListenerRates>& rates_;           // of all workers together, by listener
  std::multimap<Instant, uint64_t> throttled_;  // connections that are not read from until then
  std::unique_ptr<port::Timer> throttle_timer_;
  security::Flapping flapping_;  // of the client ids whose home is here
  LoadProbe load_;
  std::unique_ptr<port::Timer> load_timer_;
  std::vector<uint64_t> held_back_;  // connections that do not read until mailboxes are below their bound
  std::unique_ptr<port::Timer> held_back_timer_;

  std::unique_ptr<port::Timer> ticker_;
  struct Check {
    uint64_t connection;
    uint32_t serial;  // an older one is void
  };
  std::vector<std::vector<Check>> wheel_;  // connections by the tick that looks at them
  size_t wheel_at_ = 0;
  std::unordered_map<uint64_t, Congestion> congested_;
};

}  // namespace ph::broker
