// WebSocket and PROXY headers under the same Connection interface, with and without TLS: what they carry, and each way
// in which a peer gets them wrong.
#include "io/websocket.h"

#include <gtest/gtest.h>

#include "io/pki.h"
#include "io/test_files.h"
#include "io/test_network.h"
#include "io/tls.h"

namespace ph::io {
namespace {

constexpr std::array<uint8_t, 4> kMask = {1, 2, 3, 4};

std::string request(std::string_view more = "Sec-WebSocket-Protocol: mqtt\r\n", std::string_view path = "/mqtt") {
  return "GET " + std::string(path) +
         " HTTP/1.1\r\nHost: gw\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" +
         std::string(more) + "\r\n";
}

std::string client_frame(std::string payload, ws::Opcode opcode = ws::Opcode::binary, bool fin = true) {
  std::string out = ws::frame_header(opcode, payload.size(), kMask);
  if (!fin) out[0] = static_cast<char>(out[0] & 0x7F);
  ws::apply_mask(payload.data(), payload.size(), kMask);
  return out + payload;
}

/// What a server sent after its 101: whole frames, as "<opcode>:<payload>".
struct Sent {
  std::vector<std::string> frames;
  std::string stream;  // of the binary ones
  size_t largest = 0;
};
Sent sent(const std::string& data) {
  Sent out;
  size_t at = data.find("\r\n\r\n");
  if (at == data.npos) return out;
  at += 4;
  auto byte = [&](size_t i) { return static_cast<uint8_t>(data[i]); };
  while (data.size() - at >= 2) {
    EXPECT_EQ(byte(at + 1) & 0x80, 0) << "a server does not mask";
    size_t head = 2, size = byte(at + 1);
    if (size == 126) {
      if (data.size() - at < 4) break;
      size = static_cast<size_t>(byte(at + 2)) << 8 | byte(at + 3);
      head = 4;
    }
    EXPECT_NE(size, 127u);
    if (data.size() - at < head + size) break;
    const std::string payload = data.substr(at + head, size);
    out.frames.push_back(std::to_string(byte(at) & 0x0F) + ":" + payload);
    if ((byte(at) & 0x0F) == 2) out.stream += payload, out.largest = std::max(out.largest, size);
    at += head + size;
  }
  return out;
}

port::ListenOptions websocket() {
  port::ListenOptions options;
  options.websocket_path = "/mqtt";
  return options;
}

struct Pair {
  explicit Pair(port::ListenOptions options = websocket(), std::function<void(Recorder&)> prepare = {})
      : server(loop, std::move(options), std::move(prepare)) {
    client.connection = loop.connect(server.at(), {}, client);
  }
  void send(std::string_view bytes) { client.connection->send_copy(bytes); }
  Recorder& there() { return *server.clients.at(0); }

