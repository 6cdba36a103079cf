package jobthrottle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RedissonClient;

/** Threads that acquire in a loop. */
final class Load {
  private Load() {}

  /**
   * Runs a thread for each of the costs, dealt out to the clients in turn, and returns what they got: thread,
   * when it asked and when it had its permits, by System.nanoTime, which is CLOCK_MONOTONIC on Linux.
   */
  static List<long[]> run(List<RedissonClient> clients, String limiter, long[] costs, Duration length) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(costs.length);
    try {
      long end = System.nanoTime() + length.toNanos();
      List<Callable<List<long[]>>> jobs = new ArrayList<>();
      for (int i = 0; i < costs.length; i++) {
        int thread = i;
        RRateLimiter l = clients.get(i % clients.size()).getRateLimiter(limiter);
        jobs.add(() -> acquire(l, thread, costs[thread], end));
      }
      List<long[]> grants = new ArrayList<>();
      for (Future<List<long[]>> got : threads.invokeAll(jobs)) {
        grants.addAll(got.get());
      }
      grants.sort((a, b) -> Long.compare(a[2], b[2]));
      return grants;
    } finally {
      threads.shutdown();
    }
  }

  private static List<long[]> acquire(RRateLimiter limiter, int thread, long permits, long end) {
    List<long[]> grants = new ArrayList<>();
    for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
      if (limiter.tryAcquire(permits, Duration.ofNanos(end - asked))) {
        grants.add(new long[] {thread, asked, System.nanoTime()});
      }
    }
    return grants;
  }
}
