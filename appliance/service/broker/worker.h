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
#include "core/routing/shared_group.h"
#include "core/session/session.h"
#include "port/loop.h"
#include "port/message_sink.h"
#include "port/network.h"
#include "service/broker/authenticator.h"
#include "service/broker/client_connection.h"
#include "service/broker/delayed.h"
#include "service/broker/directory.h"
#include "service/broker/durable_sessions.h"
#include "service/broker/mailbox.h"
#include "service/broker/options.h"
#include "service/broker/retained.h"
#include "service/broker/throttle.h"

namespace ph::broker {

class SysTopics;
class Worker;
/// Figures of all workers, as far as this thread sees them.
BrokerStats sum(const std::vector<Worker*>& workers);

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
  uint64_t number = 0;  // of the message that the record of the packet id still names; 0: none
  bool tapped = false;  // there may be a record of what it waits for at far ends
};

/// What has to be on disk before a message counts as taken.
struct Wanted {
  uint64_t sequence = 0;  // this worker's number of the message
  uint64_t workers = 0;   // mask of those whose sessions must have it
};

/// A message of the event plane that waits for room in a client's queue (worker_sink.cc).
struct ParkedMessage {
  session::MessagePtr message;
  uint8_t qos = 0;
  bool retain = false;
  std::vector<uint32_t> subscription_ids;
  session::SharedKey shared;
  std::shared_ptr<SinkTicket> ticket;
};
struct Parked {
  std::deque<ParkedMessage> messages;
  Instant moved{};     // when the client last made progress,
  uint64_t acked = 0;  // and what its socket had acknowledged then
};

using SubscriptionMap = std::map<std::string, session::Subscription, std::less<>>;

/// Retained messages that new subscriptions have yet to get: one filter's at a time, so that it costs a pointer a
/// message.
struct RetainedOffer {
  std::deque<std::string> filters;
  std::string filter;  // the one that `messages` are for
  std::vector<session::MessagePtr> messages;
  size_t next = 0;
};

/// A session on this worker.
struct Client {
  std::unique_ptr<session::Session> session;
  uint64_t uid = 0;                        // the session's, wherever it goes
  ClientConnection* connection = nullptr;  // null: offline
  std::optional<Instant> due;              // will or end of an offline session; its key in Worker::due_
  std::optional<Instant> will_due;
  std::shared_ptr<security::Access> will_access;  // of who left the will, from its connection's end on; or null
  bool local_user = false;                        // as ClientConnection's, with it
  bool will_kept = false;                         // there is a record of it
  size_t will_bytes = 0;                          // as it is counted
  uint32_t recording = 0;  // QoS 2 messages of this client that wait to be written down before they are routed
  bool durable = false;    // its session is, also one that is still arriving
  bool arriving = false;   // messages go to `shadow` until the session is here
  std::vector<Shadow> shadow;
  std::unique_ptr<RetainedOffer> offer;  // while connected, and for a few turns after
  std::vector<Taken> taken;              // answers that came before the session did
  std::unique_ptr<Parked> parked;
  bool stalled = false;  // nothing is parked for it until its queue is below half again
  uint32_t shared = 0;   // groups that it is a member of
  uint64_t mark = 0;     // fan-out: number of the last one that reached this session,
  uint32_t slot = 0;     // and its receiver there
};

class Worker final : public JournalMember {
 public:
  /// `journal` may be null: then nothing is durable.
  Worker(uint32_t index, const BrokerOptions& options, std::vector<ListenerRates>& rates, port::Loop& loop,
         port::Network& network, port::MessageTap* tap, Journal* journal);
  ~Worker() override;

  // --- from the broker; before the loops run
  void set_peers(std::vector<Worker*> workers);
  /// Returns where it listens, in the order of options.listeners.
  Result<std::vector<port::Endpoint>> listen(const std::vector<port::Endpoint>& at);
  void start_ticking();
  void start_sys();
  /// The rules may be others than when sessions that were restored subscribed.
  void start_reviewing() {
    if (!clients_.empty()) review_absent();
  }
  /// The session of a record; its client id's home is here. Null: there is one already.
  Client* restore(uint64_t uid, const session::SessionRecord& record);
  void restore_subscription(Client& client, const std::string& filter, const session::Subscription& subscription);
  void restore_will(Client& client, session::SessionWill will, bool was_attached);
  void restore_retained(const session::MessagePtr& message, uint64_t version);
  /// An ended session that was still handing on: goes on with it. After settle_mail(): all groups are known.
  void restore_ending(uint64_t uid, const session::SessionRecord& record);
  /// After all of them.
  void restored(Client& client, bool was_attached);
  void settle_mail();
  /// A QoS 2 message whose routing a crash cut short: to those durable sessions that do not have it.
  void redo(const session::MessagePtr& message, const std::string& publisher, const Receivers& has);
  void redone(uint64_t uid, uint16_t packet_id, uint64_t number) { durable_->routed(uid, packet_id, number); }
  void await_far(const std::string& client_id, const Taken& taken, std::string waits_for);
  void restore_delayed(const std::shared_ptr<session::Message>& message, const session::DelayedRecord& record);
  void redone_delayed(uint64_t number) { durable_->delayed_done(number, true); }
  void flush_journal() { durable_->flush(); }
  uint32_t home_of(const std::string& client_id) const;

