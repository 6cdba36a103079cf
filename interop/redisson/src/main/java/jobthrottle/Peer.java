package jobthrottle;

import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateLimiterConfig;
import org.redisson.api.RateType;
import org.redisson.api.ratelimiter.RateLimiterArgs;

/**
 * A Redisson client that obeys: one command a line on standard input, one reply a line on standard
 * output, both JSON. It says hello with its id and version, and ends when its input does.
 */
public final class Peer {
  /** What to do, and to which limiter; each command reads the fields it needs. Times are milliseconds. */
  record Command(
      String command,
      String limiter,
      boolean perClient,
      long permits,
      long interval,
      long keepAlive,
      boolean keepState,
      long timeout,
      long[] costs,
      int clients) {}

  /** What came of it: the one field that answers the command, or none. */
  @JsonInclude(JsonInclude.Include.NON_NULL)
  record Reply(Hello hello, Boolean done, Long permits, Rate rate, List<long[]> grants, String error) {
    static Reply none() {
      return new Reply(null, null, null, null, null, null);
    }

    static Reply hello(Hello hello) {
      return new Reply(hello, null, null, null, null, null);
    }

    static Reply done(boolean done) {
      return new Reply(null, done, null, null, null, null);
    }

    static Reply permits(long permits) {
      return new Reply(null, null, permits, null, null, null);
    }

    static Reply rate(RateLimiterConfig c) {
      return new Reply(null, null, null, new Rate(c.getRateType() == RateType.PER_CLIENT, c.getRate(), c.getRateInterval()), null, null);
    }

    static Reply grants(List<long[]> grants) {
      return new Reply(null, null, null, null, grants, null);
    }

    static Reply error(Throwable e) {
      return new Reply(null, null, null, null, null, e.toString());
    }
  }

  record Hello(String id, String version) {}

  record Rate(boolean perClient, long permits, long interval) {}

  private final Clients clients;

  private Peer(Clients clients) {
    this.clients = clients;
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 2 || !args[0].equals("--redis")) {
      System.err.println("usage: java -jar peer.jar --redis redis://127.0.0.1:6379");
      System.exit(2);
    }
    PrintStream out = System.out;
    System.setOut(System.err); // replies alone go to standard output
    ObjectMapper json = new ObjectMapper();
    try (Clients clients = new Clients(args[1])) {
      Peer peer = new Peer(clients);
      out.println(json.writeValueAsString(Reply.hello(new Hello(clients.first().getId(), version()))));
      BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        out.println(json.writeValueAsString(peer.obey(json.readValue(line, Command.class))));
      }
    }
  }

  private Reply obey(Command c) {
    try {
      return run(c);
    } catch (Exception e) { // the caller's to judge: some commands are meant to fail
      return Reply.error(e);
    }
  }

  private Reply run(Command c) throws Exception {
    RRateLimiter limiter = clients.first().getRateLimiter(c.limiter());
    RateType type = c.perClient() ? RateType.PER_CLIENT : RateType.OVERALL;
    Duration interval = Duration.ofMillis(c.interval());
    Duration keepAlive = Duration.ofMillis(c.keepAlive());
    switch (c.command()) {
      case "trySetRate":
        return Reply.done(limiter.trySetRate(type, c.permits(), interval, keepAlive));
      case "setRate":
        limiter.setRate(type, c.permits(), interval, keepAlive);
        return Reply.none();
      case "updateRate":
        return Reply.done(limiter.updateRate(RateLimiterArgs.of(type, c.permits(), interval).keepAliveTime(keepAlive).keepState(c.keepState())));
      case "getConfig":
        return Reply.rate(limiter.getConfig());
      case "availablePermits":
        return Reply.permits(limiter.availablePermits());
      case "tryAcquire":
        return Reply.done(c.timeout() > 0 ? limiter.tryAcquire(c.permits(), Duration.ofMillis(c.timeout())) : limiter.tryAcquire(c.permits()));
      case "acquire":
        limiter.acquire(c.permits());
        return Reply.none();
      case "release":
        limiter.release(c.permits());
        return Reply.none();
      case "delete":
        return Reply.done(limiter.delete());
      case "expire":
        return Reply.done(limiter.expire(Duration.ofMillis(c.timeout())));
      case "clearExpire":
        return Reply.done(limiter.clearExpire());
      case "connect":
        clients.atLeast(c.clients());
        return Reply.none();
      case "disconnect":
        clients.closeOthers();
        return Reply.none();
      case "load":
        return Reply.grants(Load.run(clients.atLeast(c.clients()), c.limiter(), c.costs(), Duration.ofMillis(c.timeout())));
      default:
        throw new IllegalArgumentException("unknown command " + c.command());
    }
  }

  /** The version of Redisson, as its own jar states it. */
  private static String version() throws IOException {
    Properties pom = new Properties();
    try (InputStream in = Peer.class.getResourceAsStream("/META-INF/maven/org.redisson/redisson/pom.properties")) {
      pom.load(in);
    }
    return pom.getProperty("version");
  }
}
