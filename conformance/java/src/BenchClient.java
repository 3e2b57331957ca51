import com.eatthepath.json.JsonParser;
import com.eatthepath.pushy.apns.ApnsClient;
import com.eatthepath.pushy.apns.ApnsClientBuilder;
import com.eatthepath.pushy.apns.DeliveryPriority;
import com.eatthepath.pushy.apns.PushType;
import com.eatthepath.pushy.apns.auth.ApnsSigningKey;
import com.eatthepath.pushy.apns.util.SimpleApnsPushNotification;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Pushy's client as a peer of `tidings bench push`; arguments and lines are those of `go/peers/load`.
 *
 * <p>One event loop, as it is held to one core. So many notifications are handed over at once as are asked for: Pushy
 * opens as many streams of them as it may and keeps the others.
 */
final class BenchClient {
    private final Map<String, Object> work;
    private final List<?> tokens;
    private final String[] payloads;
    private ApnsClient client;

    private BenchClient(final Map<String, Object> work) {
        this.work = work;
        tokens = (List<?>) work.get("tokens");
        payloads = ((List<?>) work.get("messages"))
                .stream().map(message -> (String) ((Map<?, ?>) message).get("payload")).toArray(String[]::new);
    }

    public static void main(final String[] args) throws Exception {
        RawEs256.install();
        final BenchClient peer = new BenchClient(new JsonParser().parseJsonObject(Files.readString(Path.of(args[4]))));
        Lines.write(Map.of("name", "pushy", "version", version()));
        for (Map<String, Object> line = Lines.read(); line != null; line = Lines.read()) {
            if (line.get("open") instanceof Map<?, ?> wanted) {
                peer.open(args, number(wanted, "port"), number(wanted, "connections"));
                Lines.write(Map.of());
            } else if (line.get("send") instanceof Map<?, ?> wanted) {
                Lines.write(peer.send(number(wanted, "count"), number(wanted, "concurrency"),
                        UUID.fromString((String) wanted.get("id"))));
            }
        }
        System.exit(0);
    }

    private static String version() throws IOException {
        final Properties pom = new Properties();
        final String path = "/META-INF/maven/com.eatthepath/pushy/pom.properties";
        try (InputStream input = ApnsClient.class.getResourceAsStream(path)) {
            if (input != null) {
                pom.load(input);
            }
        }
        return pom.getProperty("version", "unknown");
    }

    private static int number(final Map<?, ?> object, final String name) {
        return ((Number) object.get(name)).intValue();
    }

    private void open(final String[] args, final int port, final int connections) throws Exception {
        if (client != null) {
            client.close().get();
        }
        client = new ApnsClientBuilder()
                .setApnsServer("localhost", port)
                .setTrustedServerCertificateChain(new File(args[0]))
                .setSigningKey(ApnsSigningKey.loadFromPkcs8File(new File(args[1]), args[3], args[2]))
                .setConcurrentConnections(connections)
                .setUseAlpn(true)
                .build();
    }

    private Map<String, ?> send(final int count, final int concurrency, final UUID id) throws InterruptedException {
        final String topic = (String) work.get("topic");
        final String collapseId = (String) work.get("collapse_id");
        final Instant expiration = Instant.ofEpochSecond(((Number) work.get("expiration")).longValue());
        final Semaphore free = new Semaphore(concurrency);
        final AtomicInteger accepted = new AtomicInteger();
        final AtomicReference<String> failure = new AtomicReference<>("");
        final double cpuSeconds = Processor.seconds();
        final long began = System.nanoTime();
        for (final Object each : tokens.subList(0, count)) {
            final String token = (String) each;
            final var notification = new SimpleApnsPushNotification(token, topic, payloads[token.charAt(1) - '0'],
                    expiration, DeliveryPriority.IMMEDIATE, PushType.ALERT, collapseId, id);
            free.acquire();
            client.sendNotification(notification).whenComplete((response, error) -> {
                if (error == null && response.isAccepted()) {
                    accepted.incrementAndGet();
                } else {
                    failure.set(error == null ? response.toString() : error.toString());
                }
                free.release();
            });
        }
        free.acquire(concurrency); // All are answered.
        final double seconds = (System.nanoTime() - began) / 1e9;
        return Map.of("accepted", accepted.get(), "seconds", seconds, "cpu_seconds", Processor.seconds() - cpuSeconds,
                "failure", failure.get());
    }
}
