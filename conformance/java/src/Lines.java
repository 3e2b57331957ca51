import com.eatthepath.json.JsonParser;
import com.eatthepath.json.JsonSerializer;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.text.ParseException;
import java.util.Map;

/** How our programs speak with the test that started them: a JSON object per line, both ways. */
final class Lines {
    private static final BufferedReader INPUT =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private Lines() {}

    /** The next line, or null when the test is through. */
    static Map<String, Object> read() throws IOException, ParseException {
        final String line = INPUT.readLine();
        return line == null ? null : new JsonParser().parseJsonObject(line);
    }

    static void write(final Map<String, ?> object) {
        final byte[] line = (JsonSerializer.writeJsonTextAsString(object) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (System.out) {
            System.out.writeBytes(line);
            System.out.flush();
        }
    }
}
