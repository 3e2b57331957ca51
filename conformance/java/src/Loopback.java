import io.netty.bootstrap.ServerBootstrap;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;

/** Pushy's servers on a free port of loopback; their `start` would listen on all addresses of the machine. */
final class Loopback {
    private Loopback() {}

    static int listen(final Object server) throws ReflectiveOperationException {
        final Field bootstrap = server.getClass().getSuperclass().getDeclaredField("bootstrap");
        bootstrap.setAccessible(true);
        final var loopback = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        final var channel = ((ServerBootstrap) bootstrap.get(server)).bind(loopback).syncUninterruptibly().channel();
        return ((InetSocketAddress) channel.localAddress()).getPort();
    }
}