  // JournalMember
  port::Loop& journal_loop() override { return loop_; }
  void on_durable(uint64_t turn) override;
  void on_covered(uint32_t by, uint64_t sequence) override;

  // --- from any thread
  const session::Counters& counters() const { return context_.counters; }
  port::Loop& loop() { return loop_; }
  bool overloaded() const { return mailbox_.weight() > options_.mailbox_bytes_max; }
  void deliver_mail(std::unique_ptr<Batch> batch);

  // --- on the loop, from the broker
  /// `done` runs on any thread, when every session has the message (worker_sink.cc).
  void publish_from_sink(session::MessagePtr message, port::Task done);
  void set_policy(const security::PolicyPtr& policy);
  std::vector<std::string> filters(size_t max, bool& rest);
  void set_tokens(TokenOptionsPtr tokens) { authenticator_.set_tokens(std::move(tokens)); }
  void stop();

  // --- from connections
  void on_connect(ClientConnection& connection, const mqtt::Connect& connect);
  std::optional<mqtt::ReasonCode> on_publish(ClientConnection& connection, const mqtt::Publish& publish);
  void on_subscribe(ClientConnection& connection, const mqtt::Subscribe& subscribe);
  void on_unsubscribe(ClientConnection& connection, const mqtt::Unsubscribe& unsubscribe);
  void on_auth(ClientConnection& connection, const mqtt::Auth& auth);
  bool ready_for(ClientConnection& connection, const mqtt::Publish& publish);
  bool ready_for(ClientConnection& connection, const mqtt::Subscribe& subscribe);
  bool delays_pubcomp(ClientConnection& connection, uint16_t packet_id, mqtt::ReasonCode reason);
  void on_end(ClientConnection& connection, const session::ChannelEnd& end);
  void on_congested(ClientConnection& connection);
  void on_uncongested(ClientConnection& connection);
  /// Its channel waits for Channel::take_turn().
  void yield(ClientConnection& connection);
  /// Goes on with the retained messages for new subscriptions, as far as there is room for them now.
  void continue_offer(Client& client);
  /// `changed`: so did records of durable sessions.
  void on_received(ClientConnection& connection, uint64_t messages, uint64_t bytes, bool changed);
  uint64_t durable_changes() const { return durable_ ? durable_->changes() : 0; }
  void remove(ClientConnection& connection);
  void unpark(Client& client, bool all = false);
  const BrokerOptions& options() const { return options_; }
  session::SessionContext& context() { return context_; }

 private:
  struct Subscriber {
    Client* client = nullptr;
    session::Subscription* subscription = nullptr;
  };
  using SharedGroups = std::vector<std::unique_ptr<routing::SharedGroup>>;
  /// What hangs on a filter: own subscriptions, which other workers have any, and shared subscriptions of all workers.
  struct RouteNode {
    std::vector<Subscriber> local;
    uint64_t remote = 0;
    uint64_t remote_durable = 0;           // of `remote`, who has durable sessions among them
    uint32_t durable = 0;                  // of `local`
    std::unique_ptr<SharedGroups> shared;  // null: none
    bool empty() const { return local.empty() && remote == 0 && !shared; }
  };
  /// One session's share in a fan-out: the best of its matching subscriptions.
  struct Receiver {
    Client* client = nullptr;
    uint8_t qos = 0;
    bool retain_as_published = false;
    std::vector<uint32_t> ids;
  };
  /// A SUBSCRIBE that may have to wait for answers about exclusive filters.
  struct Asked {
    struct Row {
      mqtt::Filter options;  // its filter is void
      std::string filter;
      std::optional<mqtt::ReasonCode> refused;
      bool held = false;  // the session had this filter before
    };
    uint64_t connection = 0;
    uint16_t packet_id = 0;
    uint32_t id = 0;
    std::vector<Row> rows;
    size_t missing = 0;
  };
  /// A CONNECT on its way to a session.
  struct Opening {
    std::string client_id;
    std::string owner;  // as session::Session::owner()
    bool assigned = false;
    bool clean_start = true;
    uint32_t expiry = 0;
    std::optional<uint32_t> expiry_told;
    std::optional<session::SessionWill> will;
    std::string auth_data;  // last word of an enhanced authentication
  };
  /// A message that waits for disks.
  struct Pending {
    Wanted wanted;
    port::Task then;
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
  void post_turn();
  void next_turn();
  void hold_back(ClientConnection& connection);
  void release_held_back();

