import com.eatthepath.pushy.apns.auth.ApnsVerificationKey;
import com.eatthepath.pushy.apns.server.MockApnsServer;
import com.eatthepath.pushy.apns.server.MockApnsServerBuilder;
import com.eatthepath.pushy.apns.server.MockApnsServerListener;
import com.eatthepath.pushy.apns.server.PushNotificationHandler;
import com.eatthepath.pushy.apns.server.PushNotificationHandlerFactory;
import com.eatthepath.pushy.apns.server.RejectedNotificationException;
import com.eatthepath.pushy.apns.server.RejectionReason;
import com.eatthepath.pushy.apns.server.ValidatingPushNotificationHandlerFactory;
import io.netty.buffer.ByteBuf;
import io.netty.handler.codec.http2.Http2Headers;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Pushy's validating mock of APNs, with a script per device token.
 *
 * <p>Arguments: certificate, its key, the developer's public key, key id, team id, topic, stream limit, and the authority
 * of clients' certificates. It says first {@code {"port", "reasons"}}, then for every request what it was and how it was
 * answered. A client that has shown a certificate is judged by that, any other by its token. From standard input it takes
 * {@code {"seq", "token", "rejections": [reason…], "gone": milliseconds}}: the token is the topic's; its first requests
 * are rejected like that, whatever they say, all others validated; and it is no longer valid since then, if given. Each
 * is confirmed by {@code {"seq"}}.
 */
final class Mock {
    private static final Map<String, Queue<RejectionReason>> SCRIPTS = new ConcurrentHashMap<>();

    private Mock() {}

    public static void main(final String[] args) throws Exception {
        RawEs256.install();
        final Set<String> tokens = ConcurrentHashMap.newKeySet();
        final Map<String, Instant> gone = new ConcurrentHashMap<>();
        final ApnsVerificationKey key = ApnsVerificationKey.loadFromPkcs8File(new File(args[2]), args[4], args[3]);
        final PushNotificationHandlerFactory validating = new ValidatingPushNotificationHandlerFactory(
                Map.of(args[5], tokens), gone, Map.of(args[3], key), Map.of(key, Set.of(args[5])));
        final MockApnsServer server = new MockApnsServerBuilder()
                .setServerCredentials(new File(args[0]), new File(args[1]), null)
                .setTrustedClientCertificateChain(new File(args[7]))
                .setHandlerFactory(session -> scripted(validating.buildHandler(session)))
                .setListener(new Reporter())
                .setMaxConcurrentStreams(Integer.parseInt(args[6]))
                .setUseAlpn(true)
                .build();
        Lines.write(Map.of("port", Loopback.listen(server), "reasons", Arrays.stream(RejectionReason.values())
                .map(Enum::name).toList()));
        for (Map<String, Object> line = Lines.read(); line != null; line = Lines.read()) {
            final String token = (String) line.get("token");
            if (line.get("rejections") instanceof List<?> reasons) {
                final Queue<RejectionReason> script = new ArrayDeque<>();
                reasons.forEach(reason -> script.add(RejectionReason.valueOf((String) reason)));
                SCRIPTS.put(token, script);
            }
            if (line.get("gone") instanceof Number moment) {
                gone.put(token, Instant.ofEpochMilli(moment.longValue()));
            }
            tokens.add(token);
            Lines.write(Map.of("seq", line.get("seq")));
        }
        System.exit(0);
    }

    private static PushNotificationHandler scripted(final PushNotificationHandler validating) {
        return (headers, payload) -> {
            final Queue<RejectionReason> script = SCRIPTS.get(token(headers));
            final RejectionReason reason = script == null ? null : script.poll();
            if (reason != null) {
                throw new RejectedNotificationException(reason);
            }
            validating.handlePushNotification(headers, payload);
        };
    }

    private static String token(final Http2Headers headers) {
        final String path = headers.path().toString();
        return path.substring(path.lastIndexOf('/') + 1);
    }

    /** Tells the test of every request. */
    private static final class Reporter implements MockApnsServerListener {
        private final AtomicInteger order = new AtomicInteger();

        @Override
        public void handlePushNotificationAccepted(final Http2Headers headers, final ByteBuf payload) {
            tell(headers, payload, "accepted");
        }

        @Override
        public void handlePushNotificationRejected(
                final Http2Headers headers, final ByteBuf payload, final RejectionReason reason, final Instant gone) {
            tell(headers, payload, reason.name());
        }

        private void tell(final Http2Headers headers, final ByteBuf payload, final String answer) {
            final Map<String, Object> said = new LinkedHashMap<>();
            headers.forEach(header -> said.put(header.getKey().toString(), header.getValue().toString()));
            final String text = payload == null ? "" : payload.toString(StandardCharsets.UTF_8);
            Lines.write(Map.of("token", token(headers), "answer", answer, "headers", said, "payload", text,
                    "order", order.incrementAndGet()));
        }
    }
}
