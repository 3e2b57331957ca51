import com.eatthepath.json.JsonParser;
import com.eatthepath.json.JsonSerializer;
import io.github.centrifugal.centrifuge.Client;
import io.github.centrifugal.centrifuge.ClientInfo;
import io.github.centrifugal.centrifuge.ConnectedEvent;
import io.github.centrifugal.centrifuge.ConnectingEvent;
import io.github.centrifugal.centrifuge.ConnectionTokenEvent;
import io.github.centrifugal.centrifuge.ConnectionTokenGetter;
import io.github.centrifugal.centrifuge.DisconnectedEvent;
import io.github.centrifugal.centrifuge.EventListener;
import io.github.centrifugal.centrifuge.HistoryOptions;
import io.github.centrifugal.centrifuge.HistoryResult;
import io.github.centrifugal.centrifuge.JoinEvent;
import io.github.centrifugal.centrifuge.LeaveEvent;
import io.github.centrifugal.centrifuge.Options;
import io.github.centrifugal.centrifuge.PublicationEvent;
import io.github.centrifugal.centrifuge.RPCResult;
import io.github.centrifugal.centrifuge.ReplyError;
import io.github.centrifugal.centrifuge.ServerPublicationEvent;
import io.github.centrifugal.centrifuge.ServerSubscribedEvent;
import io.github.centrifugal.centrifuge.ServerUnsubscribedEvent;
import io.github.centrifugal.centrifuge.SubscribedEvent;
import io.github.centrifugal.centrifuge.Subscription;
import io.github.centrifugal.centrifuge.SubscriptionEventListener;
import io.github.centrifugal.centrifuge.SubscriptionOptions;
import io.github.centrifugal.centrifuge.TokenCallback;
import io.github.centrifugal.centrifuge.UnsubscribedEvent;
import java.nio.charset.StandardCharsets;
import java.text.ParseException;
import java.util.ArrayDeque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.function.Function;

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
        if (wanted.get("tokens") != null) {
            options.setTokenGetter(inTurn((List<?>) wanted.get("tokens")));
        }
        final Client client = new Client((String) wanted.get("url"), options, listener());
        Lines.write(Map.of("client", "centrifuge-java"));
        final Subscription subscription = wanted.get("channel") == null ? null : subscribe(client, wanted);
        client.connect();
        for (Map<String, Object> line = Lines.read(); line != null; line = Lines.read()) {
            obey(client, subscription, line);
        }
        System.exit(0);
    }

    /** Gives one token after the other, and the last one again and again. */
    private static ConnectionTokenGetter inTurn(final List<?> tokens) {
        final Queue<Object> left = new ArrayDeque<>(tokens);
        return new ConnectionTokenGetter() {
            @Override
            public void getConnectionToken(final ConnectionTokenEvent event, final TokenCallback callback) {
                Lines.write(Map.of("on", "token"));
                callback.Done(null, (String) (left.size() > 1 ? left.remove() : left.peek()));
            }
        };
    }

    private static Subscription subscribe(final Client client, final Map<String, Object> wanted) throws Exception {
        final SubscriptionOptions options = new SubscriptionOptions();
        options.setMinResubscribeDelay(RECONNECT_DELAY_MIN_MS);
        options.setMaxResubscribeDelay(RECONNECT_DELAY_MAX_MS);
        options.setJoinLeave(Boolean.TRUE.equals(wanted.get("join_leave")));
        if (wanted.get("channel_token") != null) {
            options.setToken((String) wanted.get("channel_token"));
        }
        final String channel = (String) wanted.get("channel");
        final Subscription subscription = client.newSubscription(channel, options, subscriptionListener());
        subscription.subscribe();
        return subscription;
    }

    private static void obey(final Client client, final Subscription subscription, final Map<String, Object> line) {
        final Object seq = line.get("seq");
        if (line.get("do") != null) {
            perform(subscription, line);
            return;
        }
        if (line.get("method") == null) {
            client.disconnect();
            Lines.write(Map.of("seq", seq));
            return;
        }
        client.rpc((String) line.get("method"), bytes(line.get("data")),
                (error, result) -> Lines.write(answer(seq, error, result)));
    }

    private static void perform(final Subscription subscription, final Map<String, Object> line) {
        final Object seq = line.get("seq");
        switch ((String) line.get("do")) {
            case "publish" -> subscription.publish(bytes(line.get("data")),
                    (error, result) -> Lines.write(told(seq, error, result, done -> Map.of())));
            case "history" -> {
                final int limit = ((Number) line.get("limit")).intValue();
                final boolean reverse = Boolean.TRUE.equals(line.get("reverse"));
                subscription.history(new HistoryOptions.Builder().withLimit(limit).withReverse(reverse).build(),
                        (error, result) -> Lines.write(told(seq, error, result, Centrifuge::history)));
            }
            case "presence" -> subscription.presence((error, result) -> Lines.write(told(seq, error, result,
                    found -> Map.of("users", found.getClients().values().stream().map(ClientInfo::getUser).toList()))));
            case "presence_stats" -> subscription.presenceStats((error, result) -> Lines.write(told(seq, error, result,
                    found -> Map.of("clients", found.getNumClients(), "users", found.getNumUsers()))));
            default -> throw new IllegalArgumentException("unknown: " + line);
        }
    }

    private static Map<String, Object> history(final HistoryResult found) {
        final List<Map<String, Object>> publications = found.getPublications().stream()
                .map(kept -> Map.<String, Object>of("offset", kept.getOffset(), "data", object(kept.getData())))
                .toList();
        return Map.of("publications", publications, "offset", found.getOffset());
    }

    private static <T> Map<String, Object> told(
            final Object seq, final Throwable error, final T result, final Function<T, Map<String, ?>> read) {
        if (error == null) {
            return Map.of("seq", seq, "result", read.apply(result));
        }
        return Map.of("seq", seq, "error", error instanceof ReplyError reply ? reply.getCode() : error.toString());
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

            @Override
            public void onSubscribed(final Client client, final ServerSubscribedEvent event) {
                Lines.write(Map.of("on", "server_subscribed", "channel", event.getChannel(),
                        "recovered", event.getRecovered()));
            }

            @Override
            public void onUnsubscribed(final Client client, final ServerUnsubscribedEvent event) {
                Lines.write(Map.of("on", "server_unsubscribed", "channel", event.getChannel()));
            }

            @Override
            public void onPublication(final Client client, final ServerPublicationEvent event) {
                Lines.write(Map.of("on", "server_publication", "channel", event.getChannel(),
                        "offset", event.getOffset(), "data", object(event.getData())));
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
            public void onUnsubscribed(final Subscription subscription, final UnsubscribedEvent event) {
                Lines.write(Map.of("on", "unsubscribed", "code", event.getCode()));
            }

            @Override
            public void onJoin(final Subscription subscription, final JoinEvent event) {
                Lines.write(Map.of("on", "join", "user", event.getInfo().getUser()));
            }

            @Override
            public void onLeave(final Subscription subscription, final LeaveEvent event) {
                Lines.write(Map.of("on", "leave", "user", event.getInfo().getUser()));
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