  // worker_sessions.cc: connect, takeover, move, end
  void enter(uint64_t ticket, Opening opening);
  void on_granted(const std::string& client_id, uint64_t ticket, uint32_t holder);
  void claim(const std::string& client_id, Claim claim);
  void settle_claim(const std::string& client_id, uint32_t holder);
  void forward_grant(const std::string& client_id, const Granted& granted);
  void open_session(uint64_t ticket, bool ended_durable = false);
  static void tell_of_other_owner(const std::string& before, const Opening& opening);
  void attach(Opening opening, ClientConnection& connection, Client& attached, bool present);
  void give_up(const std::string& client_id, uint32_t to, uint64_t ticket, bool clean_start);
  void hand_over(const std::string& client_id, uint32_t to, uint64_t ticket);
  void prepare_arrival(uint64_t ticket, uint32_t from, SubscriptionMap subscriptions, bool durable);
  void on_arrival(uint64_t ticket, std::unique_ptr<session::Session> session, uint64_t uid,
                  const std::vector<uint64_t>& seen);
  uint64_t new_uid();
  Client& add_client(std::unique_ptr<session::Session> session, uint64_t uid);
  bool sessions_full() const;
  bool wills_full(const session::Message& will) const;
  void count_will(Client& client);
  Client* find_client(const std::string& client_id);
  /// The client's session if it is still worth something: kicks its connection, ends it when it is due.
  Client* find_offline(const std::string& client_id);
  /// `to`: where it goes, kNobody if it ends.
  std::unique_ptr<session::Session> extract(Client& client, uint32_t to = kNobody);
  void end_session(Client& client);
  void linger(ClientConnection& connection);
  void publish_will(Client& client);
  void schedule_due(Client& client);
  void unschedule_due(Client& client);
  void on_due(Instant now);

  // worker_sink.cc: from the event plane
  void deliver_from_sink(Client& client, session::Outgoing& message, const session::Copy& copy);
  void check_parked(Instant now);
  bool got_before(const session::Message& message, uint64_t uid, const session::SharedKey& shared) const;

  // worker_security.cc: who comes in, and what it may do there
  void authenticate(ClientConnection& connection, const mqtt::Connect& connect, Opening opening);
  void admit(uint64_t ticket, Opening opening, Login login, Verdict verdict);
  const security::Ban* ban_of(const security::Identity& who, std::optional<ByteView> claimed) const;
  /// nullopt: it may. Else how to answer the PUBLISH; the connection may be closed by then.
  std::optional<mqtt::ReasonCode> denied(ClientConnection& connection, ByteView topic, uint8_t qos, bool retain);
  bool may_subscribe(const ClientConnection& connection, ByteView filter, uint8_t qos);
  bool may_keep(const ClientConnection& connection, const security::Access& access, ByteView filter) const;
  // worker_absent.cc: what rules say of those who are not here any more
  security::Access* access_of(const session::Publisher& who);
  bool others_decide() const;
  bool may_publish_absent(const session::Publisher& who, ByteView topic);
  bool may_publish_will(Client& client, const session::Message& will);
  bool absent_may_keep(const Client& client, ByteView filter);
  void review_absent();
  void go_on_reviewing();
  std::optional<bool> superuser_now(const security::Access& access, bool local_user) const;
  // worker_authorize.cc: what an HTTP server decides
  std::optional<security::HttpVerdict::Result> decision(const ClientConnection& connection,
                                                        const security::AccessQuestion& question) const;
  bool allowed(const ClientConnection& connection, const security::AccessQuestion& question) const;
  bool ask_first(ClientConnection& connection, std::vector<security::AccessQuestion> questions);
  void ask_one(ClientConnection& connection, std::shared_ptr<std::vector<security::AccessQuestion>> questions,
               size_t next);
  void when_will_decided(ClientConnection& connection, security::AccessQuestion question,
                         std::move_only_function<void(ClientConnection&, bool)> then);
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
  static port::Message for_tap(const session::Message& message);
  void take(ClientConnection& connection, uint16_t packet_id, const session::MessageView& view);
  void on_taken(const std::string& client_id, const Taken& taken, bool asked_all);
  void publish_unacknowledged(const session::MessagePtr& message);
  bool route(session::Outgoing& message, const Client* publisher);
  void receive(const Batch& batch, const Letter& letter);
  size_t collect(ByteView topic, const Client* publisher, uint64_t& remote, bool route_shared);
  void deliver_collected(session::Outgoing& message, size_t receivers, uint32_t source, uint64_t sequence);
  Letter* send_message(uint32_t worker, session::Outgoing& message, uint64_t retained_version);

