package jobthrottle;

import java.util.ArrayList;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The Redisson clients of this process, each with its own id and connections. */
final class Clients implements AutoCloseable {
  private final String redis;
  private final List<RedissonClient> open = new ArrayList<>();

  Clients(String redis) {
    this.redis = redis;
    add();
  }

  private void add() {
    Config config = new Config();
    config.useSingleServer().setAddress(redis);
    open.add(Redisson.create(config));
  }

  RedissonClient first() {
    return open.get(0);
  }

  /** The first n clients, made now where they are not there yet. */
  List<RedissonClient> atLeast(int n) {
    while (open.size() < n) {
      add();
    }
    return List.copyOf(open.subList(0, Math.max(n, 1)));
  }

  /**
   * Closes all but the first: the many connections that each keeps would cost Redis time on whatever is measured
   * next.
   */
  void closeOthers() {
    List<RedissonClient> others = open.subList(1, open.size());
    others.forEach(RedissonClient::shutdown);
    others.clear();
  }

  @Override
  public void close() {
    open.forEach(RedissonClient::shutdown);
  }
}
