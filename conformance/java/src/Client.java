import com.eatthepath.pushy.apns.ApnsClient;
import com.eatthepath.pushy.apns.ApnsClientBuilder;
import com.eatthepath.pushy.apns.DeliveryPriority;
import com.eatthepath.pushy.apns.PushNotificationResponse;
import com.eatthepath.pushy.apns.PushType;
import com.eatthepath.pushy.apns.auth.ApnsSigningKey;
import com.eatthepath.pushy.apns.util.SimpleApnsPushNotification;
import java.io.File;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;

/**
 * Pushy's client, sending what the test asks for.
 *
 * <p>Arguments: host, port, certificate authority, signing key, key id, team id. A line is a notification, {@code {"seq",
 * "token", "topic", "payload", "id", "expiration", "collapse_id"}}; for each comes a line with what Pushy made of the
 * answer, {@code {"seq", "status", "id", "reason", "gone"}}, or with an {@code "error"}.
 */
final class Client {
    private Client() {}

    public static void main(final String[] args) throws Exception {
        RawEs256.install();
        final ApnsClient client = new ApnsClientBuilder()
                .setApnsServer(args[0], Integer.parseInt(args[1]))
                .setTrustedServerCertificateChain(new File(args[2]))
                .setSigningKey(ApnsSigningKey.loadFromPkcs8File(new File(args[3]), args[5], args[4]))
                .setUseAlpn(true)
                .build();
        Lines.write(Map.of("client", "pushy"));
        for (Map<String, Object> line = Lines.read(); line != null; line = Lines.read()) {
            final Object seq = line.get("seq");
            client.sendNotification(notification(line))
                    .whenComplete((response, error) -> Lines.write(result(seq, response, error)));
        }
        client.close().get();
        System.exit(0);
    }

    private static SimpleApnsPushNotification notification(final Map<String, Object> line) {
        final Instant expiration = Instant.ofEpochSecond(((Number) line.get("expiration")).longValue());
        final String id = (String) line.get("id");
        return new SimpleApnsPushNotification((String) line.get("token"), (String) line.get("topic"),
                (String) line.get("payload"), expiration, DeliveryPriority.IMMEDIATE, PushType.ALERT,
                (String) line.get("collapse_id"), id == null ? null : UUID.fromString(id));
    }

    private static Map<String, Object> result(
            final Object seq, final PushNotificationResponse<?> response, final Throwable error) {
        final Map<String, Object> result = new LinkedHashMap<>();
        result.put("seq", seq);
        if (error != null) {
            result.put("error", error.toString());
            return result;
        }
        result.put("status", response.getStatusCode());
        if (response.getApnsId() != null) {
            result.put("id", response.getApnsId().toString());
        }
        response.getRejectionReason().ifPresent(reason -> result.put("reason", reason));
        response.getTokenInvalidationTimestamp().ifPresent(moment -> result.put("gone", moment.toEpochMilli()));
        return result;
    }
}