  IoLoop loop;
  Server server;
  Recorder client;
};

// --- the upgrade

TEST(Upgrade, is_accepted_with_the_key_of_the_rfc_and_the_subprotocol_that_was_chosen) {
  const UpgradeAnswer answer = answer_upgrade(request(), "/mqtt");
  EXPECT_EQ(answer.status, 101);
  EXPECT_NE(answer.response.find("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), std::string::npos);
  EXPECT_NE(answer.response.find("Sec-WebSocket-Protocol: mqtt\r\n\r\n"), std::string::npos);
  for (auto [offered, chosen] : std::vector<std::pair<std::string, std::string>>{
           {"Sec-WebSocket-Protocol: mqttv3.1\r\n", "mqttv3.1"},
           {"Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n", "mqtt"},
           {"Sec-WebSocket-Protocol: chat\r\nsec-websocket-protocol: other,mqtt\r\n", "mqtt"}}) {
    const UpgradeAnswer each = answer_upgrade(request(offered), "/mqtt");
    EXPECT_EQ(each.status, 101) << offered;
    EXPECT_TRUE(each.response.ends_with("Sec-WebSocket-Protocol: " + chosen + "\r\n\r\n")) << each.response;
  }
  EXPECT_EQ(answer_upgrade(request("Sec-WebSocket-Protocol: mqtt\r\n", "/mqtt?token=x"), "/mqtt").status, 101);
  EXPECT_EQ(answer_upgrade(request("Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"),
                           "/mqtt")
                .response.find("Extensions"),
            std::string::npos)
      << "no extension is agreed on";
}

TEST(Upgrade, is_refused_with_the_status_that_says_why) {
  auto without = [](std::string_view line) {
    std::string text = request();
    const size_t at = text.find(line);
    EXPECT_NE(at, text.npos) << line;
    return text.erase(at, text.find("\r\n", at) + 2 - at);
  };
  auto with = [](std::string_view from, std::string_view to) {
    std::string text = request();
    return text.replace(text.find(from), from.size(), to);
  };
  const std::vector<std::pair<std::string, int>> cases = {
      {request(""), 400},
      {request("Sec-WebSocket-Protocol: mqttx, amqp\r\n"), 400},
      {request("Sec-WebSocket-Protocol: mqtt\r\n", "/"), 404},
      {request("Sec-WebSocket-Protocol: mqtt\r\n", "/mqtt/"), 404},
      {request("Sec-WebSocket-Protocol: mqtt\r\n", "/mqttx"), 404},
      {with("GET", "POST"), 405},
      {with("HTTP/1.1", "HTTP/1.0"), 400},
      {with("HTTP/1.1", "HTTP/9.9"), 400},
      {with("Version: 13", "Version: 8"), 426},
      {with("Upgrade: websocket", "Upgrade: h2c"), 426},
      {with("keep-alive, Upgrade", "keep-alive"), 426},
      {with("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZ"), 400},
      {with("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZXh4"), 400},
      {request("Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), 400},
      {request("Sec-WebSocket-Protocol: mqtt\r\nContent-Length: 5\r\n"), 400},
      {request("Sec-WebSocket-Protocol: mqtt\r\nTransfer-Encoding: chunked\r\n"), 400},
      {without("Host:"), 400},
      {without("Sec-WebSocket-Key:"), 400},
      {without("Sec-WebSocket-Version:"), 426},
      {without("Upgrade:"), 426},
      {"GET /mqtt\r\n\r\n", 400},
      {"\x10\x10 nonsense\r\n\r\n", 400},
      {"\r\n\r\n", 400},
  };
  for (const auto& [text, status] : cases) {
    const UpgradeAnswer answer = answer_upgrade(text, "/mqtt");
    EXPECT_EQ(answer.status, status) << text;
    EXPECT_TRUE(answer.response.starts_with("HTTP/1.1 " + std::to_string(status) + " ")) << answer.response;
    EXPECT_NE(answer.response.find("Connection: close\r\n"), std::string::npos);
  }
  const std::string whole = request();
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_NE(answer_upgrade(whole.substr(0, n), "/mqtt").status, 101) << n;
}

TEST(WebSocket, a_refused_client_reads_why_and_reaches_no_handler) {
  Pair pair;
  pair.send(request("", "/elsewhere"));
  PH_EXPECT_SOON(pair.loop, pair.client.closed.has_value());
  EXPECT_TRUE(pair.client.data.starts_with("HTTP/1.1 404 Not Found\r\n")) << pair.client.data;
  EXPECT_TRUE(pair.server.clients.empty());
  EXPECT_EQ(pair.loop.counters().upgrade_failures.value(), 1u);
  EXPECT_EQ(pair.loop.counters().accepted.value(), 0u);
}

TEST(WebSocket, an_upgrade_that_never_ends_is_bounded_in_time_and_counted) {
  for (std::string begin :
       {std::string(), std::string("GET /mqtt HTTP/1.1\r\nHost: x\r\n"), request().substr(0, 150)}) {
    Pair pair;
    pair.loop.set_handshake_timeout(50ms);
    pair.send(begin);
    PH_EXPECT_SOON(pair.loop, pair.client.closed.has_value());
    EXPECT_EQ(pair.loop.counters().upgrade_failures.value(), 1u);
    EXPECT_TRUE(pair.server.clients.empty());
  }
  Pair gone;
  gone.send("GET /mqtt HT");
  PH_EXPECT_SOON(gone.loop, gone.client.opened && gone.client.connection->unsent_bytes() == 0);
  gone.client.connection->close();
  PH_EXPECT_SOON(gone.loop, gone.loop.counters().upgrade_failures.value() == 1);
}

TEST(WebSocket, ten_megabytes_of_headers_are_refused_at_eight_kilobytes) {
  Pair pair;
  pair.client.connection->send(Slice("GET /mqtt HTTP/1.1\r\nX: " + std::string(10'000'000, 'x')));
  PH_EXPECT_SOON(pair.loop, pair.client.closed.has_value());
  EXPECT_TRUE(pair.client.data.starts_with("HTTP/1.1 431 ")) << pair.client.data;
  EXPECT_EQ(pair.loop.counters().upgrade_failures.value(), 1u);

  Pair many;  // one that would end, later than allowed
  many.client.connection->send(Slice(request("X: " + std::string(9000, 'x') + "\r\n")));
  PH_EXPECT_SOON(many.loop, many.client.closed.has_value());
  EXPECT_TRUE(many.client.data.starts_with("HTTP/1.1 431 ")) << many.client.data;
}

// --- an open one

TEST(WebSocket, carries_a_stream_whatever_the_frames_and_the_pieces_are) {
  std::string stream = noise(100'000, 5);
  for (size_t piece : {1u, 100u, 60'000u}) {
    Pair pair;
    std::string wire = request();
    Random random(piece);
    for (size_t at = 0; at < stream.size();) {
      const size_t size = std::min<size_t>(1 + random.below(20'000), stream.size() - at);
      const bool split = size > 2 && random.chance(0.5);
      wire += client_frame(stream.substr(at, split ? size / 2 : size), ws::Opcode::binary, !split);
      if (split) {
        wire += client_frame("between", ws::Opcode::ping);
        wire += client_frame(stream.substr(at + size / 2, size - size / 2), ws::Opcode::continuation);
      }
      at += size;
    }
    if (piece == 1) wire.resize(3000);
    for (size_t at = 0; at < wire.size(); at += piece) {
      pair.send(ByteView(wire).substr(at, piece));
      if (piece > 1) continue;
      PH_EXPECT_SOON(pair.loop, pair.client.connection->unsent_bytes() == 0);
    }
    const size_t expected = piece == 1 ? 2500 : stream.size();
    PH_EXPECT_SOON(pair.loop, !pair.server.clients.empty() && pair.there().data.size() >= expected);
    EXPECT_TRUE(stream.starts_with(pair.there().data));
    EXPECT_EQ(pair.loop.counters().upgrades.value(), 1u);
  }
}

TEST(WebSocket, what_is_sent_in_one_turn_is_one_frame_and_long_ones_are_cut) {
  Pair pair(websocket(), [](Recorder& there) {
    there.at_open = [](port::Connection& connection) {
      connection.send_copy("a");
      connection.send(Slice(std::string(1000, 'b')));
      connection.send_copy("c");
    };
  });
  pair.send(request());
  PH_EXPECT_SOON(pair.loop, sent(pair.client.data).frames.size() == 1);
  EXPECT_EQ(sent(pair.client.data).stream, "a" + std::string(1000, 'b') + "c");
  const std::string large = noise(300'000, 2);
  pair.there().connection->send(Slice(large));
  EXPECT_GE(pair.there().connection->unsent_bytes(), large.size());
  PH_EXPECT_SOON(pair.loop, sent(pair.client.data).stream.size() == 1002 + large.size());
  EXPECT_EQ(sent(pair.client.data).largest, ws::kDataFrameMax);
  EXPECT_TRUE(sent(pair.client.data).stream.ends_with(large));
  PH_EXPECT_SOON(pair.loop, pair.there().connection->unsent_bytes() == 0);
}

TEST(WebSocket, a_handler_that_waits_for_whole_packets_gets_them_also_after_a_pause) {
  std::vector<std::string> packets;
  Pair pair(websocket(), [&](Recorder& there) {
    there.at_data = [&](port::Connection& connection, ByteView bytes) {
      const port::Consumed took = take_frames(bytes, packets);
      if (packets.size() == 2) connection.pause_reading(true);
      return took;
    };
  });
  const std::string stream = frame("one") + frame(noise(200'000, 3)) + frame("three");
  pair.send(request() + client_frame(stream.substr(0, 5)));
  pair.send(client_frame(stream.substr(5, 100'000)) + client_frame(stream.substr(100'005, 99'000)));
  pair.send(client_frame(stream.substr(199'005)));
  PH_EXPECT_SOON(pair.loop, packets.size() >= 2);
  pair.there().connection->pause_reading(false);
  PH_EXPECT_SOON(pair.loop, packets.size() == 3);
  EXPECT_EQ(packets[0], "one");
  EXPECT_EQ(packets[1], noise(200'000, 3));
  EXPECT_EQ(packets[2], "three");
}

/// Takes a byte at a time, and between them nothing for a turn of the loop.
std::function<void(Recorder&)> reluctant(IoLoop& loop) {
  return [&loop](Recorder& there) {
    there.at_data = [&loop, &there](port::Connection& connection, ByteView bytes) {
      there.data += bytes.substr(0, 1);
      connection.pause_reading(true);
      loop.post([&connection] { connection.pause_reading(false); });
      return port::Consumed{1, 0};
    };
  };
}

TEST(WebSocket, what_a_paused_handler_left_is_shown_before_the_clients_end) {
  IoLoop loop;
  Server server(loop, websocket(), reluctant(loop));
  for (const std::string& end : {client_frame("\x03\xE8", ws::Opcode::close), client_frame("x", ws::Opcode::text)}) {
    server.clients.clear();
    Recorder client;
    client.connection = loop.connect(server.at(), {}, client);
    client.connection->send_copy(request() + client_frame("abc") + client_frame("def") + end);
    PH_EXPECT_SOON(loop, server.clients.size() == 1 && server.clients[0]->closed.has_value());
    EXPECT_EQ(server.clients[0]->data, "abcdef");
    PH_EXPECT_SOON(loop, client.closed.has_value());
    EXPECT_NE(client.data.find("\x88\x02"), std::string::npos) << "no Close frame came back";
  }
}

TEST(WebSocket, pings_are_answered_and_a_flood_of_them_is_bounded) {
  Pair pair;
  pair.send(request() + client_frame("alive?", ws::Opcode::ping) + client_frame("x"));
  PH_EXPECT_SOON(pair.loop, sent(pair.client.data).frames.size() == 1 && pair.there().data == "x");
  EXPECT_EQ(sent(pair.client.data).frames[0], "10:alive?");

  pair.client.connection->pause_reading(true);
  std::string flood;
  for (int i = 0; i < 1000; ++i) flood += client_frame(std::string(125, 'p'), ws::Opcode::ping);
  const Slice pings(std::move(flood));
  size_t largest = 0;
  for (int i = 0; i < 200; ++i) {  // 25 MB of pings whose answers nobody reads
    pair.client.connection->send(pings);
    PH_EXPECT_SOON(pair.loop, pair.client.connection->unsent_bytes() == 0);
    largest = std::max(largest, pair.there().connection->unsent_bytes());
  }
  EXPECT_LE(largest, 2 * ws::kControlMax);
}

TEST(WebSocket, a_text_frame_is_refused_with_its_code) {  // [MQTT-6.0.0-1]
  Pair pair;
  pair.send(request() + client_frame("good") + client_frame("text", ws::Opcode::text) + client_frame("late"));
  PH_EXPECT_SOON(pair.loop, pair.client.closed && pair.there().closed);
  EXPECT_EQ(pair.there().data, "good");
  EXPECT_EQ(pair.there().closed->code, port::net_errors::websocket);
  EXPECT_EQ(sent(pair.client.data).frames, std::vector<std::string>{"8:\x03\xEB"});
  EXPECT_EQ(pair.loop.counters().websocket_faults.value(), 1u);
}

TEST(WebSocket, a_frame_without_mask_is_refused) {
  Pair pair;
  pair.send(request() + ws::frame_header(ws::Opcode::binary, 4) + "open");
  PH_EXPECT_SOON(pair.loop, pair.client.closed && pair.there().closed);
  EXPECT_EQ(pair.there().data, "");
  EXPECT_EQ(sent(pair.client.data).frames, std::vector<std::string>{"8:\x03\xEA"});
}

TEST(WebSocket, closing_is_answered_with_the_clients_code_after_what_was_queued) {
  Pair pair;
  pair.send(request() + client_frame("bye"));
  PH_EXPECT_SOON(pair.loop, !pair.server.clients.empty() && pair.there().data == "bye");
  pair.there().connection->send_copy("last words");
  pair.send(client_frame("\x0F\xA1", ws::Opcode::close));
  PH_EXPECT_SOON(pair.loop, pair.client.closed && pair.there().closed);
  EXPECT_EQ(pair.there().closed->code, port::net_errors::closed);
  EXPECT_EQ(sent(pair.client.data).frames, (std::vector<std::string>{"2:last words", "8:\x0F\xA1"}));
}

TEST(WebSocket, close_sends_what_is_queued_and_says_goodbye) {
  Pair pair;
  pair.send(request() + client_frame("x"));
  PH_EXPECT_SOON(pair.loop, !pair.server.clients.empty() && pair.there().data == "x");
  const std::string bytes = noise(3'000'000, 4);
  pair.there().connection->send(Slice(bytes));
  pair.there().connection->close(20s);
  pair.there().connection->send_copy("after close: not sent");
  PH_EXPECT_SOON(pair.loop, pair.client.closed && pair.there().closed);
  EXPECT_TRUE(sent(pair.client.data).stream == bytes);
  EXPECT_EQ(sent(pair.client.data).frames.back(), "8:\x03\xE8");
  EXPECT_EQ(pair.there().closed->code, port::net_errors::closed_here);
}

TEST(WebSocket, a_client_that_reads_nothing_is_closed_within_the_linger) {
  Pair pair;
  pair.send(request() + client_frame("x"));
  PH_EXPECT_SOON(pair.loop, !pair.server.clients.empty() && pair.there().data == "x");
  pair.client.connection->pause_reading(true);
  pair.there().connection->send(Slice(noise(30'000'000, 4)));
  pair.there().connection->close(50ms);
  PH_EXPECT_SOON(pair.loop, pair.there().closed.has_value());
}

TEST(WebSocket, may_be_destroyed_from_every_callback) {
  for (int where = 0; where < 3; ++where) {
    SCOPED_TRACE(where);
    Recorder* held = nullptr;
    Pair pair(websocket(), [&](Recorder& there) {
      held = &there;
      if (where == 0) there.at_open = [&](port::Connection&) { held->connection.reset(); };
      if (where == 1)
        there.at_data = [&](port::Connection&, ByteView bytes) {
          held->connection.reset();
          return port::Consumed{bytes.size(), 0};
        };
      if (where == 2) there.at_close = [&] { held->connection.reset(); };
    });
    pair.send(request() + client_frame("x") + client_frame("", ws::Opcode::close));
    PH_EXPECT_SOON(pair.loop, pair.client.closed.has_value());
    PH_EXPECT_SOON(pair.loop, held && !held->connection);
  }
}

TEST(WebSocket, an_idle_one_costs_little_memory) {
  EXPECT_LE(sizeof(WebSocketState), 256u);
}

// --- PROXY headers

port::ListenOptions proxied(std::string path = {}) {
  port::ListenOptions options;
  options.proxy_protocol = true;
  options.websocket_path = std::move(path);
  return options;
}

TEST(Proxy, the_clients_address_is_what_the_server_sees) {
  const std::string binary("\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0C\xCB\0\x71\x07\xC0\0\x02\x01\xC7\x38\x07\x5B", 28);
  for (const auto& [header, address] : std::vector<std::pair<std::string, std::string>>{
           {"PROXY TCP4 203.0.113.7 192.0.2.1 51000 1883\r\n", "203.0.113.7:51000"},
           {"PROXY TCP6 2001:db8::7 ::1 51000 1883\r\n", "[2001:db8::7]:51000"},
           {binary, "203.0.113.7:51000"}}) {
    for (bool bytewise : {false, true}) {
      std::string accepted_as;
      Pair pair(proxied(), [&](Recorder& there) { accepted_as = there.connection->peer().address; });
      const std::string wire = header + "payload";
      for (size_t at = 0; at < wire.size(); at += bytewise ? 1 : wire.size()) {
        pair.send(bytewise ? ByteView(wire).substr(at, 1) : ByteView(wire));
        if (!bytewise) continue;
        PH_EXPECT_SOON(pair.loop, pair.client.connection->unsent_bytes() == 0);
      }
      PH_EXPECT_SOON(pair.loop, !pair.server.clients.empty() && pair.there().data == "payload");
      EXPECT_EQ(accepted_as, address);
    }
  }
  Pair unknown(proxied());
  unknown.send("PROXY UNKNOWN\r\nx");
  PH_EXPECT_SOON(unknown.loop, !unknown.server.clients.empty() && unknown.there().data == "x");
  EXPECT_TRUE(unknown.there().connection->peer().address.starts_with("127.0.0.1:"));
}

TEST(Proxy, without_a_header_nobody_gets_in) {
  for (std::string_view begin : {ByteView("\x10\x0C\0\4MQTT\4\2\0\x3C", 12), ByteView("PROXY TCP4 nobody\r\n")}) {
    Pair pair(proxied());
    pair.send(begin);
    PH_EXPECT_SOON(pair.loop, pair.client.closed.has_value());
    EXPECT_TRUE(pair.server.clients.empty());
    EXPECT_EQ(pair.loop.counters().proxy_failures.value(), 1u);
  }
  for (std::string_view begin : {ByteView(""), ByteView("PROXY TCP4 203.0.113.7")}) {
    Pair pair(proxied());
    pair.loop.set_handshake_timeout(50ms);
    pair.send(begin);
    PH_EXPECT_SOON(pair.loop, pair.client.closed.has_value());
    EXPECT_TRUE(pair.server.clients.empty());
    EXPECT_EQ(pair.loop.counters().proxy_failures.value(), 1u);
  }
}

// --- all of it at once

TEST(WebSocket, works_behind_a_balancer_and_under_tls) {
  TemporaryDirectory dir;
  ASSERT_TRUE(pki_init(dir / "ca"));
  for (std::string name : {"server", "client"})
    ASSERT_TRUE(pki_issue(dir / "ca", {name, {"localhost"}, {"127.0.0.1"}}));
  auto context = [&](const std::string& name) {
    TlsOptions options{dir / "ca/ca.crt", dir / ("ca/" + name + ".crt"), dir / ("ca/" + name + ".key")};
    return *port::TlsContext::load(options);
  };
  IoLoop loop;
  auto options = websocket();
  options.tls = context("server");
  Server server(loop, options);
  Recorder client;
  port::ConnectOptions to;
  to.tls = context("client");
  to.connect_timeout = kTestBound;
  client.connection = loop.connect(server.at(), to, client);
  const std::string large = noise(2'000'000, 9);
  client.connection->send_copy(request() + client_frame("hello"));
  client.connection->send(Slice(client_frame(large)));
  PH_EXPECT_SOON(loop, server.clients.size() == 1 && server.clients[0]->data.size() == 5 + large.size());
  Recorder& there = *server.clients[0];
  EXPECT_TRUE(there.data == "hello" + large);
  EXPECT_EQ(there.connection->peer().certificate_name, "client");
  there.connection->send(Slice(large));
  PH_EXPECT_SOON(loop, sent(client.data).stream.size() == large.size());
  there.connection->close();
  PH_EXPECT_SOON(loop, client.closed && there.closed);
  EXPECT_EQ(sent(client.data).frames.back(), "8:\x03\xE8");
  EXPECT_EQ(loop.counters().upgrades.value(), 1u);

  // A balancer in between, which says whom it forwards and then passes on what TLS is.
  auto behind = options;
  behind.proxy_protocol = true;
  Server hidden(loop, behind);
  std::vector<std::unique_ptr<Recorder>> onward;
  Server balancer(loop, {}, [&](Recorder& front) {
    onward.push_back(std::make_unique<Recorder>());
    Recorder& back = *onward.back();
    back.connection = loop.connect(hidden.at(), {}, back);
    back.connection->send_copy("PROXY TCP4 203.0.113.7 192.0.2.1 51000 1883\r\n");
    front.at_data = [&back](port::Connection&, ByteView bytes) {
      back.connection->send_copy(bytes);
      return port::Consumed{bytes.size(), 0};
    };
    back.at_data = [&front](port::Connection&, ByteView bytes) {
      front.connection->send_copy(bytes);
      return port::Consumed{bytes.size(), 0};
    };
  });
  Recorder far;
  far.connection = loop.connect(balancer.at(), to, far);
  far.connection->send_copy(request() + client_frame("through"));
  PH_EXPECT_SOON(loop, hidden.clients.size() == 1 && hidden.clients[0]->data == "through");
  EXPECT_EQ(hidden.clients[0]->connection->peer().address, "203.0.113.7:51000");
}

}  // namespace
}  // namespace ph::io
