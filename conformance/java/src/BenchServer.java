import com.eatthepath.pushy.apns.server.BenchmarkApnsServer;
import com.eatthepath.pushy.apns.server.BenchmarkApnsServerBuilder;
import io.netty.channel.nio.NioEventLoopGroup;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.Map;

/**
 * Pushy's BenchmarkApnsServer, which accepts everything without a look: a provider for `tidings bench push`.
 *
 * <p>Arguments: stream limit, threads, a folder that is its own. There it puts its certificate, `ca.pem`, for clients to
 * trust. It says {@code {"port"}} and ends when its input does. Each line of input is answered with the processor time it
 * has used, {@code {"cpu_seconds"}}.
 */
final class BenchServer {
    private static final String PASSWORD = "changeit";

    private BenchServer() {}

    public static void main(final String[] args) throws Exception {
        final Path folder = Path.of(args[2]);
        final KeyStore store = makeIdentity(folder.resolve("server.p12"));
        final X509Certificate certificate = (X509Certificate) store.getCertificate("server");
        Files.writeString(folder.resolve("ca.pem"), pem(certificate.getEncoded()));
        final PrivateKey key = (PrivateKey) store.getKey("server", PASSWORD.toCharArray());
        final BenchmarkApnsServer server = new BenchmarkApnsServerBuilder()
                .setServerCredentials(new X509Certificate[] {certificate}, key, null)
                .setMaxConcurrentStreams(Integer.parseInt(args[0]))
                .setEventLoopGroup(new NioEventLoopGroup(Integer.parseInt(args[1])))
                .setUseAlpn(true)
                .build();
        Lines.write(Map.of("port", Loopback.listen(server)));
        while (Lines.read() != null) {
            Lines.write(Map.of("cpu_seconds", Processor.seconds()));
        }
        System.exit(0);
    }

    /** A self-signed certificate for localhost; Java makes such with a program of its own only. */
    private static KeyStore makeIdentity(final Path file)
            throws IOException, InterruptedException, GeneralSecurityException {
        final Path keytool = Path.of(System.getProperty("java.home"), "bin", "keytool");
        final Process process = new ProcessBuilder(keytool.toString(), "-genkeypair", "-alias", "server",
                        "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2", "-dname", "CN=localhost",
                        "-ext", "san=dns:localhost,ip:127.0.0.1", "-storetype", "PKCS12", "-storepass", PASSWORD,
                        "-keystore", file.toString())
                .redirectErrorStream(true)
                .start();
        final String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (process.waitFor() != 0) {
            throw new IOException("keytool: " + said);
        }
        final KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream input = Files.newInputStream(file)) {
            store.load(input, PASSWORD.toCharArray());
        }
        return store;
    }

    private static String pem(final byte[] certificate) {
        final String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(certificate);
        return "-----BEGIN CERTIFICATE-----\n" + text + "\n-----END CERTIFICATE-----\n";
    }
}
