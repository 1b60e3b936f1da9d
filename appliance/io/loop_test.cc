#include "io/loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "io/clock.h"
#include "io/disk_queue.h"
#include "io/signals.h"
#include "io/test_network.h"

namespace ph::io {
namespace {

TEST(Loop, runs_posted_tasks_in_order) {
  IoLoop loop;
  std::vector<int> seen;
  for (int i = 0; i < 10'000; ++i) loop.post([&seen, i] { seen.push_back(i); });
  EXPECT_TRUE(seen.empty()) << "never from inside post()";
  PH_EXPECT_SOON(loop, seen.size() == 10'000);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(Loop, takes_posts_from_many_threads_each_in_order) {
  IoLoop loop;
  constexpr int kThreads = 4;
  constexpr int kEach = 40'000;
  std::vector<std::vector<int>> seen(kThreads);
  int total = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i)
        loop.post([&, t, i] {
          seen[static_cast<size_t>(t)].push_back(i);
          ++total;
        });
    });
  bool all = loop.run_until([&] { return total == kThreads * kEach; }, kTestBound);
  for (auto& t : threads) t.join();
  ASSERT_TRUE(all);
  for (auto& mine : seen)
    for (int i = 0; i < kEach; ++i) ASSERT_EQ(mine[static_cast<size_t>(i)], i);
}

TEST(Loop, slows_other_threads_when_its_mailbox_is_full_and_loses_nothing) {
  IoLoop loop;
  std::atomic<bool> busy{false};
  std::atomic<bool> may_go_on{false};
  size_t ran = 0;
  std::thread runner([&] { loop.run(); });
  loop.post([&] {
    busy = true;
    while (!may_go_on) std::this_thread::yield();  // a loop that is busy
  });
  while (!busy) std::this_thread::yield();  // else the loop may take some of the posts together with this one
  std::thread producer([&] {
    for (size_t i = 0; i < kMailboxMax + 2; ++i) loop.post([&] { ++ran; });
    loop.post([&] { loop.stop(); });
  });
  while (loop.counters().mailbox_full == 0) std::this_thread::yield();
  may_go_on = true;
  producer.join();
  runner.join();
  EXPECT_EQ(ran, kMailboxMax + 2);
}

TEST(Loop, stop_from_another_thread_ends_run) {
  IoLoop loop;
  std::thread runner([&] { loop.run(); });
  loop.stop();
  runner.join();
}

TEST(Loop, stop_before_run_is_not_forgotten) {
  IoLoop loop;
  loop.stop();
  loop.run();
}

TEST(Loop, stop_hands_on_what_was_sent_while_a_round_of_writes_was_under_way) {
  IoLoop client;
  std::vector<std::unique_ptr<Recorder>> there;
  {
    IoLoop loop;
    Server server(loop);
    for (int i = 0; i < 16; ++i) {
      auto& r = there.emplace_back(std::make_unique<Recorder>());
      r->connection = client.connect(server.at(), {}, *r);
    }
    for (int turn = 0; turn < 10'000 && server.clients.size() < there.size(); ++turn) {
      client.run_until([] { return true; }, 1ms);
      client.run_until([n = 0]() mutable { return ++n > 1; }, 5ms);
      loop.run_until([n = 0]() mutable { return ++n > 2; }, 5ms);
    }
    ASSERT_EQ(server.clients.size(), there.size());
    const auto say = [&](size_t from, size_t to) {
      for (size_t i = from; i < to; ++i) server.clients[i]->connection->send(Slice("last word"));
    };
    loop.post([&] {
      say(0, 8);
      loop.post([&] {  // a turn later: the round of the first eight has begun
        say(8, 16);
        loop.stop();
      });
    });
    loop.run();
    server.clients.clear();
  }
  for (auto& r : there) EXPECT_TRUE(client.run_until([&] { return r->data == "last word"; }, 10s));
  there.clear();
}

TEST(Loop, destroys_what_was_posted_and_never_run) {
  auto owned = std::make_shared<int>(1);
  {
    IoLoop loop;
    loop.post([owned] {});
  }
  EXPECT_EQ(owned.use_count(), 1);
}

// Reading the clock costs more than routing a message; between two handlers it must go on.
TEST(Loop, time_stands_still_in_a_handler_and_goes_on_with_the_next) {
  IoLoop loop;
  std::vector<Instant> seen;
  auto look = [&] {
    const Instant first = loop.now();
    const Instant real = steady_now();
    while (steady_now() - real < 1ms) continue;
    EXPECT_EQ(loop.now(), first);
    seen.push_back(first);
  };
  loop.post(look);
  loop.post(look);
  PH_EXPECT_SOON(loop, seen.size() == 2);
  EXPECT_GE(seen[1] - seen[0], 1ms);
  const Instant outside = loop.now();
  EXPECT_GE(outside - seen[1], 1ms) << "outside of handlers it is the time";
}

// The descriptor is watched level-triggered: input that nobody wants now must not come again and again.
TEST(Loop, rests_while_a_paused_connection_has_input_and_an_end) {
  IoLoop loop;
  Server server(loop, {}, [](Recorder& there) {
    there.at_data = [&there](port::Connection& connection, ByteView bytes) {
      if (there.data.empty()) connection.pause_reading(true);
      there.data += bytes;
      return port::Consumed{bytes.size(), 0};
    };
  });
  auto client = std::make_unique<Recorder>();
  client->connection = loop.connect(server.at(), {}, *client);
  client->connection->send_copy("early");
  PH_EXPECT_SOON(loop, server.clients.size() == 1 && server.clients[0]->data == "early");
  client->connection->send_copy("late");
  PH_EXPECT_SOON(loop, client->connection->unsent_bytes() == 0);
  client.reset();  // closes: the paused end has input and its end
  const uint64_t turns = loop.counters().turns.value();
  loop.run_until([] { return false; }, 50ms);
  EXPECT_LT(loop.counters().turns.value() - turns, 20);
  server.clients[0]->connection->pause_reading(false);
  PH_EXPECT_SOON(loop, server.clients[0]->closed.has_value());
  EXPECT_EQ(server.clients[0]->data, "earlylate");
}

TEST(Timer, fires_in_order_of_time) {
  IoLoop loop;
  auto late = loop.make_timer();
  auto early = loop.make_timer();
  std::string order;
  Instant start = loop.now();
  late->start(20ms, [&] { order += "late"; });
  early->start(5ms, [&] { order += "early "; });
  EXPECT_TRUE(late->pending());
  PH_EXPECT_SOON(loop, !late->pending());
  EXPECT_EQ(order, "early late");
  EXPECT_GE(loop.now() - start, 20ms);
}

TEST(Timer, never_runs_a_cancelled_or_replaced_task) {
  IoLoop loop;
  auto timer = loop.make_timer();
  auto other = loop.make_timer();
  auto gone = loop.make_timer();
  int wrong = 0;
  int right = 0;
  // All are due at once; the first one that runs cancels the expiry of the others, which is already queued.
  timer->start(0ms, [&] { ++wrong; });
  timer->start(0ms, [&] {
    ++right;
    other->cancel();
    gone.reset();
  });
  other->start(0ms, [&] { ++wrong; });
  gone->start(0ms, [&] { ++wrong; });
  std::this_thread::yield();
  PH_EXPECT_SOON(loop, right == 1);
  EXPECT_FALSE(other->pending());
  auto end = loop.make_timer();
  bool ended = false;
  end->start(5ms, [&] { ended = true; });
  PH_EXPECT_SOON(loop, ended);
  EXPECT_EQ(wrong, 0);
}

TEST(Timer, may_be_restarted_and_destroyed_by_its_own_task) {
  IoLoop loop;
  auto timer = loop.make_timer();
  int rounds = 0;
  std::function<void()> again = [&] {
    if (++rounds < 3)
      timer->start(1ms, [&] { again(); });
    else
      timer.reset();
  };
  timer->start(1ms, [&] { again(); });
  PH_EXPECT_SOON(loop, rounds == 3);
  EXPECT_EQ(timer, nullptr);
}

TEST(DiskQueue, runs_jobs_in_order_off_the_loop_and_done_on_it) {
  IoLoop loop;
  IoDiskQueue disk(loop);
  auto here = std::this_thread::get_id();
  std::vector<int> jobs;
  std::vector<int> dones;
  bool job_on_loop = false;
  bool done_off_loop = false;
  for (int i = 0; i < 500; ++i)
    disk.run(
        [&, i] {
          jobs.push_back(i);
          job_on_loop |= std::this_thread::get_id() == here;
        },
        [&, i] {
          dones.push_back(i);
          done_off_loop |= std::this_thread::get_id() != here;
        });
  PH_EXPECT_SOON(loop, dones.size() == 500);
  EXPECT_FALSE(job_on_loop);
  EXPECT_FALSE(done_off_loop);
  EXPECT_EQ(disk.waiting(), 0u);
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(jobs[static_cast<size_t>(i)], i);
    ASSERT_EQ(dones[static_cast<size_t>(i)], i);
  }
}

TEST(DiskQueue, finishes_all_jobs_before_it_ends) {
  IoLoop loop;
  int ran = 0;
  int done = 0;
  {
    IoDiskQueue disk(loop);
    for (int i = 0; i < 1000; ++i) disk.run([&] { ++ran; }, [&] { ++done; });
  }
  EXPECT_EQ(ran, 1000);
  PH_EXPECT_SOON(loop, done == 1000);
}

TEST(Signals, arrive_as_calls_on_the_loop) {
  IoLoop loop;
  int stops = 0;
  int reloads = 0;
  {
    Signals signals(loop, [&](int number) { stops += number; }, [&] { ++reloads; });
    ::kill(::getpid(), SIGHUP);
    PH_EXPECT_SOON(loop, reloads == 1);
    ::kill(::getpid(), SIGTERM);
    PH_EXPECT_SOON(loop, stops == SIGTERM);
    ::kill(::getpid(), SIGHUP);
    PH_EXPECT_SOON(loop, reloads == 2);
  }
  ignore_signals();
  ::kill(::getpid(), SIGPIPE);
  ::kill(::getpid(), SIGIO);
}

}  // namespace
}  // namespace ph::io
