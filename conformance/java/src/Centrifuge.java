import com.eatthepath.json.JsonParser;
import com.eatthepath.json.JsonSerializer;
import io.github.centrifugal.centrifuge.Client;
import io.github.centrifugal.centrifuge.ConnectedEvent;
import io.github.centrifugal.centrifuge.ConnectingEvent;
import io.github.centrifugal.centrifuge.DisconnectedEvent;
import io.github.centrifugal.centrifuge.EventListener;
import io.github.centrifugal.centrifuge.Options;
import io.github.centrifugal.centrifuge.PublicationEvent;
import io.github.centrifugal.centrifuge.RPCResult;
import io.github.centrifugal.centrifuge.SubscribedEvent;
import io.github.centrifugal.centrifuge.Subscription;
import io.github.centrifugal.centrifuge.SubscriptionEventListener;
import io.github.centrifugal.centrifuge.SubscriptionOptions;
import java.nio.charset.StandardCharsets;
import java.text.ParseException;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Centrifugo's Java SDK, which speaks Protobuf only, doing what the test asks for. What it is told and tells stands in
 * go/centrifuge, which is the same with the Go SDK.
 */
final class Centrifuge {
    private static final int RECONNECT_DELAY_MIN_MS = 10;
    private static final int RECONNECT_DELAY_MAX_MS = 100;
    private static final int TIMEOUT_MS = 20_000;

    private Centrifuge() {}

    public static void main(final String[] args) throws Exception {
        final Map<String, Object> wanted = new JsonParser().parseJsonObject(args[0]);
        final Options options = new Options();
        options.setMinReconnectDelay(RECONNECT_DELAY_MIN_MS);
        options.setMaxReconnectDelay(RECONNECT_DELAY_MAX_MS);
        options.setTimeout(TIMEOUT_MS);
        if (wanted.get("token") != null) {
            options.setToken((String) wanted.get("token"));
        }
        if (wanted.get("data") != null) {
            options.setData(bytes(wanted.get("data")));
        }
        if (wanted.get("ping_delay_ms") != null) {
            options.setMaxServerPingDelay(((Number) wanted.get("ping_delay_ms")).intValue());
        }
        final Client client = new Client((String) wanted.get("url"), options, listener());
        Lines.write(Map.of("client", "centrifuge-java"));
        final SubscriptionOptions subscription = new SubscriptionOptions();
        subscription.setMinResubscribeDelay(RECONNECT_DELAY_MIN_MS);
        subscription.setMaxResubscribeDelay(RECONNECT_DELAY_MAX_MS);
        client.newSubscription((String) wanted.get("channel"), subscription, subscriptionListener()).subscribe();
        client.connect();
        for (Map<String, Object> line = Lines.read(); line != null; line = Lines.read()) {
            obey(client, line);
        }
        System.exit(0);
    }

    private static void obey(final Client client, final Map<String, Object> line) {
        final Object seq = line.get("seq");
        if (line.get("method") == null) {
            client.disconnect();
            Lines.write(Map.of("seq", seq));
            return;
        }
        client.rpc((String) line.get("method"), bytes(line.get("data")),
                (error, result) -> Lines.write(answer(seq, error, result)));
    }

    private static Map<String, Object> answer(final Object seq, final Throwable error, final RPCResult result) {
        final Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("seq", seq);
        if (error != null) {
            answer.put("error", error.toString());
        } else if (result.getError() != null) {
            answer.put("error", result.getError().getCode());
        } else {
            answer.put("data", object(result.getData()));
        }
        return answer;
    }

    private static EventListener listener() {
        return new EventListener() {
            @Override
            public void onConnecting(final Client client, final ConnectingEvent event) {
                Lines.write(Map.of("on", "connecting", "code", event.getCode()));
            }

            @Override
            public void onConnected(final Client client, final ConnectedEvent event) {
                Lines.write(Map.of("on", "connected"));
            }

            @Override
            public void onDisconnected(final Client client, final DisconnectedEvent event) {
                Lines.write(Map.of("on", "disconnected", "code", event.getCode()));
            }
        };
    }

    private static SubscriptionEventListener subscriptionListener() {
        return new SubscriptionEventListener() {
            @Override
            public void onSubscribed(final Subscription subscription, final SubscribedEvent event) {
                Lines.write(Map.of("on", "subscribed", "recovered", event.getRecovered()));
            }

            @Override
            public void onPublication(final Subscription subscription, final PublicationEvent event) {
                Lines.write(Map.of("on", "publication", "offset", event.getOffset(), "data", object(event.getData())));
            }
        };
    }

    private static byte[] bytes(final Object value) {
        @SuppressWarnings("unchecked") // Everything that a test says in data is an object.
        final Map<String, ?> object = (Map<String, ?>) value;
        return JsonSerializer.writeJsonTextAsString(object).getBytes(StandardCharsets.UTF_8);
    }

    private static Map<String, Object> object(final byte[] json) {
        try {
            return new JsonParser().parseJsonObject(new String(json, StandardCharsets.UTF_8));
        } catch (final ParseException error) {
            throw new IllegalStateException("data is no JSON object", error);
        }
    }
}