  // worker_subscribe.cc: subscribe, unsubscribe, routes
  void subscribe_all(Asked& asked, uint64_t uid);
  void give_back(const Asked::Row& row, uint64_t uid);
  std::vector<std::string> auto_subscribe(ClientConnection& connection);
  void add_route(Client& client, const std::string& filter, session::Subscription& subscription);
  SubscriptionMap::iterator drop_subscription(Client& client, SubscriptionMap::iterator it);
  void remove_route(Client& client, session::Subscription& subscription);
  void announce(const std::string& filter, bool present);
  void on_announced(uint32_t worker, const std::string& filter, bool present);
  void announce_durable(const std::string& filter, bool present);
  void note_filters();
  /// Entered, and not yet told to the journal: `at` is where, if it was granted.
  mqtt::ReasonCode subscribe(Client& client, const mqtt::Filter& filter, uint32_t id, bool& fresh,
                             SubscriptionMap::const_iterator& at);
  void keep_subscription(const Client& client, const SubscriptionMap::value_type& subscription);

  // worker_retained.cc: what is retained, to new subscriptions
  void offer_retained(Client& client, std::vector<std::string> filters);
  void find_offered(RetainedOffer& offer, Instant now);
  void queue_offered(Client& client);

  // worker_topics.cc: what clients call a topic and what the broker does
  static std::optional<ByteView> exclusive_filter(ByteView filter);
  static ByteView username_of(const ClientConnection& connection);
  void mount(ClientConnection& connection, const std::string& client_id);
  bool name_will(ClientConnection& connection, Opening& opening);
  std::optional<mqtt::ReasonCode> rename(ClientConnection& connection, session::MessageView& view,
                                         std::optional<uint32_t>& delay);
  std::string name_topic(const ClientConnection& connection, ByteView topic, ByteView client_id) const;
  std::string name_filter(const ClientConnection& connection, ByteView filter) const;
  std::string name_filter(ByteView mountpoint, ByteView client_id, ByteView username, ByteView filter) const;
  static std::string unmounted(ByteView mountpoint, ByteView filter);
  std::string auto_filter(const AutoSubscription& wanted, ByteView mountpoint, ByteView client_id,
                          ByteView username) const;
  bool auto_subscribed(const session::Session& session, ByteView filter) const;
  void drop_foreign_subscriptions(Client& client);
  void ask_exclusive(const std::string& filter, uint64_t uid, std::move_only_function<void(bool)> answer);
  void release_exclusive(const std::string& filter, uint64_t uid);

  // worker_delayed.cc: messages for later
  std::optional<mqtt::ReasonCode> put_off(ClientConnection& connection, uint16_t packet_id, session::MessageView view,
                                          uint32_t seconds);
  void publish_delayed(Instant now);
  void tap_delayed(DelayedStore::Entry entry);
  void route_delayed(const DelayedStore::Entry& entry);
  void finish_delayed(const DelayedStore::Entry& entry, bool redo);

  // worker_sys.cc: $SYS
  RetainedStore& retained_for(ByteView topic);
  void keep_if_newer(session::Outgoing& message, RetainedVersion version);
  void publish_sys();

  // worker_shared.cc: shared subscriptions
  void join_group(Client& client, const std::string& filter, session::Subscription& subscription);
  void leave_group(Client& client, session::Subscription& subscription, uint32_t to);
  void announce_online(Client& client);
  void set_member(const std::string& key, routing::SharedMember member, bool online);
  void remove_member(const std::string& key, uint64_t uid);
  void tell_member(const std::string& key, routing::SharedMember member, bool online);
  routing::SharedGroup* find_group(const std::string& key);
  bool dispatch_shared(session::Outgoing& message, routing::SharedGroup& group, const Client* publisher);
  bool deliver_shared(session::Outgoing& message, const session::SharedKey& key, uint64_t uid);
  void send_shared(session::Outgoing& message, const session::SharedKey& key, routing::SharedMember member);
  void receive_shared(const Letter& letter, uint32_t from);
  void followed(uint64_t number);
  void hand_on(session::Session& ended);
  void handed_on();
  // worker_durable.cc: what waits for the disk
  bool must_wait(ClientConnection& connection, const mqtt::Publish& publish);
  bool needs_record(ClientConnection& connection, const session::MessageView& view);
  session::MessagePtr recordable();
  void record_and_route(ClientConnection& connection, uint16_t packet_id);
  void acknowledge_later(ClientConnection& connection, uint16_t packet_id, uint8_t qos);
  /// Runs `then` when what the client's session told this turn is on disk; at once if it is not durable.
  void when_kept(Client& client, port::Task then);
  void settle_and_keep(Client& client, port::Task then);
  void when_taken(const Wanted& wanted, port::Task then);
  void release_taken();
  bool covered(const Wanted& wanted) const;
  void cover_seen();
  void want_cover(uint32_t source, uint64_t sequence);
  uint32_t home_of_topic(ByteView topic) const;
  void keep_retained(session::Outgoing& message, uint64_t version);
  void keep_will(Client& client);

  const uint32_t index_;
  const BrokerOptions& options_;
  port::Loop& loop_;
  port::Network& network_;
  port::MessageTap* tap_;
  std::vector<Worker*> workers_;  // all, this one too
  session::SessionContext context_;
  security::PolicyPtr policy_;  // null: everybody may do everything
  session::Publisher named_;    // whose access named_access_ is
  std::unique_ptr<security::Access> named_access_;
  std::vector<std::string> to_review_;  // client ids of offline sessions
  bool review_posted_ = false;
  Authenticator authenticator_;
  HttpAuthorizer authorizer_;
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
  bool filters_noted_ = false;  // options_.on_filters was called since filters()
  RetainedStore retained_;
  uint64_t retained_version_ = 0;
  session::Counters sys_counters_;  // of sys_retained_, for nobody
  RetainedStore sys_retained_;      // of $SYS
  std::unique_ptr<SysTopics> sys_;
  std::unique_ptr<port::Timer> sys_timer_;
  routing::TopicRewrite rewrite_;
  std::string topic_;  // the broker's name for the topic of the PUBLISH at work
  DelayedStore delayed_;
  bool delayed_posted_ = false;
  std::unordered_map<std::string, uint64_t> exclusive_;  // of filters whose home is here: who has it, by uid
  session::Outgoing outgoing_;
  Wanted wanted_;                             // by the message that was routed last
  uint64_t remote_durable_ = 0;               // by the fan-out at work
  std::unique_ptr<DurableSessions> durable_;  // null: nothing is
  std::deque<Pending> taking_;                // in order of their sequences
  std::vector<uint64_t> covered_;             // per worker: what of ours its sessions have on disk
  std::vector<uint64_t> cover_due_;           // per worker: its last message whose taking has to be confirmed,
  std::vector<uint64_t> cover_told_;          // and up to where that was
  std::set<Client*> arriving_;                // durable ones
  std::vector<Receiver> receivers_;           // of the fan-out at work; kept for their memory
  uint64_t mark_ = 0;
  std::string scratch_;
  std::vector<routing::SharedGroup*> shared_hits_;  // groups that the fan-out at work reaches
  /// A shared message that follows its member to another worker: its sender waits for that one's disk.
  struct Following {
    uint64_t number = 0;
    uint32_t source = 0;    // where it came from
    uint64_t sequence = 0;  // and its number there: what came later is not covered before
    uint64_t follow = 0;    // Letter::follow of what came
  };
  uint64_t last_following_ = 0;
  uint64_t follow_ = 0;  // of the message that is passed on now
  std::vector<Following> following_;
  HandedOn handed_on_;                             // by the message at work
  std::unordered_map<uint64_t, Client*> members_;  // own sessions that are in a group, by uid
  std::shared_ptr<SinkTicket> ticket_;             // of the fan-out at work, if it came from the event plane
  std::set<Client*> parked_;                       // clients with parked messages

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
  std::deque<uint64_t> yielded_;  // connections that wait for another turn
  bool yielded_posted_ = false;
  std::deque<uint64_t> held_back_;  // connections that do not read until mailboxes and journal are below their bounds
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
